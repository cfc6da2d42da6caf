"""What a report gives to a paper: balanced tables with booktabs rules, the right numbers, nothing in them a command."""

from typing import Any

import pytest

import made_files
from addnorm.reporting.formats import latex
from addnorm.reporting.sections import curves
from addnorm.reporting.sections import terms as score_terms
from addnorm.reporting.sections.insight import table as flow
from addnorm.reporting.sections.scalars import table as scalars

NAME = "50%_of & more"
SAFE = r"50\%\_of \& more"


def curve(metric: str, steps: list[int], mean: list[float], **more: Any) -> dict[str, Any]:
    ends = {"low": [value - 0.5 for value in mean], "high": [value + 0.5 for value in mean]}
    return {"variant": NAME, "metric": metric, "steps": steps, "mean": mean, **ends, **more}


def cells(printed: str) -> list[list[str]]:
    """The table's lines, its head first; every one as wide as the form says."""
    assert [printed.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    lines = printed.splitlines()
    form = next(line for line in lines if line.startswith(r"\begin{tabular}")).split("{")[2].rstrip("}")
    found = [line.removesuffix(r" \\").replace(r"\&", "AND").split(" & ") for line in lines if line.endswith(r"\\")]
    assert {len(line) for line in found} == {len(form)}
    return found


def test_curves_have_a_table_per_measure_with_their_last_value_and_its_range() -> None:
    rows = [
        curve("train_loss", [1, 2, 3], [9.0, 8.0, 7.0]),
        curve("loss", [10, 20, 30], [3.0, 2.0, 2.5]),
        curve("accuracy", [10, 20, 30], [0.25, 0.75, 0.5]),
    ]
    printed = curves.latex(rows)
    assert list(printed) == ["loss", "accuracy"]
    head, loss = cells(printed["loss"])
    assert head == ["variant", "step 10", "step 20", "last", "range"]
    assert loss[1:] == ["$3.0000$", "$2.0000$", "$2.5000$", "$2.0000$--$3.0000$"]
    assert cells(printed["accuracy"])[1][1:] == ["$25.00$", "$75.00$", "$50.00$", "$0.00$--$100.00$"]
    assert SAFE in printed["loss"]


def test_curves_without_an_evaluation_show_the_training_loss() -> None:
    printed = curves.latex([curve("train_loss", [1, 2], [9.0, 8.0]), curve("loss", [], [])])
    assert list(printed) == ["train_loss"]
    assert cells(printed["train_loss"])[1][1:3] == ["$9.0000$", "$8.0000$"]


def test_many_evaluations_are_shown_in_few_columns() -> None:
    steps = list(range(10, 1010, 10))
    head, line = cells(curves.latex([curve("loss", steps, [float(step) for step in steps])])["loss"])
    assert head[1:-2] == ["step 490", "step 990"]
    assert line[1:4] == ["$490.0000$", "$990.0000$", "$1000.0000$"]


def test_a_variant_that_has_not_come_as_far_has_a_dash() -> None:
    rows = [curve("loss", [10, 20, 30], [3.0, 2.0, 1.0]), curve("loss", [10], [3.0])]
    _, _, short = cells(curves.latex(rows)["loss"])
    assert short[1:4] == ["$3.0000$", "--", "$3.0000$"]


@pytest.mark.parametrize(("finals", "learned"), [([0.25, 0.75], ["$0.500$", "$0.354$"]), ([0.5], ["$0.500$", "--"])])
def test_scalars_have_a_table_per_variant_and_a_line_each(finals: list[float], learned: list[str]) -> None:
    row = {"variant": NAME, "parameter": "scores.log_a", "layer": 1, "entry": "1, 0", "init": -1.0, "decay_only": -0.5}
    rows = [{**row, "seeds": [0], "finals": finals}]
    printed = scalars.latex([*rows, {**rows[0], "variant": "b"}])
    assert list(printed) == [NAME, "b"]
    _, line = cells(printed[NAME])
    assert line == [r"scores.log\_a", "1: 1, 0", "$-1.000$", "$-0.500$", *learned]


def test_layers_are_means_over_seeds_and_know_start_from_end() -> None:
    def row(seed: int, step: int, measure: str, value: float | None) -> dict[str, Any]:
        return {"variant": NAME, "seed": seed, "step": step, "layer": 0, "measure": measure, "value": value}

    rows = [row(0, 0, "gradient", 8.0), row(0, 6, "gradient", 1.0), row(1, 6, "gradient", 2.0), row(0, 6, "rms", None)]
    printed = flow.latex(rows)
    assert cells(printed["gradient_start"]) == [["variant", "0"], [SAFE.replace(r"\&", "AND"), "$8.00$"]]
    assert cells(printed["gradient"])[1][1:] == ["$1.50$"]
    assert "rms" not in printed


def test_deep_models_show_some_layers() -> None:
    rows = [
        {"variant": "a", "seed": 0, "step": 6, "layer": layer, "measure": "rms", "value": 1e-7} for layer in range(48)
    ]
    head, line = cells(flow.latex(rows)["rms"])
    assert (head[1], head[-1], len(head)) == ("0", "47", 7)
    assert line[1] == r"$1.00 \times 10^{-7}$"


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (16900.0, r"$16\,900$"),
        (1234567, r"$1\,230\,000$"),
        (0.00123, "$0.00123$"),
        (-12.34, "$-12.3$"),
        (0.09999, "$0.100$"),
        (0, "$0$"),
        (1e12, r"$1.00 \times 10^{12}$"),
        (None, "--"),
        (float("nan"), "--"),
    ],
)
def test_numbers_have_no_exponent_of_a_program(value: float | None, printed: str) -> None:
    assert latex.significant(value) == printed


def test_score_terms_have_a_line_per_layer() -> None:
    (printed,) = score_terms.latex(made_files.four_terms()["rows"]).values()
    head, *lines = cells(printed)
    assert len(head) == 8
    assert [line[0] for line in lines] == ["0", "1"]
    # Each term goes from a head's level to two above it: a deviation of one.
    assert lines[0][1:5] == ["$1.000$"] * 4
    assert lines[0][5:] == ["$0.60$", "$0.20$", "$0.05$"]
