"""A panel: the batch items and key heads whose rows are attended one tile after another.

The panel lays its terms side by side, so that Σ_i s_i Q_i K_iᵀ is one matrix product per tile:
[s_1 Q_1 | … | s_n Q_n] · [K_1 | … | K_n]ᵀ. Queries and keys are copied once per panel, not per call, so the copy is as
small as the panel; query heads of one group are stacked as rows, so keys and values are never repeated.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from addnorm.kernels.grouped_attention.distance import add_diagonals, part
from addnorm.kernels.grouped_attention.dropout import block
from addnorm.kernels.grouped_attention.masks import band
from addnorm.kernels.grouped_attention.problem import AttentionProblem


class Panel:
    """Factors and settings of one panel, in the type of its tiles.

    A slab is one (item, key head) pair; a line is one (head of the group, query row) pair.
    """

    queries: Tensor
    """Float[Tensor, "slab group query term*head_dim"], each term times its weight unless all terms share one."""
    keys: Tensor
    """Float[Tensor, "slab key term*head_dim"]."""
    value: Tensor
    """Float[Tensor, "slab key value_dim"]."""
    scale: float
    """The weight that all terms share, a factor of the matrix product; 1 where they have weights of their own."""
    weights: tuple[Tensor, ...] | None
    """Each term's own weight, Float[Tensor, "#item #head 1 1"]."""

    def __init__(self, problem: AttentionProblem, batch: slice, kv_heads: slice) -> None:
        self.problem, self.batch, self.kv_heads = problem, batch, kv_heads
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
        self._diagonal: dict[int, Tensor | None] = {}

    def _side_by_side(self, tensors: Sequence[Tensor]) -> Tensor:
        """Float[Tensor, "item*head position entry"] of tensors "item head position part of the entries"."""
        return torch.cat([tensor.to(self.problem.tile_dtype) for tensor in tensors], -1).flatten(0, 1)

    def share(self, tensor: Tensor) -> Tensor:
        """This panel's part of a tensor whose first two axes are "#batch #heads"."""
        items = self.batch if tensor.shape[0] > 1 else slice(0, 1)
        return tensor[items, self.heads if tensor.shape[1] > 1 else slice(0, 1)]

    def lines(self, by_group: Tensor, rows: slice) -> Tensor:
        """Float[Tensor, "slab line entry"] of a tensor "slab group query entry"; a view where a group is one head."""
        if by_group.shape[1] == 1:
            return span(by_group[:, 0], rows)
        return by_group[:, :, rows].flatten(1, 2)

    def heads_first(self, lines: Tensor) -> Tensor:
        """The view "item head rows entry" of something "slab line entry"."""
        return lines.view(self.num_items, self.num_heads, -1, lines.shape[-1])

    def scores(self, buffer: Tensor, rows: slice) -> Tensor:
        """Float[Tensor, "slab line key"] in `buffer`: the summed scores with bias; what a row may not see is -inf."""
        p, seen, queries = self.problem, self.problem.keys_seen(rows), self.lines(self.queries, rows)
        scores = carve(buffer, (*queries.shape[:2], seen.stop - seen.start))
        scores.baddbmm_(queries, span(self.keys, seen).mT, beta=0, alpha=self.scale)
        by_head = self.heads_first(scores)
        if p.bias is not None:
            by_head.add_(self.bias(p.bias, rows))
        if p.causal:
            self._mask(by_head, rows)
        if p.padding is not None:
            by_head.masked_fill_(~p.padding[self.batch, None, None, seen], float("-inf"))
        return scores

    def _mask(self, by_head: Tensor, rows: slice) -> None:
        """Set the scores "item head rows key" that a row may not see to -inf, in the few columns where there are any."""
        p, seen, size = self.problem, self.problem.keys_seen(rows), rows.stop - rows.start
        # The last keys of a tile are the positions of its rows, so tiles of one size share a mask.
        if size not in self._diagonal:
            self._diagonal[size] = band(p, rows, slice(seen.stop - size, seen.stop))
        # The window of a later row begins later: keys at the front of the tile are too old for it.
        oldest_of_last_row = seen.start if p.sliding_window is None else rows.stop + p.offset - p.sliding_window
        front = slice(seen.start, max(seen.start, oldest_of_last_row))
        if (visible := self._diagonal[size]) is not None:
            by_head[..., -size:].masked_fill_(~visible, float("-inf"))
        if (visible := band(p, rows, front)) is not None:
            by_head[..., : front.stop - front.start].masked_fill_(~visible, float("-inf"))

    def probabilities(self, buffer: Tensor, rows: slice) -> Tensor:
        """Float[Tensor, "slab line key"], in `buffer`: the softmax of the scores; a row without a key is zero."""
        scores = self.scores(buffer, rows)
        # Only padding and a bias can hide a row's every key: causal rows see at least themselves.
        keyless = None
        if self.problem.padding is not None or self.problem.bias is not None:
            keyless = scores.detach().amax(-1, keepdim=True) == float("-inf")
        if torch.compiler.is_exporting():
            # An exported graph is differentiated as it is: there, no result that a derivative reads is written over.
            probabilities = torch.softmax(scores, -1).clone()
        else:
            probabilities = torch.softmax(scores, -1, out=scores)
        return probabilities if keyless is None else probabilities.masked_fill_(keyless, 0.0)

    def bias(self, bias: Tensor, rows: slice) -> Tensor:
        """Float[Tensor, "#item #head rows key"] of one tile, from the bias in either form."""
        p, seen, shared = self.problem, self.problem.keys_seen(rows), self.share(bias)
        if p.first_distance is None:
            return shared[:, :, rows, seen]
        return part(shared, p.first_distance, rows, p.offset - seen.start, seen.stop - seen.start)

    def add_bias_gradient(self, total: Tensor, d_scores: Tensor, rows: slice) -> None:
        """Add one tile's d_scores, "slab line key", to the gradient of the bias, in its form."""
        p, shared, by_head = self.problem, self.share(total), self.heads_first(d_scores)
        summed = by_head.sum_to_size(*shared.shape[:2], *by_head.shape[2:])
        if p.first_distance is None:
            shared[:, :, rows, p.keys_seen(rows)] += summed
        else:
            add_diagonals(shared, p.first_distance, summed, rows, p.offset - p.keys_seen(rows).start)

    def kept(self, rows: slice) -> Tensor | None:
        """Bool[Tensor, "slab line key"] of probabilities that do not drop; None without dropout."""
        p = self.problem
        if p.seed is None:
            return None
        seen = p.keys_seen(rows)
        kept = block(p.seed, batch=self.batch, heads=self.heads, rows=rows, columns=seen, dropout=p.dropout)
        return kept.view(self.value.shape[0], -1, seen.stop - seen.start)


def span(by_slab: Tensor, positions: slice) -> Tensor:
    """The view by_slab[:, positions]; of one slab such that it is seen to be contiguous, or bfloat16 products copy it."""
    return by_slab[0, positions].unsqueeze(0) if len(by_slab) == 1 else by_slab[:, positions]


def carve(buffer: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The front of a flat buffer, seen in this shape."""
    size = 1
    for extent in shape:
        size *= extent
    return buffer[:size].view(shape)
