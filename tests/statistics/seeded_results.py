"""Results of small, hand-made studies: their differences are given, and their noise is drawn."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from addnorm.statistics import Result

LEVELS = {"base": 0.0, "good": -0.05, "bad": 0.06, "twin": 0.0005}


def study(seeds: int = 4, levels: Mapping[str, float] = LEVELS, noise: float = 0.001, **fields: Any) -> list[Result]:
    """Losses with a seed effect ten times the noise, whose mean is zero: `levels` are the observed differences."""
    rng = np.random.default_rng(8)
    drawn = noise * rng.normal(size=(len(levels), seeds))
    drawn -= drawn.mean(axis=1, keepdims=True)
    return [
        Result(variant=name, seed=seed, loss=2.5 + level + 0.01 * np.cos(seed) + drawn[row, seed], **fields)
        for row, (name, level) in enumerate(levels.items())
        for seed in range(seeds)
    ]
