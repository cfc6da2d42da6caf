"""What is installed is whole: files that are no Python are easily left out of a wheel, and only users would notice."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"


def test_the_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("addnorm/")}
    written = {
        path.relative_to(SOURCE).as_posix()
        for path in (SOURCE / "addnorm").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == written
    assert {
        "addnorm/py.typed",
        "addnorm/__main__.py",
        "addnorm/studies/residual-scores.yaml",
        "addnorm/studies/source_003/results.json",
        "addnorm/kernels/grouped_attention/derivation.md",
    } <= held
