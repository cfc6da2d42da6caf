"""What a user gets wrong: one message that says where and what to do, an exit code, and nothing that was there lost."""

import errno
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import addnorm
import made_study
from addnorm.catalogue import remove_plugin
from addnorm.cli import main
from addnorm.errors import AddnormError, InputError
from addnorm.store import StudyFolder

STUDY = """name: tiny
seeds: [0]
corpus: {kind: synthetic, num_documents: 20}
tokenizer: bytes
training: {steps: 2, batch: 2, seq: 16, eval_sequences: 4}
model: {preset: base, width: 16, depth: 2, heads: 2, kv_heads: 1, hidden: 16, max_seq: 16}
variants:
  base: {}
"""

MECHANISM = """
from dataclasses import dataclass

import torch

from addnorm.residual import Residual, ResidualSpec


@dataclass(frozen=True, kw_only=True)
class Odd(ResidualSpec):
    @classmethod
    def reduces_to(cls):
        return ()

    def build(self, shape, parts):
        return OddResidual()


class OddResidual(Residual):
    def write(self, state, y, site):
        return {write}
"""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that must be refused; returns its one message."""

    def run(*arguments: str, code: int = 2) -> str:
        found = main([*arguments])
        out, err = capsys.readouterr()
        assert found == code, err
        assert err.startswith("addnorm: ")
        assert err.count("addnorm: ") == 1
        assert "Traceback" not in err + out
        return err

    return run


def write(name: str, content: str) -> str:
    Path(name).write_text(content, encoding="utf-8")
    return name


def changed(old: str, new: str) -> str:
    assert STUDY.count(old) == 1
    return write("s.yaml", STUDY.replace(old, new))


def saying(expected: str, message: str) -> None:
    assert expected in message, message


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("batch: 2", "batchs: 2", "s.yaml: $.training: Training has no field 'batchs', did you mean 'batch'?"),
        ("width: 16", "width: 14", "study 'tiny': $.variants.base: rope rotates pairs: head width 7"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_wrong_study_file(command: str, old: str, new: str, expected: str, refused: Callable[..., str]) -> None:
    """Which files are wrong, and why, is the table of tests/study/test_study_files.py: loading and fitting know no command."""
    saying(f"addnorm: {expected}", refused(command, changed(old, new)))
    assert os.listdir() == ["s.yaml"], "what is refused must leave nothing behind"


def test_a_folder_is_no_study_file(refused: Callable[..., str]) -> None:
    Path("s.yaml").mkdir()
    saying("study file s.yaml: expected a file, got a folder", refused("plan", "s.yaml"))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--set", "variants.bas.residual=scale"], "no variant 'bas', did you mean 'base'?"),
        (["--workers", "0"], "workers: expected a whole number of at least 1, got 0"),
        (["--workers", "-1"], "workers: expected a whole number of at least 1, got -1"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_wrong_option(command: str, options: list[str], expected: str, refused: Callable[..., str]) -> None:
    saying(expected, refused(command, write("s.yaml", STUDY), *options))
    assert os.listdir() == ["s.yaml"], "what is refused must leave nothing behind"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--wrokers", "2"], "no option '--wrokers'. Did you mean '--workers'?"),
        (["--workers", "two"], "--workers: expected a whole number, got 'two'."),
        (["--workers"], "--workers: expected a value, got none."),
        (["--profile", "--json"], "--profile: expected a value, got none."),
        (["-w", "2"], "no option '-w'."),
        (["more"], "expected STUDY, got 2 words without an option."),
    ],
)
def test_an_option_that_cannot_be_read(arguments: list[str], expected: str, refused: Callable[..., str]) -> None:
    assert refused("plan", write("s.yaml", STUDY), *arguments).startswith(f"addnorm: {expected}")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["rank"], "应为DIR，但没有给出。见"),
        (["generate", "run", "--temperature", "hot"], "--temperature: 应为数，实为 'hot'。"),
        (["run", "demo", "--until", "later"], "--until: 没有名为 'later' 的值。已知：confirmed, decided。"),
        (["run", "demo", "--sed", "3"], "没有名为 '--sed' 的选项。"),
    ],
)
def test_a_wrong_option_is_told_in_chinese(arguments: list[str], expected: str, refused: Callable[..., str]) -> None:
    assert refused(*arguments, "--lang", "zh").startswith(f"addnorm: {expected}")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "c.txt: expected text, got an empty file"),
        (b" \n\n ", "c.txt: expected text, got an empty file"),
        (b"abc \xe9 def\n" * 50, "c.txt: expected UTF-8, got byte 0xe9 at offset 4"),
        (b"a" * 3000, "c.txt: expected the end of a line"),
        (
            b"word\n" * 30,
            "corpus 'text': expected at least 16 + 1 held-out tokens, one sequence and its last target, got",
        ),
        (None, "c.txt: no such file or folder"),
    ],
)
def test_a_corpus_that_cannot_be_used(content: bytes | None, expected: str, refused: Callable[..., str]) -> None:
    if content is not None:
        Path("c.txt").write_bytes(content)
    study = changed("{kind: synthetic, num_documents: 20}", "{kind: text, path: c.txt}")
    saying(expected, refused("run", study, "--out", "out"))
    assert not Path("out", "study.json").exists()


@pytest.mark.parametrize("out", ["s.yaml", "s.yaml/below", "/dev/null/below"])
def test_a_file_in_the_way_of_the_runs(out: str, refused: Callable[..., str]) -> None:
    message = refused("run", write("s.yaml", STUDY), "--out", out)
    saying(f"{out}: expected a folder, got a file. Choose another folder with --out.", message)
    assert Path("s.yaml").read_text(encoding="utf-8") == STUDY


@pytest.mark.parametrize(
    ("number", "expected"), [(errno.EROFS, "not allowed to write out"), (errno.ENOSPC, "no room left to write out")]
)
def test_a_disk_that_refuses(
    number: int, expected: str, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    write("s.yaml", STUDY)
    monkeypatch.setattr(os, "fsync", refuse)
    message = refused("run", "s.yaml", "--out", "out", code=1)
    saying(expected, message)
    assert not Path("out", "data").exists(), "half a data set must not look like one"
    monkeypatch.undo()
    monkeypatch.chdir(Path("s.yaml").resolve().parent)


def test_a_full_disk_loses_nothing_already_written(finished: Path, tmp_path: Path, tiny_study_text: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    run = next(path for path in copy.iterdir() if path.name.startswith("base-s0"))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    target = tmp_path / "exported"

    def small_disk() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    def export(limit: Callable[[], None] | None) -> "subprocess.CompletedProcess[str]":
        # -B: this Python keeps a module's bytecode that it could write in part only, and fails to read it later.
        command = [sys.executable, "-B", "-m", "addnorm", "export", str(run), "--to", str(target)]
        return subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=False)

    found = export(small_disk)
    assert found.returncode == 1, found.stderr
    saying("no room left to write", found.stderr)
    saying("Nothing already written is lost", found.stderr)
    assert "Traceback" not in found.stderr
    assert not (target / "model.safetensors").exists()
    assert {path: path.read_bytes() for path in before} == before


def damaged(finished: Path, file: str, change: Callable[[Any], Any] | bytes) -> Path:
    """A copy of the finished study in which one file holds something else; `RUN` stands for its first run."""
    copy = Path("copy")
    shutil.copytree(finished, copy)
    run = json.loads((copy / "study.json").read_bytes())["runs"][0]["run"]
    path = copy / file.replace("RUN", run)
    path.write_bytes(
        change if isinstance(change, bytes) else json.dumps(change(json.loads(path.read_bytes()))).encode()
    )
    return copy


@pytest.mark.parametrize("command", ["status", "rank", "reindex"])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (b'{"format": 1,', "expected JSON"),
        (b"\xff\xfe", "expected JSON"),
        (b"[]", "expected a plan with a plan_hash"),
        (lambda plan: {"format": 1, "plan_hash": "x"}, "plan.study: expected a value of type str"),
        (lambda plan: plan | {"runs": 3}, "plan.runs: expected a value of type list, got 3"),
        (lambda plan: plan | {"runs": [1]}, "plan.runs[0]: expected a dict, got 1"),
        (lambda plan: plan | {"runs": [{}]}, "plan.runs[0].run: expected a value of type str"),
    ],
)
def test_a_damaged_plan(command: str, change: Any, expected: str, finished: Path, refused: Callable[..., str]) -> None:
    message = refused(command, str(damaged(finished, "study.json", change)), code=1)
    saying("copy/study.json is damaged", message)
    saying(expected, message)
    saying("Restore it from a copy", message)


@pytest.mark.parametrize("command", ["status", "rank", "reindex"])
def test_a_folder_of_a_newer_version(command: str, finished: Path, refused: Callable[..., str]) -> None:
    copy = damaged(finished, "study.json", lambda plan: plan | {"format": 2, "addnorm_version": "9.0"})
    saying(
        "copy: expected folder format 1, got folder format 2, made by a newer addnorm (9.0)",
        refused(command, str(copy)),
    )


def test_a_plan_without_what_the_ranking_needs(finished: Path, refused: Callable[..., str]) -> None:
    copy = damaged(finished, "study.json", lambda plan: {k: v for k, v in plan.items() if k != "margin"})
    saying("study.json is damaged: it has no 'margin'", refused("rank", str(copy), code=1))


def test_a_run_with_damaged_events_does_not_hide_the_others(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = damaged(finished, "RUN/events.jsonl", b'{"a"\n{}\n{"x":1}\n')
    assert main(["rank", str(copy), "--json"]) == 0
    ranking = json.loads(capsys.readouterr().out)
    assert {row["variant"]: row["seeds"] for row in ranking["variants"]} == {"base": 2, "v4m5": 3}
    assert "events.jsonl is damaged" in json.dumps(ranking)


def test_a_damaged_data_set_is_made_anew(
    finished: Path, tiny_study_text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = damaged(finished, "data/dataset.json", b'{"a"')
    assert main(["run", write("t.yaml", tiny_study_text), "--out", str(copy), "--json"]) == 0
    assert (copy / "data" / "dataset.json").read_bytes() == (finished / "data" / "dataset.json").read_bytes()
    assert {entry["attempts"] for entry in json.loads(capsys.readouterr().out)["runs"]} == {1}


@pytest.mark.parametrize(
    ("file", "change", "code", "expected"),
    [
        ("spec.json", b'{"a"', 1, "spec.json is damaged"),
        ("spec.json", b"[]", 1, "spec.json is damaged: it lacks run, variant, seed, steps"),
        ("spec.json", b"{}", 1, "spec.json is damaged: it lacks run, variant, seed, steps"),
        (
            "spec.json",
            lambda s: {k: v for k, v in s.items() if k != "spec"},
            1,
            "spec.json is damaged: expected a field 'spec'",
        ),
        (
            "spec.json",
            lambda s: s | {"spec": s["spec"] | {"seeed": 1}},
            2,
            "spec.json: $.spec: RunSpec has no field 'seeed'",
        ),
        ("final.safetensors", b"abc", 1, "final.safetensors is damaged"),
    ],
)
def test_export_of_a_damaged_run(
    file: str, change: Any, code: int, expected: str, finished: Path, refused: Callable[..., str]
) -> None:
    copy = damaged(finished, f"RUN/{file}", change)
    run = json.loads((copy / "study.json").read_bytes())["runs"][0]["run"]
    saying(expected, refused("export", str(copy / run), "--to", "to", code=code))
    assert not Path("to").exists()


def test_export_of_what_is_no_run(finished: Path, refused: Callable[..., str]) -> None:
    saying("nowhere: expected a run with spec.json, got none", refused("export", "nowhere"))
    saying("s.yaml: expected a run with spec.json", refused("export", write("s.yaml", STUDY)))
    message = refused("export", str(finished))
    saying("It contains runs; give one of them, such as", message)
    run = str(re.findall(r"such as (\S+)\.$", message, flags=re.M)[0])
    saying("s.yaml: expected an empty or a new folder", refused("export", run, "--to", "s.yaml"))
    assert Path("s.yaml").read_text(encoding="utf-8") == STUDY


@pytest.mark.parametrize("command", ["status", "reindex"])
def test_a_file_is_no_folder_of_runs(command: str, refused: Callable[..., str]) -> None:
    saying("s.yaml holds no study", refused(command, write("s.yaml", STUDY)))


def test_a_study_file_is_no_table_of_runs(refused: Callable[..., str]) -> None:
    message = refused("rank", write("s.yaml", STUDY))
    saying("s.yaml: expected a table of runs", message)
    saying("Give the folder of its runs.", message)


@pytest.mark.parametrize("place", ["s.yaml", "s.yaml/below", "/dev/null/below"])
def test_doctor_on_a_file(place: str, refused: Callable[..., str]) -> None:
    write("s.yaml", STUDY)
    saying("--dir: expected a folder or a path where one can be made", refused("doctor", "--dir", place))


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("odd", "import math\n\nx = 1 / 0\n", "odd.py, line 3: failed to import: ZeroDivisionError"),
        ("odd", "import math\n\ndef x(:\n", "odd.py: failed to import: SyntaxError: invalid syntax (odd.py, line 3)"),
        ("odd", "import sys\nsys.exit(3)\n", "odd.py, line 2: failed to import: SystemExit: 3"),
        ("odd", "x = 1\n", "odd.py: expected exactly one spec"),
        ("rezero", "x = 1\n", "'rezero' is already the name of a residual. Rename the file."),
        ("odd", MECHANISM.replace("{write}", "state + y.flip(1)"), "breaks the law 'is_causal'"),
        ("odd", MECHANISM.replace("{write}", "state + y * float('nan')"), "breaks the law 'keeps_shape_and_dtype'"),
        ("odd", MECHANISM.replace("{write}", "(state + y)[..., :3]"), "breaks the law 'runs'"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "list"])
def test_a_plugin_that_cannot_take_part(
    command: str, name: str, content: str, expected: str, refused: Callable[..., str]
) -> None:
    write(f"{name}.py", content)
    study = changed("seeds: [0]", f"plugins: [{name}.py]")
    try:
        arguments = ["plan", study] if command == "plan" else ["list", "residual", "--plugin", f"{name}.py"]
        saying(expected, refused(*arguments))
    finally:
        if name == "odd":
            remove_plugin("odd")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("def study():\n    return 1 / 0\n", "p.py, line 2: failed: ZeroDivisionError"),
        ("def study(:\n", "p.py: failed to import: SyntaxError"),
        ("raise SystemExit(3)\n", "p.py, line 1: failed to import: SystemExit: 3"),
        ("def study():\n    raise SystemExit(3)\n", "p.py, line 2: failed: SystemExit: 3"),
        ("def study():\n    return 3\n", "p.py: expected a function that returns a Study, got 3"),
    ],
)
def test_a_study_in_python_that_gives_none(content: str, expected: str, refused: Callable[..., str]) -> None:
    saying(expected, refused("plan", write("p.py", content)))


@pytest.fixture(scope="module")
def exported(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = next(path for path in finished.iterdir() if path.name.startswith("base-s0"))
    folder = tmp_path_factory.mktemp("exported") / "model"
    assert main(["export", str(run), "--to", str(folder)]) == 0
    return folder


@pytest.mark.parametrize(
    ("file", "change", "expected"),
    [
        ("model.safetensors", b"abc", "model.safetensors: expected weights of the model"),
        ("model.safetensors", None, "model.safetensors: expected weights of the model"),
        ("model.json", None, "ours: expected an exported model with model.json, got none"),
        ("model.json", b"{", "model.json is damaged"),
        ("model.json", b"[]", "model.json: expected a mapping with 'model', got []"),
        ("model.json", lambda c: c | {"format": 2}, "model.json: expected format 1, got 2"),
        ("model.json", lambda c: c | {"model": c["model"] | {"depth": 3}}, "expected weights of the model"),
        ("model.json", lambda c: c | {"model": c["model"] | {"scores": "summ"}}, "did you mean 'sum'?"),
    ],
)
def test_loading_what_is_no_whole_export(file: str, change: Any, expected: str, exported: Path) -> None:
    shutil.copytree(exported, "ours")
    path = Path("ours", file)
    if change is None:
        path.unlink()
    else:
        path.write_bytes(
            change if isinstance(change, bytes) else json.dumps(change(json.loads(path.read_bytes()))).encode()
        )
    with pytest.raises(AddnormError) as error:
        addnorm.load("ours")
    saying(expected, str(error.value))


@pytest.mark.parametrize("place", ["nowhere", "s.yaml", "/dev/null/below"])
def test_loading_no_export(place: str) -> None:
    write("s.yaml", STUDY)
    with pytest.raises(InputError, match="expected an exported model"):
        addnorm.load(place)


def losses_of(*variants: str) -> str:
    rows = [f"{name},{seed},{2 + place}.{seed}" for place, name in enumerate(variants) for seed in range(3)]
    return "\n".join(["variant,seed,loss", *rows, ""])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["run", "s.yaml", "--set", "replicate=[0, 5, 6]", "--out", "out"],
            "expected seeds that nothing has been seen of, got 0",
        ),
        (["trend", "one.csv", "--parameters", "1e6"], "a trend needs at least two sizes, got 1"),
        (
            ["trend", "one.csv", "one.csv", "--parameters", "1e6,1e6"],
            "expected two sizes, got 1,000,000 parameters in both",
        ),
        (["rank", "frozen", "--reference", "v2m1"], "expected the planned family, since a second batch of seeds tests"),
        (["rank", "frozen", "--exclude", "v4m5"], "expected the planned family, since a second batch of seeds tests"),
        (["rank", "frozen", "--margin", "0.1"], "expected the planned family, since a second batch of seeds tests"),
        (["scale-check", "mine.yaml"], "expected a model of addnorm, whose width and depth can be set"),
    ],
)
def test_a_question_that_the_instrument_cannot_answer(
    words: list[str], expected: str, refused: Callable[..., str]
) -> None:
    write("s.yaml", STUDY)
    write("one.csv", losses_of("base", "deep"))
    write("mine.yaml", "name: mine\nvariants: {mine: {python: mine.py:build}}\n")
    write("mine.py", "import torch\n\n\ndef build(vocab, max_seq):\n    return torch.nn.Embedding(vocab, vocab)\n")
    folder = StudyFolder.create(Path("frozen"), {**made_study.plan(), "replicate": [7, 8, 9]})
    for run in folder.runs():
        made_study.finish(run)
    before = {path: path.read_bytes() for path in sorted(Path().rglob("*")) if path.is_file()}
    saying(expected, refused(*words))
    for path, content in before.items():
        assert path.read_bytes() == content, path


@pytest.fixture
def _forget_odd():
    yield
    remove_plugin("odd")


@pytest.mark.usefixtures("_forget_odd")
@pytest.mark.thorough
def test_a_model_of_ones_own_mechanism_is_exported_with_its_file(
    capsys: pytest.CaptureFixture[str], refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("odd.py", MECHANISM.replace("{write}", "state + 0.5 * y"))
    study = changed("base: {}", "odd: {residual: odd}\nplugins: [odd.py]")
    assert main(["run", study, "--out", "out", "--json"]) == 0
    run = str(next(Path("out").glob("odd-*")))
    monkeypatch.setenv("ADDNORM_STATE", str(Path("another-user").absolute()))  # who has trained with no such file
    capsys.readouterr()
    remove_plugin("odd")
    for command in (["export", run, "--to", "model"], ["explain", "out"], ["explain", run], ["inspect", "out"]):
        saying("odd.py. They are code, so they are not loaded unasked: give the file with --plugin.", refused(*command))
    assert main(["export", run, "--to", "model", "--plugin", "odd.py"]) == 0
    saying("addnorm.load('model', plugins=['odd.py'])", capsys.readouterr().out)
    remove_plugin("odd")
    with pytest.raises(InputError, match=r"addnorm.load\(…, plugins="):
        addnorm.load("model")
    assert addnorm.load("model", plugins=["odd.py"]).spec.residual.kind == "odd"


def test_a_prompt_in_another_encoding_than_the_terminals(refused: Callable[..., str]) -> None:
    """As bytes that are no UTF-8 arrive in a UTF-8 locale: letters of a GBK terminal."""
    prompt = "中".encode("gbk").decode("utf-8", errors="surrogateescape")
    saying(
        "--prompt: expected text in the encoding of this terminal's locale",
        refused("generate", "run", "--prompt", prompt),
    )


def test_a_corpus_path_is_beside_the_study_file_or_in_the_working_folder(refused: Callable[..., str]) -> None:
    Path("sub").mkdir()
    text = "".join(f"line {n} of a text that is long enough\n" for n in range(200))
    study = STUDY.replace("{kind: synthetic, num_documents: 20}", "{kind: text, path: mine.txt}")
    Path("sub/s.yaml").write_text(study)
    Path("sub/mine.txt").write_text(text)
    assert addnorm.load_study("sub/s.yaml").corpus.path == str(Path("sub/mine.txt").resolve())
    Path("mine.txt").write_text("another text")
    message = refused("plan", "sub/s.yaml")
    saying("sub/s.yaml: $.corpus.path: expected one file, got ", message)
    assert str(Path("mine.txt").resolve()) in message
    assert str(Path("sub/mine.txt").resolve()) in message
    Path("mine.txt").unlink()
    Path("mine.txt").symlink_to("sub/mine.txt")
    assert addnorm.load_study("sub/s.yaml").corpus.path == "mine.txt"


def test_a_damaged_data_set_is_not_replaced_by_that_of_another_text(
    refused: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The tokens beside a lost tokenizer.json cannot be made again once the text has changed."""
    Path("mine.txt").write_text("".join(f"line {n} of a text that is long enough\n" for n in range(200)))
    write("s.yaml", STUDY.replace("{kind: synthetic, num_documents: 20}", "{kind: text, path: mine.txt}"))
    assert main(["run", "s.yaml", "--freeze", "--out", "out"]) == 0
    data = Path("out/data")
    kept = {path.name: path.read_bytes() for path in data.iterdir()}
    old = Path("mine.txt").read_text()
    Path("mine.txt").write_text(old.upper())
    (data / "tokenizer.json").unlink()
    capsys.readouterr()
    message = refused("run", "s.yaml", "--out", "out")
    saying("expected the data that the runs were planned on, got a damaged data set", message)
    saying("Bring back the old text, or tokenizer.json", message)
    assert {path.name: path.read_bytes() for path in data.iterdir()} == {
        k: v for k, v in kept.items() if k != "tokenizer.json"
    }
    Path("mine.txt").write_text(old)
    assert main(["run", "s.yaml", "--freeze", "--out", "out"]) == 0
    assert {path.name: path.read_bytes() for path in data.iterdir()} == kept


@pytest.mark.parametrize("option", ["--sarif", "--html"])
def test_a_report_of_an_audit_that_cannot_be_written(option: str, refused: Callable[..., str]) -> None:
    write("m.py", "import torch\n\n\ndef m():\n    return torch.nn.Linear(2, 2), torch.zeros(1, 2)\n")
    saying("could not write", refused("audit", "m.py:m", option, "/proc/self/report", code=1))
