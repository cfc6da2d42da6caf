"""Learned scalars: as text, from the JSON of `addnorm explain`, and as a LaTeX table (booktabs), from a report's rows."""

import math
import statistics
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from addnorm.reporting.formats.latex import NONE, escaped, number, tabular
from addnorm.reporting.formats.text_table import aligned

Json = dict[str, Any]


def text(explained: Json, width: int = 100) -> str:
    """One block per run: final value, value that weight decay alone would have left, and verdict of each scalar."""
    spreads = {(row["variant"], row["entry"]): row["final_sd"] for row in explained["spread"]}
    blocks = [_run(run, spreads, width) for run in explained["runs"] if run["scalars"]]
    empty = [run["run"] for run in explained["runs"] if not run["scalars"]]
    if empty:
        blocks.append(f"No learned scalars in: {', '.join(empty)}.")
    blocks += [f"! {name} was left out: {reason}" for name, reason in explained["skipped"].items()]
    if explained.get("conclusions"):
        blocks.append(_conclusions(explained["conclusions"]))
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
    by_variant: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_variant[row["variant"]].append(row)
    head = ["parameter", "entry", "start", "decay", "learned", "dev."]
    return {
        variant: tabular("llrrrr", head, [_line(row) for row in of], [_about(variant, of)])
        for variant, of in by_variant.items()
    }


def _line(row: Mapping[str, Any]) -> list[str]:
    finals = [value for value in row["finals"] if value is not None]
    layer = "" if row["layer"] is None else f"{row['layer']}: "
    return [
        escaped(row["parameter"]),
        escaped(f"{layer}{row['entry']}") or NONE,
        *(number(row[name], 3) for name in ("init", "decay_only")),
        number(statistics.fmean(finals) if finals else None, 3),
        number(statistics.stdev(finals) if len(finals) > 1 else None, 3),
    ]


def _about(variant: str, rows: Sequence[Mapping[str, Any]]) -> str:
    seeds = max(len(row["finals"]) for row in rows)
    return (
        f"{variant}: values as they are learned; mean and sample standard deviation over {seeds} seeds. "
        "Entry: layer, then index. Decay: what weight decay alone would have left."
    )


def _run(run: Json, spreads: dict[tuple[str, str], float | None], width: int) -> str:
    rows = [("layer", "scalar", "effective", "init", "final", "± seeds", "decay only", "by decay", "SNR", "verdict")]
    for entry in run["scalars"]:
        name = f"{entry['parameter']}[{', '.join(map(str, entry['index']))}]"
        rows.append(
            (
                "-" if entry["layer"] is None else str(entry["layer"]),
                name,
                f"{entry['effective']:.4f}",
                f"{entry['init']:.4f}",
                f"{entry['final']:.4f}",
                _number(spreads.get((run["variant"], name)), ".4f"),
                f"{entry['decay_only']:.4f}",
                _number(entry["decay_share"], ".0%"),
                _number(entry["snr"], ".1f"),
                entry["verdict"],
            )
        )
    lines = [
        f"{run['run']}: {run['steps']} steps, of which weight decay alone leaves {run['decay_factor']:.6f}",
        "",
        aligned(rows, left={1, 9}, width=width, names=2),
    ]
    if run["lockstep"]:
        differences = [pair["difference_final"] for pair in run["lockstep"]]
        first = run["lockstep"][0]
        lines += [
            "",
            f"{len(differences)} pairs moved in lockstep: their differences ({min(differences):.4f} to "
            f"{max(differences):.4f}) are what decay leaves ({first['difference_decay_only']:.4f}) of "
            f"{first['difference_init']:g}.",
        ]
    if run.get("directions"):
        lines.append(f"{len(run['directions'])} redundant directions: no gradient ever pointed along them.")
    if run.get("gauges"):
        lines.append(
            textwrap.fill(
                f"Gauges: {', '.join(run['gauges'])}. The matrices around could take over their sizes, so their values say "
                "nothing alone: read the shares and the weights free of scale of `addnorm inspect`.",
                width,
            )
        )
    if run["undriven"]:
        lines.append(f"Undriven (no gradient at all): {', '.join(run['undriven'])}.")
    if run.get("too_few_steps"):
        lines.append(f"Too few steps to tell redundant directions of: {', '.join(run['too_few_steps'])}.")
    return "\n".join(lines)


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


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
