"""The ranking as a table: plain text for a terminal, CSV for a spreadsheet, LaTeX for a paper.

Every function takes the JSON of `addnorm rank --json`, not the objects behind it. Losses are in nats per token; in text
and LaTeX, differences are in thousandths of a nat, because that is their size.
"""

import csv as csv_format
import io
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.tables.latex import escaped, tabular

NONE = "-"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One variant, ready to print."""

    variant: str
    ranks: str
    """Ranks left open, such as `2` or `2-5`."""
    seeds: str
    loss: str
    """Mean loss in nats per token."""
    reach: str
    """Half of the mean's interval."""
    accuracy: str
    """Per cent."""
    tier: str
    versus: tuple[str, ...]
    """One cell per reference."""


def rows(ranking: Mapping[str, Any]) -> list[Row]:
    """Cells of the table, in the ranking's order."""
    return [_row(entry, ranking["references"]) for entry in ranking["variants"]]


def text(ranking: Mapping[str, Any], width: int = 100) -> str:
    """The ranking for a terminal, without colour.

    Args:
        ranking: the JSON of a ranking.
        width: columns; comparisons that do not fit side by side go below each other.
    """
    found = rows(ranking)
    title = f"Loss in nats per token, lower is better; ± is for each mean alone. Margin ±{ranking['margin']:g}."
    if ranking["provisional"]:
        title += " PROVISIONAL: runs have yet to end."
    head = ["ranks", "variant", "seeds", "loss", "±", "acc. %", "tier"]
    body = [[r.ranks, r.variant, r.seeds, r.loss, r.reach, r.accuracy, r.tier] for r in found]
    parts = [textwrap.fill(title, width), "\n".join(_aligned(head, body, left={1, 6}))]
    parts += _values(ranking["variants"], width)
    if ranking["references"]:
        percent = f"{100 * ranking['confidence']:g}"
        heading = f"Differences in thousandths of a nat; all intervals together hold with {percent} % confidence:"
        parts.append(textwrap.fill(heading, width))
        parts += _side_by_side(ranking["references"], found, width)
    notes = [textwrap.fill(f"! {note}", width, subsequent_indent="  ") for note in ranking["warnings"]]
    if notes:
        parts.append("\n".join(notes))
    return "\n\n".join(parts) + "\n"


def csv(ranking: Mapping[str, Any]) -> str:
    """One line per variant, numbers in full precision, an empty cell where there is none."""
    fields = ("verdict", "difference", "low", "high", "seeds_needed")
    head = ["variant", "seeds", "mean", "low", "high", "accuracy", "tier", "firm", "best_rank", "worst_rank"]
    head += [f"{reference}:{field}" for reference in ranking["references"] for field in fields]
    out = io.StringIO()
    writer = csv_format.writer(out, lineterminator="\n")
    writer.writerow(head)
    for entry in ranking["variants"]:
        line = [entry["variant"], entry["seeds"], entry["mean"], *_two(entry["interval"]), entry["accuracy"]]
        line += [entry["tier"]["label"], entry["tier"]["firm"], *_two(entry["rank_interval"])]
        for reference in ranking["references"]:
            comparison = entry["versus"].get(reference)
            if comparison is None:
                line += [None] * len(fields)
            else:
                line += [comparison["verdict"], comparison["difference"], *_two(comparison["interval"])]
                line += [comparison["seeds_needed"]]
        writer.writerow(line)
    return out.getvalue()


def latex(ranking: Mapping[str, Any]) -> str:
    r"""A `tabular` with booktabs rules (`\usepackage{booktabs}`), names escaped, warnings as comments above it."""
    references = ranking["references"]
    head = ["ranks", "variant", "seeds", "loss", r"acc.\,\%", "tier", *(f"vs {escaped(name)}" for name in references)]
    about = (
        "Differences in thousandths of a nat; intervals hold together at "
        f"{100 * ranking['confidence']:g} %; margin {ranking['margin']:g} nats."
    )
    lines = []
    for row in rows(ranking):
        loss = row.loss if row.reach == NONE else rf"${row.loss} \pm {row.reach}$"
        cells = [row.ranks.replace("-", "--") if row.ranks != NONE else NONE, escaped(row.variant), row.seeds, loss]
        cells += [row.accuracy, escaped(row.tier), *(_signs(escaped(cell)) for cell in row.versus)]
        lines.append(cells)
    return tabular("rlrrrl" + "l" * len(references), head, lines, [*ranking["warnings"], about])


def _row(entry: Mapping[str, Any], references: Sequence[str]) -> Row:
    interval = entry["interval"]
    name = entry["variant"] if entry["same_as"] is None else f"{entry['variant']} (= {entry['same_as']})"
    best = entry["rank_interval"]
    return Row(
        variant=name,
        ranks=NONE if best is None else str(best[0]) if best[0] == best[1] else f"{best[0]}-{best[1]}",
        seeds=str(entry["seeds"]),
        loss=NONE if entry["mean"] is None else f"{entry['mean']:.4f}",
        reach=NONE if interval is None else f"{(interval[1] - interval[0]) / 2:.4f}",
        accuracy=NONE if entry["accuracy"] is None else f"{100 * entry['accuracy']:.2f}",
        tier=entry["tier"]["label"] if entry["tier"]["firm"] or not _bounded(entry) else f"{entry['tier']['label']} ?",
        versus=tuple(_cell(entry["versus"].get(reference)) for reference in references),
    )


def _values(entries: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    """Every run's loss, a column per seed; nothing where no variant has more than one run."""
    if all(len(entry.get("values", ())) < 2 for entry in entries):
        return []
    seeds = sorted({value["seed"] for entry in entries for value in entry.get("values", ())})
    body = []
    for entry in entries:
        cells = {value["seed"]: _value(value) for value in entry.get("values", ())}
        body.append([entry["variant"], *(cells.get(seed, NONE) for seed in seeds)])
    cells_shown = [cell for line in body for cell in line[1:]]
    meanings = [
        meaning for mark, meaning in _MARKS.items() if any(cell.lstrip("0123456789.") == mark for cell in cells_shown)
    ]
    heading = textwrap.fill(f"Loss per seed{''.join(f'; {meaning}' for meaning in meanings)}:", width)
    return [heading, "\n".join(_aligned(["variant", *(f"seed {seed}" for seed in seeds)], body, left={0}))]


_MARKS = {
    "=": "= a copy of another run, counted once",
    "*": "* not in the first plan",
    "**": "** added after a look at results",
}


def _value(value: Mapping[str, Any]) -> str:
    if value["loss"] is None:
        return str(value["state"])
    return f"{value['loss']:.4f}" + (
        "=" if not value["counted"] else "**" if value["after_look"] else "" if value["planned"] else "*"
    )


def _bounded(entry: Mapping[str, Any]) -> bool:
    """Whether the tier rules out some gap, so that "?" says that more than one is left."""
    return str(entry["tier"]["label"]).startswith(("above", "between", "below"))


def _cell(comparison: Mapping[str, Any] | None) -> str:
    if comparison is None:
        return NONE
    cell = comparison["verdict"] or "no verdict"
    if comparison["difference"] is not None:
        cell += f" {1000 * comparison['difference']:+.1f}"
    if comparison["interval"] is not None:
        low, high = (1000 * end for end in comparison["interval"])
        cell += f" [{low:+.1f}, {high:+.1f}]"
    if comparison["seeds_needed"] is not None:
        cell += f" {comparison['seeds_needed']} seeds"
    return cell


def _aligned(head: Sequence[str], body: Sequence[Sequence[str]], left: set[int]) -> list[str]:
    widths = [max(len(line[i]) for line in (head, *body)) for i in range(len(head))]
    return [
        "  ".join(
            cell.ljust(w) if i in left else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in (head, *body)
    ]


def _side_by_side(references: Sequence[str], found: Sequence[Row], width: int) -> list[str]:
    """As many references beside each other as the width holds, the rest in further blocks."""
    name_width = max(len("variant"), *(len(row.variant) for row in found))
    blocks: list[list[int]] = [[]]
    used = name_width
    for index, reference in enumerate(references):
        needed = 2 + max(len(f"vs {reference}"), *(len(row.versus[index]) for row in found))
        if blocks[-1] and used + needed > width:
            blocks.append([])
            used = name_width
        blocks[-1].append(index)
        used += needed
    return [
        "\n".join(
            _aligned(
                ["variant", *(f"vs {references[i]}" for i in block)],
                [[row.variant, *(row.versus[i] for i in block)] for row in found],
                left=set(range(len(block) + 1)),
            )
        )
        for block in blocks
    ]


def _two(ends: Sequence[Any] | None) -> Sequence[Any]:
    return (None, None) if ends is None else ends


def _signs(cell: str) -> str:
    """Numbers in math mode, where a minus is a minus and not a hyphen."""
    return re.sub(r"\[[^]]*\]|[+-][0-9.]+", lambda number: f"${number.group()}$", cell)
