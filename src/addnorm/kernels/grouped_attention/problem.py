"""One checked problem of grouped attention, the argument of every implementation.

Axes, everywhere in this folder:

    batch      independent sequences
    heads      query heads; kv_heads of keys and values serve heads / kv_heads query heads each (the group)
    query      query positions: the last `query` of the `key` positions
    key        key and value positions
    head_dim   entries of one query or key head; value_dim entries of one value head
    term       one Q_i K_iᵀ of the sum; terms are usually the layers up to this one
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

Normalisation = Literal["softmax", "softpick", "squared_relu"]
"""Function from a row of scores to its attention."""

_CAPABILITIES = torch.cpu.get_capabilities()
MULTIPLIES_BFLOAT16: bool = _CAPABILITIES.get("avx512_bf16", False) or _CAPABILITIES.get("amx_bf16", False)
"""True if this processor multiplies bfloat16; without such instructions, float32 products are faster."""


@dataclass(frozen=True, kw_only=True)
class AttentionProblem:
    """Tensors and settings of one call, already checked. Every implementation honours all of them or refuses the problem."""

    queries: tuple[Tensor, ...]
    """One Float[Tensor, "batch heads query head_dim"] per term."""
    keys: tuple[Tensor, ...]
    """One Float[Tensor, "batch kv_heads key head_dim"] per term."""
    value: Tensor
    """Float[Tensor, "batch kv_heads key value_dim"]."""
    weights: float | Tensor
    """One number for all terms, or Float[Tensor, "#batch #heads term"]."""
    causal: bool
    """Query row r sees the keys up to r + key - query."""
    sliding_window: int | None
    """Largest number of keys that a row sees, the last one at its own position; None for all. Only with `causal`."""
    bias: Tensor | None
    """Added once to the summed scores: Float[Tensor, "#batch #heads query key"], or "#batch #heads span" by distance."""
    first_distance: int | None
    """Distance of the first entry of a bias by distance; None for a matrix, or without a bias."""
    padding: Tensor | None
    """Bool[Tensor, "batch key"], True at real tokens."""
    dropout: float
    """Share of probabilities dropped; the kept ones are divided by 1 - dropout."""
    seed: Tensor | None
    """int64 scalar that selects the dropped probabilities; None only without dropout."""
    normalisation: Normalisation
    cap: float | None = None
    """Bound of the size of the summed scores, before bias and masks: cap · tanh(score / cap); None for none."""
    sinks: Tensor | None = None
    """Scores of a further key that every row sees and that has no value, Float[Tensor, "#batch #heads"], or one
    for each row, "#batch heads query". None without one."""
    column_keys: tuple[Tensor, ...] = ()
    """Keys of each row's own column, one Float[Tensor, "batch kv_heads query head_dim"] per entry; only with one term."""
    column_values: tuple[Tensor, ...] = ()
    """Values of the column, one Float[Tensor, "batch kv_heads query value_dim"] per entry."""

    @property
    def offset(self) -> int:
        """Position of the first query."""
        return self.key - self.query

    def keys_seen(self, rows: slice) -> slice:
        """The keys that at least one of these query rows may see."""
        if not self.causal:
            return slice(0, self.key)
        first = 0 if self.sliding_window is None else max(0, rows.start + self.offset - self.sliding_window + 1)
        return slice(first, rows.stop + self.offset)

    def capped(self, scores: Tensor) -> Tensor:
        """Bound the size of summed scores smoothly, cap · tanh(score / cap), if the problem has a cap.

        Source: Gemma Team 2024, "Gemma 2", arXiv:2408.00118 §2.
        """
        return scores if self.cap is None else self.cap * torch.tanh(scores / self.cap)

    @property
    def batch(self) -> int:
        return self.value.shape[0]

    @property
    def heads(self) -> int:
        return self.queries[0].shape[1]

    @property
    def kv_heads(self) -> int:
        return self.value.shape[1]

    @property
    def group(self) -> int:
        """Query heads that share one key head."""
        return self.heads // self.kv_heads

    @property
    def query(self) -> int:
        return self.queries[0].shape[2]

    @property
    def key(self) -> int:
        return self.value.shape[2]

    @property
    def head_dim(self) -> int:
        return self.queries[0].shape[3]

    @property
    def value_dim(self) -> int:
        return self.value.shape[3]

    @property
    def dtype(self) -> torch.dtype:
        """Type of the scores and of every sum: float64 stays, all narrower types are summed in float32."""
        return torch.float64 if self.value.dtype == torch.float64 else torch.float32

    @property
    def tile_dtype(self) -> torch.dtype:
        """Type of a tile's factors, scores and probabilities: bfloat16 if the device multiplies it, else `dtype`.

        Products add in float32 and round once, when a tile is written, as softmax(Q Kᵀ) V in bfloat16 does. Scores in float16
        would end at 65504, so they are kept in float32; so are those to which a wider bias is added.
        """
        multiplies = self.value.is_cuda or (self.value.device.type == "cpu" and MULTIPLIES_BFLOAT16)
        narrow = multiplies and (self.bias is None or self.bias.dtype == torch.bfloat16)
        return torch.bfloat16 if self.value.dtype == torch.bfloat16 and narrow else self.dtype


@dataclass(frozen=True, kw_only=True)
class ProblemSettings:
    """A problem without its tensors: autograd keeps those, and gives them back one by one."""

    num_terms: int
    scale: float | None
    """The weight of all terms; None if a tensor holds the weights."""
    causal: bool
    sliding_window: int | None
    dropout: float
    first_distance: int | None
    cap: float | None = None

    @classmethod
    def of(cls, problem: AttentionProblem) -> "ProblemSettings":
        """The settings of a softmax problem."""
        return cls(
            num_terms=len(problem.queries),
            scale=problem.weights if isinstance(problem.weights, float) else None,
            causal=problem.causal,
            sliding_window=problem.sliding_window,
            dropout=problem.dropout,
            first_distance=problem.first_distance,
            cap=problem.cap,
        )

    def problem(self, tensors: Sequence[Tensor | None]) -> AttentionProblem:
        """The problem of these settings and of the tensors in the order of `tensors_of`."""
        sinks, weights, bias, padding, seed, value, *projections = tensors
        shared = weights if weights is not None else self.scale
        assert value is not None
        assert shared is not None
        return AttentionProblem(
            queries=tuple(projections[: self.num_terms]),  # type: ignore[arg-type]
            keys=tuple(projections[self.num_terms :]),  # type: ignore[arg-type]
            value=value,
            weights=shared,
            causal=self.causal,
            sliding_window=self.sliding_window,
            bias=bias,
            first_distance=self.first_distance,
            padding=padding,
            dropout=self.dropout,
            seed=seed,
            normalisation="softmax",
            cap=self.cap,
            sinks=sinks,
        )


def tensors_of(problem: AttentionProblem) -> tuple[Tensor | None, ...]:
    """The tensors of a problem: sinks, weights, bias, padding, seed, value, queries and keys."""
    p = problem
    weights = p.weights if isinstance(p.weights, Tensor) else None
    return p.sinks, weights, p.bias, p.padding, p.seed, p.value, *p.queries, *p.keys


def by_row(sinks: Tensor) -> Float[Tensor, "#batch #heads #query 1"]:
    """View the sinks of heads, or of every row, as a further key's scores."""
    return sinks[..., None, None] if sinks.dim() == 2 else sinks[..., None]


def visible(problem: AttentionProblem) -> Bool[Tensor, "#batch 1 #query key"] | None:
    """True where a query row sees a key; None where every row sees every key."""
    p = problem
    seen = band(p, slice(0, p.query), slice(0, p.key))
    if p.padding is None:
        return None if seen is None else seen[None, None]
    real = p.padding[:, None, None, :]
    return real if seen is None else seen[None, None] & real


def band(problem: AttentionProblem, rows: slice, keys: slice) -> Bool[Tensor, "rows keys"] | None:
    """The part of the mask that causality and the sliding window make, for some rows and keys; None where it hides nothing.

    Args:
        problem: the attention problem.
        rows: consecutive query rows.
        keys: consecutive keys.
    """
    p = problem
    if not p.causal:
        return None
    height, width = rows.stop - rows.start, keys.stop - keys.start
    own = rows.start + p.offset - keys.start  # column of the first row's own position
    hides_later = own + 1 < width
    hides_older = p.sliding_window is not None and own + height > p.sliding_window
    if not (hides_later or hides_older):
        return None
    seen = torch.ones(height, width, dtype=torch.bool, device=p.value.device)
    if hides_later:
        seen = seen.tril(own)
    if hides_older and p.sliding_window is not None:
        seen = seen.triu(own - p.sliding_window + 1)
    return seen


def num_visible(problem: AttentionProblem) -> Int64[Tensor, "#batch query"]:
    """Number of keys that each row sees."""
    p, device = problem, problem.value.device
    real = torch.ones(1, p.key, dtype=torch.bool, device=device) if p.padding is None else p.padding
    up_to = F.pad(real.cumsum(-1), (1, 0))  # of the keys before each position
    last = torch.arange(p.offset + 1, p.key + 1, device=device)
    last = last if p.causal else torch.full_like(last, p.key)
    first = torch.zeros_like(last) if p.sliding_window is None else (last - p.sliding_window).clamp(min=0)
    return up_to[:, last] - up_to[:, first]
