"""Evaluation at lengths as tables: Su's (2023) layout (a line per model, a column per length), losses with verdicts, and
the buckets of positions; text, CSV and LaTeX.

Every function takes the JSON of `addnorm extrapolate --json`, not the objects behind it.
"""

import csv as csv_format
import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from addnorm.reporting.formats.latex import NONE as NONE_IN_LATEX
from addnorm.reporting.formats.latex import escaped, tabular
from addnorm.reporting.formats.text_table import aligned

NONE = "-"


def text(found: Mapping[str, Any], width: int = 100) -> str:
    """The tables for a terminal, without colour."""
    lengths = found["lengths"]
    percent = f"{100 * found['confidence']:g}"
    head = ["", *(str(length) for length in lengths)]
    about = (
        f"Trained at {found['trained']} tokens, evaluated at {', '.join(map(str, lengths))}; {_scored(found)}. "
        f"{_intervals(found, percent)}"
    )
    parts = [textwrap.fill(about, width)]
    for heading, cell in (("Accuracy, %", _accuracy), ("Loss, nats per token", _loss), ("Perplexity", _perplexity)):
        parts.append(f"{heading}:\n" + aligned([head, *_table(found, cell)], width=width))
    for reference in found["references"]:
        body = [line for line in _table(found, partial(_verdict, reference)) if line[0] != reference]
        heading = f"Loss against {reference}, thousandths of a nat (margin {1000 * found['margin']:g}):"
        parts += ["\n".join(block) for block in _blocks(heading, head, body, width)]
    longest = [row for row in found["rows"] if row["length"] == lengths[-1] and row["buckets"]]
    if longest:
        buckets = ["", *(f"{b['from']}-{b['to'] - 1}" for b in longest[0]["buckets"])]
        for measure, cell in (("Loss", _plain_loss), ("Accuracy, %,", _plain_accuracy), ("Perplexity", _perplexity)):
            cells = [[row["label"], *map(cell, row["buckets"])] for row in longest]
            parts.append(
                f"{measure} by position in windows of {lengths[-1]}:\n" + aligned([buckets, *cells], width=width)
            )
    notes = [textwrap.fill(f"! {note}", width, subsequent_indent="  ") for note in found["warnings"]]
    if notes:
        parts.append("\n".join(notes))
    return "\n\n".join(parts) + "\n"


def csv(found: Mapping[str, Any]) -> str:
    """One line per model and length, numbers in full precision, an empty cell for None."""
    head = ["variant", "switch", "length", "multiple", "seeds", "loss", "loss_low", "loss_high"]
    head += ["accuracy", "accuracy_low", "accuracy_high", "perplexity"]
    fields = ("verdict", "difference", "low", "high", "seeds_needed")
    head += [f"{reference}:{field}" for reference in found["references"] for field in fields]
    out = io.StringIO()
    writer = csv_format.writer(out, lineterminator="\n")
    writer.writerow(head)
    for row in found["rows"]:
        line = [row[name] for name in ("variant", "switch", "length", "multiple", "seeds", "loss")]
        line += [*_ends(row["loss_interval"]), row["accuracy"], *_ends(row["accuracy_interval"]), row["perplexity"]]
        for reference in found["references"]:
            versus = row["versus"].get(reference)
            if versus is None:
                line += [None] * len(fields)
            else:
                line += [versus["verdict"], versus["difference"], *_ends(versus["interval"]), versus["seeds_needed"]]
        writer.writerow(line)
    return out.getvalue()


def latex(found: Mapping[str, Any]) -> str:
    r"""Su's (2023) table of accuracies as a `tabular` with booktabs rules."""
    about = (
        f"Accuracy in per cent, trained at {found['trained']} tokens; {_scored(found)}. Intervals are in the CSV file."
    )
    lines = []
    for label, *cells in _table(found, _plain_accuracy):
        lines.append([escaped(label), *(NONE_IN_LATEX if cell == NONE else f"${cell}$" for cell in cells)])
    return tabular("l" + "r" * len(found["lengths"]), ["", *map(str, found["lengths"])], lines, [about])


def _scored(found: Mapping[str, Any]) -> str:
    if found["scoring"] == "window":
        return "every position of every window is scored, and every length scores the same targets"
    return f"every length is scored on the same {found['ending']} targets at the end of each segment of text"


def _intervals(found: Mapping[str, Any], percent: str) -> str:
    """A sentence on what the intervals are over."""
    together = f"hold for all lengths together with {percent} % confidence"
    if found.get("intervals_over") != "segments":  # results of earlier versions are of studies
        return f"All intervals are over seeds, and {together}."
    pieces = f"the {found['stretches']} segments of {found['stretch']} tokens of this text"
    if all(row["loss_interval"] is None for row in found["rows"]):
        return f"No intervals: {pieces} are too few."
    return f"All intervals are over {pieces}, and {together}; they say nothing about other seeds."


def _table(found: Mapping[str, Any], cell: Callable[[Mapping[str, Any]], str]) -> list[list[str]]:
    rows = {(row["label"], row["length"]): row for row in found["rows"]}
    return [
        [line["label"], *(cell(rows[line["label"], length]) for length in found["lengths"])] for line in found["lines"]
    ]


def _accuracy(row: Mapping[str, Any]) -> str:
    return _with_reach(row["accuracy"], row["accuracy_interval"], 2, 100.0)


def _loss(row: Mapping[str, Any]) -> str:
    return _with_reach(row["loss"], row["loss_interval"], 4, 1.0)


def _plain_accuracy(row: Mapping[str, Any]) -> str:
    return NONE if row["accuracy"] is None else f"{100 * row['accuracy']:.2f}"


def _plain_loss(row: Mapping[str, Any]) -> str:
    return _number(row["loss"], 4)


def _perplexity(row: Mapping[str, Any]) -> str:
    return NONE if row["perplexity"] is None else f"{row['perplexity']:.4g}"


def _with_reach(mean: float | None, interval: Sequence[float] | None, digits: int, factor: float) -> str:
    cell = _number(None if mean is None else factor * mean, digits)
    return cell if interval is None else f"{cell} ±{factor * (interval[1] - interval[0]) / 2:.{digits}f}"


def _verdict(reference: str, row: Mapping[str, Any]) -> str:
    versus = row["versus"].get(reference)
    if versus is None:
        return NONE
    cell = versus["verdict"] or "no verdict"
    if versus["difference"] is not None:
        cell += f" {1000 * versus['difference']:+.1f}"
    if versus["interval"] is not None:
        low, high = (1000 * end for end in versus["interval"])
        cell += f" [{low:+.1f}, {high:+.1f}]"
    return cell


def _number(value: float | None, digits: int) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def _ends(interval: Sequence[float] | None) -> Sequence[float | None]:
    return (None, None) if interval is None else interval


def _blocks(heading: str, head: Sequence[str], body: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """As many columns beside each other as the width holds, the rest in further blocks."""
    if not body:
        return []
    widths = [max(len(row[column]) for row in (head, *body)) for column in range(len(head))]
    found: list[list[int]] = [[]]
    for column in range(1, len(head)):
        if found[-1] and widths[0] + sum(2 + widths[at] for at in (*found[-1], column)) > width:
            found.append([])
        found[-1].append(column)
    return [
        [heading, aligned([[row[at] for at in (0, *columns)] for row in (head, *body)], left=range(1 + len(columns)))]
        for columns in found
    ]
