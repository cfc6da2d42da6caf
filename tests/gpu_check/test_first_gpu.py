"""`make gpu` ends on paper: no step of it is to fail on a first card for a reason that a toy shows."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.thorough
def test_every_step_ends_and_is_written_down(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    command = [sys.executable, "benchmarks/first_gpu.py", "--toy", "--page", page, "--runs", tmp_path / "runs"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout[-5000:] + made.stderr
    written = page.read_text()
    assert written.count("## ") == 8
    assert "exit code" not in written
    assert "stopped: no time" not in written
    assert "1 of 1 runs finished" in written


@pytest.mark.thorough
def test_a_step_that_is_not_reached_is_said(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    command = [sys.executable, "benchmarks/first_gpu.py", "--minutes", "0", "--page", page]
    subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert page.read_text().count("Not reached within 0 minutes.") == 8
