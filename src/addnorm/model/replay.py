"""Earlier layers run again on the present input, all of them as one batched product.

A Python loop over the earlier layers would do the same (and is the tests' reference); here their weights are stacked, so each
step is one batched matrix product over [earlier, batch * seq, width].
"""

from collections.abc import Sequence
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vmap

from addnorm.model.attention import Attention
from addnorm.model.forward_context import ForwardContext
from addnorm.model.gau import GatedAttentionUnit
from addnorm.model.layer import Branch, Layer, UnitPair

Stream = Float[Tensor, "batch seq width"]
Earlier = Float[Tensor, "earlier batch seq width"]
Layers = Sequence[Layer | UnitPair]


def replay_layers(layers: Layers, x: Stream, context: ForwardContext, present: Layer | UnitPair) -> Earlier:
    """u_{i->m} of every given layer i: what it adds to x first, then what its second branch says of the sum.

    Args:
        layers: the layers before `present`.
        x: the stream that entered `present`.
        context: holds the patterns that the layers computed on their own inputs.
        present: the layer that the stream is in.
    """
    inputs = x.expand(len(layers), *x.shape)
    said = _again([layer.branches()[0] for layer in layers], inputs, context, present.branches()[0])
    return replay_second(layers, inputs + said, context, present)


def replay_second(layers: Layers, x: Stream | Earlier, context: ForwardContext, present: Layer | UnitPair) -> Earlier:
    """What the second branch of every given layer says of x, which is one input for all, or one for each."""
    inputs = x if x.ndim == 4 else x.expand(len(layers), *x.shape)
    return _again([layer.branches()[1] for layer in layers], inputs, context, present.branches()[1])


def _again(branches: Sequence[Branch], inputs: Earlier, context: ForwardContext, present: Branch) -> Earlier:
    """Every branch on its own input; if it attends, with the pattern that it computed on its old one."""
    if not present.attends:
        return together(branches, inputs)
    normed = together([branch.input_norm for branch in branches], inputs)
    bodies = [cast(Attention | GatedAttentionUnit, branch.body) for branch in branches]
    gate, values = bodies[0].gate_and_value(together([body.value_projection for body in bodies], normed))
    if context.cache is not None:
        here = cast(Attention | GatedAttentionUnit, present.body)
        values = context.cache.replayed_values[here.layer].append(values)
    patterns = [context.patterns[body.layer] for body in bodies]
    mixed = bodies[0].join(type(patterns[0]).apply_many(patterns, values))
    written = together([body.output for body in bodies], mixed if gate is None else gate * mixed)
    return present.dropout(together([branch.output_norm for branch in branches], written))


def together(modules: Sequence[nn.Module], inputs: Float[Tensor, "modules ..."]) -> Float[Tensor, "modules ..."]:
    """Each module on its own input, as one batched call over stacked parameters.

    Modules with buffers (batch norm) run one by one: their running statistics are updated in place.
    """
    first = modules[0]
    names = [name for name, _ in first.named_parameters()]
    if not names and not first._modules:
        return first(inputs)
    if any(True for _ in first.buffers()):
        return torch.stack([module(x) for module, x in zip(modules, inputs, strict=True)])
    own = [dict(module.named_parameters()) for module in modules]
    stacked = {name: torch.stack([parameters[name] for parameters in own]) for name in names}

    def one(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        out: Tensor = functional_call(first, parameters, (x,))
        return out

    return vmap(one, randomness="different")(stacked, inputs)
