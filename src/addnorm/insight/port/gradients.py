"""Gradients of two implementations with respect to paired parameters."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from addnorm.insight.port.pairing import ParameterPair
from addnorm.insight.port.passes import Implementation
from addnorm.redundancy.execution.float64 import Float64Mode
from addnorm.redundancy.execution.inputs import Inputs


def gradients_of(side: Implementation, parameters: Mapping[str, Tensor], inputs: Inputs) -> dict[str, Tensor]:
    """Compute the gradients of one weighted sum of the logits, the same for every model; zeros where there is none."""
    side.model.requires_grad_(True)
    with Float64Mode():
        logits = side.logits(inputs)
        weights = torch.randn(logits.numel(), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        made = torch.autograd.grad((logits.flatten() * weights).sum(), list(parameters.values()), allow_unused=True)
    side.model.requires_grad_(False)
    return {
        name: torch.zeros_like(each) if gradient is None else gradient
        for (name, each), gradient in zip(parameters.items(), made, strict=True)
    }


def largest_difference(
    pairs: Sequence[ParameterPair], ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]
) -> tuple[ParameterPair | None, float]:
    """Find the pair whose gradients differ most, relative to the largest gradient of the first model."""
    scale = max((float(each.abs().max()) for each in ours.values() if each.numel()), default=1.0)
    worst, largest = None, 0.0
    for pair, one, two in _summed(pairs, ours, theirs):
        size = float((one - two).abs().max()) / max(scale, 1e-300) if one.numel() else 0.0
        if not size <= largest:  # also if it is no number
            worst, largest = pair, size
    return worst, largest


def _summed(
    pairs: Sequence[ParameterPair], ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]
) -> Iterator[tuple[ParameterPair, Tensor, Tensor]]:
    """Gradients of paired entries; those of a parameter that is tied in one model alone, added up in the other."""
    of_ours, of_theirs = defaultdict[str, list[ParameterPair]](list), defaultdict[str, list[ParameterPair]](list)
    for pair in pairs:
        if len(pair.our_entries) == ours[pair.ours].numel() == theirs[pair.theirs].numel():
            of_ours[pair.ours].append(pair)
            of_theirs[pair.theirs].append(pair)
    for pair in pairs:
        one, two = ours[pair.ours].flatten()[pair.our_entries], theirs[pair.theirs].flatten()[pair.their_entries]
        if len(of_ours[pair.ours]) > 1:
            total = torch.zeros_like(ours[pair.ours]).flatten()
            for each in of_ours[pair.ours]:
                total[each.our_entries] += theirs[each.theirs].flatten()[each.their_entries]
            two = total[pair.our_entries]
        elif len(of_theirs[pair.theirs]) > 1:
            total = torch.zeros_like(theirs[pair.theirs]).flatten()
            for each in of_theirs[pair.theirs]:
                total[each.their_entries] += ours[each.ours].flatten()[each.our_entries]
            one = total[pair.their_entries]
        yield pair, one, two
