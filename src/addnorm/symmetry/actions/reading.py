"""Directions of each map's result on which no output depends: what no reader reads.

A residual sum that ends in a map of fewer outputs than channels, or a gain before a layer norm, leaves directions of a writer's
result without effect. Whether a direction is read depends on everything further on, while actions are propagated forwards. So
the directions are looked for first, as the null space of the outputs' derivatives at a few inputs, and are candidates alone:
every operation further on has to remove them (`FreeShift`), or the equations give them up.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from addnorm.redundancy.execution.operation_names import name_of
from addnorm.redundancy.graph.export import Program
from addnorm.symmetry.actions.equations import Numbers

MAPS = frozenset({"linear", "addmm", "mm", "matmul", "einsum", "embedding", "conv1d", "conv2d", "convolution"})
"""Operations whose results are written by weights."""
_CHANNELS_SECOND = frozenset({"conv1d", "conv2d", "convolution"})
_SEEDS = 4
"""Random combinations of the outputs that are differentiated."""
_UNREAD = 1e-10
"""A direction whose share of the largest derivative is below this is not read."""
_EXACT = 1e-9
"""Largest rounding of a direction's number."""


def unread_directions(
    program: Program, given: Callable[[fx.Node], Tensor], computed: Callable[[fx.Node, Mapping[fx.Node, Any]], Any]
) -> dict[fx.Node, Numbers]:
    """Return, for every map whose result has directions that no output depends on, a basis of them.

    The direction that is equal in all channels is left out: every map has a free shift along it.

    Args:
        program: the exported model.
        given: the numbers of a placeholder.
        computed: the numbers of a call, from those of its arguments.
    """
    numbers: dict[fx.Node, Any] = {}
    written: dict[fx.Node, Tensor] = {}
    with torch.enable_grad():
        for node in program.nodes:
            if node.op == "placeholder":
                numbers[node] = given(node)
                continue
            made = computed(node, numbers)
            if name_of(node.target) in MAPS and made.is_floating_point():
                written[node] = made.requires_grad_()
                made = made.clone()  # what follows may change it in place
            numbers[node] = made
        outputs = [each for each in (numbers[node] for node in program.observed) if isinstance(each, Tensor)]
        outputs = [each for each in outputs if each.requires_grad]
        if not outputs or not written:
            return {}
        generator = torch.Generator().manual_seed(0)
        rows: dict[fx.Node, list[Tensor]] = {node: [] for node in written}
        for _ in range(_SEEDS):
            seeds = [torch.randn(each.shape, generator=generator, dtype=each.dtype) for each in outputs]
            try:
                gradients = torch.autograd.grad(
                    outputs, list(written.values()), seeds, retain_graph=True, allow_unused=True
                )
            except RuntimeError as error:  # an operation that has no derivative: nothing is known of what is read
                if "derivative" not in str(error):
                    raise
                return {}
            for node, each in zip(written, gradients, strict=True):
                if each is not None:
                    last = each.movedim(1, -1) if name_of(node.target) in _CHANNELS_SECOND else each
                    rows[node].append(last.reshape(-1, last.shape[-1]))
    unread = {node: _null_directions(torch.cat(each)) for node, each in rows.items() if each}
    return {node: each for node, each in unread.items() if len(each)}


def _null_directions(gradients: Tensor) -> Numbers:
    """A basis, [direction, channel], of what all rows ignore, without the mean of the channels."""
    size = gradients.shape[1]
    if len(gradients) < size or size == 1 or not bool(torch.isfinite(gradients).all()):
        return torch.zeros(0, size).numpy()
    triangle = torch.linalg.qr(gradients, mode="r")[1]
    _, values, right = torch.linalg.svd(triangle)
    null = right[int((values > _UNREAD * values[0]).sum()) :] if float(values[0]) else right[:0]
    level = torch.full((size,), size**-0.5, dtype=null.dtype)
    if len(null) and float((null @ level).norm()) > 1 - 1e-9:
        null = torch.linalg.svd(null - torch.outer(null @ level, level))[2][: len(null) - 1]
    return _in_few_channels(null.detach().numpy())


def _in_few_channels(directions: Numbers) -> Numbers:
    """The same space, each direction with a one where the others have zeros; numbers that rounding kept off 0 and 1 are these.

    What a norm over a head removes is then equal in all its channels exactly, as the norm's rule demands.
    """
    made = directions.copy()
    for at in range(len(made)):
        pivot = int(np.abs(made[at]).argmax())
        made[at] /= made[at, pivot]
        others = np.arange(len(made)) != at
        made[others] -= np.outer(made[others, pivot], made[at])
    near = np.abs(made - made.round()) < _EXACT
    made[near] = made[near].round()
    return made
