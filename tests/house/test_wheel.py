"""What is installed is whole: files that are no Python are easily left out of a wheel, and only users would notice."""

import email
import re
import runpy
import subprocess
import sys
import tarfile
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
    guides = {f"addnorm/guide/{path.name}" for path in (ROOT / "docs" / "guide").glob("*.md")}
    assert len(guides) > 20
    assert held == written | guides
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


def test_the_package_index_gets_a_page_without_relative_addresses(wheel: Path) -> None:
    """An index has the description alone: a link to `docs/guide/study.md` would lead nowhere."""
    with zipfile.ZipFile(wheel) as content:
        (name,) = (name for name in content.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(content.read(name))
    text = str(metadata.get_payload())
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "A PyTorch library for how a Transformer's layers are connected" in text
    outside_code = re.sub(r"^```.*?^```$|^(?: {4}.*\n)+", "", text, flags=re.S | re.M)
    targets = re.findall(r"\]\(([^)\s]+)\)", outside_code)
    assert [target for target in targets if not target.startswith(("https://", "http://", "#", "mailto:"))] == []
    assert "addnorm run residual-scores --out runs/first" in text, "code is as it was"


def test_links_of_the_page_name_the_repository_where_it_is_known() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "package_page.py"))["page"]
    text = "[Guide](docs/a.md#b), ![x](docs/x.png), [web](https://e.org), [here](#there), [`A`](A.md) `[t](u)`\n\n    [c](d)\n"
    assert page(text, None, "1.0") == (
        "Guide (`docs/a.md#b`), , [web](https://e.org), [here](#there), `A.md` `[t](u)`\n\n    [c](d)\n"
    )
    assert page(text, "https://host/o/r/", "1.0") == (
        "[Guide](https://host/o/r/blob/v1.0/docs/a.md#b), ![x](https://host/o/r/raw/v1.0/docs/x.png), [web](https://e.org), "
        "[here](#there), [`A`](https://host/o/r/blob/v1.0/A.md) `[t](u)`\n\n    [c](d)\n"
    )
    assert page("    [c](d)\n\n[`A`](A.md)\n", None, "1.0") == "    [c](d)\n\n`A.md`\n", (
        "a block ends with its last line"
    )


def test_the_page_of_the_readme_has_no_relative_address() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "package_page.py"))["page"]
    text = page((ROOT / "README.md").read_text(encoding="utf-8"), None, "1.0")
    assert [each for each in re.findall(r"\]\(([^)\s]+)\)", text) if not each.startswith(("https://", "#"))] == []


def test_what_help_and_messages_name_is_in_the_wheel() -> None:
    """A file of docs/ is in the repository alone: help and messages name a command, or a guide that the wheel has."""
    from addnorm.cli.list import guides

    named = set()
    for path in [*(SOURCE / "addnorm" / "cli").rglob("*.py"), *(SOURCE / "addnorm" / "words").rglob("*.toml")]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"docs/(?!learned_numbers\.py|answers\.py)[\w/-]+\.md", text), path
        named |= set(re.findall(r"`addnorm list guide/([a-z][\w-]*)`", text))
    assert named
    assert named <= set(guides())


@pytest.mark.thorough
def test_the_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build"]
    subprocess.run([*build, "-t", "sdist", "-d", str(tmp_path)], cwd=ROOT, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as content:
        content.extractall(tmp_path / "unpacked", filter="data")
    (root,) = (tmp_path / "unpacked").iterdir()
    subprocess.run([*build, "-t", "wheel", "-d", str(tmp_path)], cwd=root, check=True, capture_output=True)
    (again,) = tmp_path.glob("*.whl")
    one, other = ({each.filename: each.CRC for each in zipfile.ZipFile(path).infolist()} for path in (wheel, again))
    assert one == other


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
