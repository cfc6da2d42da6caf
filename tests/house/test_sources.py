"""Rules of the house that a reader should not have to check."""

import ast
import importlib
import inspect
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import addnorm

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "addnorm").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
TEST_MODULES = [path for path in TESTS if path.name.startswith("test_")]
LONGEST = 400
MOST_FILES = 25
"""Files side by side in one folder of the sources."""
FORBIDDEN = {"utils", "util", "common", "helpers", "helper", "misc"}


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_the_folders_are_found() -> None:
    assert len(SOURCES) > 50
    assert len(TEST_MODULES) > 10


@pytest.mark.parametrize("path", SOURCES, ids=short)
def test_source_file(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST
    assert not FORBIDDEN & {path.stem, *path.relative_to(ROOT).parts}
    assert asserts(tree(path)) == [], "assert is gone under python -O: raise InputError"
    assert path.stat().st_size == 0 or ast.get_docstring(tree(path)), "no module docstring"


@pytest.mark.parametrize("folder", sorted({path.parent for path in SOURCES}), ids=short)
def test_a_folder_can_be_overseen(folder: Path) -> None:
    assert len([path for path in folder.iterdir() if path.is_file()]) <= MOST_FILES


def asserts(module: ast.Module) -> list[int]:
    """Lines that assert more than `x is not None`, which only tells the type checker what is known."""
    return [
        node.lineno
        for node in ast.walk(module)
        if isinstance(node, ast.Assert) and not ast.unparse(node.test).endswith(" is not None")
    ]


def thrown_away(module: ast.Module) -> list[int]:
    """Lines with a comparison whose answer nobody reads."""
    return [n.lineno for n in ast.walk(module) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Compare)]


def checks(module: ast.Module) -> bool:
    """Whether anything in a test module can fail a test."""
    for node in ast.walk(module):
        if isinstance(node, ast.Assert | ast.Raise):
            return True
        if isinstance(node, ast.Call) and "raises" in ast.unparse(node.func):
            return True
    return False


@pytest.mark.parametrize("path", TESTS, ids=short)
def test_no_answer_is_thrown_away(path: Path) -> None:
    assert thrown_away(tree(path)) == []


@cache
def asserting_names() -> set[str]:
    """Functions and laws that raise for their caller: a test that calls one of them does check something."""
    names = {"LAWS", "check_mechanism", "exports", "compiles", "keep"}
    for path in TESTS:
        names |= {
            n.name for n in ast.walk(tree(path)) if isinstance(n, ast.FunctionDef) and n.name.startswith("assert_")
        }
    return names | {"assert_close", "assert_allclose", "assert_array_equal"}


@pytest.mark.parametrize("path", TEST_MODULES, ids=short)
def test_every_test_module_can_fail(path: Path) -> None:
    module = tree(path)
    used = {node.id for node in ast.walk(module) if isinstance(node, ast.Name)}
    used |= {node.attr for node in ast.walk(module) if isinstance(node, ast.Attribute)}
    assert checks(module) or used & asserting_names()


def test_these_rules_catch_what_they_are_for() -> None:
    assert thrown_away(ast.parse("def test():\n    1 == 2\n")) == [2]
    assert thrown_away(ast.parse("assert 1 == 1")) == []
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
