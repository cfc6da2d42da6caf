"""A study's pages as files: every address is a file of the site, and nothing needs a server or names this machine."""

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest

import made_files
import made_study
from addnorm.cli import main
from addnorm.reporting.site import write_site

MANY = 14


def grid(folder: Path) -> None:
    """A study whose models are points, and more of them than cards."""
    models = {f"base, width {w}, depth {w % 3}": {**made_study.model_spec(), "width": w} for w in range(1, MANY)}
    study = made_study.make(folder, models=models, references=["base, width 1, depth 1"], seeds=(0, 1))
    for run in study.runs()[:-1]:
        made_study.finish(run)


STUDIES = {
    "all": made_files.everything,
    "empty": made_study.make,
    "failed": lambda folder: made_files.measure(made_study.failed(folder)),
    "grid": grid,
}


@pytest.mark.parametrize("make", STUDIES.values(), ids=STUDIES)
def test_every_address_is_a_file_of_the_site(make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / "study")
    site = write_site(tmp_path / "study", tmp_path / "site")
    assert site.index.is_file()
    html = [path for path in site.files if path.suffix == ".html"]
    assert {path.relative_to(tmp_path / "site").parts[0] for path in html} >= {"index.html", "zh"}
    for path in html:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"<script|<form|data-events|<input", text), path
        assert str(tmp_path) not in text, path
        for address in re.findall(r'(?:href|src|action)="([^"]*)"', text):
            if address.startswith(("http://", "https://", "#")):
                continue
            assert not address.startswith(("/", "file:")), (path, address)
            assert (path.parent / unquote(address.partition("#")[0])).resolve().is_file(), (path, address)
    english, chinese = (tmp_path / "site" / name for name in ("index.html", "zh/index.html"))
    assert 'lang="en"' in english.read_text(encoding="utf-8")
    assert 'lang="zh-Hans"' in chinese.read_text(encoding="utf-8")


def test_models_have_pages_of_their_own(tmp_path: Path) -> None:
    grid(tmp_path / "study")
    site = write_site(tmp_path / "study", tmp_path / "site")
    names = {path.name for path in site.files}
    assert len([name for name in names if name.startswith("model-")]) == MANY - 1
    (page,) = (p for p in site.files if p.parent.name == "site" and p.name.startswith("model-base_width_13_depth_1"))
    assert "base · width 13 · depth 1" in re.sub(r"<wbr>", "", page.read_text(encoding="utf-8"))


def test_the_command_writes_over_an_earlier_site_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made_study.finished(tmp_path / "study")
    command = ["report", str(tmp_path / "study"), "--no-inspect", "--site", str(tmp_path / "site")]
    assert main(command) == 0
    assert "or put the folder on a web space" in capsys.readouterr().out
    assert main(command) == 0
    for other, content in (("thesis", "index.html"), ("notes", "a.txt")):
        (tmp_path / other).mkdir()
        (tmp_path / other / content).write_text("mine", encoding="utf-8")
        assert main([*command[:-1], str(tmp_path / other)]) == 2
        assert f"got {tmp_path / other} with {content}. Choose another." in capsys.readouterr().err.replace("\n", " ")
        assert (tmp_path / other / content).read_text(encoding="utf-8") == "mine"
