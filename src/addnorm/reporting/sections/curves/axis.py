"""Places on the x axis: steps, tokens, seconds of training, FLOPs."""

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.snapshot import CurveSource, RunView
from addnorm.store import Damaged

_SPEEDS = 100
"""Segments of a run whose mean speed gives the time of its steps."""


@dataclass(frozen=True, kw_only=True)
class RunAxis:
    """A run's place on the axis by step: straight lines between knots, which begin at step 0."""

    steps: tuple[float, ...]
    places: tuple[float, ...]

    def place(self, step: float) -> float:
        """Place of the step on the axis."""
        return _between(step, self.steps, self.places)

    def step(self, place: float) -> float:
        """The step at that place."""
        return _between(place, self.places, self.steps)


def axis_of(run: RunView, x: str, index: CurveSource, costs: Mapping[str, Mapping[str, Any]]) -> RunAxis | None:
    """The run's axis; None if its study does not record what it takes.

    Args:
        run: the run.
        index: of the study's events.
        costs: as counted before training, by variant.
        x: one of `addnorm.reporting.view.AXES`.
    """
    if x == "step":
        return _straight(run, 1.0)
    if run.tokens_per_step is None:
        return None
    if x == "tokens":
        return _straight(run, float(run.tokens_per_step))
    if x == "flops":
        flops = costs.get(run.variant, {}).get("flops_per_token")
        return _straight(run, flops * run.tokens_per_step) if flops else None
    return _time(index, run, run.tokens_per_step)


def _straight(run: RunView, per_step: float) -> RunAxis:
    last = float(max(1, run.steps))
    return RunAxis(steps=(0.0, last), places=(0.0, last * per_step))


def _time(index: CurveSource, run: RunView, tokens_per_step: int) -> RunAxis | None:
    """Seconds of training: steps over the speed that the run reported, so that pauses do not count."""
    try:
        speeds = index.thinned(run.run, "train.tokens_per_s", first=0, last=run.steps, parts=_SPEEDS)
    except Damaged:  # the run is shown as blocked, with this reason
        return None
    # Time is not read off the clock of events: a run that was interrupted overnight would have a gap of hours. Speeds
    # that are zero or steps that go back (a resumed run repeats some) would make the axis fall, and its inverse,
    # which zooming needs, ambiguous.
    steps, places = [0.0], [0.0]
    for step, speed in speeds:
        if speed > 0 and step > steps[-1]:
            places.append(places[-1] + (step - steps[-1]) * tokens_per_step / speed)
            steps.append(float(step))
    return RunAxis(steps=tuple(steps), places=tuple(places)) if len(steps) > 1 else None


def _between(value: float, knots: Sequence[float], results: Sequence[float]) -> float:
    """Linear between the knots and, with the last slope, beyond them."""
    at = min(max(1, bisect.bisect_left(knots, value)), len(knots) - 1)
    share = (value - knots[at - 1]) / (knots[at] - knots[at - 1])
    return results[at - 1] + share * (results[at] - results[at - 1])
