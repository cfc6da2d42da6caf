"""`addnorm report --pdf`: printed by a browser if there is one, and a message before any work if there is none."""

from pathlib import Path
from typing import Any

import pytest

import made_study
from addnorm.cli import main
from addnorm.errors import JobError
from addnorm.reporting.drawing.browser import BROWSERS, print_pdf


def fake_browser(folder: Path, does: str) -> Path:
    path = folder / "chromium"
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(0o755)
    return path


PRINTS = (
    'for word in "$@"; do case $word in --print-to-pdf=*) printf %%PDF-1.4 > "${word#--print-to-pdf=}";; esac; done'
)


def test_without_a_browser_nothing_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    folder = made_study.finished(tmp_path / "study").path
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["report", str(folder), "--no-inspect", "--pdf"]) == 2
    said = capsys.readouterr().err
    assert f"--pdf: expected one of the browsers {BROWSERS[0]}" in said
    assert not (folder / "report").exists()


@pytest.mark.usefixtures("blank_pictures")
def test_the_browser_prints_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    folder = made_study.finished(tmp_path / "study").path
    fake_browser(tmp_path, PRINTS)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert main(["report", str(folder), "--no-inspect", "--pdf"]) == 0
    pdf = folder / "report" / "report.pdf"
    assert pdf.read_bytes() == b"%PDF-1.4"
    assert f"Wrote {pdf}." in capsys.readouterr().out


def test_a_browser_that_fails_is_named_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("<p>1</p>")
    browser = fake_browser(tmp_path, "echo no display >&2; exit 3")
    with pytest.raises(JobError, match=r"did not print it \(exit code 3\): no display"):
        print_pdf(str(browser), tmp_path / "report.html")
