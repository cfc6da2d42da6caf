"""The public door: `attend`, and `choose`, which says what impl="auto" takes."""

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from addnorm.errors import UnknownName
from addnorm.kernels.grouped_attention.arguments import problem_of
from addnorm.kernels.grouped_attention.distance import DistanceBias
from addnorm.kernels.grouped_attention.gpu import triton
from addnorm.kernels.grouped_attention.problem import AttentionProblem
from addnorm.kernels.grouped_attention.reference import reference
from addnorm.kernels.grouped_attention.sdpa import holds_matrix, sdpa
from addnorm.kernels.grouped_attention.streaming import streaming

# A plain dict: torch.compile breaks its graph at a mapping proxy once any dict has changed before it.
IMPLEMENTATIONS: Mapping[str, Callable[[AttentionProblem], Tensor]] = {
    "reference": reference,
    "sdpa": sdpa,
    "streaming": streaming,
    "triton": triton,
}
"""What `impl` may name, besides "auto"."""

SDPA_WIDTH = 32
"""Largest summed width of several terms that impl="auto" hands to torch's attention."""


def attend(
    queries: Sequence[Float[Tensor, "batch heads query head_dim"]] | Float[Tensor, "term batch heads query head_dim"],
    keys: Sequence[Float[Tensor, "batch kv_heads key head_dim"]] | Float[Tensor, "term batch kv_heads key head_dim"],
    value: Float[Tensor, "batch kv_heads key value_dim"],
    weights: Sequence[float | int] | Float[Tensor, " term"] | Float[Tensor, "heads term"],
    *,
    causal: bool,
    sliding_window: int | None = None,
    bias: Float[Tensor, "#batch #heads query key"] | DistanceBias | None = None,
    padding: Bool[Tensor, "batch key"] | None = None,
    dropout: float = 0.0,
    seed: Int64[Tensor, ""] | None = None,
    normalisation: str = "softmax",
    impl: str = "auto",
) -> Float[Tensor, "batch heads query value_dim"]:
    r"""Attend with summed scores: softmax( Σ_i weights_i Q_i K_iᵀ + bias + mask ) V, exactly.

    Scores are summed first; bias and masks are applied once, to the sum. Sums are kept in float32 for narrower inputs.

    Args:
        queries: one tensor per term, or one tensor with a leading term axis. They are the *last* `query` of the `key`
            positions: under `causal`, row r sees the keys up to r + key - query.
        keys: as many terms. Query head h reads key head h // (heads // kv_heads).
        value: what is averaged; its width is free.
        weights: numbers, or a tensor that may be learned, per term or per head and term. Nothing else scales the
            scores: pass 1/√head_dim where it is meant.
        causal: whether a row is kept from seeing later keys.
        sliding_window: how many keys a row sees at most, its own position's the last; None for all. Needs `causal`.
        bias: added to the summed scores, as a matrix or as a function of the distance; receives a gradient if it
            requires one. By distance it costs heads · span numbers instead of heads · query · key.
        padding: True at real tokens; other keys get no attention. A row without a key left gives zeros.
        dropout: share of the probabilities that drop; the others are divided by 1 - dropout.
        seed: decides which drop, the same ones in every implementation; None draws one from torch's global generator.
        normalisation: "squared_relu" replaces the softmax by relu(score)² / n, n being the number of keys that the row
            sees; "reference" and "streaming" know it.
        impl: "reference" holds every matrix and has derivatives of any order. "streaming" holds none in either pass
            and has first derivatives. "sdpa" hands one concatenated term to torch's attention; no dropout, and a
            bias by distance becomes a matrix. "triton" is streaming in GPU kernels: float32, bfloat16 and float16,
            head widths up to 256. "auto" takes what `choose` names.

    Returns:
        The attended values, in the dtype of `value`.

    Raises:
        InputError: an argument breaks what is said here, or `impl` cannot do what is asked.
        UnknownName: no such `impl` or `normalisation`.
    """
    problem = problem_of(
        queries,
        keys,
        value,
        weights,
        causal=causal,
        sliding_window=sliding_window,
        bias=bias,
        padding=padding,
        dropout=dropout,
        seed=seed,
        normalisation=normalisation,
    )
    return solve(problem, impl)


def solve(problem: AttentionProblem, impl: str = "auto") -> Float[Tensor, "batch heads query value_dim"]:
    """The attended values of a checked problem.

    Raises:
        InputError: `impl` cannot do what is asked.
        UnknownName: no such `impl`.
    """
    name = choose(problem) if impl == "auto" else impl
    if name not in IMPLEMENTATIONS:
        raise UnknownName("attention implementation", impl, ("auto", *IMPLEMENTATIONS))
    return IMPLEMENTATIONS[name](problem)


def choose(problem: AttentionProblem) -> str:
    """The implementation that impl="auto" takes: "sdpa" or "streaming"; when it computes, never one that holds a matrix.

    While torch.export traces, "sdpa" wherever it can, also where that holds one: a loop over tiles would be unrolled,
    for one length, to writes into one flat buffer, in which no reader of the graph finds the softmax.

    "sdpa" where it holds none, for a softmax without dropout, and either for one term of equal widths, or for several
    terms whose widths add up to at least value_dim and at most 32. Else "streaming", whatever the length.

    Measured in processor time of one AVX-512 core, forward and backward, causal, batch 8, 8 heads: "sdpa" takes, of the
    time of "streaming" at lengths 128 / 256 / 512, with two to eight terms

        summed width 16: 0.4 / 0.5 / 0.7      32: 0.6 / 0.8 / 1.0-1.1     64: 0.8-0.9 / 1.0 / 1.4-1.5
                    128: 0.9-1.1 / 1.1-1.3 / 1.5-1.8                     512: 1.3 / 2.2 / 2.3

    since the value is filled up with zeros to the summed width. Not measured on accelerators; "triton" is taken only when
    named, until it has run on one.
    """
    p = problem
    if p.normalisation != "softmax":
        return "streaming"
    if torch.compiler.is_exporting() and p.seed is None:
        return "sdpa"
    if p.seed is not None or holds_matrix(p):
        return "streaming"
    if p.value.is_meta:
        # Only counted, not computed. Torch's attention keeps the matrix on the meta device, which no real device would do.
        return "streaming"
    if len(p.queries) == 1:
        return "sdpa" if p.head_dim == p.value_dim else "streaming"
    return "sdpa" if p.value_dim <= len(p.queries) * p.head_dim <= SDPA_WIDTH else "streaming"
