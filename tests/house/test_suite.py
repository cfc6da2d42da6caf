"""The sessions of `make test` and `make thorough` hold every test: what is about shapes in one, all else in two others."""

import os
import re
import runpy
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from suite_folders import SHAPE_FOLDERS

ROOT = Path(__file__).parents[2]


def test_the_makefile_names_the_folders_about_shapes() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (named,) = re.findall(r"^SHAPES := (.*)$", makefile, re.MULTILINE)
    assert named.split() == [f"tests/{folder}" for folder in SHAPE_FOLDERS]
    assert all((ROOT / "tests" / folder).is_dir() for folder in SHAPE_FOLDERS)
    assert '-m "not shapes and not gpu and not soak $(TIER)"' in makefile
    assert "\nTIER := and not thorough\n" in makefile
    assert '-m "shapes and not gpu and not soak"' in makefile  # which are never thorough
    assert '-m "thorough and not gpu and not soak"' in makefile


def test_ci_runs_both_tiers() -> None:
    """An empty TIER on the command line wins over the one in the Makefile, in the makes that it calls too."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(r"^make test --keep-going TIER=$", script, re.MULTILINE)
    printed = subprocess.run(
        ["make", "--dry-run", "-o", ".venv/installed", "plain-tests", "TIER="],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert '-m "not shapes and not gpu and not soak "' in printed


@pytest.mark.parametrize("failing", ["nothing", "test", "docs", "gpu-check"])
def test_ci_runs_every_part_and_fails_where_one_does(failing: str, tmp_path: Path) -> None:
    goals = "".join(
        f"{goal}:\n\t@echo ran {goal}; test {goal} != {failing}\n" for goal in ("test", "docs", "gpu-check")
    )
    (tmp_path / "Makefile").write_text(goals, encoding="utf-8")
    # A make above, such as `make plain-tests`, would have its flags printed here as well.
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        ["bash", ROOT / ".ci" / "run"], cwd=tmp_path, env=own, capture_output=True, text=True, check=False
    )
    assert sorted(done.stdout.splitlines()) == ["ran docs", "ran gpu-check", "ran test"]
    assert (done.returncode == 0) == (failing == "nothing")


def test_the_names_of_test_modules_are_unique() -> None:
    """Folders of tests are no packages, so that pytest imports two modules of one name as the first of them."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py") if "fixtures" not in path.parts)
    assert [name for name, times in names.items() if times > 1] == []


def test_every_planted_fault_has_one_place_in_the_sources() -> None:
    """A fault that no longer finds its line plants nothing, and would tell nobody."""
    faults = runpy.run_path(str(ROOT / "benchmarks" / "planted_faults.py"))["FAULTS"]
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    places = {fault.name: sum(text.count(fault.right) for text in texts) for fault in faults}
    assert places == dict.fromkeys(places, 1)
