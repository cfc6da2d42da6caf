"""An audit as a table for a terminal, from the JSON of `addnorm audit --json`.

The same finding in several layers is one row: `layer.{0-11}.key.bias`.
"""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from addnorm.reporting.formats.table import Column, ResultTable, at, dashed
from addnorm.reporting.formats.text_table import filled
from addnorm.words import Phrases, spoken, translated

Json = Mapping[str, Any]
Colour = Literal["standard", "256", "truecolor", "windows"]

STYLES = {
    "redundant": "bold red",
    "partly redundant": "red",
    "foldable": "yellow",
    "negligible": "magenta",
    "unproved": "yellow",
    "undecided": "bold magenta",
    "effective": "green",
}
"""Colours of the verdicts, worst waste first."""


@dataclass(frozen=True, kw_only=True)
class FindingRow:
    """One finding, or the same one in several layers."""

    parameters: str
    """Their common name, with layers in braces."""
    names: tuple[str, ...]
    """The parameters themselves."""
    verdict: str
    size: int
    """Entries of each."""
    free: int
    """Redundant degrees of freedom of each."""
    absorbable: int
    """Absorbable degrees of freedom of each."""
    sizes: tuple[float | None, ...]
    """Norm and largest entry of the present numbers, and the norm of the part that cannot matter: the largest among the
    parameters of the row; None where unknown."""
    why: str
    """The reason; names inside the parameter's own layer are given from there on."""


def rows(audit: Json) -> list[FindingRow]:
    """The findings in the model's order, the same one in several layers as one row."""
    groups: dict[tuple[Any, ...], list[Json]] = {}
    for finding in audit["findings"]:
        counts = tuple(finding[key] for key in ("verdict", "size", "redundant_dof", "absorbable_dof"))
        key = (_NUMBER.sub("#", finding["parameter"]), *counts)
        groups.setdefault(key, []).append(finding)
    merged = []
    for group in groups.values():
        first = group[0]
        names = tuple(finding["parameter"] for finding in group)
        name = _merged(names) or f"{names[0]} and {len(names) - 1} more"
        merged.append(
            FindingRow(
                parameters=name,
                names=names,
                verdict=first["verdict"],
                size=first["size"],
                free=first["redundant_dof"],
                absorbable=first["absorbable_dof"],
                sizes=tuple(_largest([finding.get(key) for finding in group]) for key in _SIZES),
                why=_in_short(_reason(group), name),
            )
        )
    return merged


def text(audit: Json, *, width: int = 120, colour: Colour | None = None) -> str:
    """The whole audit for a terminal, in its language: a row's counts on one line, its reason below.

    Args:
        audit: the JSON of an audit.
        width: columns; reasons and notes are wrapped, names are not.
        colour: name of a colour system that the terminal has; None for plain text.
    """
    finding_rows = rows(audit)
    sentences = (translated(entry) for entry in summary(audit))
    lines = [*_table(finding_rows, width, spoken()), *(line for entry in sentences for line in _wrapped(entry, width))]
    out = io.StringIO()
    # force_terminal: rich would otherwise look at our buffer, which is no terminal, and leave the colours out.
    console = Console(
        file=out, width=10_000, color_system=colour, force_terminal=colour is not None, highlight=False, soft_wrap=True
    )
    for line in lines:
        console.print(line, soft_wrap=True)
    return out.getvalue()


def summary(audit: Json) -> list[str]:
    """Statements about the whole model, one line each."""
    size, null = audit["size"], audit["joint_null"]
    share = f" ({100 * null / size:.3g} %)" if size else ""
    what = _TRACKED.get(audit.get("track", "bias"), "numbers looked at")
    mode = " in training mode" if audit["training"] else ""
    lines = [
        f"{audit['model']}: of {size} {what}, {null}{share} can be given up together without changing the "
        f"{_OBSERVED.get(audit['observe'], audit['observe'])}{mode}."
        if audit["findings"]
        else f"{audit['model']} has no {what}, so nothing can be given up."
    ]
    for key, description in (("observed", "Observed"), ("unobserved", "Not observed")):
        if audit.get(key):
            lines.append(f"  {description}: {', '.join(merged_names(audit[key]))}.")
    lines += [f"  Provided: {assumption}" for assumption in audit["assumptions"]]
    lines += [f"  Note: {note}" for note in audit["notes"]]
    target = audit.get("target") or {}
    lines += [f"  Target: {note}" for note in target.get("notes", ())]
    lines += [f"  ! The methods disagree: {claim}" for claim in audit["disagreements"]]
    together = audit["methods"] == "both"
    open_ones = sum(
        finding["verdict"] == "undecided" and not (together and finding.get("contradicted", True))
        for finding in audit["findings"]
    )
    if open_ones:
        lines.append(
            f"  Undecided: {open_ones} of {len(audit['findings'])} parameters, for the reasons beside them. "
            + ("The methods agree on the others." if together else "One method spoke alone, so nothing contradicts it.")
        )
    seconds = audit["seconds"].get("total")
    versions = ", ".join(f"{name} {version}" for name, version in audit["versions"].items())
    took = f" in {seconds:.1f} s" if seconds is not None else ""
    lines.append(f"  Methods: {_METHODS.get(audit['methods'], audit['methods'])}{took}; {versions}.")
    return lines


_OBSERVED = {"logits": "output", "softmax": "output's softmax", "loss": "loss"}
_TRACKED = {"bias": "bias scalars", "bias+tables": "scalars of biases and tables", "scalars": "scalars"}
_METHODS = {
    "both": "static and numerical, which agree unless stated otherwise",
    "static": "static alone",
    "numeric": "numerical alone",
}
_NUMBER = re.compile(r"(?<![A-Za-z0-9_])\d+(?![A-Za-z0-9_])")
"""A whole number that stands alone, as layers do in names."""
_MEASURED = re.compile(r"\d+(?:\.\d+)?e[+-]?\d+|\d+\.\d+")
"""A number that was measured, not counted."""


def _in_short(why: str, name: str) -> str:
    """A reason whose names do not repeat the way to the layer that the parameter itself is in."""
    layer = re.match(r".*(?:\{[0-9,-]+\}|(?<=\.)\d+)\.", name)
    return why.replace(layer.group(), "") if layer else why


def merged_names(names: Sequence[str]) -> list[str]:
    """Parameters' names, those that differ in their layer alone as one."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_NUMBER.sub("#", name), []).append(name)
    merged = []
    for group in groups.values():
        together = _merged(group)
        merged += [together] if together else group
    return merged


_SIZES = ("norm", "largest", "idle_norm")
_SIZE_COLUMNS = ("norm", "largest", "idle")


def _largest(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


size_in_words = dashed(".2g")
"""A size with two digits; a hyphen if unknown."""


def _table(finding_rows: Sequence[FindingRow], width: int, t: Phrases) -> list[Text]:
    def verdict(word: str) -> str:
        return t(f"audit.{word.replace(' ', '_')}")

    # The page's headings begin with a capital, a terminal's do not.
    columns = [
        Column("parameters", t("audit.parameter").lower(), side="l"),
        Column("verdict", t("audit.verdict").lower(), verdict, side="l"),
        *(Column(name, t(f"audit.{name}")) for name in ("size", "free", "absorbable")),
    ]
    if any(size is not None for row in finding_rows for size in row.sizes):  # earlier versions did not measure them
        columns += [
            Column(name, t(f"audit.{name}"), size_in_words, value=at("sizes", place))
            for place, name in enumerate(_SIZE_COLUMNS)
        ]
    head, *body = map(Text, ResultTable(columns, finding_rows).text().splitlines())
    heading = t("audit.verdict").lower()
    before = head.plain.partition(heading)[0]
    head.stylize("bold", len(before), len(before) + len(heading))
    start = cell_len(before)  # a Chinese heading is wider than it is long, and parameters' names are not
    lines = [head]
    for row, line in zip(finding_rows, body, strict=True):
        line.stylize(STYLES.get(row.verdict, ""), start, start + len(verdict(row.verdict)))
        lines += [line, *_wrapped(f"    {translated(row.why)}", width, "    ")]
    return [*lines, Text("")]


def _wrapped(line: str, width: int, indent: str = "") -> list[Text]:
    indent = indent or " " * (2 + len(line) - len(line.lstrip()))
    return [Text(part) for part in filled(line, width, subsequent_indent=indent).split("\n")]


def _reason(group: Sequence[Json]) -> str:
    """The reasons of one row as one; measurements, and reasons that cannot be merged, are those of the first parameter."""
    reasons = [finding["reason"] for finding in group]
    measured = iter(_MEASURED.findall(reasons[0]))
    joint = _merged([_MEASURED.sub("\0", reason) for reason in reasons])
    if not joint:
        return f"{reasons[0]} (So {group[0]['parameter']}; for the others see --json.)"
    return re.sub("\0", lambda _: next(measured), joint)


def _merged(texts: Sequence[str]) -> str:
    """One text for texts that differ only in whole numbers, with the numbers in braces; empty if they differ otherwise."""
    distinct = list(dict.fromkeys(texts))
    if len(distinct) == 1:
        return distinct[0]
    pieces = _NUMBER.split(distinct[0])
    numbers = [tuple(map(int, _NUMBER.findall(text))) for text in distinct]
    if any(_NUMBER.split(text) != pieces for text in distinct):
        return ""
    # Numbers may be merged if they are a full product (`layers.{0-3}.heads.{0-7}`) or move in step (`layer 3 … folds
    # into layer 4`). Anything else, braces would claim combinations that do not exist.
    columns = list(zip(*numbers, strict=True))
    if not _in_step(columns) and set(product(*columns)) != set(numbers):
        return ""
    return pieces[0] + "".join(
        _braced(sorted(set(column))) + piece for column, piece in zip(columns, pieces[1:], strict=True)
    )


def _in_step(columns: Sequence[tuple[int, ...]]) -> bool:
    """True if all numbers that change do so together, as the layers in one reason do."""
    moving = [column for column in columns if len(set(column)) > 1]
    return all(len({a - b for a, b in zip(column, moving[0], strict=True)}) == 1 for column in moving)


def _braced(values: Sequence[int]) -> str:
    if len(values) == 1:
        return str(values[0])
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return "{" + ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs) + "}"


_CACHE = (
    "Keys of each attention call: own biases -> canonical form. center: a channel's mean over the tokens, at its largest. "
    "spread: distances from that mean. int8, int4: error of a quantised cache relative to the spread."
)
_CACHE_COLUMNS = ("largest", "center", "spread", "int8", "int4")


def key_cache(rows: Sequence[Json]) -> str:
    """Describe the keys of a cache, before and after the canonical form: a line per attention call."""
    lines = [
        filled(translated(_CACHE), 120),
        "call  " + "  ".join(f"{name:>17}" for name in _CACHE_COLUMNS),
    ]
    for call, row in enumerate(rows):
        cells = (f"{row['before'][name]:.3g} -> {row['after'][name]:.3g}" for name in _CACHE_COLUMNS)
        lines.append(f"{call:>4}  " + "  ".join(f"{cell:>17}" for cell in cells))
    return "\n".join(lines) + "\n"
