"""Rules of the house that a reader should not have to check."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import addnorm
from addnorm.catalogue import ROOMS

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "addnorm").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
TEST_MODULES = [path for path in TESTS if path.name.startswith("test_")]
LONGEST = 400
MOST_FILES = 25
"""Files side by side in one folder of the sources; files that are siblings of a catalogue's room, a list, do not count."""
FORBIDDEN = {"utils", "util", "common", "helpers", "helper", "misc"}


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_the_folders_are_found() -> None:
    assert len(SOURCES) > 50
    assert len(TEST_MODULES) > 10


# One test for all files: a test for each would spend its time in being counted.
def test_source_files() -> None:
    wrong = {
        short(path): faults for path in SOURCES if (faults := [*faults_of(path.read_text(encoding="utf-8"), path)])
    }
    assert wrong == {}


def faults_of(text: str, path: Path) -> Iterator[str]:
    """Rules that a source file breaks."""
    if len(text.splitlines()) > LONGEST:
        yield f"more than {LONGEST} lines"
    if FORBIDDEN & {path.stem, *path.relative_to(ROOT).parts}:
        yield "a name that says nothing"
    if "assert " in text and asserts(tree(path)):
        yield "assert is gone under python -O: raise InputError"
    if text and not text.startswith(('"""', 'r"""')):
        yield "no module docstring"


def test_a_folder_can_be_overseen() -> None:
    rooms = {ROOT / "src" / room.package.replace(".", "/") for room in ROOMS.values()}
    files = Counter(
        path.parent
        for path in {path.parent for path in SOURCES}
        for path in path.iterdir()
        if path.is_file() and (path.parent not in rooms or path.stem.startswith("_"))
    )
    assert {short(folder): count for folder, count in files.items() if count > MOST_FILES} == {}


def asserts(module: ast.Module) -> list[int]:
    """Lines that assert more than `x is not None`, which only tells the type checker what is known."""
    return [
        node.lineno
        for node in ast.walk(module)
        if isinstance(node, ast.Assert) and not ast.unparse(node.test).endswith(" is not None")
    ]


def checks(module: ast.Module) -> bool:
    """Whether anything in a test module can fail a test."""
    for node in ast.walk(module):
        if isinstance(node, ast.Assert | ast.Raise):
            return True
        if isinstance(node, ast.Call) and "raises" in ast.unparse(node.func):
            return True
    return False


@cache
def asserting_names() -> set[str]:
    """Functions and laws that raise for their caller: a test that calls one of them does check something."""
    names = {"LAWS", "check_mechanism", "exports", "compiles", "keep"}
    for path in TESTS:
        names |= {*re.findall(r"^ *def (assert_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)}
    return names | {"assert_close", "assert_allclose", "assert_array_equal"}


def test_every_test_module_can_fail() -> None:
    # Most say so in a line of their own, and need not be parsed: all of them take four seconds.
    unsure = [
        path for path in TEST_MODULES if not re.search(r"^ +assert ", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert [short(path) for path in unsure if not can_fail(tree(path))] == []


def can_fail(module: ast.Module) -> bool:
    used = {node.id for node in ast.walk(module) if isinstance(node, ast.Name)}
    used |= {node.attr for node in ast.walk(module) if isinstance(node, ast.Attribute)}
    return checks(module) or bool(used & asserting_names())


def test_these_rules_catch_what_they_are_for() -> None:
    assert [*faults_of("x = 1\n" * 401, ROOT / "utils" / "a.py")] == [
        "more than 400 lines",
        "a name that says nothing",
        "no module docstring",
    ]
    assert not can_fail(ast.parse("def test():\n    print(1)\n"))
    assert asserts(ast.parse("assert width > 0\nassert x is not None\n")) == [1]
    assert not checks(ast.parse("def test():\n    print(1)\n"))
    assert checks(ast.parse("def test():\n    with pytest.raises(ValueError):\n        f()\n"))


@pytest.mark.parametrize("name", sorted(set(addnorm.__all__) - {"__version__"}))
def test_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(addnorm, name)
    assert len(inspect.getdoc(value) or "") > 20
    assert name in dir(addnorm)


def test_public_names_are_those_of_the_lazy_table() -> None:
    assert set(addnorm._HOMES) | {"__version__"} == set(addnorm.__all__)
    for name, home in addnorm._HOMES.items():
        assert getattr(importlib.import_module(home), name) is getattr(addnorm, name)
    with pytest.raises(AttributeError, match="'nonsense'"):
        addnorm.nonsense


@pytest.mark.parametrize(
    "statement",
    [
        "import addnorm",
        "import addnorm.catalogue as c; [c.ROOMS[r].doc(k) for r in c.MECHANISM_ROOMS for k in c.ROOMS[r].kinds()]",
        "import addnorm.store",
    ],
)
def test_it_does_not_import_torch(statement: str) -> None:
    code = f"{statement}\nimport sys\nsys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(ROOT / "src")}, timeout=60)
