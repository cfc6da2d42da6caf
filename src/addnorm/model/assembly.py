"""Assembly of the parts that depend on more than one mechanism: norms in their sockets, branches, layers."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from addnorm.block import BranchPlan, SitePlan
from addnorm.model.architecture import Architecture
from addnorm.model.attention import SelfAttention
from addnorm.model.convolution import Convolved, build_convolutions
from addnorm.model.feed_forward import FUNCTIONS, PlainActivation, TokenTableBody, build_feed_forward
from addnorm.model.forgetting import ForgettingGate
from addnorm.model.gau import GatedAttentionUnit
from addnorm.model.layer import Body, Branch, TransformerLayer
from addnorm.model.linear import Linear
from addnorm.shape import Place

Socket = Literal["branch_input", "branch_output", "stream"]


class HeadTransform(nn.Module):
    """BERT's transform before the output matrix: norm(activation(W x + b)).

    Source: Devlin et al. 2018, "BERT", arXiv:1810.04805; its code, `get_masked_lm_output`.
    Differs from the source: nothing.
    """

    def __init__(self, width: int, activation: PlainActivation, norm: nn.Module, *, std: float) -> None:
        super().__init__()
        self.activation = activation
        self.dense = Linear(width, width, bias=True, std=std)
        self.norm = norm

    def forward(self, x: Float[Tensor, "batch seq width"]) -> Float[Tensor, "batch seq width"]:
        return self.norm(FUNCTIONS[self.activation](self.dense(x)))


def build_norm(spec: Architecture, socket: Literal["embedding", "final"]) -> nn.Module:
    """The norm before or after all branches; an identity where the placement has none."""
    return _norm(spec) if getattr(spec.placement.sockets(), socket) else nn.Identity()


def build_head_transform(spec: Architecture) -> nn.Module:
    """The transform before the output matrix; an identity where the spec has none."""
    if spec.head_transform is None:
        return nn.Identity()
    std = _hidden_std(spec)
    return HeadTransform(spec.width, spec.head_transform, spec.norm.build(spec.width, shift=True), std=std)


def build_layer(spec: Architecture, index: int) -> TransformerLayer:
    """Layer `index`, with the branches that the block says."""
    sites = [(place, plan) for place, plan in zip(spec.places, spec.site_plans, strict=True) if place.layer == index]
    branches = {planned.name: _branch(spec, place, plan, planned) for place, plan in sites for planned in plan.branches}
    return TransformerLayer([plan for _, plan in sites], branches)


def _branch(spec: Architecture, place: Place, plan: SitePlan, planned: BranchPlan) -> Branch:
    sockets = spec.placement.at(place, spec.places)
    is_first, is_last = planned is plan.branches[0], planned is plan.branches[-1]
    # Sockets belong to a site, which may have several branches. With a shared norm the first branch alone has it, and
    # the others read its result; a norm of the stream follows once all outputs have joined, so it belongs to the last.
    has_norm = {
        "branch_input": sockets.branch_input and (is_first or plan.input_norm == "own"),
        "branch_output": sockets.branch_output,
        "stream": sockets.stream and is_last,
    }

    def norm(socket: Socket) -> nn.Module:
        return _norm(spec) if has_norm[socket] else nn.Identity()

    return Branch(
        _body(spec, place, planned),
        input_norm=norm("branch_input"),
        output_norm=norm("branch_output"),
        stream_norm=norm("stream"),
        input_factor=sockets.input_factor,
        stream_factor=sockets.stream_factor,
        factor=planned.factor * (1.0 if spec.scaling is None else spec.scaling.branch_factor(spec.depth)),
        dropout=spec.dropout.branch,
    )


def _body(spec: Architecture, place: Place, planned: BranchPlan) -> Body:
    name = planned.body
    gain = spec.placement.initial_gain(len(spec.places))
    has_inner = spec.placement.at(place, spec.places).inner
    std = _hidden_std(spec)
    # GPT-2's start: every branch of the model adds its output to one stream, and variances add up. Smaller by the root
    # of their number, the outputs together have the variance of one.
    outputs: float = sum(len(plan.branches) for plan in spec.site_plans)
    if spec.scaling is not None and spec.scaling.depth is not None:
        # A scaling of the depth shrinks the branches themselves; the start stays that of its base depth.
        outputs *= spec.scaling.depth / spec.depth
    out_std = gain * (std / outputs**0.5 if spec.init_branch == "depth" else std)
    if name == "feedforward":
        inner = spec.norm.build(spec.hidden, shift=spec.bias.norm) if has_inner else None
        return build_feed_forward(
            spec.shape, spec.activation, spec.bias, std=gain * std, out_std=out_std, inner_norm=inner
        )
    if name == "token_table":
        inner = spec.norm.build(planned.entries, shift=spec.bias.norm) if has_inner else None
        return TokenTableBody(spec.width, spec.vocab, planned.entries, gain * std, out_std, inner)
    shape = spec.attention_shape
    inner = spec.norm.build(shape.heads * shape.value_dim, shift=spec.bias.norm) if has_inner else None
    # Number of attentions before this one, not of layers: with two gated attention units per layer there are two of
    # them in each, and scores, values and caches count attentions.
    number = sum(plan.attends for plan in spec.site_plans[: place.index])
    if name == "gated_attention_unit":
        return GatedAttentionUnit(
            shape,
            number,
            spec.bias,
            spec.qk_bias,
            std=gain * std,
            out_std=out_std,
            query_norm=_head_norm(spec),
            key_norm=_head_norm(spec),
            attended=spec.attended.build(shape, number, std=std),
            inner_norm=inner,
            forgetting=_forgetting(spec),
        )
    sizes: dict[Convolved, int] = {"input": spec.width, "query": shape.heads * shape.head_dim}
    sizes |= {"key": shape.kv_heads * shape.head_dim}
    sizes |= {"value": shape.kv_heads * shape.head_dim} if spec.values.projects(number) else {}
    return SelfAttention(
        shape,
        number,
        spec.bias,
        spec.qk_bias,
        std=std,
        value_std=gain * std,
        out_std=out_std,
        own_values=spec.values.projects(number),
        query_norm=_head_norm(spec),
        key_norm=_head_norm(spec),
        attended=spec.attended.build(shape, number, std=std),
        inner_norm=inner,
        forgetting=_forgetting(spec),
        convolutions=build_convolutions(spec.convolution, sizes, number, causal=spec.objective == "causal"),
    )


def _forgetting(spec: Architecture) -> ForgettingGate | None:
    if spec.forgetting is None:
        return None
    return ForgettingGate(spec.width, spec.heads, spec.forgetting.start, std=spec.init_std)


def _norm(spec: Architecture) -> nn.Module:
    return spec.norm.build(spec.width, shift=spec.bias.norm)


def _head_norm(spec: Architecture) -> nn.Module | None:
    """The norm on every head's queries or keys."""
    return None if spec.qk_norm is None else spec.qk_norm.build(spec.attention_shape.head_dim, shift=spec.bias.norm)


def _hidden_std(spec: Architecture) -> float:
    """Standard deviation of hidden matrices at the start, before what placements and `init_branch` do to it."""
    return spec.init_std * (1.0 if spec.scaling is None else spec.scaling.std_factor(spec.width))
