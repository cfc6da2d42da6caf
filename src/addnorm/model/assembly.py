"""Assembly of the parts that depend on more than one mechanism: norms in their sockets, branches, layers."""

from typing import Literal

from torch import nn

from addnorm.model.architecture import Architecture
from addnorm.model.attention import Attention
from addnorm.model.feed_forward import build_feed_forward
from addnorm.model.gau import GatedAttentionUnit
from addnorm.model.layer import Body, Branch, Layer, Role

Socket = Literal["embedding", "branch_input", "branch_output", "stream", "final"]


def build_norm(spec: Architecture, socket: Socket) -> nn.Module:
    """The norm in a socket of the placement; an identity where the socket is empty."""
    if not getattr(spec.placement.sockets(), socket):
        return nn.Identity()
    return spec.norm.build(spec.width, shift=spec.bias.norm)


def build_layer(spec: Architecture, index: int) -> Layer:
    """Layer `index`: an attention and a feed-forward branch, or two gated attention units in their places."""
    std = spec.init_std
    out_std = std / (2 * spec.depth) ** 0.5 if spec.init_branch == "depth" else std
    if spec.gau is not None:

        def unit(number: int) -> GatedAttentionUnit:
            return GatedAttentionUnit(spec.attention_shape, number, spec.bias, spec.qk_bias, std=std, out_std=out_std)

        return Layer(
            {
                "first": _branch(spec, "attention", unit(2 * index)),
                "second": _branch(spec, "feedforward", unit(2 * index + 1)),
            }
        )
    attention = Attention(spec.shape, index, spec.bias, spec.qk_bias, std=std, out_std=out_std)
    feed_forward = build_feed_forward(spec.shape, spec.activation, spec.bias, std=std, out_std=out_std)
    return Layer(
        {
            "attention": _branch(spec, "attention", attention),
            "feedforward": _branch(spec, "feedforward", feed_forward),
        }
    )


def _branch(spec: Architecture, role: Role, body: Body) -> Branch:
    return Branch(
        role,
        body,
        input_norm=build_norm(spec, "branch_input"),
        output_norm=build_norm(spec, "branch_output"),
        stream_norm=build_norm(spec, "stream"),
        dropout=spec.dropout.branch,
    )
