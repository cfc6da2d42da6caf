"""Commands that are printed can be pasted into a shell where they were printed; output folders that are refused.

Every command is read as a shell would and by the command's own parser; nothing of it is executed.
"""

import importlib
import re
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from addnorm.cli import main
from addnorm.cli.run import Options, _same_command
from addnorm.data import prepare
from addnorm.errors import InputError
from addnorm.reporting.reader import Reader
from addnorm.reporting.reading.checkpoints import inspect_command, study_command
from addnorm.store import StudyFolder
from addnorm.store.extension import plugins_of
from addnorm.study.loading import load_study
from addnorm.supervision.run import out_folder
from addnorm.words import command_line, plugin_options
from train_here import workers_here

STUDY = """name: s
seeds: [0]
corpus: {kind: synthetic, num_documents: 20}
tokenizer: bytes
training: {steps: 2, batch: 1, seq: 8, eval_sequences: 1}
model: {preset: base, width: 8, depth: 1, heads: 1, kv_heads: 1, hidden: 8, max_seq: 8}
variants: {a: {}}
"""
NAMES = [
    "out",
    "out dir",
    "it's",
    'a "b"',
    "$HOME",
    "数据 é",
    "-out",
    "a;b&c|d",
    "`x`",
    "*?[a]",
    "#1",
    "~",
    "a\\b",
    "!x",
]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def parsed(line: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the command's function would be called with."""
    program, name, *words = shlex.split(line)
    assert program == "addnorm"
    calls: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(
            importlib.import_module(f"addnorm.cli.{name}"), "command", lambda options: calls.append(options) or 0
        )
        assert main([name, *words]) == 0, line
    return calls[0]


def commands_in(text: str) -> list[str]:
    return re.findall(r"(?:^|[ `])(addnorm [a-z]+ .*)$", text, flags=re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_words_come_back_as_they_were(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    same = Path(f"./{name}")
    assert parsed(command_line("addnorm", "status", Path(name)), monkeypatch).dir == same
    line = command_line("addnorm", "explain", Path(name), *plugin_options([f"{name}.py", "b.py:make"]))
    assert parsed(line, monkeypatch).plugin == (f"{name}.py", "b.py:make")
    options = Options(
        study=f"{name}.yaml", out=Path(name), set=(f"about={name}",), profile=name, on_end=f"echo {name}", watch=True
    )
    again = parsed(_same_command(Path(name), options), monkeypatch)
    assert Path(again.study) == Path(f"./{name}.yaml")
    assert (again.out, again.set, again.profile, again.on_end, again.watch) == (
        same,
        options.set,
        name,
        options.on_end,
        True,
    )


@pytest.mark.parametrize("name", ["out dir", "-数据 $1's"])
def test_all_that_run_rank_and_new_print(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, study = Path(f"./{name}"), Path(f"./{name}.yaml")
    assert main(["new", "--blank", "--to", f"./{name}.yaml"]) == 0
    new = commands_in(capsys.readouterr().out)
    assert len(new) == 2
    assert [Path(parsed(line, monkeypatch).study) for line in new] == [study, study]
    study.write_text(STUDY)
    arguments = ["run", f"./{name}.yaml", "--out", f"./{name}"]
    with workers_here():
        assert main(arguments) == 0
    lines = commands_in(capsys.readouterr().out)
    assert {shlex.split(line)[1] for line in lines} == {"rank", "watch", "report"}
    main(["rank", f"./{name}"])
    lines += commands_in(capsys.readouterr().out)
    StudyFolder(folder).runs()[0].mark("failed", reason="out of memory", step=0)
    (StudyFolder(folder).runs()[0].path / "DONE").unlink()
    with workers_here():
        assert main(arguments) == 1
    lines += commands_in(capsys.readouterr().out)
    assert {shlex.split(line)[1] for line in lines} == {"rank", "watch", "report", "status", "explain", "export", "run"}
    for line in lines:
        options = parsed(line, monkeypatch)
        named = getattr(options, "dir", None) or getattr(options, "target", None) or getattr(options, "run", options)
        where = Path(getattr(options, "out", None) or named) if shlex.split(line)[1] == "run" else Path(str(named))
        assert folder in (where, where.parent), line
    assert any(parsed(line, monkeypatch).retry for line in lines if " run " in line)


@pytest.mark.parametrize("name", ["a b", "it's", "-x"])
def test_commands_on_pages_name_the_user_s_code(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {"runs": [{"spec": {"plugins": ["/my code/é.py"]}}, {"spec": {"plugins": ["/my code/é.py", "b.py:f"]}}]}
    assert plugins_of(plan) == ("/my code/é.py", "b.py:f")
    snapshot: Any = SimpleNamespace(path=Path(name), plan=plan, variants=("a",), measured_in=lambda model: ())
    for line in (study_command("audit", snapshot), study_command("explain", snapshot), inspect_command(snapshot, "a")):
        options = parsed(line, monkeypatch)
        assert options.plugin == ("/my code/é.py", "b.py:f")
        target = options.targets if hasattr(options, "targets") else options.target
        assert Path(target[0] if isinstance(target, tuple) else str(target)) == Path(f"./{name}")


def test_a_wrong_input_is_not_advised_to_be_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    Path("s.yaml").write_text(STUDY)
    with workers_here():
        assert main(["run", "s.yaml", "--out", "o"]) == 0
    run = StudyFolder("o").runs()[0]
    (run.path / "DONE").unlink()
    for cause, is_advised in (("not finite", False), ("wrong input", False), (None, True)):
        run.retry()
        run.mark("failed", reason="a reason", step=0, **({} if cause is None else {"cause": cause}))
        capsys.readouterr()
        with workers_here():
            assert main(["run", "s.yaml", "--out", "o"]) == 1
        assert ("--retry" in capsys.readouterr().out) == is_advised


def test_a_worker_records_that_its_input_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    from addnorm.store import write_json
    from train_here import work_here

    Path("s.yaml").write_text(STUDY)
    with workers_here():
        assert main(["run", "s.yaml", "--out", "o"]) == 0
    run = StudyFolder("o").runs()[0]
    shutil.rmtree(run.path)
    run.path.mkdir()
    spec = {**run.spec, "spec": {**run.spec["spec"], "seed": 5}}
    write_json(run.path / "spec.json", spec)
    work_here(run.path)
    assert (run.ending() or {})["cause"] == "wrong input"


@pytest.mark.parametrize("words", [("--out", ""), ("--out=",), ("--profile", ""), ("",)])
def test_an_empty_value_is_refused(words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("s.yaml").write_text(STUDY)
    assert main(["run", "s.yaml", *words]) == 2
    assert "got an empty one" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]


def test_an_empty_name_is_refused_in_python() -> None:
    Path("s.yaml").write_text(STUDY)
    with pytest.raises(InputError, match="got an empty name"):
        out_folder(load_study("s.yaml"), "")


OTHERS = [
    "notes.txt",
    "data/dataset.json",
    "data/train.tokens",
    "checkpoints/step-1.pt",
    "report/index.html",
    "supervisor.lock",
]


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("out", ["o", "."])
def test_a_folder_with_files_of_others_is_refused(
    name: str, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.yaml").write_text(STUDY)
    (tmp_path / "o").mkdir()
    monkeypatch.chdir(tmp_path / "o" if out == "." else tmp_path)
    file = tmp_path / "o" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("mine")
    assert main(["run", str(tmp_path / "s.yaml"), "--out", out]) == 2
    error = capsys.readouterr().err
    assert "expected an empty folder or one with a study.json" in error
    assert name.split("/")[0] in error
    assert [path for path in (tmp_path / "o").rglob("*") if path.is_file()] == [file]
    assert file.read_text() == "mine"


@pytest.mark.parametrize("names", [(), (".gitkeep",), (".ipynb_checkpoints/x", ".DS_Store"), ("lost+found/",)])
def test_a_folder_without_anybody_s_files_is_taken(names: tuple[str, ...]) -> None:
    Path("s.yaml").write_text(STUDY)
    for name in names:
        path = Path("o", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if name.endswith("/") else path.touch()
    assert out_folder(load_study("s.yaml"), "o") == Path("o")


def test_an_interrupted_start_is_continued() -> None:
    Path("s.yaml").write_text(STUDY)
    study = load_study("s.yaml")
    prepare(study.corpus, study.tokenizer, Path("o/data"))  # killed before study.json
    Path("o/supervisor.lock").touch()
    assert out_folder(study, "o") == Path("o")
    with workers_here():
        assert main(["run", "s.yaml", "--out", "o"]) == 0
    assert Reader(Path("o")).look().runs[0].state == "finished"


def test_a_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("s.yaml").write_text(STUDY)
    Path("o").write_text("mine")
    assert main(["run", "s.yaml", "--out", "o"]) == 2
    assert "expected a folder, got a file" in capsys.readouterr().err
    assert Path("o").read_text() == "mine"
