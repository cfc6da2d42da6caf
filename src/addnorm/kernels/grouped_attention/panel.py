"""A panel: the batch items and key heads whose tiles are computed one after another.

A panel concatenates its terms, so that Σ_i s_i Q_i K_iᵀ is one matrix product per tile:
[s_1 Q_1 | … | s_n Q_n] · [K_1 | … | K_n]ᵀ. Queries and keys are copied once per panel and not once per call, so the copy has
the size of a panel. The query heads of a group are stacked as rows, so keys and values are never repeated.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.kernels.grouped_attention.distance import add_diagonals, part
from addnorm.kernels.grouped_attention.dropout import block
from addnorm.kernels.grouped_attention.problem import AttentionProblem, band, by_row

NARROW = 16
"""Columns from which a product is as fast as its transpose. With 8, the transpose takes a quarter of the time: 0.18 against
0.68 ms for 32 products of 128 x 128 with 128 x 8 on one AVX2 core."""


class Panel:
    """Factors and settings of one panel, in the type of its tiles.

    A slab is one (item, key head) pair, the batch axis of the products; a line is one (head of the group, query row) pair,
    their row axis.
    """

    queries: Tensor
    """Float[Tensor, "slab group query term*head_dim"], each term times its weight unless all terms share one."""
    keys: Tensor
    """Float[Tensor, "slab key term*head_dim"]."""
    value: Tensor
    """Float[Tensor, "slab key value_dim"]."""
    scale: float
    """Weight that all terms share, a factor of the matrix product; 1 if weights differ."""
    weights: tuple[Tensor, ...] | None
    """Weight of each term, Float[Tensor, "#item #head 1 1"]; None if all share one."""
    sinks: Tensor | None
    """Float[Tensor, "#item head #query 1"]."""

    def __init__(
        self, problem: AttentionProblem, batch: slice, kv_heads: slice, dtype: torch.dtype | None = None
    ) -> None:
        self.problem, self.batch, self.kv_heads = problem, batch, kv_heads
        self.dtype = problem.tile_dtype if dtype is None else dtype
        self.heads = slice(kv_heads.start * problem.group, kv_heads.stop * problem.group)
        self.num_items, self.num_heads = batch.stop - batch.start, self.heads.stop - self.heads.start
        queries = [query[batch, self.heads] for query in problem.queries]
        if isinstance(problem.weights, float):
            self.scale, self.weights = problem.weights, None
        else:
            self.scale, self.weights = 1.0, self.share(problem.weights)[..., None, None].unbind(2)
            queries = [query * weight for query, weight in zip(queries, self.weights, strict=True)]
        self.queries = self._side_by_side(queries).unflatten(0, (-1, problem.group))
        self.keys = self._side_by_side([key[batch, kv_heads] for key in problem.keys])
        self.value = self._side_by_side([problem.value[batch, kv_heads]])
        self.sinks = None if problem.sinks is None else by_row(self.share(problem.sinks)).to(problem.dtype)
        self._diagonal: dict[int, Tensor | None] = {}

    def _side_by_side(self, tensors: Sequence[Tensor]) -> Tensor:
        """Concatenate tensors "item head position entries of one term" to Float[Tensor, "item*head position entry"]."""
        parts = [tensor.to(self.dtype) for tensor in tensors]
        return (parts[0] if len(parts) == 1 else torch.cat(parts, -1)).flatten(0, 1)

    def share(self, tensor: Tensor) -> Tensor:
        """Select this panel's part of a tensor whose first two axes are "#batch #heads"."""
        items = self.batch if tensor.shape[0] > 1 else slice(0, 1)
        return tensor[items, self.heads if tensor.shape[1] > 1 else slice(0, 1)]

    def lines(self, by_group: Tensor, rows: slice) -> Tensor:
        """Select rows of a tensor "slab group query entry" as "slab line entry"; a view if a group is one head."""
        if by_group.shape[1] == 1:
            return span(by_group[:, 0], rows)
        return by_group[:, :, rows].flatten(1, 2)

    def heads_first(self, lines: Tensor) -> Tensor:
        """View a tensor "slab line entry" as "item head rows entry"."""
        return lines.view(self.num_items, self.num_heads, -1, lines.shape[-1])

    def add_products(self, total: Tensor, rows: slice, *, beta: float = 1.0, alpha: float = 1.0) -> Tensor:
        """Replace `total`, "slab line key", by beta · total + alpha · the terms' summed products; 0 ignores what it was."""
        queries, seen = self.lines(self.queries, rows), self.problem.keys_seen(rows)
        return total.baddbmm_(queries, span(self.keys, seen).mT, beta=beta, alpha=alpha * self.scale)

    def tile_shape(self, rows: slice) -> tuple[int, int, int]:
        """Slabs, lines and keys of the tile with these query rows."""
        p, seen = self.problem, self.problem.keys_seen(rows)
        return len(self.value), p.group * (rows.stop - rows.start), seen.stop - seen.start

    def scores(self, buffer: Tensor, rows: slice) -> Tensor:
        """Compute "slab line key" in `buffer`: the summed scores with bias; -inf at keys that a row may not see."""
        scores = self.add_products(carve(buffer, self.tile_shape(rows)), rows, beta=0.0)
        if self.problem.bias is not None:
            self.heads_first(scores).add_(self.bias(self.problem.bias, rows))
        return self.mask(scores, rows)

    def mask(self, scores: Tensor, rows: slice) -> Tensor:
        """Set scores "slab line key" that a row may not see to -inf, in place."""
        p, by_head = self.problem, self.heads_first(scores)
        if p.causal:
            self._mask_band(by_head, rows)
        if p.padding is not None:
            by_head.masked_fill_(~p.padding[self.batch, None, None, p.keys_seen(rows)], float("-inf"))
        return scores

    def _mask_band(self, by_head: Tensor, rows: slice) -> None:
        """The part that causality and the sliding window hide; only a few columns have such scores."""
        p, seen, size = self.problem, self.problem.keys_seen(rows), rows.stop - rows.start
        # The last keys of a tile are the positions of its rows, so tiles of one size share a mask.
        if size not in self._diagonal:
            self._diagonal[size] = self._bound(rows, slice(seen.stop - size, seen.stop))
        # The window of a later row begins later: keys at the front of the tile are too old for it.
        oldest_of_last_row = seen.start if p.sliding_window is None else rows.stop + p.offset - p.sliding_window
        front = slice(seen.start, max(seen.start, oldest_of_last_row))
        if (bound := self._diagonal[size]) is not None:
            by_head[..., -size:].clamp_(max=bound)
        if (bound := self._bound(rows, front)) is not None:
            by_head[..., : front.stop - front.start].clamp_(max=bound)

    def _bound(self, rows: slice, keys: slice) -> Tensor | None:
        """-inf where `band` hides a score, inf elsewhere; None where it hides nothing.

        Scores are clamped by it: filling by a mask takes ten times as long.
        """
        visible = band(self.problem, rows, keys)
        if visible is None:
            return None
        return torch.where(visible, float("inf"), float("-inf")).to(self.dtype)

    def probabilities(self, buffer: Tensor, rows: slice, log_sum: Tensor | None = None) -> Tensor:
        """Compute "slab line key" in `buffer`: the softmax of the scores; zeros in a row without a visible key.

        With sinks, the logarithms of the rows' sums are written to `log_sum`, "item head row 1", where it is given.
        """
        scores = self.scores(buffer, rows)
        if self.sinks is None:
            return self.normalise(scores, scores)
        highest = scores.amax(-1, keepdim=True)
        probabilities = self.normalise(scores, scores)
        # The largest probability is exp(highest) / Σ exp(scores); in a row without a visible key the sink has everything.
        sums = (
            highest.to(self.problem.dtype) - probabilities.amax(-1, keepdim=True).to(self.problem.dtype).log()
        ).view(self.num_items, self.num_heads, -1, 1)
        sums = sums.masked_fill(self.heads_first(highest) == float("-inf"), float("-inf"))
        sinks = self.sinks if self.sinks.shape[2] == 1 else self.sinks[:, :, rows]
        if log_sum is not None:
            log_sum.copy_(torch.logaddexp(sums, sinks))
        shares = torch.sigmoid(sums - sinks).to(probabilities.dtype).flatten(0, 1).view(*highest.shape)
        return probabilities * shares if torch.compiler.is_exporting() else probabilities.mul_(shares)

    def normalise(self, scores: Tensor, out: Tensor) -> Tensor:
        """Write the softmax of masked scores to `out`, which may be the scores; zeros in a row without a visible key."""
        # Only padding and a bias can hide all keys of a row: causal rows see at least their own position.
        keyless = None
        if self.problem.padding is not None or self.problem.bias is not None:
            keyless = scores.detach().amax(-1, keepdim=True) == float("-inf")
        if torch.compiler.is_exporting():
            # An exported graph is differentiated as it is, so a result that a derivative reads must not be overwritten.
            probabilities = torch.softmax(scores, -1).clone()
        else:
            probabilities = torch.softmax(scores, -1, out=out)
        return probabilities if keyless is None else probabilities.masked_fill_(keyless, 0.0)

    def bias(self, bias: Tensor, rows: slice) -> Tensor:
        """Expand the bias of either form to Float[Tensor, "#item #head rows key"] for one tile."""
        p, seen, shared = self.problem, self.problem.keys_seen(rows), self.share(bias)
        if p.first_distance is None:
            return shared[:, :, rows, seen]
        return part(shared, p.first_distance, rows, p.offset - seen.start, seen.stop - seen.start)

    def add_bias_gradient(self, total: Tensor, d_scores: Tensor, rows: slice) -> None:
        """Add one tile's d_scores, "slab line key", to the gradient of the bias, in the form of the bias."""
        p, shared, by_head = self.problem, self.share(total), self.heads_first(d_scores)
        summed = by_head.sum_to_size(*shared.shape[:2], *by_head.shape[2:])
        if p.first_distance is None:
            shared[:, :, rows, p.keys_seen(rows)] += summed
        else:
            add_diagonals(shared, p.first_distance, summed, rows, p.offset - p.keys_seen(rows).start)

    def kept(self, rows: slice) -> Tensor | None:
        """Return Bool[Tensor, "slab line key"], True at kept probabilities; None without dropout."""
        p = self.problem
        if p.seed is None:
            return None
        seen = p.keys_seen(rows)
        kept = block(p.seed, batch=self.batch, heads=self.heads, rows=rows, columns=seen, dropout=p.dropout)
        return kept.view(self.value.shape[0], -1, seen.stop - seen.start)


def product(
    left: Float[Tensor, "slab line key"], right: Float[Tensor, "slab key entry"]
) -> Float[Tensor, "slab line entry"]:
    """Compute left · right; a result of few columns is a view of its transpose."""
    return torch.bmm(right.mT, left.mT).mT if right.shape[-1] < NARROW else torch.bmm(left, right)


def span(by_slab: Tensor, positions: slice) -> Tensor:
    """View by_slab[:, positions]; one slab gets contiguous strides, or bfloat16 products would copy it."""
    return by_slab[0, positions].unsqueeze(0) if len(by_slab) == 1 else by_slab[:, positions]


def carve(buffer: Tensor, shape: tuple[int, ...]) -> Tensor:
    """View the front of a flat buffer in this shape."""
    size = 1
    for extent in shape:
        size *= extent
    return buffer[:size].view(shape)
