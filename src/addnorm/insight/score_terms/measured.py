"""A model's terms as plain values: mean and band over samples, per layer, head and distance."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64

from addnorm.insight.flow.attention import mean_direction
from addnorm.insight.score_terms.parts import ScoreFactors
from addnorm.insight.score_terms.terms import TERMS, ByDistance, terms_of

BAND = (0.1, 0.9)
"""Quantiles over samples that bound the band."""
MOST_POINTS = 256
"""Largest number of distances in the result; for longer texts neighbouring distances are averaged."""


def measure(parts: Iterable[ScoreFactors], *, causal: bool) -> dict[str, Any]:
    """Measure the terms, their sum and the isotropy of every layer and head.

    Args:
        parts: one per layer, read one after another, so that only one is in memory.
        causal: whether only distances of 0 and more count.

    Returns:
        `rows` (one per layer and head: `distances`, `terms` with `mean`, `low` and `high` of each of `TERMS` and of `sum`,
        `isotropy`), `largest_error` of the sum against the model's scores, and `rounding`, its bound.

    Raises:
        InputError: the terms of some layer do not add up to the model's scores.
    """
    rows: list[dict[str, Any]] = []
    checks: list[dict[str, Any]] = []
    for layer in parts:
        by_distance = terms_of(layer, causal=causal)
        directions = isotropy(layer)
        checks.append(
            {"layer": layer.layer, "largest_error": by_distance.largest_error, "rounding": by_distance.rounding}
        )
        rows += [
            {"layer": layer.layer, "head": head, **curves(by_distance, head), "isotropy": directions[head]}
            for head in range(layer.heads)
        ]
    return {
        "rows": rows,
        "checks": checks,
        "largest_error": max(check["largest_error"] for check in checks),
        "rounding": max(check["rounding"] for check in checks),
        "band": list(BAND),
    }


def isotropy(parts: ScoreFactors) -> list[dict[str, float]]:
    """Compute per query head the norm of the mean direction of `query` and `key` without bias, of both with bias (`…_biased`),
    and its expected size for as many isotropic vectors (`chance`).

        | mean over samples and positions of  q / |q| |        0: isotropic;   1: all have one direction

    N isotropic independent vectors have about N^{-1/2} by chance. Positions of one text are not independent, so N^{-1/2} is a
    lower limit of what can be distinguished from 0.

    Source: Su (2023) ("各向同性"): isotropic q and k make the second and third term small in the mean.
    """
    directions = {
        "query": mean_direction(parts.query),
        "key": parts.repeated(mean_direction(parts.key)[None]).squeeze(0),
        "query_biased": mean_direction(parts.query + parts.query_bias[None, :, None]),
        "key_biased": parts.repeated(mean_direction(parts.key + parts.key_bias[None, :, None])[None]).squeeze(0),
    }
    chance = (parts.query.shape[0] * parts.seq) ** -0.5
    return [
        {**{name: float(values[head]) for name, values in directions.items()}, "chance": chance}
        for head in range(parts.heads)
    ]


def curves(by_distance: ByDistance, head: int) -> dict[str, Any]:
    """Return one head's curves: the four terms and their `sum`; without biases the sum is `qRk`."""
    by_sample = by_distance.terms[:, :, head]  # [sample, term, distance]
    edges = _edges(by_sample.shape[-1])
    distances = torch.arange(by_distance.first, by_distance.first + by_sample.shape[-1], dtype=torch.float64)
    return {
        "distances": _binned(distances.numpy()[None], edges)[0].tolist(),
        "terms": {
            **{term: _band(by_sample[:, index].cpu().numpy(), edges) for index, term in enumerate(TERMS)},
            "sum": _band(by_sample.sum(1).cpu().numpy(), edges),
        },
    }


def _edges(count: int) -> np.ndarray:
    return np.unique(np.linspace(0, count, min(count, MOST_POINTS) + 1).round().astype(int))


def _binned(values: Float64[np.ndarray, "sample distance"], edges: np.ndarray) -> Float64[np.ndarray, "sample bin"]:
    return np.add.reduceat(values, edges[:-1], axis=-1) / np.diff(edges)


def _band(values: Float64[np.ndarray, "sample distance"], edges: np.ndarray) -> dict[str, list[float]]:
    binned = _binned(values, edges)
    low, high = np.quantile(binned, BAND, axis=0)
    return {"mean": _short(binned.mean(axis=0)), "low": _short(low), "high": _short(high)}


def _short(values: np.ndarray) -> list[float]:
    """Round to six digits, because the file of a large model has a million numbers."""
    return [float(f"{value:.6g}") for value in values]
