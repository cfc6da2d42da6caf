"""Attentions whose biases cancel only beyond masks, buffers, dropout and norms, for random networks and near misses."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from block_kinds import HEAD, HEADS, WIDTH, Eager, Projected, merge, rotate, split
from torch import nn


class NormedHeads(Projected):
    """q and k through layer norms per head, after their biases."""

    def __init__(self) -> None:
        super().__init__()
        self.q_norm, self.k_norm = nn.LayerNorm(HEAD), nn.LayerNorm(HEAD)

    def mixed(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v)


class EagerNormedKeys(Eager):
    """k alone through a layer norm, softmax spelt out."""

    def __init__(self) -> None:
        super().__init__()
        self.k_norm = nn.LayerNorm(HEAD)

    def scores(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return super().scores(q, self.k_norm(k))


class SingleHead(nn.Module):
    """A layer norm and one head as wide as the stream: the queries may move across the plane that the norm leaves the keys."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        return self.o(torch.softmax(self.q(x) @ self.k(x).transpose(1, 2), dim=-1) @ self.v(x))


class SlowRotary(Projected):
    """Half of a head of six rotated, in the order of pairs, by one slow and one quick angle."""

    def __init__(self) -> None:
        super().__init__(inner=12)

    def mixed(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(rotate(q, 4, 1e6), rotate(k, 4, 1e6), v, is_causal=True)


class Refilled(Eager):
    """Masked scores, zeros filled in for what is masked, times a learned weight, and masked again."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(0.7))

    def scores(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        later = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(1)
        masked = super().scores(q, k).masked_fill(later, -math.inf)
        hidden = masked == -math.inf
        return (masked.masked_fill(hidden, 0.0) * self.weight).masked_fill(hidden, -math.inf)


class RefilledElsewhere(Refilled):
    """A near miss: what was filled with zeros is seen, and something else is masked."""

    def scores(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        masked = super().scores(q, k)
        hidden = masked == -math.inf
        elsewhere = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(2)
        return masked.masked_fill(hidden, 0.0).masked_fill(elsewhere, -math.inf)


class Buffered(Projected):
    """A softmax in place, in a flat buffer, rows that are masked throughout made harmless, as streaming kernels do it."""

    def mixed(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        batch, heads, rows, columns = (*q.shape[:3], k.shape[2])
        room = torch.empty(batch * heads * rows * columns + 5, dtype=q.dtype)
        scores = room[:-5].view(batch * heads, rows, columns)
        scores.copy_(0.5 * q.flatten(0, 1) @ k.flatten(0, 1).mT)
        scores.masked_fill_(torch.ones(rows, columns, dtype=torch.bool).triu(1), -math.inf)
        largest = scores.detach().amax(-1, keepdim=True)
        scores -= largest.masked_fill(largest == -math.inf, 0.0)
        scores.exp_()
        total = scores.sum(-1, keepdim=True)
        return ((scores @ v.flatten(0, 1)) / total).view(batch, heads, rows, -1)


class DroppedWeights(Eager):
    """Dropout on the attention weights and on what comes out."""

    def weights(self, scores: torch.Tensor) -> torch.Tensor:
        return F.dropout(super().weights(scores), 0.3, self.training)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(super().forward(x), 0.2, self.training)


class Table(Projected):
    """A relative table per head, buckets by distance, and a mask filled with a number: T5's."""

    buckets = 3

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(self.buckets, HEADS)

    def scores(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        place = torch.arange(q.shape[2])
        distance = (place[:, None] - place[None, :]).clamp(0, self.buckets - 1)
        bias = self.table(distance).permute(2, 0, 1)[None]
        seen = place[:, None] >= place[None, :]
        return super().scores(q, k) + torch.where(seen, bias, -1e9)


class Strayed(nn.Module):
    """A near miss: filled with a large number, and then moved by something that the filled entries do not move with."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.inner(x)
        return 1e-4 * (h.masked_fill(x > 0.5, -1e4) - h.mean(1, keepdim=True))


class LayeredScores(nn.Module):
    """Two attentions; the second adds the first's masked scores, each with a weight of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Refilled(), Refilled()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.one.scores(split(self.one.q(x)), split(self.one.k(x)))
        x = x + self.one.o(merge(torch.softmax(first, dim=-1) @ split(self.one.v(x))))
        second = first + self.two.scores(split(self.two.q(x)), split(self.two.k(x)))
        return self.two.o(merge(torch.softmax(second, dim=-1) @ split(self.two.v(x))))


CANCELLING: dict[str, Callable[[], nn.Module]] = {
    "normed heads": NormedHeads,
    "eager normed keys": EagerNormedKeys,
    "single head": SingleHead,
    "slow rotary": SlowRotary,
    "refilled": Refilled,
    "refilled elsewhere": RefilledElsewhere,
    "buffered": Buffered,
    "dropped weights": DroppedWeights,
    "table": Table,
    "strayed": Strayed,
    "layered scores": LayeredScores,
}
