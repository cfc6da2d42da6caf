"""The reads of the hidden stream: every branch's input, and the close, as sums over embeddings and branch outputs.

With its weights held at the values that they have on the given tokens, and with every norm of the stream held at its present
scale, a read is a sum of one contribution per source. The contributions are derivatives of the residual alone, computed with
forward-mode differentiation; no formula of a mechanism is written here, so that a user's own residual is served too.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from addnorm.errors import InputError
from addnorm.insight.depth.part import Part, forward_mode, tangent_of
from addnorm.model.trace import Trace
from addnorm.model.transformer import Transformer
from addnorm.residual import Residual, SeparateReads, Site


def sources_of(model: Transformer) -> tuple[str, ...]:
    """Names of the embeddings and of every branch's output."""
    return ("embedding", *_places(model))


def parts(model: Transformer, tokens: Tensor) -> Iterator[Part]:
    """Every read of the stream, in order of depth.

    Raises:
        InputError: a residual that applies layers again.
    """
    if model.spec.residual.replays:
        raise InputError(
            f"depth_matrix: expected a residual whose reads are sums over earlier outputs, got {model.spec.residual.kind!r}, "
            "which applies earlier layers again. Use it on other residuals."
        )
    trace = Trace()
    model(tokens, trace=trace)
    assert trace.embeddings is not None  # filled by every traced pass
    # Why the contributions add up. With its weights and norms held, the residual alone is a linear map from the sources
    # (embeddings, branch outputs) to every read, up to the shifts of norms: r = sum_i J_i s_i. The derivative of all
    # reads along "source i as it is, all others zero" is J_i s_i, the contribution of source i. So one pass in forward
    # mode per source gives a column of every read, and no formula of a mechanism is needed. What is not linear even
    # then would be left in `Contributions.shift`.
    sources = [each.double() for each in (trace.embeddings, *(site.output for site in trace.sites))]
    wires = _Wires.of(model)
    names, reads = wires.reads(sources)
    parts = []
    for index, source in enumerate(sources):
        with forward_mode():
            alone = [*sources]
            alone[index] = forward_ad.make_dual(source, source)
            _, duals = wires.reads(alone)
            parts.append([tangent_of(read) for read in duals])
    for row, (name, read) in enumerate(zip(names, reads, strict=True)):
        vectors = torch.stack([_like(source, read) for source in sources])
        contributions = torch.stack([part[row] for part in parts])
        if read.dim() > 3:  # all streams, for a branch that reads them side by side: they stand where heads do
            read, contributions, vectors = read.movedim(2, 1), contributions.movedim(3, 2), vectors.movedim(3, 2)
        yield Part(name=name, read=read, contributions=contributions, sources=vectors)


def _like(source: Tensor, read: Tensor) -> Tensor:
    """A source as a vector of the read's shape: of an output for each of several streams their mean, of one output itself for
    all streams."""
    if source.dim() > read.dim():
        return source.mean(dim=2)
    return source if source.dim() == read.dim() else source[:, :, None].expand_as(read)


def scales_stream(model: Transformer) -> bool:
    """True if norms of the stream scale every position by its own number, whatever the residual."""
    sockets = model.spec.placement.sockets()
    return sockets.stream or any(isinstance(module, _norm_type(model)) for module in model.residual.modules())


def _places(model: Transformer) -> list[str]:
    return [f"{place.layer}.{place.role}" for place in model.spec.places]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Wires:
    """A copy of what lies between the branches, in float64, with norms and weights held at their values."""

    residual: Residual
    sites: Sequence[Site]
    names: Sequence[str]
    changes: Sequence[Sequence[Callable[[Tensor], Tensor]]]
    """Of every site: the factor of the stream before its output joins and the norm after, each identity where absent."""

    @classmethod
    def of(cls, model: Transformer) -> "_Wires":
        residual, kind = copy.deepcopy(model.residual).double().eval(), _norm_type(model)
        # Weights that a mechanism computes from the stream (attention over depth, gates) are constants from here on.
        # Otherwise the product rule would add, to each contribution, the change of the weights, and the contributions
        # would not add up to the read.
        residual.frozen = True
        for parent in list(residual.modules()):
            for name, child in list(parent.named_children()):
                if isinstance(child, kind) and not isinstance(child, nn.Identity):
                    setattr(parent, name, _Frozen(child))
        changes = []
        for branches in model.site_branches():
            branch = branches.on_stream
            norm = branch.stream_norm
            is_norm = not isinstance(norm, nn.Identity)
            changes.append(
                (
                    _Factor(branch.stream_factor) if branch.stream_factor != 1 else nn.Identity(),
                    _Frozen(copy.deepcopy(norm).double().eval()) if is_norm else nn.Identity(),
                )
            )
        places = model.spec.places
        return cls(
            residual=residual,
            sites=[Site(place.index, place.layer, place.role) for place in places],
            names=_places(model),
            changes=changes,
        )

    def reads(self, sources: Sequence[Tensor]) -> tuple[list[str], list[Tensor]]:
        """Run the residual alone: the branches' outputs are given."""
        residual = self.residual
        state = residual.open(sources[0])
        names, reads = [], []
        for site, name, (factor, norm) in zip(self.sites, self.names, self.changes, strict=True):
            read, state = residual.read(state, site)
            if isinstance(read, SeparateReads):
                names += [f"{name}.{way}" for way in SeparateReads._fields]
                reads += list(read)
            else:
                names.append(name)
                reads.append(read)
            state = _changed(residual, state, factor, site)
            state = residual.write(state, sources[site.index + 1], site)
            state = _changed(residual, state, norm, site)
        return [*names, "close"], [*reads, residual.close(state)]


def _changed(residual: Residual, state: object, change: Callable[[Tensor], Tensor], site: Site) -> object:
    return state if isinstance(change, nn.Identity) else residual.map_stream(state, change, site)


def _norm_type(model: Transformer) -> type[nn.Module]:
    return type(model.spec.norm.build(1, shift=False))


class _Factor(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


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
            # The size is held, centring is not: it is linear, and belongs to every contribution.
            deviation = torch.sqrt(x.detach().var(dim=-1, correction=0, keepdim=True) + norm.eps)
            scaled = (x - x.mean(dim=-1, keepdim=True)) / deviation
            return (scaled if norm.weight is None else scaled * norm.weight) + constant
        given = x.detach()  # RMS norm, functions of one entry and a user's own: a factor for every entry
        # An entry that is exactly zero passes nothing on, where 0 / 0 would make the whole row NaN.
        factor = torch.where(given == 0, 0.0, (norm(given) - constant) / given)
        return factor * x + constant
