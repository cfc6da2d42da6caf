"""The wiring across depth that a model has learned: how much of every earlier output each site reads.

Every residual computes a branch's input from the embeddings and the outputs of earlier branches. With its weights held at the
values that they have on the given tokens, and with every norm of the stream held at its present scale, that input is a sum of
one contribution per source. The contributions are derivatives of the residual alone, computed with forward-mode
differentiation; no formula of a mechanism is written here, so that a user's own residual is served too.
"""

import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn
from torch.autograd import forward_ad

from addnorm.errors import InputError
from addnorm.model.trace import Trace
from addnorm.model.transformer import Transformer
from addnorm.residual import Residual, SeparateReads, Site

__all__ = ["Contributions", "DepthMatrix", "depth_matrix", "identities"]

_SAME = 1e-9
"""Largest spread of a weight over positions that counts as rounding, in float64."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DepthMatrix:
    """The weights of every source in every read of a model."""

    reads: tuple[str, ...]
    """One name per row: `0.attention`, `0.feedforward`, …, `close`; `1.attention.key` where keys read the state separately."""
    sources: tuple[str, ...]
    """One name per column: `embedding`, `0.attention`, …"""
    weights: Float64[Tensor, "read source"]
    """Mean over positions of the weight with which a read has a source; zero for sources that come later."""
    spread: Float64[Tensor, "read source"]
    """Standard deviation of the weight over positions; zero where it does not depend on the tokens."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Contributions:
    """A read as a sum over its sources."""

    name: str
    """As in `DepthMatrix.reads`."""
    read: Float[Tensor, "batch seq width"]
    """The input of the branch, or of the final norm."""
    of_source: Float[Tensor, "source batch seq width"]
    """The part of each source; those that come later contribute zero."""
    shift: Float[Tensor, "batch seq width"]
    """The rest, which no source contributes: shifts of norms on the stream, and rounding."""


def depth_matrix(model: Transformer, tokens: Int64[Tensor, "batch seq"] | None = None) -> DepthMatrix:
    """Find how much of each source every branch of a model reads.

    The weight of source v in a read is the share of v in its contribution c: the mean over positions of (c . v) / (v . v).
    Where the residual multiplies v by one number, it is that number.

    Args:
        model: a model of this library, in any state of training; for the start, build it anew from its spec.
        tokens: what the weights are measured on; needed only where they depend on tokens.

    Raises:
        InputError: weights that depend on the tokens, and no tokens; a residual that applies layers again, whose reads are no
            sum over what the branches wrote; a norm on the stream that is not known to scale.

    Example:
        >>> import addnorm
        >>> spec = addnorm.preset("llama", vocab=64, width=32, depth=2, heads=4, hidden=64, max_seq=16, residual="dense")
        >>> addnorm.depth_matrix(spec.build()).weights[-1].tolist()  # the final norm reads all sources alike
        [1.0, 1.0, 1.0, 1.0, 1.0]
    """
    measured = tokens
    if measured is None:
        generator = torch.Generator().manual_seed(0)
        measured = torch.randint(model.spec.vocab, (2, min(8, model.spec.max_seq)), generator=generator)
    weights, spreads, names, places = [], [], [], _places(model)
    sources: Tensor | None = None
    for part in _contributions(model, measured):
        sources = part.sources if sources is None else sources
        products = (part.contributions * sources).sum(dim=-1) / sources.square().sum(dim=-1).clamp_min(1e-300)
        flat = products.flatten(1)
        weights.append(flat.mean(dim=1))
        spreads.append(flat.std(dim=1, correction=0))
        names.append(part.name)
    matrix, spread = torch.stack(weights), torch.stack(spreads)
    varies = bool((spread > _SAME * matrix.abs().clamp_min(1)).any())
    if varies and tokens is None and not _scales_stream(model):
        raise InputError(
            f"depth_matrix: expected tokens, because the weights of residual {model.spec.residual.kind!r} depend on them, got "
            "none. Pass tokens of your data."
        )
    return DepthMatrix(reads=tuple(names), sources=("embedding", *places), weights=matrix, spread=spread)


def identities(model: Transformer, tokens: Int64[Tensor, "batch seq"]) -> list[Contributions]:
    """Write every read of a model as the sum of what each source contributes to it.

    Computed in float64, whatever the model's own dtype.

    Raises:
        InputError: see `depth_matrix`.

    Example:
        >>> import torch, addnorm
        >>> spec = addnorm.preset("llama", vocab=64, width=32, depth=2, heads=4, hidden=64, max_seq=16, residual="streams")
        >>> last = addnorm.identities(spec.build(), torch.tensor([[1, 2, 3]]))[-1]
        >>> bool(torch.allclose(last.of_source.sum(dim=0) + last.shift, last.read))
        True
    """
    return [
        Contributions(
            name=part.name,
            read=part.read,
            of_source=part.contributions,
            shift=part.read - part.contributions.sum(dim=0),
        )
        for part in _contributions(model, tokens)
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    name: str
    read: Tensor
    contributions: Tensor
    sources: Tensor


@torch.no_grad()
def _contributions(model: Transformer, tokens: Tensor) -> Iterator[_Part]:
    if model.spec.residual.replays:
        raise InputError(
            f"depth_matrix: expected a residual whose reads are sums over earlier outputs, got {model.spec.residual.kind!r}, "
            "which applies earlier layers again. Use it on other residuals."
        )
    model = copy.deepcopy(model).double().eval()
    trace = Trace()
    model(tokens.to(model.embedding.weight.device), trace=trace)
    assert trace.embeddings is not None  # filled by every traced pass
    sources = torch.stack([trace.embeddings, *(site.output for site in trace.sites)])
    _freeze(model)
    names, reads = _reads(model, sources)
    parts = []
    for index in range(len(sources)):
        with forward_ad.dual_level(), warnings.catch_warnings():
            # The first dual tensor makes torch load formulas of its own through a function that it has deprecated.
            warnings.filterwarnings(
                "ignore", message=r"`torch\.jit\.script` is deprecated", category=DeprecationWarning
            )
            tangent = torch.zeros_like(sources)
            tangent[index] = sources[index]
            _, duals = _reads(model, forward_ad.make_dual(sources, tangent))
            parts.append([_tangent(read) for read in duals])
    for row, (name, read) in enumerate(zip(names, reads, strict=True)):
        yield _Part(name=name, read=read, contributions=torch.stack([part[row] for part in parts]), sources=sources)


def _tangent(read: Tensor) -> Tensor:
    tangent = forward_ad.unpack_dual(read).tangent
    return torch.zeros_like(read) if tangent is None else tangent.clone()


def _places(model: Transformer) -> list[str]:
    return [f"{place.layer}.{place.role}" for place in model.spec.places]


def _reads(model: Transformer, sources: Tensor) -> tuple[list[str], list[Tensor]]:
    """Run the residual alone: the branches' outputs are given."""
    residual: Residual = model.residual
    state = residual.open(sources[0])
    names, reads = [], []
    for place, name, branches in zip(model.spec.places, _places(model), model.site_branches(), strict=True):
        branch = branches.on_stream
        site = Site(place.index, place.layer, place.role)
        read, state = residual.read(state, site)
        if isinstance(read, SeparateReads):
            names += [f"{name}.{way}" for way in SeparateReads._fields]
            reads += list(read)
        else:
            names.append(name)
            reads.append(read)
        if branch.stream_factor != 1:
            state = residual.map_stream(state, branch.scaled, site)
        state = residual.write(state, sources[place.index + 1], site)
        if not isinstance(branch.stream_norm, nn.Identity):
            state = residual.map_stream(state, branch.stream_norm, site)
    return [*names, "close"], [*reads, residual.close(state)]


def _scales_stream(model: Transformer) -> bool:
    """True if norms of the stream scale every position by its own number, whatever the residual."""
    sockets = model.spec.placement.sockets()
    return sockets.stream or any(isinstance(module, _norm_type(model)) for module in model.residual.modules())


def _freeze(model: Transformer) -> None:
    """Hold the weights and the scales of norms at their values, in a model that nobody else uses."""
    model.residual.frozen, kind = True, _norm_type(model)
    for branch in model.branches():
        if not isinstance(branch.stream_norm, nn.Identity):
            branch.stream_norm = _Frozen(branch.stream_norm)
    for parent in list(model.residual.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, kind) and not isinstance(child, nn.Identity):
                setattr(parent, name, _Frozen(child))


def _norm_type(model: Transformer) -> type[nn.Module]:
    return type(model.spec.norm.build(1, shift=False))


class _Frozen(nn.Module):
    """A norm with its present scale, as an affine map of its input."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        norm = self.norm
        if isinstance(norm, nn.BatchNorm1d):
            affine: Tensor = norm(x)  # in evaluation its scale is a constant already
            return affine
        shift = getattr(norm, "bias", None)
        constant = torch.zeros((), dtype=x.dtype) if shift is None else shift
        if isinstance(norm, nn.LayerNorm):
            deviation = torch.sqrt(x.detach().var(dim=-1, correction=0, keepdim=True) + norm.eps)
            scaled = (x - x.mean(dim=-1, keepdim=True)) / deviation
            return (scaled if norm.weight is None else scaled * norm.weight) + constant
        given = x.detach()  # RMS norm, functions of one entry and a user's own: a factor for every entry
        factor = torch.where(given == 0, 0.0, (norm(given) - constant) / given)
        return factor * x + constant
