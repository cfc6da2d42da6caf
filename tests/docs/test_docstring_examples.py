"""The examples in the docstrings of public names run as printed, on a study that an earlier version trained."""

import doctest
import importlib
import inspect
import runpy
import tarfile
from pathlib import Path

import pytest
import torch

import addnorm

ROOT = Path(__file__).parents[2]
MODULES = runpy.run_path(str(ROOT / "docs" / "reference.py"))["MODULES"]
WITH_EXAMPLE = {"explain", "extrapolate", "inspect", "rank", "report"}


def examples() -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(recurse=False)
    collected = []
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            value = getattr(importlib.import_module(module), name)
            if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith("addnorm"):
                found = finder.find(value, name, module=False, globs={"addnorm": addnorm, "torch": torch})
                collected += [each for each in found if each.examples]
    return collected


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the study `runs/first`."""
    folder = tmp_path_factory.mktemp("examples")
    with tarfile.open(ROOT / "tests" / "fixtures" / "runs-0.1.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    (folder / "runs" / "finished").rename(folder / "runs" / "first")
    (folder / "report").mkdir()
    return folder


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_example(example: doctest.DocTest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    printed: list[str] = []
    failed, _ = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=printed.append)
    assert not failed, "".join(printed)


def test_the_analyses_have_examples() -> None:
    assert {example.name for example in examples()} >= WITH_EXAMPLE
