"""Learned numbers whose size means nothing, because matrices around them could take it over: gauges.

A group of numbers is a gauge if random factors on it change the weights of a depth matrix, but not the ratios that are left
when factors of rows and columns are taken out (`DepthMatrix.relative`); or if its mechanism's effective coefficients do not
change (`coefficients`), as where another group has to move along. No mechanism is known here by name.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch

from addnorm.errors import InputError
from addnorm.insight.depth.matrix import DepthMatrix, DepthRoom, depth_matrix, joined_rooms
from addnorm.model.spec import ModelSpec
from addnorm.model.transformer import Transformer

_SAME = 1e-6
_MOST_PARAMETERS = 20_000_000
"""Largest model that is built for it."""


@lru_cache(maxsize=64)
def gauges(spec: ModelSpec) -> tuple[str, ...]:
    """Name the groups of learned numbers that are gauges, such as `residual.alpha`; () of a model too large to be built."""
    with torch.device("meta"):
        if sum(parameter.numel() for parameter in spec.build().parameters()) > _MOST_PARAMETERS:
            return ()
    model = spec.build(seed=0).double()
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(spec.vocab, (1, min(6, spec.max_seq)), generator=generator)
    gauge_groups = []
    with torch.no_grad():
        for room in joined_rooms(model):
            parameters = dict(getattr(model, room).named_parameters(prefix=room))
            for parameter in parameters.values():  # away from zeros and from numbers that are equal
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
            groups: dict[str, list[str]] = {}
            for name in parameters:
                groups.setdefault(group_of(name), []).append(name)
            # An experiment in place of a list of mechanisms. The group is not put back: the next one is tried at
            # another point, which is as generic as the first.
            for group, names in groups.items():
                before, effective = _of(model, tokens, room), _effective(model, room, names)
                for name in names:
                    parameters[name].mul_(
                        0.5 + torch.rand(parameters[name].shape, generator=generator, dtype=torch.float64)
                    )
                after = _of(model, tokens, room)
                only_scales = before is not None and after is not None and _only_scales(before, after)
                if only_scales or (effective and effective == _effective(model, room, names)):
                    gauge_groups.append(group)
    return tuple(gauge_groups)


def group_of(name: str) -> str:
    """The name of a parameter without the numbers of layers."""
    return ".".join(part for part in name.split(".") if not part.isdigit())


def _effective(model: Transformer, room: DepthRoom, names: Sequence[str]) -> list[list[float]]:
    """The effective coefficients of parameters; those without any are left out."""
    known = getattr(model, room).coefficients()
    own = [name.removeprefix(f"{room}.") for name in names]
    return [known[name][1].flatten().tolist() for name in own if name in known]


def _of(model: Transformer, tokens: torch.Tensor, room: DepthRoom) -> DepthMatrix | None:
    try:
        return depth_matrix(model, tokens, room)
    except InputError:
        return None


def _only_scales(before: DepthMatrix, after: DepthMatrix) -> bool:
    moved = (before.weights - after.weights).abs().max() > _SAME
    same = (before.relative - after.relative).abs().max() <= _SAME * before.relative.abs().max()
    return bool(moved and same)
