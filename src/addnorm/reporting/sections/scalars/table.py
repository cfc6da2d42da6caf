"""Learned scalars: as text, from the JSON of `addnorm explain`, and as a LaTeX table (booktabs), from a report's rows."""

import math
import statistics
import textwrap
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from addnorm.reporting.formats.latex import NONE, escaped, number
from addnorm.reporting.formats.listing import grouped
from addnorm.reporting.formats.table import Column, ResultTable, dashed
from addnorm.reporting.formats.text_table import filled
from addnorm.reporting.sections.scalars.over_seeds import sentences
from addnorm.reporting.sections.scalars.verdicts import VERDICTS
from addnorm.statistics.departures import FamilyDepartures
from addnorm.words import spoken, translated

Json = dict[str, Any]


def text(explained: Json, width: int = 100, *, entries: bool = False) -> str:
    """One block per variant: counts over seeds of each family of scalars.

    Args:
        explained: JSON of `addnorm explain`.
        width: columns of the terminal.
        entries: add a line per scalar: value, value that weight decay alone would have left, and verdict over seeds.
    """
    learned = grouped([run for run in explained["runs"] if run["scalars"]], lambda run: str(run["variant"]))
    blocks = [_variant(explained, runs, width, entries=entries) for _, runs in learned]
    empty = dict.fromkeys(run["variant"] for run in explained["runs"] if not run["scalars"])
    if empty:
        blocks.append(filled(translated(f"No learned scalars in: {', '.join(empty)}."), width))
    blocks += [
        filled(translated(f"! {name} was left out: {reason}"), width) for name, reason in explained["skipped"].items()
    ]
    if explained.get("conclusions"):
        blocks.append(_conclusions(explained["conclusions"]))
    if learned and not entries:
        blocks.append(translated("Every number: --entries."))
    return "\n\n".join(blocks)


def tables(explained: Json) -> str:
    """The appendix of Kuang (2025) for any run: formula, then per layer the vector, its mean, standard deviation, least and
    largest. Numbers that are learned as logarithms (`log_a`) are printed as themselves (`a`), as that source prints them."""
    blocks = []
    for run in explained["runs"]:
        families: dict[str, dict[int, list[Json]]] = defaultdict(lambda: defaultdict(list))
        for entry in run["scalars"]:
            family = entry["parameter"].rstrip("0123456789").rstrip(".").replace("log_", "")
            families[family][-1 if entry["layer"] is None else entry["layer"]].append(entry)
        for family, layers in families.items():
            blocks.append(
                f"{run['run']}  {family}\n" + "\n".join(_layer(layer, rows) for layer, rows in layers.items())
            )
    return "\n\n".join(blocks)


def latex(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """A table per variant, a line per scalar: what decay alone would have left, and mean and deviation of the learned value.

    Args:
        rows: those of the figure of scalars: `variant`, `parameter`, `layer`, `entry`, `init`, `decay_only`, `finals`.
    """
    learned = (
        Column("learned", form=lambda finals: number(statistics.fmean(finals) if finals else None, 3), value=_finals),
        Column(
            "dev.", form=lambda finals: number(statistics.stdev(finals) if len(finals) > 1 else None, 3), value=_finals
        ),
    )
    columns = (
        Column("parameter", form=escaped, side="l"),
        Column("entry", form=lambda place: escaped(place) or NONE, side="l", value=_place),
        Column("init", "start", lambda value: number(value, 3)),
        Column("decay_only", "decay", lambda value: number(value, 3)),
        *learned,
    )
    return {
        variant: ResultTable(columns, of).latex(_about(variant, of))
        for variant, of in grouped(rows, lambda row: str(row["variant"]))
    }


def _finals(row: Mapping[str, Any]) -> list[float]:
    return [value for value in row["finals"] if value is not None]


def _place(row: Mapping[str, Any]) -> str:
    return row["entry"] if row["layer"] is None else f"{row['layer']}: {row['entry']}"


def _about(variant: str, rows: Sequence[Mapping[str, Any]]) -> str:
    seeds = max(len(row["finals"]) for row in rows)
    return (
        f"{variant}: values as they are learned; mean and sample standard deviation over {seeds} seeds. "
        "Entry: layer, then index. Decay: what weight decay alone would have left."
    )


def _variant(explained: Json, runs: list[Json], width: int, *, entries: bool) -> str:
    first = runs[0]
    steps = sorted({run["steps"] for run in runs})
    seeds = [str(run["seed"]) for run in runs if run["seed"] is not None]
    counted = "–".join(map(str, dict.fromkeys((steps[0], steps[-1]))))
    left = f"{first['decay_factor']:.6f}"
    runs_of = f"{counted} steps, seeds {', '.join(seeds)}" if seeds else f"{counted} steps"
    lines = [
        translated(f"{first['variant']}: {runs_of}. Weight decay alone would leave {left} of each number."),
    ]
    spread = [row for row in explained["spread"] if row["variant"] == first["variant"]]
    for row in explained["families"]:
        if row["variant"] == first["variant"]:
            lines += ["", f"{row['parameter']}", *_indented(_family_in_words(row, spread), width)]
    for each in (_lockstep(first), _gauges(first), _undriven(runs), _too_few_steps(first)):
        lines += ["", filled(translated(each), width)] if each else []
    if entries:
        lines += ["", _entries(spread, {f"{e['parameter']}{e['index']}": e for e in first["scalars"]}, width)]
    return "\n".join(lines)


def _family_in_words(row: Json, spread: list[Json]) -> str:
    """The sentences of the page, then how many numbers have each verdict; redundant ones are in the sentences."""
    t = spoken()
    of = FamilyDepartures(**{key: value for key, value in row.items() if key != "variant"})
    verdicts = Counter(entry["verdict"] for entry in spread if entry["parameter"] == row["parameter"])
    counts = [
        f"{t(f'scalars.{key}')} {verdicts[name]}"
        for name, key in VERDICTS.items()
        if verdicts[name] and key != "redundant"
    ]
    verdict_words = [translated(f"Verdicts: {', '.join(counts)}.")] if counts else []
    return t("common.between_sentences").join([*sentences(of, t), *verdict_words])


def _entries(spread: list[Json], scalars: Mapping[str, Json], width: int) -> str:
    columns = [
        Column("layer", value=lambda row: scalars[row["entry"]]["layer"]),
        Column("entry", "scalar", side="l"),
        Column("effective_mean", "effective", dashed(".4f")),
        Column("init", form=dashed(".4f"), value=lambda row: scalars[row["entry"]]["init"]),
        Column("final_mean", "final", dashed(".4f")),
        Column("final_sd", "± seeds", dashed(".4f")),
        Column("decay_only", "decay only", dashed(".4f")),
        Column("decay_share", "by decay", dashed(".0%")),
        Column("snr", "SNR", dashed(".1f")),
        Column("directions", "redundant direction", lambda directions: ", ".join(map(str, directions)) or "-"),
        Column("verdict", side="l"),
    ]
    if not any(row["directions"] for row in spread):
        del columns[9]
    return ResultTable(columns, spread).text(width, names=2)


def _lockstep(run: Json) -> str:
    if not run["lockstep"]:
        return ""
    differences = [pair["difference_final"] for pair in run["lockstep"]]
    first = run["lockstep"][0]
    where = "" if run["seed"] is None else f" in seed {run['seed']}"
    return (
        f"{len(differences)} pairs moved in lockstep{where}: their differences ({min(differences):.4f} to "
        f"{max(differences):.4f}) are what decay leaves ({first['difference_decay_only']:.4f}) of "
        f"{first['difference_init']:g}."
    )


def _gauges(run: Json) -> str:
    if not run.get("gauges"):
        return ""
    absorbed = run.get("absorbed_by", {})
    named = [
        f"{group} ({', '.join(map(translated, absorbed[group]))})" if absorbed.get(group) else group
        for group in run["gauges"]
    ]
    return (
        f"Gauges: {', '.join(named)}. Other parameters can absorb every change of them, so their values say "
        "nothing alone: read the shares and the weights free of scale of `addnorm inspect`."
    )


def _undriven(runs: list[Json]) -> str:
    names = [name for name in runs[0]["undriven"] if all(name in run["undriven"] for run in runs)]
    return f"Undriven (no gradient at all): {', '.join(names)}." if names else ""


def _too_few_steps(run: Json) -> str:
    owners = run.get("too_few_steps")
    return f"Too few steps to tell redundant directions of: {', '.join(owners)}." if owners else ""


def _indented(words: str, width: int) -> list[str]:
    return textwrap.indent(filled(words, width - 2), "  ").split("\n")


def _layer(layer: int, rows: list[Json]) -> str:
    learned = [math.exp(row["final"]) if "log_" in row["parameter"] else row["final"] for row in rows]
    effective = ", ".join(f"{row['effective']:.6f}" for row in rows)
    return (
        f"Layer {'-' if layer < 0 else layer} (vector length: {len(learned)}): [{', '.join(f'{v:.6f}' for v in learned)}]\n"
        f"  mean {statistics.fmean(learned):.6f}  std {statistics.pstdev(learned):.6f}  "
        f"min {min(learned):.6f}  max {max(learned):.6f}\n"
        f"  effective coefficients: [{effective}]"
    )


def _conclusions(claims: list[Json]) -> str:
    lines = ["What was concluded from these values, and whether it follows:"]
    for claim in claims:
        lines += [
            f"  {'follows' if claim['follows'] else 'DOES NOT FOLLOW'}  {claim['variant']}: {claim['text']}",
            f"    {claim['why']}",
        ]
    return "\n".join(lines)
