"""Evaluation at lengths as tables: Su's (2023) layout (a line per model, a column per length), losses with verdicts, and
the buckets of positions; text, CSV and LaTeX.

Every function takes the JSON of `addnorm extrapolate --json`, not the objects behind it.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

from addnorm.reporting.formats.latex import escaped, number
from addnorm.reporting.formats.measured import RankingFormats, comparison_text
from addnorm.reporting.formats.table import Column, ResultTable, against, at, dashed
from addnorm.reporting.formats.text_table import filled, warned
from addnorm.words import Phrases, phrases, spoken, translated


def text(evaluation: Mapping[str, Any], width: int = 100) -> str:
    """The tables for a terminal, without colour, in its language."""
    lengths, t = evaluation["lengths"], spoken()
    shown = RankingFormats.of({"metric": "loss", **evaluation}, t)
    tested = t("joint.comma").join(map(str, lengths))
    about = t("by_length.about", trained=evaluation["trained"], lengths=tested, scored=_scored(evaluation, t))
    parts = [filled(about + _intervals(evaluation, t), width)]
    for name in ("accuracy", "loss", "perplexity"):
        table = _by_length(evaluation, _perplexity if name == "perplexity" else partial(_cell, name))
        parts.append(f"{t(f'by_length.{name}', unit=shown.unit)}\n{table.text(width)}")
    for reference in evaluation["references"]:
        compared = _by_length(evaluation, partial(_verdict, reference, shown, t), side="l")
        compared.rows = [line for line in compared.rows if line["label"] != reference]
        margin = shown.factor * evaluation["margin"]
        heading = t("by_length.against", reference=reference, unit=shown.small_unit, margin=margin)
        parts += [f"{heading}\n{block}" for block in (compared.blocks(width) if compared.rows else ())]
    longest = [row for row in evaluation["rows"] if row["length"] == lengths[-1] and row["buckets"]]
    if longest:
        buckets = [
            (f"{b['from']}-{b['to'] - 1}", at("buckets", place)) for place, b in enumerate(longest[0]["buckets"])
        ]
        for measure in ("loss", "accuracy", "perplexity"):
            cell = _perplexity if measure == "perplexity" else partial(_cell, measure, with_reach=False)
            columns = (Column(name, form=cell, value=value) for name, value in buckets)
            table = ResultTable([Column("label", "", side="l"), *columns], longest)
            parts.append(f"{t(f'by_length.{measure}_by_position', length=lengths[-1])}\n{table.text(width)}")
    parts += warned([translated(warning, t) for warning in evaluation["warnings"]], width)
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
        f"Accuracy in per cent, trained at {evaluation['trained']} tokens; {_scored(evaluation, phrases('en'))}. "
        "Intervals are in the CSV file."
    )


def _scored(evaluation: Mapping[str, Any], t: Phrases) -> str:
    if evaluation["scoring"] == "window":
        return t("by_length.every_position")
    return t("by_length.endings", count=evaluation["ending"])


def _intervals(evaluation: Mapping[str, Any], t: Phrases) -> str:
    """A sentence on what the intervals are over."""
    percent = f"{100 * evaluation['confidence']:g}"
    if evaluation.get("intervals_over") != "segments":  # results of earlier versions are of studies
        return t("by_length.over_seeds", percent=percent)
    pieces = {"count": evaluation["stretches"], "tokens": evaluation["stretch"]}
    if all(row["loss_interval"] is None for row in evaluation["rows"]):
        return t("by_length.no_intervals", **pieces)
    return t("by_length.over_segments", percent=percent, **pieces)


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


def _cell(measure: str, row: Mapping[str, Any], *, with_reach: bool = True) -> str:
    """A mean and, if it is known, half of its interval; an accuracy in per cent."""
    digits, factor = (2, 100.0) if measure == "accuracy" else (4, 1.0)
    cell = dashed(lambda value: f"{factor * value:.{digits}f}")(row[measure])
    ends = row[f"{measure}_interval"] if with_reach else None
    return cell if ends is None else f"{cell} ±{factor * (ends[1] - ends[0]) / 2:.{digits}f}"


def _perplexity(row: Mapping[str, Any]) -> str:
    return dashed(".4g")(row["perplexity"])


def _verdict(reference: str, shown: RankingFormats, t: Phrases, row: Mapping[str, Any]) -> str:
    versus = row["versus"].get(reference)
    if versus is None:
        return "-"
    return comparison_text(versus, shown.difference, word=t(f"verdict.{versus['verdict'] or 'none'}"), t=t)
