"""What each model costs: counted before the first step (`costs.json`), and measured while it trained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.pages.kept import kept
from addnorm.reporting.pages.snapshot import RunView, Snapshot

NAME = "costs.json"


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One model."""

    variant: str
    parameters: int | None
    flops_per_token: float | None
    relative: float | None
    """FLOPs per token over those of the first model."""
    planned_bytes: int | None
    """Weights, gradients, optimizer state and saved activations of one step, counted."""
    tokens_per_s: float | None
    """Of each run's newest training event, mean over the runs."""
    peak_bytes: int | None
    """Largest resident memory of any finished run's worker."""
    wall_s: float | None
    """From a run's first event to its end, pauses included; mean over finished runs."""
    paused: bool
    """Whether one of those runs took more than one attempt."""


def costs(snapshot: Snapshot) -> list[Cost]:
    """A row per model, in the study's order."""
    counted = _counted(snapshot)
    base = next((of.get("flops_per_token") for of in counted.values()), None)
    return [_cost(name, snapshot, counted.get(name, {}), base) for name in snapshot.variants]


def _cost(variant: str, snapshot: Snapshot, counted: Mapping[str, Any], base: float | int | None) -> Cost:
    runs = snapshot.of(variant)
    done = [run for run in runs if run.state == "finished"]
    speeds = [run.tokens_per_s for run in runs if run.tokens_per_s is not None]
    walls = [wall for run in done if (wall := _wall_s(run)) is not None]
    flops = float(counted["flops_per_token"]) if "flops_per_token" in counted else None
    return Cost(
        variant=variant,
        parameters=counted.get("parameters"),
        flops_per_token=flops,
        relative=flops / base if flops and base else None,
        planned_bytes=counted.get("peak_bytes"),
        tokens_per_s=_mean(speeds),
        peak_bytes=max((run.peak_bytes for run in done if run.peak_bytes is not None), default=None),
        wall_s=_mean(walls),
        paused=any(run.attempts > 1 for run in done),
    )


def _counted(snapshot: Snapshot) -> dict[str, dict[str, Any]]:
    # Empty for a study from before costs were kept, or one that was not made by `addnorm run`.
    variants = kept(snapshot, NAME).get("variants")
    if not isinstance(variants, dict):
        return {}
    return {
        name: {key: value for key, value in of.items() if isinstance(value, int | float)}
        for name, of in variants.items()
        if isinstance(of, dict)
    }


def _wall_s(run: RunView) -> float | None:
    if run.began_time is None or run.ended_time is None:
        return None
    return max(0.0, run.ended_time - run.began_time)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
