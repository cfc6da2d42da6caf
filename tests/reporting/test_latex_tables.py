"""What a report gives to a paper: balanced tables with booktabs rules, the right numbers, nothing in them a command."""

from typing import Any

import pytest

import made_files
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


def test_curves_show_evaluations_their_last_and_their_best() -> None:
    rows = [
        curve("train_loss", [1, 2, 3], [9.0, 8.0, 7.0]),
        curve("loss", [10, 20, 30], [3.0, 2.0, 2.5]),
        curve("accuracy", [10, 20, 30], [0.25, 0.75, 0.5]),
    ]
    printed = curves.latex(rows)
    head, loss, accuracy = cells(printed)
    assert head == ["variant", "measure", "step 10", "step 20", "last", "range", "best", "at step"]
    assert loss[1:] == ["loss", "$3.0000$", "$2.0000$", "$2.5000$", "$[2.0000, 3.0000]$", "$2.0000$", "20"]
    assert accuracy[1:] == [r"accuracy, \%", "$25.00$", "$75.00$", "$50.00$", "$[0.00, 100.00]$", "$75.00$", "20"]
    assert SAFE in printed


def test_curves_without_an_evaluation_show_the_training_loss() -> None:
    _, line = cells(curves.latex([curve("train_loss", [1, 2], [9.0, 8.0]), curve("loss", [], [])]))
    assert line[1:4] == ["training loss", "$9.0000$", "$8.0000$"]


def test_many_evaluations_are_shown_in_few_columns() -> None:
    steps = list(range(10, 1010, 10))
    head, line = cells(curves.latex([curve("loss", steps, [float(step) for step in steps])]))
    shown = [int(title.removeprefix("step ")) for title in head if title.startswith("step ")]
    assert len(shown) == 5
    assert shown == sorted(set(shown))
    assert shown[-1] == 990
    assert line[2] == f"${shown[0]:.4f}$"
    assert line[-4] == "$1000.0000$"


def test_a_variant_that_has_not_come_as_far_has_a_dash() -> None:
    _, _, short = cells(curves.latex([curve("loss", [10, 20, 30], [3.0, 2.0, 1.0]), curve("loss", [10], [3.0])]))
    assert short[2:5] == ["$3.0000$", "--", "$3.0000$"]


@pytest.mark.parametrize(
    ("finals", "learned"), [([0.25, 0.75], ["$0.5000$", "$0.3536$", "2"]), ([0.5], ["$0.5000$", "--", "1"])]
)
def test_scalars_have_a_line_each(finals: list[float], learned: list[str]) -> None:
    row = {"variant": NAME, "parameter": "scores.log_a", "layer": 1, "entry": "1, 0", "init": -1.0, "decay_only": -0.5}
    _, line = cells(scalars.latex([{**row, "seeds": [0], "finals": finals}]))
    assert line[1:] == [r"scores.log\_a", "1", "1, 0", "$-1.0000$", "$-0.5000$", *learned]


def test_layers_are_means_over_seeds_and_know_start_from_end() -> None:
    def row(seed: int, step: int, measure: str, value: float | None) -> dict[str, Any]:
        return {"variant": NAME, "seed": seed, "step": step, "layer": 0, "measure": measure, "value": value}

    rows = [row(0, 0, "gradient", 8.0), row(0, 6, "gradient", 1.0), row(1, 6, "gradient", 2.0), row(0, 6, "rms", None)]
    head, line = cells(flow.latex(rows))
    assert head == ["variant", "layer", "gradient at the start", "at the end"]
    assert line[1:] == ["0", "8", "1.5"]


def test_score_terms_have_a_line_per_layer() -> None:
    head, *lines = cells(score_terms.latex(made_files.four_terms()["rows"]))
    assert len(head) == 9
    assert [line[:2] for line in lines] == [["base-s0", "0"], ["base-s0", "1"]]
    # Each term goes from a head's level to two above it: a deviation of one.
    assert lines[0][2:6] == ["$1.000$"] * 4
    assert lines[0][6:] == ["$0.60$", "$0.20$", "$0.05$"]
