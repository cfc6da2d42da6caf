"""The rows that figures and tables are made from, read from a snapshot and the runs' insight.json. No torch."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from addnorm.errors import AddnormError
from addnorm.reporting.pages.contained import contained
from addnorm.reporting.pages.cost import costs
from addnorm.reporting.pages.curves import Selection, curves
from addnorm.reporting.pages.kept import kept
from addnorm.reporting.pages.lengths import NAME, lengths
from addnorm.reporting.pages.scalars import families
from addnorm.reporting.pages.snapshot import Snapshot
from addnorm.reporting.pages.terms import term_rows
from addnorm.reporting.pages.verdicts import tier_words
from addnorm.store import read_json
from addnorm.words import phrases

Rows = list[dict[str, Any]]

CURVES = {"train.loss": "train_loss", "eval.loss": "loss", "eval.accuracy": "accuracy"}
"""Metrics that are drawn, and their names in the rows."""
MEASURES = (
    "gradient", "rms", "share", "entropy", "entropy_share", "one_hot", "similarity", "mean_similarity", "own_share",
    "exit_loss",
)  # fmt: skip
"""Keys of a layer's row in insight.json."""


def ranking_rows(snapshot: Snapshot, language: str) -> Rows:
    """One row per ranked variant, best first; none without a ranking."""
    ranking = snapshot.ranking
    if ranking is None:
        return []
    t = phrases(language)
    apart = {line[0] for line in ranking.lines if len(line) == 1}
    found = []
    for row in ranking.variants:
        tier = tier_words(row.tier, ranking)
        said = t(f"tier.{tier.key}", **tier.names) + (
            f" {t('tier.not_firm')}" if tier.bounded and not tier.firm else ""
        )
        found.append(
            {
                "variant": row.variant,
                "mean": row.mean,
                "interval": row.interval,
                "values": [value.loss for value in row.values if value.counted and value.loss is not None],
                "tier": said,
                "rank_interval": row.rank_interval,
                "reference": row.variant in ranking.references,
                "line_apart": row.variant in apart,
                "provisional": ranking.provisional,
            }
        )
    return found


def difference_rows(snapshot: Snapshot, language: str) -> Rows:
    """One row per variant and reference."""
    ranking = snapshot.ranking
    if ranking is None:
        return []
    t = phrases(language)
    return [
        {
            "variant": row.variant,
            "reference": reference,
            "difference": comparison.difference,
            "interval": comparison.interval,
            "verdict": comparison.verdict or "none",
            "verdict_word": t(f"verdict.{comparison.verdict or 'none'}"),
            "margin": ranking.margin,
        }
        for row in ranking.variants
        for reference, comparison in row.versus.items()
    ]


def curve_rows(snapshot: Snapshot) -> Rows:
    """One row per variant and metric; thinned to what a figure can show."""
    found = []
    for metric, name in CURVES.items():
        drawn = curves(snapshot, Selection(metric=metric, variants=snapshot.variants))
        found += [
            {
                "variant": line.variant,
                "place": line.style,
                "metric": name,
                "steps": list(line.steps),
                "mean": list(line.values),
                "low": list(line.low),
                "high": list(line.high),
            }
            for line in drawn.series
        ]
    return found


def scalar_rows(snapshot: Snapshot) -> Rows:
    """One row per learned scalar of every variant."""
    return [
        {
            "variant": family.variant,
            "parameter": family.name,
            "layer": entry.layer,
            "entry": entry.label,
            "init": entry.init,
            "decay_only": entry.decay_only,
            "seeds": [seed for seed, _ in entry.finals],
            "finals": [value for _, value in entry.finals],
        }
        for family in families(snapshot, snapshot.variants)
        for entry in family.entries
    ]


def cost_rows(snapshot: Snapshot) -> Rows:
    """One row per variant."""
    return [
        {
            "variant": cost.variant,
            "parameters": cost.parameters,
            "flops_per_token": cost.flops_per_token,
            "tokens_per_s": cost.tokens_per_s,
            "peak_bytes": cost.peak_bytes,
            "wall_s": cost.wall_s,
        }
        for cost in costs(snapshot)
    ]


def insights(snapshot: Snapshot) -> dict[str, Mapping[str, Any]]:
    """What `addnorm inspect` left, by run; runs without it, or with another version's, are left out."""
    found: dict[str, Mapping[str, Any]] = {}
    for run in snapshot.runs:
        path = snapshot.path / run.run / "insight.json"
        if not contained(snapshot.path, path):
            continue
        try:
            content = read_json(path)
        except AddnormError:
            continue  # half-copied: as if it had not been made; `addnorm inspect` makes it anew
        if isinstance(content, dict) and content.get("format") == 1:
            found[run.run] = content
    return found


def layer_rows(snapshot: Snapshot, measure: str) -> Rows:
    """One row per variant and layer that has the measure, with a value per inspected seed."""
    known = insights(snapshot)
    found = []
    for place, variant in enumerate(snapshot.variants):
        contents = [known[run.run] for run in snapshot.of(variant) if run.run in known]
        start, end = ([_by_layer(content[when], measure) for content in contents] for when in ("start", "end"))
        for layer in sorted({layer for of in end for layer in of}):
            found.append(
                {
                    "variant": variant,
                    "place": place,
                    "layer": layer,
                    "start": [of[layer] for of in start if layer in of],
                    "end": [of[layer] for of in end if layer in of],
                }
            )
    return found


def insight_table(snapshot: Snapshot) -> Rows:
    """Every measure of every layer of every inspected run, one value per row."""
    return [
        {
            "variant": content["variant"],
            "seed": content["seed"],
            "step": content["weights"]["step"] if when == "end" else 0,
            "layer": layer,
            "measure": measure,
            "value": value,
        }
        for content in insights(snapshot).values()
        for when in ("start", "end")
        for measure in MEASURES
        for layer, value in _by_layer(content[when], measure).items()
    ]


def _by_layer(flow: Mapping[str, Any], measure: str) -> dict[int, float | None]:
    return {row["layer"]: _finite(row[measure]) for row in flow["layers"] if measure in row}


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def long_curves(rows: Sequence[Mapping[str, Any]]) -> Rows:
    """Curves as a table: one point per row."""
    return [
        {"variant": row["variant"], "metric": row["metric"], "step": step, "mean": mean, "low": low, "high": high}
        for row in rows
        for step, mean, low, high in zip(row["steps"], row["mean"], row["low"], row["high"], strict=True)
    ]


def long_scalars(rows: Sequence[Mapping[str, Any]]) -> Rows:
    """Scalars as a table: one seed's value per row."""
    return [
        {name: row[name] for name in ("variant", "parameter", "layer", "entry", "init", "decay_only")}
        | {"seed": seed, "final": value}
        for row in rows
        for seed, value in zip(row["seeds"], row["finals"], strict=True)
    ]


MOST_MODELS = 4
"""Models whose score terms stand side by side in one figure."""


def length_rows(snapshot: Snapshot) -> Rows:
    """The rows of DIR/extrapolation.json; none without it."""
    return list(kept(snapshot, NAME)["rows"]) if lengths(snapshot) is not None else []


def score_term_rows(snapshot: Snapshot) -> Rows:
    """The rows of the first terms.json of each model, of the first models that have one."""
    return [row for rows in list(term_rows(snapshot).values())[:MOST_MODELS] for row in rows]


def long_terms(rows: Rows) -> Rows:
    """One row per model, layer, head, term and distance."""
    return [
        {
            **{name: row[name] for name in ("label", "layer", "head")},
            "term": term,
            "distance": distance,
            **{kind: curve[kind][place] for kind in ("mean", "low", "high")},
        }
        for row in rows
        for term, curve in row["terms"].items()
        for place, distance in enumerate(row["distances"])
    ]
