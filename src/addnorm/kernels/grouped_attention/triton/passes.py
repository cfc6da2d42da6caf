"""The two passes of streaming attention on a device, with the interface of ../passes.py, in Triton kernels.

The kernels take one tensor for all terms, so the terms are stacked for the time of a pass: term · seq · width numbers,
linear in the length. Autograd keeps only the layers' own tensors.
"""

from dataclasses import replace

import torch
from torch import Tensor

from addnorm.kernels.grouped_attention.distance import add_diagonals
from addnorm.kernels.grouped_attention.passes import Gradients
from addnorm.kernels.grouped_attention.problem import AttentionProblem, by_row
from addnorm.kernels.grouped_attention.reference import bias_matrix
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
    if p.value.device.type not in ("cuda", "meta") and not INTERPRETED:
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
    total = torch.logaddexp(log_sum, by_row(problem.sinks).to(log_sum.dtype)[..., 0])
    return (out * (log_sum - total).exp()[..., None]).to(out.dtype), total


def differentiate_on_device(
    problem: AttentionProblem, out: Tensor, log_sum: Tensor, grad: Tensor, *, bias_needed: bool
) -> Gradients:
    """Gradients of sum(grad * out), as `differentiate_tiles` gives them."""
    p = problem
    apart = with_own_bias(p) if bias_needed else p
    if apart is not p:
        gradients = differentiate_on_device(apart, out, log_sum, grad, bias_needed=True)
        return replace(gradients, bias=summed_bias(p, gradients.bias))
    delta = (grad.to(p.dtype) * out.to(p.dtype)).sum(-1)
    gradients = differentiate_grouped(*_arguments(p), log_sum, delta, grad.contiguous(), bias_needed)
    products, d_keys, d_value, d_bias, d_distance = gradients
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


def with_own_bias(problem: AttentionProblem) -> AttentionProblem:
    """The problem with a bias for every item, head, row and key, where deterministic algorithms were asked for.

    Programs of several rows and items add to the gradient of one distance, or of a bias that items share, in the order in
    which they happen to run, and so round differently each time. Apart, no two of them share an element. The price is a float32
    matrix per item and head.
    """
    p = problem
    if p.bias is None or not torch.are_deterministic_algorithms_enabled():
        return p
    shape = (p.batch, p.heads, p.query, p.key)
    if p.first_distance is None and p.bias.shape == shape:
        return p
    return replace(p, bias=bias_matrix(p, p.bias).expand(shape).contiguous(), first_distance=None)


def summed_bias(problem: AttentionProblem, grad: Tensor | None) -> Tensor:
    """The gradient of a problem's own bias from that of `with_own_bias`."""
    p = problem
    assert grad is not None
    assert p.bias is not None
    if p.first_distance is None:
        return grad.sum_to_size(p.bias.shape)
    total = torch.zeros_like(p.bias, dtype=torch.float32)
    summed = grad.sum_to_size(1, p.bias.shape[1], p.query, p.key)
    add_diagonals(total, p.first_distance, summed, slice(0, p.query), p.offset)
    return total


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
