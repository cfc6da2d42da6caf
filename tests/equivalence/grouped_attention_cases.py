"""Grouped-attention problems for the tests, and the formula in six lines that knows nothing of the library."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from addnorm.kernels.grouped_attention import DistanceBias
from pairwise import pairwise

BATCH, HEADS, HEAD_DIM = 2, 4, 4
IN_TORCH = ("reference", "sdpa", "streaming")
"""Implementations made of torch operations, which know float64; the kernels have tests of their own."""


@dataclass(frozen=True, kw_only=True)
class Case:
    terms: int = 3
    causal: bool = True
    sliding_window: int | None = None
    kv_heads: int = 2
    padded: bool = True
    biased: bool = True
    by_distance: bool = False
    dropout: float = 0.0
    weights: str = "per head"
    value_dim: int = 3
    query: int = 7
    key: int = 7
    dtype: torch.dtype = torch.float64
    batch: int = BATCH
    heads: int = HEADS
    sinks: bool = False
    cap: float | None = None

    def __str__(self) -> str:
        return "-".join(str(value).removeprefix("torch.") for value in vars(self).values())

    def arguments(self, seed: int = 0) -> dict[str, object]:
        """Keyword arguments of `attend`, drawn in float64 and rounded; item 1 is all padding, item 0 starts with it."""
        source = torch.Generator().manual_seed(seed)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=source, dtype=torch.float64).to(self.dtype).requires_grad_()

        padding = None
        if self.padded:
            padding = torch.rand(self.batch, self.key, generator=source) < 0.7
            padding[0, : self.key // 3] = False
            padding[1:] = False
        return {
            "queries": [draw(self.batch, self.heads, self.query, HEAD_DIM) for _ in range(self.terms)],
            "keys": [draw(self.batch, self.kv_heads, self.key, HEAD_DIM) for _ in range(self.terms)],
            "value": draw(self.batch, self.kv_heads, self.key, self.value_dim),
            "weights": {
                "equal": [0.5] * self.terms,
                "zero": [0.0] * self.terms,
                "negative": [-0.5] * self.terms,
                "numbers": [0.3 + 0.2 * i for i in range(self.terms)],
                "per term": draw(self.terms),
                "per head": draw(self.heads, self.terms),
            }[self.weights],
            "causal": self.causal,
            "sliding_window": self.sliding_window,
            "bias": self.bias(draw) if self.biased else None,
            "padding": padding,
            "dropout": self.dropout,
            "seed": torch.tensor(2**40 + 5) if self.dropout else None,
            "sinks": draw(self.heads) if self.sinks else None,
            **({} if self.cap is None else {"cap": self.cap}),
        }

    def bias(self, draw: Callable[..., Tensor]) -> Tensor | DistanceBias:
        """A matrix, or the fewest distances that will do and one more at either end."""
        if not self.by_distance:
            return draw(1, self.heads, self.query, self.key)
        first = -1 if self.causal else -self.query
        return DistanceBias(values=draw(self.heads, self.key + 1 - first), first=first)


def cases(**axes: tuple[object, ...]) -> list[Case]:
    """One case per combination of these values; the other fields keep their defaults."""
    return [replace(Case(), **dict(zip(axes, values, strict=True))) for values in itertools.product(*axes.values())]


def paired(**axes: tuple[object, ...]) -> list[Case]:
    """As few cases as have every pair of values of two of the fields."""
    return [replace(Case(), **dict(zip(axes, values, strict=True))) for values in pairwise(*axes.values())]


def leaves(arguments: dict[str, object]) -> list[Tensor]:
    bias = arguments["bias"].values if isinstance(arguments["bias"], DistanceBias) else arguments["bias"]
    given = [
        *arguments["queries"],
        *arguments["keys"],
        arguments["value"],
        arguments["weights"],
        bias,
        arguments["sinks"],
    ]
    return [tensor for tensor in given if isinstance(tensor, Tensor)]


def with_gradients(attended: Tensor, arguments: dict[str, object]) -> list[Tensor]:
    """The result and the gradient of every leaf, for one fixed gradient of the result."""
    source = torch.Generator().manual_seed(99)
    grad = torch.randn(attended.shape, generator=source, dtype=torch.float64).to(attended.dtype)
    return [attended.detach(), *torch.autograd.grad(attended, leaves(arguments), grad)]


def plain(queries, keys, value, weights, *, causal, bias, padding, sliding_window=None, sinks=None, **_) -> Tensor:
    """The formula, for rows that see at least one key each; with sinks for scores whose exponentials are finite."""
    if isinstance(bias, DistanceBias):
        bias = entry_by_entry(bias, queries[0].shape[2], value.shape[2], causal)
    groups = queries[0].shape[1] // value.shape[1]
    weights = torch.as_tensor(weights, dtype=value.dtype).expand(queries[0].shape[1], -1)
    scores = sum(
        torch.einsum("bhqd,bhkd,h->bhqk", q, k.repeat_interleave(groups, 1), weights[:, i])
        for i, (q, k) in enumerate(zip(queries, keys, strict=True))
    )
    scores = scores if bias is None else scores + bias
    scores = scores if padding is None else scores.masked_fill(~padding[:, None, None, :], -torch.inf)
    later = torch.arange(value.shape[2]) > torch.arange(queries[0].shape[2])[:, None] + value.shape[2] - scores.shape[2]
    scores = scores.masked_fill(later, -torch.inf) if causal else scores
    if sliding_window is not None:
        here = torch.arange(queries[0].shape[2])[:, None] + value.shape[2] - scores.shape[2]
        scores = scores.masked_fill(torch.arange(value.shape[2]) <= here - sliding_window, -torch.inf)
    if sinks is not None:
        parts = scores.exp()
        return parts / (sinks.exp()[:, None, None] + parts.sum(-1, keepdim=True)) @ value.repeat_interleave(groups, 1)
    return scores.softmax(-1) @ value.repeat_interleave(groups, 1)


def entry_by_entry(bias: DistanceBias, query: int, key: int, causal: bool) -> Tensor:
    """The matrix of a bias by distance; zero where a causal mask hides it."""
    rows = []
    for i in range(key - query, key):
        known = [
            bias.values[:, i - j - bias.first] if i >= j or not causal else bias.values[:, 0] * 0 for j in range(key)
        ]
        rows.append(torch.stack(known, -1))
    return torch.stack(rows, -2)[None]
