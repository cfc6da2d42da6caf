"""The two passes of streaming attention on a device, with the interface of ../passes.py, in Triton kernels.

The kernels take one tensor for all terms, so the terms are stacked for the time of a pass: term · seq · width numbers,
linear in the length. Autograd keeps only the layers' own tensors.
"""

import torch
from torch import Tensor

from addnorm.kernels.grouped_attention.passes import Gradients
from addnorm.kernels.grouped_attention.problem import AttentionProblem
from addnorm.kernels.grouped_attention.triton.operators import INTERPRETED, attend_grouped, differentiate_grouped

WIDEST = 256
"""Largest head width of queries or values that fits a program's registers."""


def refusal(problem: AttentionProblem) -> str | None:
    """Return the error message for a problem that these kernels do not support; None if they do."""
    p = problem
    if p.normalisation != "softmax":
        return f"impl='triton' takes normalisation='softmax', got '{p.normalisation}'. Use impl='streaming'."
    if p.column_keys:
        return "impl='triton' takes no column of further keys per row. Use impl='streaming' or 'reference'."
    if p.value.dtype == torch.float64:
        return "impl='triton' takes float32, bfloat16 or float16, got float64. Use impl='streaming' or 'reference'."
    if max(p.head_dim, p.value_dim) > WIDEST:
        return (
            f"impl='triton' takes head_dim and value_dim up to {WIDEST}, got {p.head_dim} and {p.value_dim}. "
            "Use impl='streaming'."
        )
    if p.value.device.type != "cuda" and not INTERPRETED:
        return (
            f"impl='triton' needs a CUDA device, got tensors on {p.value.device}. Move them there, use "
            "impl='streaming', or set TRITON_INTERPRET=1 before the first use to run the kernels slowly on a CPU."
        )
    return None


def attend_on_device(problem: AttentionProblem) -> tuple[Tensor, Tensor]:
    """The attended values and the log-sum-exp of each row's scores, and of its sink if there is one."""
    out, log_sum = attend_grouped(*_arguments(problem))
    if problem.sinks is None:
        return out, log_sum
    total = torch.logaddexp(log_sum, problem.sinks.to(log_sum.dtype)[..., None])
    return (out * (log_sum - total).exp()[..., None]).to(out.dtype), total


def differentiate_on_device(
    problem: AttentionProblem, out: Tensor, log_sum: Tensor, grad: Tensor, *, bias_needed: bool
) -> Gradients:
    """Gradients of sum(grad * out), as `differentiate_tiles` gives them."""
    p = problem
    delta = (grad.to(p.dtype) * out.to(p.dtype)).sum(-1)
    found = differentiate_grouped(*_arguments(p), log_sum, delta, grad.contiguous(), bias_needed)
    products, d_keys, d_value, d_bias, d_distance = found
    d_weights = None
    if isinstance(p.weights, Tensor):  # ds_i = Σ (dS K_i) ∘ Q_i, whose product exists already
        d_weights = torch.stack([(u * q).sum((-2, -1)) for u, q in zip(products, p.queries, strict=True)], -1)
    factors = _weights(p).unbind(-1)
    return Gradients(
        queries=tuple(
            (u * s[..., None, None]).to(q.dtype) for u, s, q in zip(products, factors, p.queries, strict=True)
        ),
        keys=tuple(d.to(k.dtype) for d, k in zip(d_keys, p.keys, strict=True)),
        value=d_value.to(p.value.dtype),
        weights=d_weights,
        bias=(d_bias if p.first_distance is None else d_distance[None]) if p.bias is not None and bias_needed else None,
    )


def _arguments(p: AttentionProblem) -> tuple[Tensor | int | float | bool | None, ...]:
    """The arguments that both operators share."""
    stacked = torch.stack(p.queries), torch.stack(p.keys)
    return (*stacked, p.value.contiguous(), _weights(p), *score_arguments(p), p.cap or 0.0)


def score_arguments(
    p: AttentionProblem,
) -> tuple[Tensor | None, Tensor | None, int, Tensor | None, Tensor | None, float, bool, int]:
    """Bias by matrix, bias by distance and its first distance, padding, seed, dropout, causal, sliding window."""
    return (
        p.bias if p.first_distance is None else None,
        None if p.bias is None or p.first_distance is None else p.bias[0].contiguous(),
        p.first_distance or 0,
        None if p.padding is None else p.padding.to(torch.uint8).contiguous(),
        p.seed,
        p.dropout,
        p.causal,
        p.sliding_window or 0,
    )


def _weights(p: AttentionProblem) -> Tensor:
    """Float[Tensor, "batch heads term"], each entry in its place."""
    shape = (p.batch, p.heads, len(p.queries))
    if isinstance(p.weights, Tensor):
        return p.weights.to(p.dtype).expand(shape).contiguous()
    return p.value.new_full(shape, p.weights, dtype=p.dtype)
