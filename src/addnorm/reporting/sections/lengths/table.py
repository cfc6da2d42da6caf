"""Evaluation at lengths as tables: Su's (2023) layout (a line per model, a column per length), losses with verdicts, and
the buckets of positions; text, CSV and LaTeX.

Every function takes the JSON of `addnorm extrapolate --json`, not the objects behind it.
"""

import textwrap
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

from addnorm.reporting.formats.latex import escaped, number
from addnorm.reporting.formats.measured import comparison_text, thousandths
from addnorm.reporting.formats.table import Column, ResultTable, against, at, dashed
from addnorm.reporting.formats.text_table import warned


def text(evaluation: Mapping[str, Any], width: int = 100) -> str:
    """The tables for a terminal, without colour."""
    lengths = evaluation["lengths"]
    percent = f"{100 * evaluation['confidence']:g}"
    about = (
        f"Trained at {evaluation['trained']} tokens, evaluated at {', '.join(map(str, lengths))}; {_scored(evaluation)}. "
        f"{_intervals(evaluation, percent)}"
    )
    parts = [textwrap.fill(about, width)]
    for heading, cell in (
        ("Accuracy, %", partial(_cell, "accuracy")),
        ("Loss, nats per token", partial(_cell, "loss")),
        ("Perplexity", _perplexity),
    ):
        parts.append(f"{heading}:\n{_by_length(evaluation, cell).text(width)}")
    for reference in evaluation["references"]:
        compared = _by_length(evaluation, partial(_verdict, reference), side="l")
        compared.rows = [line for line in compared.rows if line["label"] != reference]
        heading = f"Loss against {reference}, thousandths of a nat (margin {1000 * evaluation['margin']:g}):"
        parts += [f"{heading}\n{block}" for block in (compared.blocks(width) if compared.rows else ())]
    longest = [row for row in evaluation["rows"] if row["length"] == lengths[-1] and row["buckets"]]
    if longest:
        buckets = [
            (f"{b['from']}-{b['to'] - 1}", at("buckets", place)) for place, b in enumerate(longest[0]["buckets"])
        ]
        for measure, cell in (
            ("Loss", partial(_cell, "loss", with_reach=False)),
            ("Accuracy, %,", partial(_cell, "accuracy", with_reach=False)),
            ("Perplexity", _perplexity),
        ):
            columns = (Column(name, form=cell, value=value) for name, value in buckets)
            table = ResultTable([Column("label", "", side="l"), *columns], longest)
            parts.append(f"{measure} by position in windows of {lengths[-1]}:\n{table.text(width)}")
    parts += warned(evaluation["warnings"], width)
    return "\n\n".join(parts) + "\n"


def csv(evaluation: Mapping[str, Any]) -> str:
    """One line per model and length, numbers in full precision, an empty cell for None."""

    def ends(measure: str) -> list[Column]:
        return [Column(f"{measure}_{end}", value=at(f"{measure}_interval", k)) for k, end in enumerate(("low", "high"))]

    columns = (
        *map(Column, ("variant", "switch", "length", "multiple", "seeds", "loss")),
        *ends("loss"),
        Column("accuracy"),
        *ends("accuracy"),
        Column("perplexity"),
        *(column for reference in evaluation["references"] for column in against(reference)),
    )
    return ResultTable(columns, evaluation["rows"]).csv()


def latex(evaluation: Mapping[str, Any]) -> str:
    r"""Su's (2023) table of accuracies as a `tabular` with booktabs rules."""
    table = _by_length(
        evaluation, lambda row: number(None if row["accuracy"] is None else 100 * row["accuracy"], 2), name=escaped
    )
    return table.latex(
        f"Accuracy in per cent, trained at {evaluation['trained']} tokens; {_scored(evaluation)}. "
        "Intervals are in the CSV file."
    )


def _scored(evaluation: Mapping[str, Any]) -> str:
    if evaluation["scoring"] == "window":
        return "every position of every window is scored, and every length scores the same targets"
    return f"every length is scored on the same {evaluation['ending']} targets at the end of each segment of text"


def _intervals(evaluation: Mapping[str, Any], percent: str) -> str:
    """A sentence on what the intervals are over."""
    together = f"hold for all lengths together with {percent} % confidence"
    if evaluation.get("intervals_over") != "segments":  # results of earlier versions are of studies
        return f"All intervals are over seeds, and {together}."
    pieces = f"the {evaluation['stretches']} segments of {evaluation['stretch']} tokens of this text"
    if all(row["loss_interval"] is None for row in evaluation["rows"]):
        return f"No intervals: {pieces} are too few."
    return f"All intervals are over {pieces}, and {together}; they say nothing about other seeds."


def _by_length(
    evaluation: Mapping[str, Any],
    cell: Callable[[Mapping[str, Any]], str],
    *,
    side: Literal["l", "r"] = "r",
    name: Callable[[str], str] = str,
) -> ResultTable:
    """A line per model, and a column per length with what `cell` says of a row."""
    rows = {(row["label"], row["length"]): row for row in evaluation["rows"]}
    columns = (Column(str(length), form=cell, side=side, value=at(length)) for length in evaluation["lengths"])
    lines = [
        {"label": line["label"], **{length: rows[line["label"], length] for length in evaluation["lengths"]}}
        for line in evaluation["lines"]
    ]
    return ResultTable([Column("label", "", name, "l"), *columns], lines)


def _cell(measure: Literal["loss", "accuracy"], row: Mapping[str, Any], *, with_reach: bool = True) -> str:
    """A mean and, if it is known, half of its interval; an accuracy in per cent."""
    digits, factor = (2, 100.0) if measure == "accuracy" else (4, 1.0)
    cell = dashed(lambda value: f"{factor * value:.{digits}f}")(row[measure])
    ends = row[f"{measure}_interval"] if with_reach else None
    return cell if ends is None else f"{cell} ±{factor * (ends[1] - ends[0]) / 2:.{digits}f}"


def _perplexity(row: Mapping[str, Any]) -> str:
    return dashed(".4g")(row["perplexity"])


def _verdict(reference: str, row: Mapping[str, Any]) -> str:
    versus = row["versus"].get(reference)
    return "-" if versus is None else comparison_text(versus, thousandths)
