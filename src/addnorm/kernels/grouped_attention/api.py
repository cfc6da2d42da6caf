"""The public function `attend`, and `choose`, the rule of impl="auto"."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from addnorm.errors import InputError, UnknownName
from addnorm.kernels.grouped_attention.arguments import problem_of
from addnorm.kernels.grouped_attention.autograd_function import attend_by_passes
from addnorm.kernels.grouped_attention.distance import DistanceBias
from addnorm.kernels.grouped_attention.planned import is_planning, note, runs_on
from addnorm.kernels.grouped_attention.problem import AttentionProblem
from addnorm.kernels.grouped_attention.reference import reference
from addnorm.kernels.grouped_attention.sdpa import FLASH_WIDTH, holds_matrix, sdpa
from addnorm.kernels.grouped_attention.streaming import streaming


def triton(problem: AttentionProblem) -> Tensor:
    """Compute the attended values by kernels without a query × key tensor, with first derivatives.

    Raises:
        InputError: Triton is not installed, or the problem is not supported; see `kernel_refusal`.
    """
    if (reason := kernel_refusal(problem)) is not None:
        raise InputError(reason)
    # Without numbers there is nothing for a kernel to do: tiles have the same shapes and operations.
    return attend_by_passes(problem, "streaming" if problem.value.is_meta else "triton")


def kernel_refusal(problem: AttentionProblem) -> str | None:
    """Return the error message for a problem that the kernels do not support; None if they do."""
    # Triton is imported at the first call, because it is not installed on every machine.
    if importlib.util.find_spec("triton") is None:
        return (
            "impl='triton' needs the package triton, which torch installs on Linux with CUDA. "
            "Install it, or use impl='streaming'."
        )
    from addnorm.kernels.grouped_attention.triton.passes import refusal

    return refusal(problem)


# A plain dict: torch.compile breaks its graph at a mapping proxy once any dict has changed before it.
IMPLEMENTATIONS: Mapping[str, Callable[[AttentionProblem], Tensor]] = {
    "reference": reference,
    "sdpa": sdpa,
    "streaming": streaming,
    "triton": triton,
}
"""Values of `impl`, besides "auto"."""

SDPA_WIDTH = 32
"""Largest summed width of several terms for which impl="auto" takes torch's attention."""


def attend(
    queries: Sequence[Float[Tensor, "batch heads query head_dim"]] | Float[Tensor, "*term batch heads query head_dim"],
    keys: Sequence[Float[Tensor, "batch kv_heads key head_dim"]] | Float[Tensor, "*term batch kv_heads key head_dim"],
    value: Float[Tensor, "batch kv_heads key value_dim"],
    weights: Sequence[float | int] | Float[Tensor, " term"] | Float[Tensor, "heads term"] | None = None,
    *,
    causal: bool = True,
    sliding_window: int | None = None,
    bias: Float[Tensor, "#batch #heads query key"] | DistanceBias | None = None,
    padding: Bool[Tensor, "batch key"] | None = None,
    dropout: float = 0.0,
    seed: Int64[Tensor, ""] | None = None,
    normalisation: str = "softmax",
    cap: float | None = None,
    sinks: Float[Tensor, " heads"] | None = None,
    column: Sequence[
        tuple[Float[Tensor, "batch kv_heads query head_dim"], Float[Tensor, "batch kv_heads query value_dim"]]
    ] = (),
    impl: str = "auto",
) -> Float[Tensor, "batch heads query value_dim"]:
    r"""Attend with summed scores: softmax( Σ_i weights_i Q_i K_iᵀ + bias + mask ) V, exactly.

    Scores are summed first; bias and masks are applied once, to the sum. Sums are kept in float32 for narrower inputs.

    Args:
        queries: one tensor per term, one tensor with a leading term axis, or for one term that term's tensor. They are the
            *last* `query` of the `key` positions: under `causal`, row r sees the keys up to r + key - query.
        keys: as many terms. Query head h reads key head h // (heads // kv_heads).
        value: the values, of any width.
        weights: numbers, or a tensor that may be learned, per term or per head and term. Scores have no other factor:
            include 1/√head_dim if it is wanted. None, the usual 1/√head_dim, is for one term.
        causal: True if rows do not see later keys.
        sliding_window: largest number of keys that a row sees, the last one at its own position; None for all. Needs
            `causal`.
        bias: added to the summed scores, as a matrix or as a function of the distance; receives a gradient if it
            requires one. By distance it costs heads · span numbers instead of heads · query · key.
        padding: True at real tokens; other keys get no attention. A row without a visible key gives zeros.
        dropout: share of the probabilities that are dropped; the others are divided by 1 - dropout.
        seed: selects the dropped probabilities, the same ones in every implementation; None to draw a seed from torch's
            global generator.
        normalisation: "squared_relu" replaces the softmax by relu(score)² / n, where n is the number of keys that the row
            sees, "softpick" by relu(exp(score) - 1) / Σ |exp(score) - 1|; available in "reference" and "streaming".
        cap: bound of the summed scores' size, cap · tanh(score / cap), before bias and masks; None for none. Available in
            "reference", "triton" and "streaming", which then works some rows at a time.
        sinks: the score of one further key per head, which every row sees and which has no value: a row's probabilities
            then add up to less than one. Not available in "sdpa".
        column: further keys and values, one of each per query row and entry, which only their own row sees: those of
            earlier layers at its position. Bias and masks do not apply to them. Only with one term; available in
            "reference" and "streaming", which then works some rows at a time.
        impl: "reference" holds every matrix and has derivatives of any order. "streaming" holds none in either pass
            and has first derivatives. "sdpa" passes one concatenated term to torch's attention; no dropout, and a
            bias by distance becomes a matrix. "triton" is streaming in GPU kernels: float32, bfloat16 and float16,
            head widths up to 256. "auto" takes the implementation that `choose` returns.

    Returns:
        The attended values, in the dtype of `value`.

    Raises:
        InputError: an argument does not fit this description, or `impl` does not support it.
        UnknownName: no such `impl` or `normalisation`.

    Example:
        >>> queries = [torch.randn(1, 2, 5, 8) for _ in range(3)]  # one per layer term
        >>> keys, value = [torch.randn(1, 2, 5, 8) for _ in range(3)], torch.randn(1, 2, 5, 8)
        >>> attend(queries, keys, value, weights=[0.1, 0.1, 0.1], causal=True).shape
        torch.Size([1, 2, 5, 8])
        >>> attend(queries[0], keys[0], value).shape  # one layer alone: causal, scores divided by the root of the head width
        torch.Size([1, 2, 5, 8])
    """
    if isinstance(queries, Tensor) and isinstance(keys, Tensor) and queries.ndim == keys.ndim == 4:
        queries, keys = [queries], [keys]
    if weights is None:
        if len(queries) != 1:
            raise InputError(
                f"weights: expected one number per term, {len(queries)}, got none. Only one term has a default."
            )
        weights = (queries[0].shape[-1] ** -0.5,)
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
        cap=cap,
        sinks=sinks,
        column=column,
    )
    return solve(problem, impl)


def solve(problem: AttentionProblem, impl: str = "auto") -> Float[Tensor, "batch heads query value_dim"]:
    """Compute the attended values of a checked problem.

    Raises:
        InputError: `impl` does not support the problem.
        UnknownName: no such `impl`.
    """
    name = choose(problem) if impl == "auto" else impl
    if name not in IMPLEMENTATIONS:
        raise UnknownName("attention implementation", impl, ("auto", *IMPLEMENTATIONS))
    if is_planning(problem):
        note(name, why(problem)[1] if impl == "auto" else "as it was asked for")
    return IMPLEMENTATIONS[name](problem)


def choose(problem: AttentionProblem) -> str:
    """Name the implementation for impl="auto"; see `why`."""
    return why(problem)[0]


def why(problem: AttentionProblem) -> tuple[str, str]:
    """The implementation for impl="auto", outside of torch.export never one that holds a matrix, and the reason in a sentence.

    On a GPU: `why_on_gpu`. Elsewhere "sdpa" or "streaming":

    During torch.export: "sdpa" wherever it is supported, also where it holds a matrix, and with sinks, a cap, a column or
    softpick "reference". A loop over
    tiles would be unrolled, for one length, to writes into one flat buffer, in which the softmax cannot be recognised.

    Otherwise "sdpa" where it holds no matrix, for a softmax without dropout, and either for one term of equal widths, or for
    several terms whose widths add up to at least value_dim and at most 32. In all other cases "streaming".

    Measured in processor time of one AVX-512 core, forward and backward, causal, batch 8, 8 heads: "sdpa" takes, of the
    time of "streaming" at lengths 128 / 256 / 512, with two to eight terms

        summed width 16: 0.4 / 0.5 / 0.7      32: 0.6 / 0.8 / 1.0-1.1     64: 0.8-0.9 / 1.0 / 1.4-1.5
                    128: 0.9-1.1 / 1.1-1.3 / 1.5-1.8                     512: 1.3 / 2.2 / 2.3

    because the value is padded with zeros to the summed width.
    """
    p = problem
    on_gpu = runs_on(p).type == "cuda"
    fused_cap = on_gpu and not torch.compiler.is_exporting()
    if p.normalisation != "softmax" or (p.cap is not None and not fused_cap) or p.column_keys:
        # Squared ReLU has no sum to recognise, so that rows by rows are as good in a graph.
        whole = torch.compiler.is_exporting() and p.seed is None and p.normalisation != "squared_relu"
        return "reference" if whole else "streaming", _NO_KERNEL
    if torch.compiler.is_exporting() and p.seed is None:
        return "sdpa" if p.sinks is None else "reference", "one operation in an exported graph"
    if on_gpu:
        return why_on_gpu(p)
    if p.seed is not None or p.sinks is not None or holds_matrix(p):
        return "streaming", "dropout, sinks, a window, padding or a bias by tiles, and no matrix is made"
    if p.value.is_meta and not is_planning(p):
        # Operations are only counted here. On the meta device torch's attention keeps the matrix, on real devices it does not.
        return "streaming", "counted as tiles"
    width = len(p.queries) * p.head_dim
    if len(p.queries) == 1:
        same = p.head_dim == p.value_dim
        return ("sdpa", "one layer's scores: torch's attention") if same else ("streaming", "values of another width")
    if p.value_dim <= width <= SDPA_WIDTH:
        return "sdpa", f"terms side by side are at most {SDPA_WIDTH} wide: torch's attention"
    return "streaming", f"terms side by side are wider than {SDPA_WIDTH}, for which tiles are faster"


_NO_KERNEL = "no kernel has another function than the softmax, a cap on a CPU, or a column of further keys per row"
FEW_TERMS = 3
"""Largest number of terms with one shared weight that the kernels of this folder multiply again in every layer."""


def why_on_gpu(problem: AttentionProblem) -> tuple[str, str]:
    """The implementation that impl="auto" takes for tensors on a CUDA device, and why, in a sentence.

    Decided by operations and bytes on paper, not by time: no card was there. A loop over tiles, hundreds of launches for each
    layer, is left to what no kernel serves: softpick, squared ReLU, columns and float64.
    """
    p, terms = problem, len(problem.queries)
    if p.normalisation != "softmax" or p.column_keys:
        return "streaming", _NO_KERNEL
    refused = kernel_refusal(p)
    plain = p.seed is None and p.sinks is None and p.cap is None and not holds_matrix(p)
    if not plain:
        side = "dropout, sinks, a cap, a window, padding or a bias stay inside the kernel, and no matrix is made"
        return ("triton", side) if refused is None else ("streaming", refused)
    if terms == 1 and p.head_dim == p.value_dim:
        return "sdpa", "one layer's scores: torch's Flash kernel"
    if terms <= FEW_TERMS and isinstance(p.weights, float) and refused is None:
        return "triton", f"at most {FEW_TERMS} terms of one weight: each is multiplied in the kernel, without a copy"
    width = terms * p.head_dim
    if max(width, p.value_dim) <= FLASH_WIDTH:
        return "sdpa", f"terms side by side are at most {FLASH_WIDTH} wide: torch's Flash kernel"
    if width % 8 == 0 and p.value_dim % 8 == 0:
        return "sdpa", f"terms side by side are wider than {FLASH_WIDTH}: torch's memory-efficient kernel"
    return ("triton", "widths that torch's kernels do not take") if refused is None else ("streaming", refused)
