"""The explanation of learned scalars of which a document prints the end values and the training settings."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from addnorm.errors import InputError
from addnorm.insight.scalars.coefficients import coefficients, parameter_and_index
from addnorm.insight.scalars.directions import lockstep
from addnorm.insight.scalars.explanation import Explanation
from addnorm.insight.scalars.scalar import LearnedScalar
from addnorm.optimization.schedules import decay_factor
from addnorm.study.definition import RunSpec
from addnorm.study.foreign import require_rooms


def explain_published(content: Mapping[str, Any], spec: RunSpec, variant: str) -> Explanation:
    """Explain the published end values of a variant.

    Args:
        content: per variant its `parameters`; positive ones as printed, although their logarithms are learned.
        spec: model and training settings of the variant.
        variant: name in `content`.
    """
    published = content["variants"][variant]["parameters"]
    model, training = require_rooms(spec.model, "`explain`"), spec.training
    factor = decay_factor(training.schedule, training.optimizer, training.steps)
    # The training that produced the values multiplied in float32, whose product differs in the fifth digit.
    factor_float32 = decay_factor(training.schedule, training.optimizer, training.steps, dtype=np.float32)
    names, init, final = [], [], []
    for name, parameter in model.build_scores().named_parameters():
        values = _learned_values(published, name)
        names += [f"scores.{name}[{index}]" for index in range(len(values))]
        init += parameter.detach().double().tolist()
        final += values
    scalars = []
    for name, start, end, coefficient in zip(
        names, init, final, coefficients(model, names, np.array(final)), strict=True
    ):
        parameter_name, index = parameter_and_index(name)
        scalars.append(
            LearnedScalar(
                parameter=parameter_name,
                layer=coefficient.layer,
                index=index,
                effective=coefficient.value,
                init=start,
                final=end,
                decay_only=start * factor,
                decay_move=None,
                gradient_move=None,
                snr=None,
                # Values are printed to six decimal places.
                driven=abs(end - start * factor_float32) > 1e-6 or start == 0,
            )
        )
    return Explanation(
        run=variant,
        variant=variant,
        seed=None,
        model=model,
        decay_factor=factor_float32,
        steps=training.steps,
        scalars=tuple(scalars),
        directions=(),
        too_few_steps=(),
        pairs=lockstep(scalars, _pairs_of_parameters(scalars)),
    )


def _pairs_of_parameters(scalars: Sequence[LearnedScalar]) -> list[tuple[int, int]]:
    """Pairs of scalars of different parameters at the same position of the same layer."""
    positions: dict[tuple[int | None, int], list[int]] = defaultdict(list)
    for position, scalar in enumerate(scalars):
        within_layer = scalar.index[-1] if scalar.parameter.rpartition(".")[2].isdigit() else 0
        positions[scalar.layer, within_layer].append(position)
    return [(group[0], group[1]) for group in positions.values() if len(group) == 2]


def _learned_values(published: Mapping[str, Any], name: str) -> list[float]:
    """Values of a parameter as they are learned: logarithms of the printed ones where the name begins with `log_`."""
    family, _, layer = name.partition(".")
    values = published[family.removeprefix("log_")]
    of_layer = values[int(layer)] if layer else values
    return [math.log(value) if family.startswith("log_") else value for value in of_layer]


def read_published_scalars(path: Path) -> dict[str, Any]:
    """Read a file of published end values.

    Raises:
        InputError: the file cannot be read or has another form.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != 1 or not isinstance(content["variants"], dict):
            raise KeyError("variants")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: expected a JSON file with `format: 1` and `variants`, got an error: {error}."
        ) from error
    return dict(content)


def judge_conclusions(content: Mapping[str, Any], explanations: Mapping[str, Explanation]) -> list[dict[str, Any]]:
    """Judge which conclusions printed with the values follow from them, each with the reason."""
    judges = {"lockstep": _one_is_larger, "below_start": _driven_below_start, "beyond_decay": _trend_over_layers}
    return [
        {**{key: claim[key] for key in ("id", "variant", "text", "zh")}, "follows": follows, "why": why}
        for claim in content.get("conclusions", ())
        for follows, why in [judges[claim["test"]](explanations[claim["variant"]])]
    ]


def _one_is_larger(explanation: Explanation) -> tuple[bool, str]:
    """Judge the claim that one parameter of a pair is systematically larger than the other."""
    if not explanation.pairs:
        return True, "the two parameters did not move together"
    differences = [pair.final for pair in explanation.pairs]
    expected = explanation.pairs[0].decay_only
    return False, (
        f"in {len(explanation.pairs)} pairs the difference is {min(differences):.4f} to {max(differences):.4f}; weight decay "
        f"alone leaves {expected:.4f} of the initial difference {explanation.pairs[0].init:g}, so the gradient moved both "
        "parameters equally"
    )


def _driven_below_start(explanation: Explanation) -> tuple[bool, str]:
    """Judge the claim that the gradient drove values below their initial value."""
    started = [scalar for scalar in explanation.scalars if scalar.init > 0]
    below = [scalar for scalar in started if scalar.final < scalar.init]
    # Below the start is not below what decay alone would have left. The gradient is judged by its distance from there.
    raised = [scalar for scalar in below if scalar.final > scalar.decay_only]
    expected = started[0].decay_only
    if len(raised) > len(below) / 2:
        return False, (
            f"weight decay alone takes {started[0].init:.3f} to {expected:.3f}; {len(raised)} of the {len(below)} values below "
            "their start are above that, so the gradient raised them"
        )
    return (
        True,
        f"{len(below) - len(raised)} of {len(below)} values are below {expected:.3f}, which weight decay alone leaves",
    )


def _trend_over_layers(explanation: Explanation) -> tuple[bool, str]:
    """Judge the claim of a trend over layers, which holds if weight decay does not move the values."""
    moved_by_decay = max(abs(scalar.decay_only - scalar.init) for scalar in explanation.scalars)
    layers = [scalar.layer for scalar in explanation.scalars if scalar.layer is not None]
    trend = float(np.corrcoef(layers, [scalar.final for scalar in explanation.scalars])[0, 1])
    if moved_by_decay > 0:
        return False, f"weight decay alone moved the values by up to {moved_by_decay:.3f}"
    return (
        True,
        f"weight decay moves none of these values (they start at 0); correlation with the layer {trend:.2f}, in one run",
    )
