"""The other questions in Chinese and as LaTeX: nothing is left in English, nothing unescaped, and no number differs."""

import json
import math
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from addnorm.cli import main

CHINESE = re.compile(r"[\u4e00-\u9fff]")
NUMBER = re.compile(r"(?<![\w.])[+-]?\d+\.\d+")
KNOWN = set(
    re.findall(
        r"\w+",
        "addnorm rank base idea deep loss score val nat token json limit columns noise modded nanogpt parameter golf contest "
        "https github com openai kellerjordan blob main master readme mcnemar sqrt target mean margin rules submission process "
        "ledger jsonl",
    )
)
"""Names of this test's tables, options, and formulas."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("questions")
    rng = random.Random(3)

    def write(name: str, header: str, rows: list[tuple[object, ...]]) -> None:
        text = "\n".join([header, *(",".join(map(str, row)) for row in rows)])
        (folder / name).write_text(text + "\n", encoding="utf-8")

    write(
        "runs.csv",
        "variant,seed,loss",
        [(v, s, x + rng.gauss(0, 0.002)) for v, x in (("base", 3.285), ("idea", 3.27)) for s in range(4)],
    )
    law = [
        (v, s, c, 1.6 + 88.3 * (w * c) ** -0.094 + rng.gauss(0, 0.003))
        for v, w in (("base", 1), ("idea", 2))
        for c in (3.8e17, 2.8e18)
        for s in range(3)
    ]
    write("sizes.csv", "variant,seed,compute,loss", law)
    curves = [
        (v, s, step, 2 + f * math.exp(-step / 300) + rng.gauss(0, 0.003))
        for v, f in (("base", 1), ("idea", 0.8))
        for s in range(3)
        for step in (100, 200, 400)
    ]
    write("curves.csv", "variant,seed,step,loss", curves)
    write(
        "scores.csv",
        "variant,seed,item,score",
        [
            (v, s, i, int(rng.random() < p))
            for v, p in (("base", 0.4), ("deep", 0.8))
            for s in range(3)
            for i in range(60)
        ],
    )
    answers = [(v, i, int(rng.random() < p)) for v, p in (("base", 0.4), ("deep", 0.8)) for i in range(60)]
    write("answers.csv", "variant,item,score", answers)
    stream = [("base", s, rng.gauss(2.9, 0.01)) for s in range(12)] + [("idea", 0, 2.96), ("deep", 0, 2.87)]
    write("stream.csv", "variant,seed,loss", stream)
    return folder


QUESTIONS: dict[str, list[str]] = {
    "speedup": ["rank", "sizes.csv", "--as", "speedup"],
    "speedup with a law": ["rank", "sizes.csv", "--as", "speedup", "--limit", "1.6", "--exponent", "0.094"],
    "steps": ["rank", "curves.csv", "--as", "steps"],
    "downstream": ["rank", "scores.csv", "--as", "downstream", "--columns", "loss=score"],
    "downstream of checkpoints": ["rank", "answers.csv", "--as", "downstream", "--columns", "loss=score,seed="],
    "rule of a threshold": ["rank", "runs.csv", "--rule", "modded-nanogpt"],
    "rule against a reference": ["rank", "runs.csv", "--rule", "parameter-golf"],
    "posterior": ["rank", "runs.csv", "--posterior"],
    "noise": ["noise", "runs.csv", "--difference", "0.01", "--comparisons", "3"],
    "judge": ["judge", "ledger.jsonl", "--propose", "stream.csv"],
}


@pytest.fixture
def ask(tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(name: str, *more: str) -> str:
        words = [str(tables / word) if word.endswith(".csv") else word for word in QUESTIONS[name]]
        words = [str(tmp_path / word) if word.endswith(".jsonl") else word for word in words]
        assert main([*words, *more]) == 0, capsys.readouterr().err
        return capsys.readouterr().out.replace(str(tmp_path), "").replace(str(tables), "")

    return run


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_answer_has_a_chinese_form_with_the_same_numbers(name: str, ask: Callable[..., str]) -> None:
    english, chinese = ask(name), ask(name, "--lang", "zh")
    assert not CHINESE.search(english)
    assert CHINESE.search(chinese)
    assert sorted(NUMBER.findall(chinese)) == sorted(NUMBER.findall(english))
    left = {word.lower() for word in re.findall(r"[A-Za-z]{3,}", chinese)} - KNOWN
    assert left == set()


@pytest.mark.parametrize("name", [name for name in QUESTIONS if name not in ("noise", "judge")])
def test_every_answer_of_rank_has_a_latex_form(name: str, ask: Callable[..., str]) -> None:
    latex = ask(name, "--latex")
    assert latex == ask(name, "--latex", "--lang", "zh")
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") >= 1
    body = [line for line in latex.splitlines() if line and not line.startswith("%")]
    cells = [line for line in body if line.endswith(r"\\")]
    assert cells
    columns = iter(re.findall(r"\\begin\{tabular\}\{(\w+)\}", latex))
    width = 0
    for line in body:
        if line.startswith(r"\begin{tabular}"):
            width = len(next(columns))
        elif line.endswith(r"\\"):
            assert line.count(" & ") == width - 1
            outside = re.sub(r"\$[^$]*\$", "", line)
            assert not re.search(r"(?<!\\)[%_#^]|×|-\d", outside.replace(r"\textasciicircum{}", "")), line
    assert "× " not in "".join(cells)


def test_the_numbers_of_a_latex_table_are_those_of_the_text(ask: Callable[..., str]) -> None:
    answer = json.loads(ask("downstream", "--json"))["rows"][0]["comparison"]
    assert f"${answer['difference']:+.4f}$" in ask("downstream", "--latex")
    low, high = answer["interval"]
    assert f"$[{low:+.4f}, {high:+.4f}]$" in ask("downstream", "--latex")


def test_probabilities_have_no_csv(ask: Callable[..., str], tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rank", str(tables / "runs.csv"), "--posterior", "--csv"]) == 2
    assert "--posterior: expected no such option with --csv" in capsys.readouterr().err
