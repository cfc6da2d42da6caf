"""`addnorm extrapolate` as a user gives it: tables, CSV, figure, and what it says of mistakes."""

import csv
import io
import json
from pathlib import Path

import pytest
from studies import untrained

from addnorm.cli import main

VARIANTS = """
  biased: {bias: {q: true, k: true}}
  none: {position: none}
  table: {position: learned, max_seq: 32}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained(tmp_path_factory.mktemp("cli"), VARIANTS).path


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["extrapolate", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


FEW = ("--lengths", "1x,2x", "--windows", 3, "--workers", 1)


def test_tables_csv_json_and_figure_agree(folder: Path, tmp_path: Path, capsys) -> None:
    code, out, _ = said(capsys, folder, *FEW, "--with", "log_n", "--json")
    found = json.loads(out)
    assert code == 0
    figure = tmp_path / "lengths.svg"
    code, text, _ = said(capsys, folder, *FEW, "--with", "log_n", "--plot", figure)
    assert code == 0
    assert figure.read_bytes().startswith(b"<?xml")
    rows = {(row["label"], row["length"]): row for row in found["rows"]}
    blocks = {block.partition("\n")[0]: block.splitlines()[1:] for block in text.split("\n\n")}
    head, *lines = blocks["Accuracy, %:"]
    assert head.split() == ["16", "32"]
    for line in lines:
        label, numbers = line[:13].strip(), line[13:].replace("±", "").split()
        row = rows[label, 16]
        low, high = row["accuracy_interval"]
        assert numbers[:2] == [f"{100 * row['accuracy']:.2f}", f"{50 * (high - low):.2f}"]
        assert numbers[2] == f"{100 * rows[label, 32]['accuracy']:.2f}"
    assert len(lines) == len(found["lines"]) == 8
    (against,) = (block for heading, block in blocks.items() if heading.startswith("Loss against plain"))
    for measure, name, factor, shown in (
        ("Loss", "loss", 1, ".4f"), ("Accuracy, %,", "accuracy", 100, ".2f"), ("Perplexity", "perplexity", 1, ".4g"),
    ):  # fmt: skip
        head, *lines = blocks[f"{measure} by position in windows of 32:"]
        assert head.split() == ["0-7", "8-15", "16-31"]
        for line in lines:
            buckets = rows[line[:13].strip(), 32]["buckets"]
            assert line[13:].split() == [format(factor * bucket[name], shown) for bucket in buckets]
    verdicts = {line[:13].strip(): line for line in against}
    assert "plain" not in verdicts
    for label in ("biased", "none"):
        assert rows[label, 32]["versus"]["plain"]["verdict"] in verdicts[label]
    code, out, _ = said(capsys, folder, *FEW, "--with", "log_n", "--csv")
    assert code == 0
    for line in csv.DictReader(io.StringIO(out)):
        label = line["variant"] if line["switch"] == "none" else f"{line['variant']} +{line['switch']}"
        row = rows[label, int(line["length"])]
        assert float(line["loss"]) == row["loss"]
        assert float(line["accuracy_low"]) == row["accuracy_interval"][0]
        assert line["plain:verdict"] == (row["versus"].get("plain", {}).get("verdict") or "")


def test_latex_is_the_sources_table(folder: Path, capsys) -> None:
    from addnorm.reporting.sections.lengths.table import latex

    _, out, _ = said(capsys, folder, *FEW, "--json")
    table = latex(json.loads(out))
    assert r"\begin{tabular}{lrr}" in table
    assert table.count(r"\\") == 1 + 4
    assert "Intervals are in the CSV file." in table


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ("--lengths", "1x,4x"),
            "variant 'table': a learned position table: expected at most max_seq = 32 positions, got 64",
        ),
        (
            ("--lengths", "1x,4x"),
            "At 4x the train length it cannot be evaluated: give --lengths 1x, or choose other variants",
        ),
        (("--lengths", "2x,1x"), "lengths: expected increasing multiples, got 2x,1x"),
        (("--lengths", "1x,1x"), "lengths: expected increasing multiples"),
        (("--lengths", "1x,two"), "got 'two'"),
        (("--lengths", "1x,4096x", "--variant", "plain"), "the longest window must fit into the held-out text"),
        (("--with", "yarn"), "variant 'none': switch 'yarn' changes the frequencies of rotary positions"),
        (("--with", "yran"), "Did you mean 'yarn'?"),
        (("--with", "yarn:beta=5", "--variant", "plain"), "no switch 'yarn:beta=5'"),
        (("--with", ""), "--with: expected a value, got an empty one"),
        (("--variant", "bias"), "no variant 'bias'. Did you mean 'biased'?"),
        (("--reference", "nobody", *FEW), "no variant to be the reference 'nobody'"),
        (("--windows", "0"), "windows: expected a whole number of at least 1"),
        (("--workers", "0", "--lengths", "1x"), "workers: expected a whole number of at least 1"),
        (("--plot", "lengths.docx"), "expected a file name that ends with one of .svg, .pdf, .png"),
        (("--plot", "nowhere/lengths.svg"), "expected a file in an existing folder, got 'nowhere/lengths.svg'"),
        (("--margin", "-1", *FEW), "margin: expected a positive number"),
    ],
)
def test_mistakes_are_said_at_once_and_nothing_is_lost(folder: Path, arguments, expected: str, capsys) -> None:
    said(capsys, folder, *FEW, "--json")
    before = files(folder)
    code, out, err = said(capsys, folder, *(("--lengths", "1x,2x") if "--lengths" not in arguments else ()), *arguments)
    assert (code, out) == (2, "")
    assert expected in " ".join(err.split())
    assert "Traceback" not in err
    assert files(folder) == before


def test_no_study(tmp_path: Path, capsys) -> None:
    code, out, err = said(capsys, tmp_path)
    assert (code, out) == (2, "")
    assert "holds no study" in err
