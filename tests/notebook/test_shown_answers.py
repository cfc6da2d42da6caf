"""Answers that a notebook shows say what the terminal says."""

import re
from html import unescape
from pathlib import Path

import pytest

import addnorm
from addnorm.cli import main

ROWS = "variant,seed,loss\n" + "".join(
    f"{variant},{seed},{level + 0.01 * ((7 * seed * len(variant)) % 5):.3f}\n"
    for variant, level in (("base <1>", 2.9), ("idea", 2.8))
    for seed in range(6)
)


def words(text: str) -> str:
    """Letters and digits alone, without tags, so that lines may be broken anywhere."""
    return re.sub(r"[\W_]+", "", unescape(re.sub(r"</?(p|br|ul|li|table|thead|tbody|tr|th|td)>", "", text)))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text(ROWS)
    return path


def test_noise_in_a_notebook(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = addnorm.noise(table, differences=[0.02])._repr_html_()
    assert main(["noise", str(table), "--difference", "0.02"]) == 0
    assert words(shown) == words(capsys.readouterr().out)
    assert shown.count("<table>") == 2
    assert "base &lt;1&gt;" in shown


def test_a_judgement_in_a_notebook(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = tmp_path / "stream.jsonl"
    shown = addnorm.judge(ledger, table, baseline_runs=6)._repr_html_()
    assert main(["judge", str(ledger)]) == 0
    said = words(capsys.readouterr().out)
    assert "keep" in said
    # A note on the runs that did not count belongs to the call that gave them.
    assert words(shown.partition("<ul>")[0]) == said
    assert shown.count("<table>") == 1
