"""Every public name has an example; all examples in docstrings run as printed, beside a study of an earlier version."""

import doctest
import importlib
import re
import runpy
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import addnorm
from addnorm.catalogue import remove_plugin
from addnorm.testing import check
from train_here import workers_here

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
REFERENCE = runpy.run_path(str(ROOT / "docs" / "reference.py"))
PUBLIC = [(module, name) for module in REFERENCE["MODULES"] for name in importlib.import_module(module).__all__]
PLUGINS = ("damped", "my_residual", "my_scores")
WITH_PLUGIN_FILE = ("attended", "block", "norm", "placement", "position", "residual", "scores", "sink", "values")
"""Rooms whose docstring shows a plug-in file."""

LONG = {
    f"addnorm.{name}"
    for name in (
        "insight.ablation.ablate",
        "insight.identifiable.gauges",
        "insight.identifiable.identifiable",
        "insight.scalars.explain.explain",
        "symmetry.result.Symmetries.effective_of",
        "symmetry.result.Symmetries.move",
    )
}
"""Examples that count a model's freedom or train, for seconds each: thorough."""


def examples() -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    collected = []
    for path in sorted((SOURCE / "addnorm").rglob("*.py")):
        if ">>>" in path.read_text(encoding="utf-8"):
            name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
            module = importlib.import_module(name)
            collected += finder.find(module, name, extraglobs={"addnorm": addnorm})
    return [each for each in collected if each.examples] + list(examples_of_constants())


def examples_of_constants() -> Iterator[doctest.DocTest]:
    """Those in the strings after constants and types, which `doctest` does not look at."""
    read = set()
    for module, name in PUBLIC:
        if not REFERENCE["is_code"](getattr(importlib.import_module(module), name)):
            home, text = REFERENCE["constant"](module, name)
            if (home, name) not in read:
                read.add((home, name))
                known = {**vars(importlib.import_module(home)), "addnorm": addnorm}
                yield doctest.DocTestParser().get_doctest(text, known, f"{home}.{name}", None, None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the study `runs/first`, the example plugins and the readme's plugin with its study."""
    folder = tmp_path_factory.mktemp("examples")
    with tarfile.open(ROOT / "tests" / "fixtures" / "runs-0.1.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    (folder / "runs" / "finished").rename(folder / "runs" / "first")
    (folder / "report").mkdir()
    for path in (ROOT / "examples").glob("*.py"):
        shutil.copy(path, folder)
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.M | re.S)
    (mechanism,) = (text for language, text in blocks if language == "python" and "ResidualSpec" in text)
    (study,) = (text for language, text in blocks if language == "yaml")
    (folder / "damped.py").write_text(mechanism, encoding="utf-8")
    (folder / "damping.yaml").write_text(study, encoding="utf-8")
    return folder


@pytest.fixture
def _without_plugins() -> Iterator[None]:
    yield
    for name in PLUGINS:
        remove_plugin(name)


@pytest.mark.usefixtures("_without_plugins", "blank_pictures")
@pytest.mark.parametrize(
    "example",
    [
        pytest.param(
            each, id=each.name.removeprefix("addnorm."), marks=[pytest.mark.thorough] if each.name in LONG else []
        )
        for each in examples()
    ],
)
def test_example(example: doctest.DocTest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    printed: list[str] = []
    with workers_here():
        failed, _ = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=printed.append)
    assert not failed, "".join(printed)


@pytest.mark.parametrize(("module", "name"), PUBLIC, ids=lambda value: str(value))
def test_every_public_name_has_an_example_that_runs(module: str, name: str) -> None:
    text = REFERENCE["docstring"](module, name)
    assert doctest.DocTestParser().get_examples(text), f"{module}.{name}: add an `Example:` with >>> to its docstring"


def test_the_example_of_every_public_name_is_among_those_that_run() -> None:
    run = {example.name for example in examples()}
    for module, name in PUBLIC:
        value = getattr(importlib.import_module(module), name)
        if REFERENCE["is_code"](value):
            assert f"{value.__module__}.{value.__qualname__}" in run
        else:
            assert f"{REFERENCE['constant'](module, name)[0]}.{name}" in run


HEAD = """
from collections.abc import Sequence
from dataclasses import dataclass
import torch
from torch import Tensor, nn
from addnorm.reduction import Reduction
from addnorm.shape import Place, Shape
from addnorm.{room} import *
"""


@pytest.mark.thorough
@pytest.mark.parametrize("room", WITH_PLUGIN_FILE)
def test_the_plug_in_file_in_a_rooms_docstring_passes_the_contract(room: str, tmp_path: Path) -> None:
    text = importlib.import_module(f"addnorm.{room}").__doc__ or ""
    (code,) = re.findall(r"^Example: .*\n\n((?:    .*\n|\n)+)", text, flags=re.M)
    file = tmp_path / f"from_docstring_{room}.py"
    lines = [line.removeprefix("    ") for line in code.splitlines()]
    file.write_text(HEAD.format(room=room) + "\n".join(lines) + "\n", encoding="utf-8")
    try:
        check(file)
    finally:
        remove_plugin(file.stem)
