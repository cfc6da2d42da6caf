"""Learned scalars of which nothing is known but the end values that somebody printed, and how they were trained."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from addnorm.errors import InputError
from addnorm.insight.coefficients import coefficients, formula, mechanism, position_of
from addnorm.insight.explained import Explained
from addnorm.insight.learned import Entry, lockstep
from addnorm.optimization.schedules import decay_factor
from addnorm.study.definition import RunSpec


def explain_printed(content: Mapping[str, Any], spec: RunSpec, variant: str) -> Explained:
    """Explain the end values of a variant that somebody printed, given nothing but them and the training set-up.

    Args:
        content: per variant its printed `parameters`, positive ones as printed, not as the logarithms that are learned.
        spec: how it was trained.
        variant: which one.
    """
    printed = content["variants"][variant]["parameters"]
    factor = decay_factor(spec.training.schedule, spec.training.optimizer, spec.training.steps)
    rounded = decay_factor(spec.training.schedule, spec.training.optimizer, spec.training.steps, dtype=np.float32)
    scores = spec.model.build_scores()
    names, init, final = [], [], []
    for name, parameter in scores.named_parameters():
        values = _printed_values(printed, name)
        names += [f"scores.{name}[{index}]" for index in range(len(values))]
        init += parameter.detach().double().tolist()
        final += values
    starts, ends = np.array(init), np.array(final)
    kept = starts * factor
    # Printed to six digits after the point; a float32 product of all steps differs from the exact one in the fifth.
    driven = (np.abs(ends - starts * rounded) > 1e-6) | (starts == 0)
    record = {"init": starts, "value": ends}
    effective = coefficients(spec.model, names, ends)
    entries = tuple(
        Entry(
            **position_of(names[place], effective[place][0]),
            effective=effective[place][1],
            init=float(record["init"][place]),
            final=float(record["value"][place]),
            decay_only=float(kept[place]),
            decay_move=None,
            gradient_move=None,
            snr=None,
            driven=bool(driven[place]),
        )
        for place in range(len(names))
    )
    return Explained(
        run=variant,
        variant=variant,
        seed=None,
        mechanism=mechanism(spec.model),
        formula=formula(spec.model),
        decay_factor=rounded,
        steps=spec.training.steps,
        entries=entries,
        directions=(),
        too_few_steps=(),
        pairs=lockstep(entries, _same_place(entries)),
    )


def _same_place(entries: Sequence[Entry]) -> list[tuple[int, int]]:
    """Pairs of entries of different parameters that stand at the same place of the same layer."""
    at: dict[tuple[int | None, int], list[int]] = defaultdict(list)
    for place, entry in enumerate(entries):
        within = entry.index[-1] if entry.parameter.rpartition(".")[2].isdigit() else 0
        at[entry.layer, within].append(place)
    return [(group[0], group[1]) for group in at.values() if len(group) == 2]


def _printed_values(printed: Mapping[str, Any], name: str) -> list[float]:
    family, _, layer = name.partition(".")
    positive = family.startswith("log_")
    values = printed[family.removeprefix("log_")]
    chosen = values[int(layer)] if layer else values
    return [math.log(value) if positive else value for value in chosen]


def read_printed(path: Path) -> dict[str, Any]:
    """A file of printed end values, such as Kuang's (2025).

    Raises:
        InputError: the file is missing or of another form.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != 1 or not isinstance(content["variants"], dict):
            raise KeyError("variants")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} must be a JSON file with `format: 1` and `variants`: {error}.") from error
    return dict(content)


def judge_conclusions(content: Mapping[str, Any], explained: Mapping[str, Explained]) -> list[dict[str, Any]]:
    """Which of the conclusions printed beside the values follow from them, each with the reason."""
    tests = {"lockstep": _by_lockstep, "below_start": _by_start, "beyond_decay": _by_trend}
    return [
        {**{key: claim[key] for key in ("id", "variant", "text", "zh")}, "follows": follows, "why": why}
        for claim in content.get("conclusions", ())
        for follows, why in [tests[claim["test"]](explained[claim["variant"]])]
    ]


def _by_lockstep(found: Explained) -> tuple[bool, str]:
    """A claim that one parameter of a pair is systematically larger than the other."""
    if not found.pairs:
        return True, "the two parameters did not move together"
    differences = [pair.final for pair in found.pairs]
    expected = found.pairs[0].decay_only
    return False, (
        f"in {len(found.pairs)} pairs the difference is {min(differences):.4f} to {max(differences):.4f}, which is what "
        f"weight decay left ({expected:.4f}) of their first difference ({found.pairs[0].init:g}): the gradient moved both alike"
    )


def _by_start(found: Explained) -> tuple[bool, str]:
    """A claim that values were driven below where they started."""
    started = [entry for entry in found.entries if entry.init > 0]
    below = [entry for entry in started if entry.final < entry.init]
    raised = [entry for entry in below if entry.final > entry.decay_only]
    expected = started[0].decay_only
    if len(raised) > len(below) / 2:
        return False, (
            f"decay alone would have taken {started[0].init:.3f} to {expected:.3f}; {len(raised)} of the {len(below)} values "
            "below their start are above that, so the gradient raised them"
        )
    return (
        True,
        f"{len(below) - len(raised)} of {len(below)} values are below what decay alone would have left ({expected:.3f})",
    )


def _by_trend(found: Explained) -> tuple[bool, str]:
    """A claim about a trend over layers in values that decay leaves where they start."""
    moved_by_decay = max(abs(entry.decay_only - entry.init) for entry in found.entries)
    layers = [entry.layer for entry in found.entries if entry.layer is not None]
    trend = float(np.corrcoef(layers, [entry.final for entry in found.entries])[0, 1])
    if moved_by_decay > 0:
        return False, f"decay alone moved the values by up to {moved_by_decay:.3f}"
    return (
        True,
        f"decay moves none of these (they start at its fixed point); correlation with the layer {trend:.2f}, in one run",
    )
