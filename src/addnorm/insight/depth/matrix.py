"""`addnorm.depth_matrix` and `addnorm.identities`: the reads of a model as weighted sums over what earlier layers made."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.insight.depth import column, residual, scores, values
from addnorm.insight.depth.part import SAME, TINY, DepthRow, Part, row_of
from addnorm.insight.depth.recorded import RecordedReads, recorded_reads
from addnorm.model.transformer import Transformer
from addnorm.words import Sentence, say

DepthRoom = Literal["residual", "scores", "values", "column"]
READERS = {"residual": residual, "scores": scores, "values": values, "column": column}
"""Modules with `sources_of` and `parts`, by the room whose mechanisms they look at."""
MATRICES = ("weights", "spread", "shares", "relative")
"""Fields of `DepthMatrix` that are recorded, in six digits."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DepthMatrix:
    """The weights of every source in every read of a model."""

    reads: tuple[str, ...]
    """One name per row: `0.attention`, `0.feedforward`, …, `close`; `1.attention.key` where keys read the state separately. Of
    scores, values and columns: the layer, `0`; `0.query` and `0.key` where scores merge these."""
    sources: tuple[str, ...]
    """One name per column: `embedding`, `0.attention`, …; of the others: the layer, and `table` of values."""
    weights: Float64[Tensor, "read source"]
    """Mean over positions (and heads) of the weight with which a read has a source; zero for sources that come later. Weights
    of scores are in units of 1/sqrt(width of a head), so that a plain layer has its own with weight 1; those of columns are
    probabilities, the own layer's of its whole sequence."""
    spread: Float64[Tensor, "read source"]
    """Standard deviation of the weight over positions; zero where it does not depend on the tokens."""
    shares: Float64[Tensor, "read source"]
    """The part c·r / r·r of a source's contribution c in the read r, mean over positions: what the read has of it with sizes
    and directions taken into account. A row adds up to one if no norm shifts; other sizes of stream or branches do not change
    it. Of scores cov(c, r) / var(r) along the rows of attention, over the positions that each row sees, mean over heads: a
    constant along a row changes no softmax."""
    relative: Float64[Tensor, "read source"]
    """`weights` without the factors of rows and columns that matrices around could take over, so that single numbers mean
    something; 1 for all sources of all reads if the joint is the plain one with other sizes of its branches. Factors that
    differ between entries of a vector, such as gains, count with their means."""
    by_head: Float64[Tensor, "read source head"] | None
    """Weights of each head; None where there are no heads."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Contributions:
    """A read as a sum over its sources."""

    name: str
    """As in `DepthMatrix.reads`."""
    read: Float[Tensor, "*place entries"]
    """The input of a branch or of the final norm [batch, seq, width]; summed scores before biases and masks [batch, heads, seq,
    seq]; the layers' values [batch, kv_heads, seq, value_dim]; values after attention, of columns [batch, heads, seq,
    value_dim]."""
    of_source: Float[Tensor, "source *place entries"]
    """The part of each source; those that come later contribute zero."""
    shift: Float[Tensor, "*place entries"]
    """The rest, which no source contributes: shifts of norms on the stream, and rounding."""


def depth_matrix(
    model: nn.Module, tokens: Int64[Tensor, "batch seq"] | None = None, room: DepthRoom = "residual"
) -> DepthMatrix:
    """Find how much of each source every read of a model has.

    The weight of source v in a read is the share of v in its contribution c: the mean over positions of (c . v) / (v . v).
    Where the mechanism multiplies v by one number, it is that number.

    Args:
        model: a model of this library, in any state of training; for the start, build it anew from its spec. Of other
            models, such as a decoder of Transformers or a module of your own, the residual alone is found, from one pass.
        tokens: what the weights are measured on; of a model of this library needed only where they depend on tokens.
        room: what is read: the stream by branches; earlier layers' scores or values by attention; or the sequence and the
            column of earlier layers by the softmax.

    Raises:
        InputError: weights that depend on the tokens, and no tokens; a residual that applies layers again, whose reads are no
            sum over what the branches wrote; another room; a model of others without tokens, without a list of layers, or
            without a stream that can be followed.

    Example:
        >>> import addnorm
        >>> spec = addnorm.preset("llama", vocab=64, width=32, depth=2, heads=4, hidden=64, max_seq=16, residual="dense")
        >>> addnorm.depth_matrix(spec.build()).weights[-1].tolist()  # the final norm reads all sources alike
        [1.0, 1.0, 1.0, 1.0, 1.0]
    """
    if not isinstance(model, Transformer):
        if tokens is None:
            raise InputError(
                f"depth_matrix: expected tokens for {type(model).__name__}, whose stream is followed through a pass, got none."
            )
        reads = _recorded(model, tokens, room)
        return _matrix(reads.parts, reads.sources, room)
    measured = tokens
    if measured is None:
        generator = torch.Generator().manual_seed(0)
        measured = torch.randint(model.spec.vocab, (2, min(8, model.spec.max_seq)), generator=generator)
    matrix = _matrix(_parts(model, measured, room), _reader(room).sources_of(model), room)
    # Norms of the stream make weights that differ between any tokens, by a factor per position. Such a matrix is
    # measured on random tokens; one whose mechanism looks at the tokens is not.
    varies = bool(matrix.spread.any())
    if varies and tokens is None and not (room == "residual" and residual.scales_stream(model)):
        kind = getattr(model.spec, room).kind
        raise InputError(
            f"depth_matrix: expected tokens, because the weights of {room} {kind!r} depend on them, got none. Pass tokens of "
            "your data."
        )
    return matrix


def _matrix(parts: Iterable[Part], sources: tuple[str, ...], room: DepthRoom) -> DepthMatrix:
    names, rows = [], []
    for part in parts:
        names.append(part.name)
        rows.append(row_of(part))
    spread = torch.stack([row.weights.std(dim=2, correction=0).mean(dim=1) for row in rows])
    matrix = torch.stack([row.weights.mean(dim=(1, 2)) for row in rows])
    heads = {row.weights.shape[1] for row in rows}
    return DepthMatrix(
        reads=tuple(names),
        sources=sources,
        weights=matrix,
        spread=torch.where(spread > SAME * matrix.abs().clamp_min(1), spread, 0.0),  # the rest is rounding
        shares=torch.stack([row.shares for row in rows]),
        relative=free_of_gauge(_by_position(rows), rows_scale=room != "scores"),
        by_head=None
        if room == "residual" or len(heads) > 1
        else torch.stack([row.weights.mean(dim=2) for row in rows]),
    )


def _recorded(model: nn.Module, tokens: Tensor, room: DepthRoom) -> RecordedReads:
    if room != "residual":
        raise InputError(
            f"depth_matrix: room: expected 'residual' for {type(model).__name__}, a model of others, got {room!r}."
        )
    return recorded_reads(model, tokens)


def _by_position(rows: Sequence[DepthRow]) -> Float64[Tensor, "read source position"]:
    """The weights of all rows at the same heads and positions."""
    heads, positions = (max(row.weights.shape[axis] for row in rows) for axis in (1, 2))
    # Values have fewer heads than queries, and fixed weights one position: repeated, every row has the same places, so
    # that factors can be divided out place by place.
    by_head = [row.weights.repeat_interleave(heads // row.weights.shape[1], dim=1) for row in rows]
    return torch.stack([weights.expand(-1, -1, positions).flatten(1) for weights in by_head])


def identities(
    model: nn.Module, tokens: Int64[Tensor, "batch seq"], room: DepthRoom = "residual"
) -> list[Contributions]:
    """Write every read of a model as the sum of what each source contributes to it.

    Computed in float64 from what the model's branches give in its own dtype; of a model of others, from a pass of a copy
    in float64. There, whatever is added to the stream is a source. Norms, gates and mixings are held at their values.

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
        for part in (
            _parts(model, tokens, room) if isinstance(model, Transformer) else _recorded(model, tokens, room).parts
        )
    ]


def _reader(room: str) -> ModuleType:
    if room not in READERS:
        raise InputError(f"depth_matrix: room: expected one of {', '.join(READERS)}, got {room!r}.")
    return READERS[room]


@torch.no_grad()
def _parts(model: Transformer, tokens: Tensor, room: DepthRoom) -> Iterator[Part]:
    reader = _reader(room)
    training = model.training
    model.eval()
    try:
        yield from reader.parts(model, tokens.to(model.embedding.weight.device))
    finally:
        model.train(training)


def joined_rooms(model: Transformer) -> tuple[DepthRoom, ...]:
    """The rooms whose mechanisms let a layer of this model read others, and whose reads are sums."""
    depth = model.spec.attention_shape.depth
    rooms: list[DepthRoom] = [] if model.spec.residual.replays else ["residual"]
    if any(model.scores.looks_back(layer) for layer in range(1, depth)):
        rooms.append("scores")
    if model.values is not None:
        rooms.append("values")
    if model.column is not None:
        rooms.append("column")
    return tuple(rooms)


def depth_matrices(model: Transformer, tokens: Int64[Tensor, "batch seq"]) -> dict[str, Any]:
    """Measure the depth matrices of a model.

    Returns:
        By room: `kind`, `reads`, `sources`, and `weights`, `spread`, `shares`, `relative` as lists of rows; for all but
        the residual also `heads`, the weights per head, if heads differ.
    """
    rooms = joined_rooms(model)
    return {room: _plain(getattr(model.spec, room).kind, depth_matrix(model, tokens, room)) for room in rooms}


def followed_matrices(model: nn.Module, tokens: Int64[Tensor, "batch seq"]) -> tuple[dict[str, Any], list[Sentence]]:
    """Measure the depth matrix of the stream of a model of others, in float64 on the CPU.

    Memory: of a copy of the model, and of branches² × tokens × width numbers.

    Returns:
        As `depth_matrices`, with the name of the model's class as the kind; and what could not be followed, with its size.

    Raises:
        InputError: as `depth_matrix`.
    """
    reads = recorded_reads(model, tokens.cpu())
    matrix, last = _matrix(reads.parts, reads.sources, "residual"), reads.parts[-1]
    missing = [
        say("bent_stream", source=source, share=f"{matrix.shares[-1, place]:.0%}", read=last.name)
        for place, source in enumerate(reads.sources)
        if source.partition(".")[2].startswith("stream")
    ]
    for part, shift in zip(reads.parts, reads.shifts, strict=True):
        rest = float((part.read - part.contributions.sum(dim=0) - shift).norm() / part.read.norm().clamp_min(TINY))
        if rest > SAME:
            missing.append(say("unfollowed", read=part.name, share=f"{rest:.2g}"))
    return {"residual": _plain(type(model).__name__, matrix)}, missing


def _plain(kind: str, matrix: DepthMatrix) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "kind": kind,
        "reads": list(matrix.reads),
        "sources": list(matrix.sources),
    }
    plain |= {name: _rounded(getattr(matrix, name)) for name in MATRICES}
    heads = matrix.by_head
    if heads is not None and bool((heads - heads[..., :1]).abs().max() > 0):
        plain["heads"] = _rounded(heads)
    return plain


def _rounded(values: Tensor) -> Any:
    return [_rounded(row) for row in values] if values.dim() else float(f"{values.item():.6g}")


# Weights after every free factor has been taken out. The matrices of a branch can take over a factor of what it writes,
# so every column of a depth matrix may be divided by a number; those around a read can take over a factor of the row,
# except where the softmax of the scores sees its size. What such factors can make 1 says nothing. They are chosen so
# that, where possible, every read has its newest source with weight 1, then the last read has every source with weight
# 1; weights that are left are ratios that no choice can change.

SMALLEST = 1e-12
"""Share of the largest weight of a row below which a weight counts as zero."""
Edge = tuple[int, int]


def free_of_gauge(
    weights: Float64[Tensor, "read source position"], *, rows_scale: bool = True
) -> Float64[Tensor, "read source"]:
    """Divide rows and columns by the factors that the matrices around can take over.

    Norms of the stream have a factor of their own at every position, so this is done by position; medians are returned.

    Args:
        weights: of a depth matrix at several positions; zero where a read does not have a source.
        rows_scale: False if the size of a whole row matters.
    """
    sizes = weights.abs().mean(dim=-1)
    is_edge = sizes > SMALLEST * sizes.amax(dim=1, keepdim=True)
    rows, columns = _factors(weights, _tree(is_edge, rows_scale=rows_scale), rows_scale=rows_scale)
    ratios = weights / rows[:, None] / columns
    return torch.where(is_edge, ratios.median(dim=-1).values, torch.zeros_like(sizes))


def _tree(is_edge: Tensor, *, rows_scale: bool) -> list[Edge]:
    """The weights that become 1: as many as there are factors to choose, so that no ratio of weights is fixed by them."""
    reads, sources = is_edge.shape
    # Kruskal's algorithm on the graph with a node per row and column and an edge per weight. Its factors make the
    # weights of a spanning tree 1, and no more: around a cycle, products and quotients of weights stay what they are
    # whatever the factors, and they are what the other weights then show. Rows that keep their size are one node from
    # the beginning.
    group = [*(range(reads) if rows_scale else [0] * reads), *range(reads, reads + sources)]
    edges = [(read, source) for read, source in is_edge.nonzero().tolist()]
    # The order of the edges decides which weights become 1, not how many: each read's newest source (the last edge of
    # its row), then the last read's sources.
    newest = dict(edges)
    edges.sort(key=lambda edge: (newest[edge[0]] != edge[1], edge[0] != reads - 1))
    tree = []
    for read, source in edges:
        one, other = group[read], group[reads + source]
        if one != other:
            group = [one if each == other else each for each in group]
            tree.append((read, source))
    return tree


def _factors(weights: Tensor, tree: list[Edge], *, rows_scale: bool) -> tuple[Tensor, Tensor]:
    """Factors of rows and columns whose products are the weights of the tree."""
    reads, sources, positions = weights.shape
    rows, columns = weights.new_ones(reads, positions), weights.new_ones(sources, positions)
    known_rows: set[int] = set() if rows_scale else set(range(reads))
    known_columns: set[int] = set()
    left = list(tree)
    while left:
        ready = [edge for edge in left if edge[0] in known_rows or edge[1] in known_columns]
        if not ready:  # another component: its first row keeps its size
            known_rows.add(left[0][0])
            continue
        for read, source in ready:
            if read in known_rows:
                columns[source] = weights[read, source] / rows[read]
            else:
                rows[read] = weights[read, source] / columns[source]
            known_rows.add(read)
            known_columns.add(source)
        left = [edge for edge in left if edge not in ready]
    return rows, columns
