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


SIZED = "variant,seed,flops,loss\n" + "".join(
    f"{variant},{seed},{flops},{1.6 + 88.3 * (worth * flops) ** -0.094 + 0.003 * ((7 * seed * len(variant)) % 5):.5f}\n"
    for variant, worth in (("base", 1.0), ("idea <2>", 1.2))
    for flops in (3.8e17, 2.8e18)
    for seed in range(3)
)
SCORED = "variant,item,score\n" + "".join(
    f"{variant},{item},{int((item * item) % 7 < most)}\n"
    for variant, most in (("base", 3), ("idea", 5))
    for item in range(60)
)


def test_every_question_of_rank_in_a_notebook(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sized, scored = tmp_path / "sized.csv", tmp_path / "scored.csv"
    sized.write_text(SIZED)
    scored.write_text(SCORED)
    items = {"loss": "score", "seed": ""}
    for answer, command, tables in (
        (addnorm.rule(table, "parameter-golf"), ["rank", str(table), "--rule", "parameter-golf"], 2),
        (
            addnorm.speedup(sized, columns={"compute": "flops"}),
            ["rank", str(sized), "--as", "speedup", "--columns", "compute=flops"],
            1,
        ),
        (
            addnorm.downstream(scored, columns=items),
            ["rank", str(scored), "--as", "downstream", "--columns", "loss=score,seed="],
            1,
        ),
        (
            addnorm.trend([table, table], parameters=[1e6, 2e6]),
            ["trend", str(table), str(table), "--parameters", "1e6,2e6"],
            0,
        ),
    ):
        shown = answer._repr_html_()
        assert main(command) == 0
        # A terminal folds a wide table, so that its columns come in another order.
        said, written = (
            set(re.findall(r"[\w.]+", text))
            for text in (unescape(re.sub("</?[a-z]+>", " ", shown)), capsys.readouterr().out)
        )
        assert said == written
        assert shown.count("<table>") == tables
        assert "<1>" not in shown
        assert "<2>" not in shown
