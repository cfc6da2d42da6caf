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


UNNEEDED = (
    "IPython", "jinja2", "matplotlib", "pandas", "polars", "rich", "scipy.linalg", "scipy.optimize",
    "scipy.sparse", "scipy.stats", "torch", "tyro", "yaml", "addnorm.cli", "addnorm.insight", "addnorm.model",
    "addnorm.notebook.study", "addnorm.reporting", "addnorm.web",
)  # fmt: skip
"""Modules that a ranking of a table works without."""


def test_a_ranking_of_a_table_imports_what_it_needs() -> None:
    rows = [{"variant": v, "seed": s, "loss": 2.5 + 0.1 * s} for v in "ab" for s in range(3)]
    code = f"import addnorm, sys; addnorm.rank({rows!r}); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT / "src")}
    )
    assert not set(UNNEEDED) & set(done.stdout.split())
