"""The examples in docstrings run as printed, in a folder with a study that an earlier version trained."""

import doctest
import importlib
import shutil
import tarfile
from pathlib import Path

import pytest

import addnorm

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
WITH_EXAMPLE = {"explain", "extrapolate", "inspect", "rank", "report"} | {"audit", "equivalent", "lint"}
"""Public functions that must have an example."""


def examples() -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    collected = []
    for path in sorted((SOURCE / "addnorm").rglob("*.py")):
        if ">>>" in path.read_text(encoding="utf-8"):
            name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
            module = importlib.import_module(name)
            collected += finder.find(module, name, extraglobs={"addnorm": addnorm})
    return [each for each in collected if each.examples]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the study `runs/first` and the example plugins."""
    folder = tmp_path_factory.mktemp("examples")
    with tarfile.open(ROOT / "tests" / "fixtures" / "runs-0.1.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    (folder / "runs" / "finished").rename(folder / "runs" / "first")
    (folder / "report").mkdir()
    for path in (ROOT / "examples").glob("*.py"):
        shutil.copy(path, folder)
    return folder


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name.removeprefix("addnorm."))
def test_example(example: doctest.DocTest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    printed: list[str] = []
    failed, _ = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=printed.append)
    assert not failed, "".join(printed)


def test_the_analyses_have_examples() -> None:
    assert {example.name.rpartition(".")[2] for example in examples()} >= WITH_EXAMPLE
