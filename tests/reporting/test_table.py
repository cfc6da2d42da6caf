"""One description of a table, and its five renderers."""

import pytest

from addnorm.reporting.formats.latex import escaped
from addnorm.reporting.formats.table import Column, ResultTable, against, at, dashed

ROWS = [
    {"variant": "base", "loss": 2.51234, "interval": [2.5, 2.6], "versus": {}},
    {
        "variant": "a & b",
        "loss": None,
        "interval": None,
        "versus": {"base": {"verdict": "better", "difference": -0.1, "interval": None, "seeds_needed": 4}},
    },
]
COLUMNS = (
    Column("variant", "model", side="l"),
    Column("loss", form=dashed(".2f")),
    Column("low", "from", dashed(".1f"), value=at("interval", 0)),
)


def test_text_is_aligned_and_dashed() -> None:
    assert ResultTable(COLUMNS, ROWS).text() == "model  loss  from\nbase   2.51   2.5\na & b     -     -"


def test_csv_has_keys_and_full_precision() -> None:
    assert ResultTable(COLUMNS, ROWS).csv() == "variant,loss,low\nbase,2.51234,2.5\na & b,,\n"
    assert ResultTable.of([{"a": 1, "b": None}]).csv() == "a,b\n1,\n"


def test_latex_has_a_letter_per_column() -> None:
    columns = (Column("variant", form=escaped, side="l"), *COLUMNS[1:])
    printed = ResultTable(columns, ROWS).latex("two\nlines").splitlines()
    assert printed[0] == "% two lines"
    assert r"\begin{tabular}{lrr}" in printed
    assert r"a \& b & - & - \\" in printed


def test_html_escapes() -> None:
    assert "<td>a &amp; b</td>" in ResultTable(COLUMNS, ROWS).html()


def test_a_data_frame_has_the_values() -> None:
    pandas = pytest.importorskip("pandas")
    frame = ResultTable(COLUMNS, ROWS).to_pandas()
    assert list(frame.columns) == ["variant", "loss", "low"]
    assert frame["loss"][0] == 2.51234
    assert pandas.isna(frame["low"][1])


def test_blocks_repeat_the_names_and_do_not_fold_headings() -> None:
    assert ResultTable(COLUMNS, ROWS).blocks(12) == [
        "model  loss\nbase   2.51\na & b     -",
        "model  from\nbase    2.5\na & b     -",
    ]


def test_a_comparison_has_five_columns_that_are_empty_against_itself() -> None:
    head, base, other = ResultTable(against("base"), ROWS).csv().splitlines()
    assert head == "base:verdict,base:difference,base:low,base:high,base:seeds_needed"
    assert (base, other) == (",,,,", "better,-0.1,,,4")


def test_a_row_may_be_an_object() -> None:
    assert ResultTable([Column("real"), Column("imag", value=at("imag"))], [1 + 2j]).csv() == "real,imag\n1.0,2.0\n"
