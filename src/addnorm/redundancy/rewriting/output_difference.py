"""Difference of two models' observed outputs."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from addnorm.redundancy.execution.copies import observed_calls
from addnorm.redundancy.execution.float64 import Float64Mode, GroupedMode
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.observation import Observe, ObservedNumbers


@torch.no_grad()
def flat_outputs(
    model: nn.Module, drawn: Sequence[Inputs], observe: Observe, mode: Float64Mode | None
) -> list[ObservedNumbers]:
    """Call a model on several inputs, as it is or in the mode's float64, and return all observed numbers of each call."""
    outputs, count = [], None
    with mode or GroupedMode():
        for inputs in drawn:
            calls = observed_calls(model, inputs, observe, count)
            count = len(calls)
            outputs.append(ObservedNumbers.joined(calls))
    return outputs


def floats_changed(outputs: Sequence[ObservedNumbers], expected: Sequence[ObservedNumbers]) -> float:
    """Return the largest difference of the observed floating-point numbers; see `largest_difference`."""
    return largest_difference([each.floats for each in outputs], [each.floats for each in expected])


def integers_changed(outputs: Sequence[ObservedNumbers], expected: Sequence[ObservedNumbers]) -> int:
    """Return the number of observed integers that differ; all of a call whose number of integers differs."""
    return sum(
        int((one.integers != other.integers).sum())
        if one.integers.shape == other.integers.shape
        else max(one.integers.numel(), other.integers.numel())
        for one, other in zip(outputs, expected, strict=True)
    )


def largest_difference(outputs: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Return the largest difference of two models' outputs, relative to the expected outputs' root mean square;
    infinity if the sizes differ, if only one of the two is finite, or if neither is."""
    worst = 0.0
    for one, other in zip(outputs, expected, strict=True):
        finite = torch.isfinite(other)
        if one.shape != other.shape or not bool(finite.any()) or not bool((torch.isfinite(one) == finite).all()):
            return float("inf")
        scale = other[finite].square().mean().sqrt().clamp_min(torch.finfo(torch.float64).tiny)
        worst = max(worst, float((one - other)[finite].abs().max() / scale))
    return worst
