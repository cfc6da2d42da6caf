"""Plug-ins that a study's folder remembers: loaded unasked where this user has trained with them, and nowhere else."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from addnorm.catalogue import ROOMS, remove_plugin
from addnorm.cli import main
from addnorm.store.remembered import STATE, remember, remembered, to_give, to_load
from train_here import workers_here

STUDY = """
name: own
plugins: [momentum.py]
model: {preset: base, width: 16, depth: 2, heads: 2, kv_heads: 2, hidden: 16, max_seq: 16}
corpus: {kind: stdlib, max_bytes: 100_000}
tokenizer: bytes
training: {steps: 2, batch: 1, seq: 16, eval_sequences: 4}
seeds: [0]
variants:
  base: {}
  own: {residual: momentum}
"""


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a small study with a mechanism of one's own, as `addnorm run` leaves it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(STATE, str(tmp_path / "state"))
    assert main(["new", "--mechanism", "residual", "momentum.py"]) == 0
    Path("own.yaml").write_text(STUDY, encoding="utf-8")
    with workers_here():
        assert main(["run", "own.yaml", "--out", "runs"]) == 0
    remove_plugin("momentum")  # as in a new process
    yield tmp_path / "runs"
    remove_plugin("momentum")


@pytest.mark.usefixtures("blank_pictures")
def test_commands_work_without_being_given_it(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = next(path.name for path in trained.iterdir() if path.name.startswith("own-s0"))
    for command in (["explain", "runs"], ["inspect", "runs"], ["generate", f"runs/{run}", "--prompt", "def f("]):
        remove_plugin("momentum")
        assert main(command) == 0, capsys.readouterr().err
    capsys.readouterr()
    remove_plugin("momentum")
    assert main(["rank", "runs"]) == 0
    assert "--plugin" not in capsys.readouterr().out
    assert main(["report", "runs", "--out", "r/own.html"]) == 0
    assert "momentum" not in ROOMS["residual"].kinds(), "neither a ranking nor a report runs a plug-in"
    page = Path("r/own.html").read_text(encoding="utf-8")
    (entry,) = remembered(trained).values()
    assert entry.sha256 in page
    assert "class MomentumResidual(Residual)" in page
    assert "alpha_l * f_l" in page.replace("<mi>", "").replace("</mi>", "") or entry.doc.formula.split()[0] in page

    # Changed: one message with what to do, and what it says works.
    generate = ["generate", f"runs/{run}", "--prompt", "def f("]
    Path("momentum.py").write_text("x = 1\n", encoding="utf-8")
    assert main(generate) == 2
    error = capsys.readouterr().err
    assert "momentum.py: its content has changed since runs was planned" in error
    copy = f"runs/plugins/{entry.sha256[:12]}/momentum.py"
    assert f"--plugin {copy}" in error
    assert error.count("\n") == 1
    assert main([*generate, "--plugin", copy]) == 0

    # Gone: the copy is what the runs were trained with.
    remove_plugin("momentum")
    Path("momentum.py").unlink()
    assert main(generate) == 0


def test_a_folder_from_somebody_else_runs_no_code(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(STATE, str(trained.parent / "another"))
    run = next(path.name for path in trained.iterdir() if path.name.startswith("own-s0"))
    capsys.readouterr()
    assert main(["generate", f"runs/{run}", "--prompt", "def f("]) == 2
    assert "They are code, so they are not loaded unasked" in capsys.readouterr().err
    assert "momentum" not in ROOMS["residual"].kinds()
    path = str(trained.parent / "momentum.py")
    assert to_give(trained, [path]) == [path]
    # A copy that was exchanged has another hash than the one that this user trusts.
    monkeypatch.setenv(STATE, str(trained.parent / "state"))
    remembered(trained)[path].copy.write_text("raise SystemExit", encoding="utf-8")
    Path("momentum.py").unlink()
    assert to_load(trained, path) is None
    assert remembered(trained)[path].source == ""


def test_what_is_remembered_stays_and_a_damaged_record_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STATE, str(tmp_path / "state"))
    file = tmp_path / "mine.py"
    file.write_text('"""Mine: a thing.\n\n    y = x\n"""\n', encoding="utf-8")
    out = tmp_path / "runs"
    remember(out, [str(file), f"{file}:model"])
    before = remembered(out)
    assert [each.doc.formula for each in before.values()] == ["    y = x"] * 2
    assert to_load(out, f"{file}:model") == f"{file}:model"
    file.write_text("changed", encoding="utf-8")
    remember(out, [str(file)])
    assert remembered(out) == before
    moved = tmp_path / "elsewhere"
    shutil.move(out, moved)
    file.unlink()
    assert to_load(moved, f"{file}:model") == f"{remembered(moved)[str(file)].copy}:model"
    assert remembered(moved)[str(file)].copy.name == "mine.py", "a mechanism's kind is the stem of its file"
    (moved / "plugins" / "plugins.json").write_text("{", encoding="utf-8")
    assert remembered(moved) == {}
    assert to_give(moved, [str(file)]) == [str(file)]


def test_two_files_of_one_name_are_both_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STATE, str(tmp_path / "state"))
    paths = []
    for folder in "ab":
        file = tmp_path / folder / "model.py"
        file.parent.mkdir()
        file.write_text(f"# {folder}\n", encoding="utf-8")
        paths.append(f"{file}:build")
    out = tmp_path / "runs"
    remember(out, paths)
    assert [remembered(out)[path].source for path in paths] == ["# a\n", "# b\n"]
    for folder in "ab":
        shutil.rmtree(tmp_path / folder)
    assert len({to_load(out, path) for path in paths} - {None}) == 2


@pytest.mark.parametrize("copy", ["mine.py", "../../mine.py", "/etc/../mine.py", "../mine.py"])
def test_a_copy_lies_in_the_folder_whatever_the_record_says(copy: str, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    (out / "plugins").mkdir(parents=True)
    entry = {"path": "/x/mine.py", "sha256": "0", "kind": "mine", "docstring": "", "copy": copy}
    (out / "plugins" / "plugins.json").write_text(json.dumps({"plugins": [entry]}), encoding="utf-8")
    assert (out / "plugins") in remembered(out)["/x/mine.py"].copy.resolve().parents
