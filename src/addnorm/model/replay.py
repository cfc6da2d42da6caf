"""Earlier layers run again on the present input, all of them as one batched product.

A Python loop over the earlier layers would compute the same (and is the tests' reference); here their weights are stacked, so
each step is one batched matrix product over [earlier, batch * seq, width].
"""

from collections.abc import Sequence
from typing import Protocol, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vmap

from addnorm.model.forward_context import ForwardContext
from addnorm.model.layer import Branch, SiteBranches, TransformerLayer
from addnorm.model.linear import Linear

Stream = Float[Tensor, "batch seq width"]
Earlier = Float[Tensor, "earlier batch seq width"]


_MANY = 2**16
"""Parameters of a module from which on a call costs little compared with its arithmetic."""


class ReplayableAttention(Protocol):
    """A branch's body that attends, in the parts that a replay needs: output( gate * join( attention of the values ) )."""

    layer: int
    """Number of attentions before it."""
    output: Linear
    """Writes to the stream."""
    attended: nn.Module | None
    """Module that changes attended values; None if they stay as they are."""
    inner_norm: nn.Module | None
    """Norm on what `output` reads; None for none."""

    @property
    def value_projection(self) -> Linear:
        """The matrix that `gate_and_value` reads."""
        ...

    def gate_and_value(self, projected: Tensor) -> tuple[Tensor | None, Tensor]:
        """The gate "*batch seq entries", if there is one, and the values "*batch kv_heads seq value_dim"."""
        ...

    def join(self, x: Tensor) -> Tensor:
        """Attended values "*batch heads seq value_dim" as "*batch seq entries"."""
        ...


def replay_layers(
    layers: Sequence[TransformerLayer], x: Stream, context: ForwardContext, present: TransformerLayer
) -> Earlier:
    """u_{i->m} of every given layer i: its last site's output, on the sum of x and the outputs of its other sites.

    Args:
        layers: the layers before `present`.
        x: the stream that entered `present`.
        context: holds the attention that the layers computed on their own inputs.
        present: the layer that the stream is in.
    """
    inputs = x.expand(len(layers), *x.shape)
    sites = [tuple(layer.sites()) for layer in (*layers, present)]
    # Column s of `sites` holds the s-th site of every earlier layer and, last, that of the present one. All layers of a
    # model have the same sites, so each column is one batched call; layers of different blocks could not be stacked.
    for *earlier, now in list(zip(*sites, strict=True))[:-1]:
        inputs = inputs + _again(earlier, inputs, context, now)
    return replay_last_sites(layers, inputs, context, present)


def replay_last_sites(
    layers: Sequence[TransformerLayer], x: Stream | Earlier, context: ForwardContext, present: TransformerLayer
) -> Earlier:
    """The output of every given layer's last site on x, which is one input for all, or one for each."""
    inputs = x if x.ndim == 4 else x.expand(len(layers), *x.shape)
    *earlier, now = [tuple(layer.sites())[-1] for layer in (*layers, present)]
    return _again(earlier, inputs, context, now)


def _again(sites: Sequence[SiteBranches], inputs: Earlier, context: ForwardContext, present: SiteBranches) -> Earlier:
    """Every site on its own input; a branch that attends uses the attention that it computed on its first input."""
    normed, total = inputs, None
    for number, now in enumerate(present.branches):
        branches = [site.branches[number] for site in sites]
        if number == 0 or not present.shares_norm:
            normed = _normed(branches, inputs)
        output = _of_branches(branches, normed, context, now)
        total = output if total is None else total + output
    return cast(Tensor, total)


def _normed(branches: Sequence[Branch], inputs: Earlier) -> Earlier:
    normed = together([branch.input_norm for branch in branches], inputs)
    factors = [branch.input_factor for branch in branches]
    if any(factor != 1 for factor in factors):
        normed = normed * normed.new_tensor(factors)[:, None, None, None]
    return normed


def _of_branches(branches: Sequence[Branch], normed: Earlier, context: ForwardContext, present: Branch) -> Earlier:
    if present.attends:
        output = _attended_again(branches, normed, context, present)
    else:
        output = together([branch.body for branch in branches], normed)
    written = present.dropout(together([branch.output_norm for branch in branches], output))
    return written if present.factor == 1 else present.factor * written


def _attended_again(branches: Sequence[Branch], normed: Earlier, context: ForwardContext, present: Branch) -> Earlier:
    bodies = [cast(ReplayableAttention, branch.body) for branch in branches]
    gate, own = bodies[0].gate_and_value(together([body.value_projection for body in bodies], normed))
    values = own
    # Where a position looks is what the layer computed in its first run; values alone are those of the new input. They
    # are kept for every pair of layers, because a later position would else need the inputs of all earlier ones again.
    if context.cache is not None:
        values = context.cache.replayed_values[cast(ReplayableAttention, present.body).layer].append(values)
    by_head = context.attend_again([body.layer for body in bodies], values)
    sockets = [body.attended for body in bodies if body.attended is not None]
    if sockets:
        by_head = together(sockets, by_head, normed, own)
    joined = bodies[0].join(by_head)
    gated = joined if gate is None else gate * joined
    norms = [body.inner_norm for body in bodies if body.inner_norm is not None]
    return together([body.output for body in bodies], together(norms, gated) if norms else gated)


def together(modules: Sequence[nn.Module], *inputs: Float[Tensor, "modules ..."]) -> Float[Tensor, "modules ..."]:
    """Each module on its own inputs, as one batched call over stacked parameters.

    Modules run one by one if they have buffers (batch norm), whose running statistics are updated in place; or if each has
    many parameters, and more than its input has numbers: then copying the parameters of all of them into one tensor, and
    their gradients out of it, costs more than the fewer calls save.
    """
    first = modules[0]
    names = [name for name, _ in first.named_parameters()]
    if not names and not list(first.children()):
        alone: Tensor = first(*inputs)
        return alone
    entries = sum(parameter.numel() for parameter in first.parameters())
    if entries > max(_MANY, inputs[0][0].numel()) or any(True for _ in first.buffers()):
        return torch.stack([module(*each) for module, *each in zip(modules, *inputs, strict=True)])
    # `functional_call` puts each slice of the stacked parameters into the first module. This is right only if the
    # modules differ in nothing but parameters: buffers would be those of the first, which is why modules with buffers
    # have returned above.
    own = [dict(module.named_parameters()) for module in modules]
    stacked = {name: torch.stack([parameters[name] for parameters in own]) for name in names}

    def one(parameters: dict[str, Tensor], *each: Tensor) -> Tensor:
        out: Tensor = functional_call(first, parameters, each)
        return out

    # Dropout of each layer is drawn independently, as in a loop over the layers.
    return vmap(one, randomness="different")(stacked, *inputs)
