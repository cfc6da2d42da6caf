"""Learned scalars of a variant over its seeds: a verdict on each number, and counts of each family of them.

learned, decayed      over seeds, the number departs from what weight decay alone would have left; which moved it more
open                  it does not, also because it lies above in one seed and below in another; or two seeds disagree
undriven              no gradient reached it in any seed
redundant direction   with too few seeds to test what is left of it without its redundant directions
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

import numpy as np

from addnorm.catalogue import family_of
from addnorm.insight.scalars.directions import RedundantDirection
from addnorm.insight.scalars.explanation import Explanation
from addnorm.insight.scalars.scalar import ScalarVerdict
from addnorm.statistics.departures import Departures, by_family, departures

OverallVerdict = ScalarVerdict | Literal["open"]


def over_seeds(runs: Sequence[Explanation]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Summarise the runs of one variant.

    Returns:
        one row per scalar, and one row per family: a parameter with its entries in all layers.
    """
    names = [family_of(scalar.parameter) for scalar in runs[0].scalars]
    # Redundancy is a property of the model. A seed may show more directions than there are, where a gradient was by
    # chance too small; but not fewer.
    directions = min((run.directions for run in runs), key=len)
    vectors = [_as_vector(direction, len(names)) for direction in directions]
    shape = (len(runs), len(names))
    outcome = departures(
        np.array([[scalar.final for scalar in run.scalars] for run in runs]).reshape(shape),
        np.array([[scalar.decay_only for scalar in run.scalars] for run in runs]).reshape(shape),
        families=names,
        steps=max(run.steps for run in runs),
        directions=vectors,
    )
    counted = [{"variant": runs[0].variant, **asdict(row)} for row in by_family(outcome, names, vectors)]
    return _spread(runs, names, directions, outcome), counted


def _spread(
    runs: Sequence[Explanation], names: Sequence[str], directions: Sequence[RedundantDirection], outcome: Departures
) -> list[dict[str, Any]]:
    verdicts = [run.verdicts() for run in runs]
    rows = []
    for position, scalar in enumerate(runs[0].scalars):
        of_seeds = [run.scalars[position] for run in runs]
        share = _mean([of.decay_share for of in of_seeds])
        rows.append(
            {
                "variant": runs[0].variant,
                "entry": scalar.name,
                "parameter": names[position],
                "seeds": len(runs),
                **_moments("final", [of.final for of in of_seeds]),
                **_moments("effective", [of.effective for of in of_seeds]),
                "decay_only": float(np.mean([of.decay_only for of in of_seeds])),
                "decay_share": share,
                "snr": _mean([of.snr for of in of_seeds]),
                "directions": [place for place, of in enumerate(directions, 1) if position in of.members],
                "verdict": _verdict(position, {of_run[position] for of_run in verdicts}, share, outcome),
            }
        )
    return rows


def _verdict(position: int, of_seeds: set[ScalarVerdict], share: float | None, outcome: Departures) -> OverallVerdict:
    if of_seeds == {"undriven"}:
        return "undriven"
    if outcome.departed is None:
        return of_seeds.pop() if len(of_seeds) == 1 and not outcome.mixed[position] else "open"
    if not outcome.departed[position]:
        return "open"
    return "decayed" if share is not None and share > 0.5 else "learned"


def _as_vector(direction: RedundantDirection, size: int) -> np.ndarray:
    vector = np.zeros(size)
    vector[list(direction.members)] = direction.coefficients
    return vector


def _moments(name: str, values: Sequence[float]) -> dict[str, float | None]:
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {f"{name}_mean": float(np.mean(values)), f"{name}_sd": deviation}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
