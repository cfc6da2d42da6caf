"""The public interface: one page lists it, no submodule hides a public function, and every name is lazy and documented."""

import importlib
import inspect
import pkgutil
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import addnorm

ROOT = Path(__file__).parents[2]
REFERENCE = runpy.run_path(str(ROOT / "docs" / "reference.py"))
ANALYSES = {"rank", "explain", "inspect", "extrapolate", "report"}


def test_the_reference_page_is_that_of_the_code() -> None:
    written = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert written == REFERENCE["page"](), "run `python docs/reference.py`"


@pytest.mark.parametrize("module", REFERENCE["MODULES"])
def test_public_names_are_there_sorted_and_documented(module: str) -> None:
    names = importlib.import_module(module).__all__
    assert list(names) == sorted(names)
    for name in names:
        value = getattr(importlib.import_module(module), name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert len(inspect.getdoc(value) or "") > 10, name


def test_every_analysis_has_a_function_and_a_command() -> None:
    for name in ANALYSES:
        assert callable(getattr(addnorm, name))
        assert f"addnorm.{name}(" in (ROOT / "src" / "addnorm" / "cli" / f"{name}.py").read_text(encoding="utf-8")


def test_no_submodule_can_hide_a_public_name() -> None:
    """Python sets an imported submodule as attribute of its package, in place of a function of that name."""
    submodules = {module.name for module in pkgutil.iter_modules(addnorm.__path__)}
    assert not submodules & set(addnorm.__all__)


IMPORT_ALL = """
import importlib, pkgutil, sys
for order in ("names first", "submodules first"):
    for name in [name for name in sys.modules if name.partition(".")[0] == "addnorm"]:
        del sys.modules[name]
    import addnorm
    before = {name: getattr(addnorm, name) for name in addnorm.__all__} if order == "names first" else {}
    for module in pkgutil.walk_packages(addnorm.__path__, "addnorm."):
        if not module.name.startswith(("addnorm.kernels.grouped_attention.triton", "addnorm.__main__")):
            importlib.import_module(module.name)
    after = {name: getattr(addnorm, name) for name in addnorm.__all__}
    assert not before or before == after, order
    for name, home in addnorm._HOMES.items():
        assert after[name] is getattr(sys.modules[home], name), (order, name)
        assert callable(after[name]), (order, name)
    print("checked", order)
"""


@pytest.mark.thorough
def test_public_names_are_the_same_in_any_order_of_imports() -> None:
    """Both orders in one process, which imports torch once."""
    environment = {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORT_ALL], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["checked names first", "checked submodules first"]


def test_ranking_needs_no_torch() -> None:
    code = "import addnorm, sys; addnorm.rank('kuang-2025'); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(ROOT / "src")}, timeout=120)
