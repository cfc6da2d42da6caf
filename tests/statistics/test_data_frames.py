"""Runs in a data frame or in a list of rows are ranked as the CSV file of them, and no library is imported for it."""

import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy
import pytest

import addnorm
from addnorm.errors import InputError
from addnorm.notebook import StudyRanking

pandas = pytest.importorskip("pandas")

LOSSES = {"base": (2.912, 2.934, 2.921), "rezero": (2.871, 2.897, 2.879), "wide": (2.9, 2.95, float("inf"))}


def rows() -> list[dict[str, Any]]:
    return [
        {"variant": name, "seed": seed, "loss": loss, "gpu_hours": 3.1}
        for name, row in LOSSES.items()
        for seed, loss in enumerate(row)
    ]


def frames() -> dict[str, Any]:
    frame = pandas.DataFrame(rows())
    return {
        "rows": rows(),
        "tuple of rows": tuple(rows()),
        "pandas": frame,
        "shuffled index": frame.set_index(pandas.Index(range(100, 109))),
        "keys in the index": frame.set_index(["variant", "seed"]),
        "categories": frame.astype({"variant": "category", "seed": "int8"}),
        "seeds as floats": frame.astype({"seed": float}),
        "nullable": frame.convert_dtypes(),
    }


@pytest.mark.parametrize("form", frames())
def test_a_table_in_memory_ranks_as_its_file(form: str, tmp_path: Path) -> None:
    pandas.DataFrame(rows()).to_csv(tmp_path / "runs.csv", index=False)
    ranking = addnorm.rank(frames()[form])
    assert ranking.to_json() == addnorm.rank(tmp_path / "runs.csv").to_json()
    assert ranking["wide"].versus["base"].verdict == "failed"


class Polars:
    """The part of a polars data frame that is read."""

    columns = ("variant", "seed", "loss")

    def to_dicts(self) -> list[dict[str, Any]]:
        return rows()


def test_the_methods_of_a_polars_frame_suffice() -> None:
    assert addnorm.rank(Polars()).to_json() == addnorm.rank(rows()).to_json()


def test_a_ranking_of_another_measure_draws_itself() -> None:
    table = pandas.DataFrame(rows()[:6]).rename(columns={"loss": "acc"})
    ranking = addnorm.rank(table, columns={"loss": "acc"}, direction="higher", unit="%", margin=0.01)
    assert isinstance(ranking, StudyRanking)
    assert ranking["rezero"].versus["base"].verdict == "worse"
    assert "acc in %, higher is better" in ranking._repr_html_()
    assert ranking.plot().axes[0].get_xlabel() == "acc in %, higher is better"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (pandas.DataFrame(rows()).rename(columns={"loss": "los"}), "row 0: expected a column 'loss'"),
        (pandas.DataFrame(rows()).rename(columns={"loss": "los"}), "columns={'loss': NAME}"),
        (pandas.DataFrame(rows()).assign(loss=float("nan")), r"inf in a data frame"),
        (pandas.DataFrame(rows(), columns=["variant", "loss", "loss"]), "expected one column 'loss', got 2"),
        (3, "expected a path, a data frame of pandas or polars, or a list of rows"),
        ([], "expected a row for each run, got none"),
        ([{"variant": "base"}], "columns={'seed': ''}"),
        ([("base", 0, 2.9)], "row 0: expected an object"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused(table: Any, said: str) -> None:
    with pytest.raises(InputError) as refused:
        addnorm.rank(table)
    assert said in str(refused.value)


def test_pandas_is_not_imported_for_rows() -> None:
    program = (
        f"import sys, addnorm; addnorm.rank({rows()[:6]!r}); sys.exit(bool({{'torch', 'pandas'}} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_numbers_of_other_libraries_are_numbers() -> None:
    """As scripts collect them: scalars of NumPy, arrays of one entry, tensors, decimals."""
    plain = [{"variant": v, "seed": s, "loss": 2.5 + s / 8 - (v == "b") / 4} for v in "ab" for s in range(3)]
    for whole, real in (
        (numpy.int64, numpy.float64),
        (numpy.int32, numpy.float32),
        (numpy.array, numpy.array),
        (numpy.uint8, Decimal),
        (int, lambda x: numpy.array([x])),
    ):
        rows = [{**row, "seed": whole(row["seed"]), "loss": real(row["loss"])} for row in plain]
        assert addnorm.rank(rows).to_json() == addnorm.rank(plain).to_json()
    with pytest.raises(InputError, match="expected a number in column 'loss'"):
        addnorm.rank([{**plain[0], "loss": numpy.array([1.0, 2.0])}])
