"""Assembly of the parts that depend on more than one mechanism: norms in their sockets, branches, layers."""

from typing import Literal

from torch import nn

from addnorm.model.architecture import Architecture
from addnorm.model.attention import Attention
from addnorm.model.feed_forward import build_feed_forward
from addnorm.model.gau import GatedAttentionUnit
from addnorm.model.head_transform import HeadTransform
from addnorm.model.layer import Body, Branch, Layer
from addnorm.shape import Place

Socket = Literal["branch_input", "branch_output", "stream"]


def build_norm(spec: Architecture, socket: Literal["embedding", "final"]) -> nn.Module:
    """The norm before or after all branches; an identity where the placement has none."""
    return _norm(spec) if getattr(spec.placement.sockets(), socket) else nn.Identity()


def build_head_transform(spec: Architecture) -> nn.Module:
    """The transform before the output matrix; an identity where the spec has none."""
    if spec.head_transform is None:
        return nn.Identity()
    return HeadTransform(spec.width, spec.head_transform, spec.norm.build(spec.width, shift=True), std=spec.init_std)


def build_layer(spec: Architecture, index: int) -> Layer:
    """Layer `index`: an attention and a feed-forward branch, or two gated attention units in their places."""
    gain = spec.placement.initial_gain(len(spec.places))
    std = spec.init_std
    out_std = gain * (std / len(spec.places) ** 0.5 if spec.init_branch == "depth" else std)
    places = [place for place in spec.places if place.layer == index]
    shape = spec.attention_shape
    if spec.gau is not None:
        units = [
            GatedAttentionUnit(
                shape,
                place.index,
                spec.bias,
                spec.qk_bias,
                std=gain * std,
                out_std=out_std,
                query_norm=_head_norm(spec),
                key_norm=_head_norm(spec),
                attended=spec.attended.build(shape, place.index, std=std),
            )
            for place in places
        ]
        named = zip(("first", "second"), places, units, strict=True)
        return Layer({name: _branch(spec, place, unit) for name, place, unit in named})
    attention = Attention(
        shape,
        index,
        spec.bias,
        spec.qk_bias,
        std=std,
        value_std=gain * std,
        out_std=out_std,
        own_values=spec.values.projects(index),
        query_norm=_head_norm(spec),
        key_norm=_head_norm(spec),
        attended=spec.attended.build(shape, index, std=std),
    )
    feed_forward = build_feed_forward(spec.shape, spec.activation, spec.bias, std=gain * std, out_std=out_std)
    bodies = {"attention": attention, "feedforward": feed_forward}
    return Layer({place.role: _branch(spec, place, bodies[place.role]) for place in places})


def _norm(spec: Architecture) -> nn.Module:
    return spec.norm.build(spec.width, shift=spec.bias.norm)


def _head_norm(spec: Architecture) -> nn.Module | None:
    """The norm on every head's queries or keys."""
    return None if spec.qk_norm is None else spec.qk_norm.build(spec.attention_shape.head_dim, shift=spec.bias.norm)


def _branch(spec: Architecture, place: Place, body: Body) -> Branch:
    sockets = spec.placement.at(place, spec.places)

    def norm(socket: Socket) -> nn.Module:
        return _norm(spec) if getattr(sockets, socket) else nn.Identity()

    return Branch(
        place.role,
        body,
        input_norm=norm("branch_input"),
        output_norm=norm("branch_output"),
        stream_norm=norm("stream"),
        input_factor=sockets.input_factor,
        stream_factor=sockets.stream_factor,
        dropout=spec.dropout.branch,
    )
