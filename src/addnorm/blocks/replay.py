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

from addnorm.blocks.attention import Attention
from addnorm.blocks.layer import Layer
from addnorm.blocks.passage import Passage

Stream = Float[Tensor, "batch seq width"]
Earlier = Float[Tensor, "earlier batch seq width"]


def replay_layers(layers: Sequence[Layer], x: Stream, passage: Passage, at: int) -> Earlier:
    """u_{i->m} of every given layer i: attention with i's own pattern on new values, then i's feed-forward.

    Args:
        layers: the layers before `at`.
        x: the stream that entered layer `at`.
        passage: holds the patterns that the layers computed on their own inputs.
        at: the present layer.
    """
    attentions = [layer.attention for layer in layers]
    bodies = [cast(Attention, branch.body) for branch in attentions]
    inputs = x.expand(len(layers), *x.shape)
    normed = together([branch.input_norm for branch in attentions], inputs)
    values = bodies[0].split(together([body.value for body in bodies], normed))
    if passage.cache is not None:
        values = passage.cache.replayed_values[at].append(values)
    patterns = passage.patterns[: len(layers)]
    mixed = type(patterns[0]).apply_many(patterns, values)
    written = together([body.output for body in bodies], bodies[0].join(mixed))
    written = together([branch.output_norm for branch in attentions], written)
    return replay_feedforwards(layers, inputs + attentions[0].dropout(written))


def replay_feedforwards(layers: Sequence[Layer], x: Stream | Earlier) -> Earlier:
    """f_i(x) of every given layer i; `x` is one input for all, or one for each."""
    inputs = x if x.ndim == 4 else x.expand(len(layers), *x.shape)
    return together([layer.feedforward for layer in layers], inputs)


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
