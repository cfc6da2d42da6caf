"""Commands in Chinese: which language, aligned columns, messages; and that JSON does not change with it."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from wcwidth import wcswidth

import made_study
from addnorm.cli import commands, main
from addnorm.reporting.formats.text_table import aligned, filled
from train_here import workers_here

CHINESE = re.compile(r"[\u4e00-\u9fff]")
LOSSES = {"base": [2.50, 2.52, 2.51], "zero": [2.41, 2.44, 2.42]}


@pytest.fixture(autouse=True)
def _english_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*arguments: str | Path, code: int = 0) -> str:
        found = main([*map(str, arguments)])
        out, err = capsys.readouterr()
        assert found == code, err
        return out + err

    return run


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_study.finished(tmp_path_factory.mktemp("made") / "study").path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = [f"{name},{seed},{loss}" for name, losses in LOSSES.items() for seed, loss in enumerate(losses)]
    path = tmp_path / "results.csv"
    path.write_text("\n".join(["variant,seed,loss", *rows]), encoding="utf-8")
    return path


def test_the_option_stands_anywhere_and_wins_over_the_environment(
    table: Path, printed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    english = printed("rank", table)
    assert not CHINESE.search(english)
    chinese = printed("rank", table, "--lang", "zh")
    assert "越低越好" in chinese
    assert "vs base" not in chinese
    assert printed("--lang=zh", "rank", table) == printed("rank", "--lang", "zh", table) == chinese
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert printed("rank", table) == chinese
    assert printed("rank", table, "--lang", "en") == english
    monkeypatch.setenv("LC_ALL", "C")
    assert printed("rank", table) == english


def test_a_wrong_language_is_refused(table: Path, printed: Callable[..., str]) -> None:
    assert "no language 'fr'" in printed("rank", table, "--lang", "fr", code=2)
    assert "--lang: expected en or zh, got nothing." in printed("rank", table, "--lang", code=2)


@pytest.mark.parametrize("command", ["rank", "status"])
def test_json_is_the_same_in_both_languages(command: str, study: Path, printed: Callable[..., str]) -> None:
    english = json.loads(printed(command, study, "--json"))
    chinese = json.loads(printed(command, study, "--json", "--lang", "zh"))
    assert english == chinese


@pytest.mark.parametrize("command", ["rank", "status"])
def test_no_english_word_is_left(command: str, study: Path, printed: Callable[..., str]) -> None:
    text = printed(command, study, "--lang", "zh")
    assert CHINESE.search(text)
    names = {part for run in study.iterdir() for part in re.findall("[a-z]+", run.name)}
    known = {"addnorm", "rank", "status", "explain", "export", "json", "nat", "token", "loss", "made", *names}
    shown = text.replace(str(study), "")
    assert set(re.findall(r"\b[a-z]{3,}\b", shown)) <= known


STUDY = """
name: small
references: [base]
seeds: [0, 1, 2]
corpus: {kind: synthetic, num_documents: 20}
tokenizer: bytes
training: {steps: 3, batch: 2, seq: 16, eval_sequences: 2, schedule: {kind: constant}}
model: {preset: base, width: 16, depth: 2, heads: 2, kv_heads: 1, hidden: 16, max_seq: 32}
variants:
  base: {}
  zero: {residual: rezero}
  wild: {training: {optimizer: {learning_rate: 1.0e+30}}}
"""
ENGLISH = re.compile(r"\b[A-Za-z]*[a-z]{2,}(?: [a-z]{2,}){2,}")
"""Three words in a row. Fewer may be a name, such as `post-norm` or `held out`."""


def english_in(text: str) -> list[str]:
    """English sentences of an output, without what is a name in every language: commands, code, quotations, sources."""
    text = re.sub(
        r"`[^`]*`|\"[^\"]*\"|addnorm .*$|^ *(import|from|model|来源|\|).*$|https?://\S+", "", text, flags=re.M
    )
    return ENGLISH.findall(text)


@pytest.mark.thorough
@pytest.mark.usefixtures("blank_pictures")
def test_what_a_newcomer_sees_in_the_first_hour_is_chinese(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(STUDY, encoding="utf-8")
    with workers_here():
        shown = {"run": printed("run", "small.yaml", "--out", "runs", "--lang", "zh", code=1)}
    one = next(path for path in Path("runs").iterdir() if path.name.startswith("zero-s0"))
    for words in (
        "plan small.yaml", "status runs", "rank runs", "noise runs", "explain runs", "inspect runs", f"inspect {one}",
        "report runs --no-inspect", "list", "doctor", "new demo", f"export {one}",
        "new --mechanism residual mine.py", "reindex runs",
    ):  # fmt: skip
        shown[words] = printed(*words.split(), "--lang", "zh")
        assert CHINESE.search(shown[words]), words
    left = [f"{words}: {found}" for words, text in shown.items() for found in english_in(text)]
    assert not left, "\n".join(left)
    assert CHINESE.search(printed("list", "placement", "--lang", "zh").splitlines()[1]), "a mechanism in one sentence"
    # The same commands in English have such sentences, so that the pattern does find them.
    for words in ("explain runs", "inspect runs", "doctor"):
        assert english_in(printed(*words.split(), "--lang", "en")), words


def test_the_plan_says_that_a_second_batch_of_seeds_follows(tmp_path: Path, printed: Callable[..., str]) -> None:
    study, second = tmp_path / "s.yaml", tmp_path / "r.yaml"
    study.write_text(STUDY, encoding="utf-8")
    second.write_text(STUDY.replace("seeds: [0, 1, 2]", "seeds: [0, 1, 2]\nreplicate: [3, 4, 5]"), encoding="utf-8")
    found = " ".join(printed("plan", second).split())
    assert (
        "These are the 3 seeds of the first batch. What they find is asked again of 3 further seeds (3, 4, 5)" in found
    )
    assert "up to 9 further runs" in found
    assert "将在另外 3 个种子（3, 4, 5）上再检验一次" in "".join(printed("plan", second, "--lang", "zh").split("\n"))
    assert "first batch" not in printed("plan", study)


def test_every_command_has_a_chinese_summary(printed: Callable[..., str]) -> None:
    rows = [line for line in printed("--lang", "zh").splitlines() if re.match("  [a-z-]+ +", line)]
    shown = {line.split()[0]: line for line in rows}
    assert all(CHINESE.search(shown[name]) for name in commands())


def test_an_error_is_chinese_with_the_same_exit_code(tmp_path: Path, printed: Callable[..., str]) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("name: s\ntrainin: {steps: 3}\nvariants:\n  base: {}\n", encoding="utf-8")
    assert "$: Study 没有字段 'trainin'，是否指 'training'？已知：" in printed("plan", file, "--lang", "zh", code=2)
    assert "没有名为 'rnak' 的命令。是否指 'rank'？" in printed("rnak", "--lang", "zh", code=2)


def test_columns_with_chinese_letters_are_aligned() -> None:
    rows = [["变体", "损失", "级别"], ["base", "2.5", "参照"], ["零初始化", "2.41", "优于 base"], ["e\u0301", "3", "x"]]
    lines = aligned(rows, left={0, 2}).splitlines()
    starts = {wcswidth(line[: line.index(row[2])]) for line, row in zip(lines, rows, strict=True)}
    ends = {wcswidth(line[: line.index(row[1]) + len(row[1])]) for line, row in zip(lines, rows, strict=True)}
    assert (len(starts), len(ends)) == (1, 1)


@pytest.mark.parametrize("width", [20, 33, 60])
def test_chinese_lines_fit_and_break_where_they_may(width: int) -> None:
    text = (
        "没有判定：没有哪个比较有 3 个共有种子，因此所列次序没有依据（见“排名”）。有不止一次不同运行的变体：v4m7（2）。"
        * 2
    )
    lines = filled(text, width, subsequent_indent="  ").splitlines()
    assert max(map(wcswidth, lines)) <= width + 2  # a closing mark stays with its letter
    assert not any(line.strip()[0] in "，。：）”" for line in lines)
    assert not any(line.rstrip()[-1] in "（“" for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())
    english = "words of an English sentence are wrapped as they were"
    assert filled(english, 20) == "words of an English\nsentence are wrapped\nas they were"
