"""What is installed is whole: files that are no Python are easily left out of a wheel, and only users would notice."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import made_study

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"


PAGE = """
import sys
from pathlib import Path
from starlette.testclient import TestClient
from addnorm.web.app import application
import addnorm
assert addnorm.__file__.startswith(sys.argv[2]), addnorm.__file__
asked = TestClient(application(Path(sys.argv[1])), base_url="http://127.0.0.1")
for path in ("/ranking?lang=zh", *sys.argv[3:]):
    text = asked.get(path).text
    assert "made" in text, path
    addresses = [part.partition('"')[0] for part in text.split('"/static/')[1:]]
    assert len(addresses) >= 3, path
    for address in addresses:
        answer = asked.get("/static/" + address)
        assert answer.status_code == 200 and len(answer.content) > 100, address
        assert "immutable" in answer.headers["cache-control"], address
assert "torch" not in sys.modules
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built once."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("addnorm/")}
    written = {
        path.relative_to(SOURCE).as_posix()
        for path in (SOURCE / "addnorm").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == written
    assert {
        "addnorm/py.typed",
        "addnorm/SKILL.md",
        "addnorm/__main__.py",
        "addnorm/studies/residual-scores.yaml",
        "addnorm/studies/published/kuang_2025/results.json",
        "addnorm/kernels/grouped_attention/derivation.md",
        "addnorm/reporting/static/uPlot.iife.js",
        "addnorm/reporting/static/uPlot.LICENSE.txt",
        "addnorm/reporting/templates/base.html",
        "addnorm/words/zh/pages.toml",
    } <= held


def test_the_page_is_served_whole_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    made_study.finished(tmp_path / "study")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(tmp_path / "site")
    command = [
        sys.executable,
        "-c",
        PAGE,
        str(tmp_path / "study"),
        str(tmp_path / "site"),
        *made_study.addresses("v4m5"),
    ]
    subprocess.run(command, check=True, env={"PYTHONPATH": str(tmp_path / "site")}, timeout=120)
