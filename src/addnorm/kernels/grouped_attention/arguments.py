"""Checks of the arguments of `attend`, which make an `AttentionProblem` of them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import cast, get_args

import torch
from torch import Tensor

from addnorm.errors import InputError, UnknownName
from addnorm.kernels import constant
from addnorm.kernels.grouped_attention.distance import DistanceBias
from addnorm.kernels.grouped_attention.problem import AttentionProblem, Normalisation

FLOATING = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def problem_of(
    queries: Sequence[Tensor] | Tensor,
    keys: Sequence[Tensor] | Tensor,
    value: Tensor,
    weights: Sequence[float | int] | Tensor,
    *,
    causal: bool,
    sliding_window: int | None = None,
    bias: Tensor | DistanceBias | None = None,
    padding: Tensor | None = None,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    normalisation: str = "softmax",
    cap: float | None = None,
    sinks: Tensor | None = None,
    column: Sequence[tuple[Tensor, Tensor]] = (),
) -> AttentionProblem:
    """Check the arguments of `attend` and bring them into one form.

    Raises:
        InputError: an argument does not fit the description in `attend`.
        UnknownName: no such `normalisation`.
    """
    q, k = _terms("queries", queries), _terms("keys", keys)
    if len(q) != len(k):
        raise InputError(f"queries and keys must have the same number of terms, got {len(q)} and {len(k)}.")
    _check_projections(q, k, value)
    batch, heads, query, _ = q[0].shape
    key = value.shape[2]
    if causal and query > key:
        raise InputError(
            f"causal attention takes at most as many queries as keys, because queries are the last positions; "
            f"got {query} queries and {key} keys. Pass the keys of every position, or causal=False."
        )
    if sliding_window is not None and (not causal or sliding_window < 1):
        raise InputError(
            f"sliding_window is how many of the last keys a row sees, at least 1 and only with causal=True; "
            f"got {sliding_window} with causal={causal}."
        )
    if isinstance(bias, DistanceBias):
        _check_distances(bias, heads, query, key, causal=causal)
        _check_like("bias.values", bias.values, value, FLOATING)
    elif bias is not None:
        wanted = ((1, batch), (1, heads), (query,), (key,))
        if bias.ndim != 4 or any(size not in sizes for size, sizes in zip(bias.shape, wanted, strict=True)):
            expected = f"[1 or {batch}, 1 or {heads}, {query}, {key}]"
            raise InputError(f"bias must have shape [batch, heads, query, key] = {expected}, got {_shape(bias)}.")
        _check_like("bias", bias, value, FLOATING)
    if padding is not None:
        if padding.dtype != torch.bool:
            raise InputError(
                f"padding must be bool, True at real tokens, got {_name(padding.dtype)}. "
                "Pass padding.bool(), or a bias for scores to add."
            )
        if padding.shape != (batch, key):
            raise InputError(f"padding must have shape [batch, key] = [{batch}, {key}], got {_shape(padding)}.")
        _check_like("padding", padding, value, (torch.bool,))
    if not 0.0 <= dropout < 1.0:
        raise InputError(f"dropout is a share of at least 0 and below 1, got {dropout!r}.")
    if normalisation not in get_args(Normalisation):
        raise UnknownName("normalisation", normalisation, get_args(Normalisation))
    if cap is not None and not 0 < cap < math.inf:
        raise InputError(f"cap: expected a positive number or None, got {cap!r}.")
    if sinks is not None:
        _check_sinks(sinks, heads, value, normalisation)
    _check_column(column, q, value)
    return AttentionProblem(
        queries=q,
        keys=k,
        value=value,
        weights=_weights(weights, q),
        causal=causal,
        sliding_window=sliding_window,
        bias=bias.values[None] if isinstance(bias, DistanceBias) else bias,
        first_distance=bias.first if isinstance(bias, DistanceBias) else None,
        padding=padding,
        dropout=float(dropout),
        seed=_seed(seed, dropout, value),
        normalisation=cast(Normalisation, normalisation),
        cap=cap,
        sinks=None if sinks is None else sinks[None],
        column_keys=tuple(keys for keys, _ in column),
        column_values=tuple(values for _, values in column),
    )


def with_value(problem: AttentionProblem, value: Tensor) -> AttentionProblem:
    """Replace the value of a problem by another one of any width; under dropout, draw a new seed.

    The values of a column become zero: what is left is the attention to the sequence.

    Raises:
        InputError: the value does not fit the keys.
    """
    _check_projections(problem.queries, problem.keys, value)
    nothing = tuple(key.new_zeros(*key.shape[:-1], value.shape[-1], dtype=value.dtype) for key in problem.column_keys)
    return replace(problem, value=value, seed=_seed(None, problem.dropout, value), column_values=nothing)


def _terms(name: str, given: Sequence[Tensor] | Tensor) -> tuple[Tensor, ...]:
    if isinstance(given, Tensor):
        if given.ndim != 5:
            raise InputError(
                f"stacked {name} must have shape [term, batch, heads, position, head_dim], got {_shape(given)}. "
                f"For one term pass ({name},)."
            )
        given = given.unbind(0)
    if not given:
        raise InputError(f"{name} must hold at least one term, got none.")
    for i, tensor in enumerate(given):
        if tensor.ndim != 4 or 0 in tensor.shape:
            raise InputError(
                f"{name}[{i}] must have shape [batch, heads, position, head_dim] without an empty axis, "
                f"got {_shape(tensor)}."
            )
        if tensor.shape != given[0].shape:
            raise InputError(
                f"all {name} must have one shape; {name}[0] has {_shape(given[0])}, {name}[{i}] has {_shape(tensor)}."
            )
    return tuple(given)


def _check_projections(q: tuple[Tensor, ...], k: tuple[Tensor, ...], value: Tensor) -> None:
    batch, heads, _, head_dim = q[0].shape
    if k[0].shape[0] != batch or k[0].shape[3] != head_dim:
        raise InputError(
            f"keys must have shape [batch, kv_heads, key, head_dim] = [{batch}, kv_heads, key, {head_dim}] "
            f"to match queries {_shape(q[0])}, got {_shape(k[0])}."
        )
    if value.ndim != 4 or value.shape[:3] != k[0].shape[:3] or 0 in value.shape:
        expected = ", ".join(map(str, k[0].shape[:3]))
        raise InputError(
            f"value must have shape [batch, kv_heads, key, value_dim] = [{expected}, value_dim] "
            f"to match keys {_shape(k[0])}, got {_shape(value)}."
        )
    if heads % value.shape[1]:
        raise InputError(
            f"kv_heads must divide heads; queries have {heads} heads, keys and value {value.shape[1]}. "
            "Query head h reads key head h // (heads // kv_heads)."
        )
    for i, tensors in enumerate(zip(q, k, strict=True)):
        for name, tensor in zip(("queries", "keys"), tensors, strict=True):
            if tensor.dtype != value.dtype or tensor.device != value.device:
                raise InputError(
                    f"queries, keys and value must share one dtype and device; {name}[{i}] is "
                    f"{_name(tensor.dtype)} on {tensor.device}, value {_name(value.dtype)} on {value.device}."
                )
    _check_like("value", value, value, FLOATING)


def _check_distances(bias: DistanceBias, heads: int, query: int, key: int, *, causal: bool) -> None:
    values = bias.values
    if values.ndim != 2 or values.shape[0] not in (1, heads):
        raise InputError(f"bias.values must have shape [heads, span] = [1 or {heads}, span], got {_shape(values)}.")
    nearest, farthest = (0 if causal else 1 - query), key - 1
    last = bias.first + values.shape[1] - 1
    if bias.first > nearest or last < farthest:
        raise InputError(
            f"a bias by distance must cover every distance that a query sees: expected {nearest} to {farthest} ({query} "
            f"queries, {key} keys, causal={causal}), got {bias.first} to {last}."
        )


def _check_sinks(sinks: Tensor, heads: int, value: Tensor, normalisation: str) -> None:
    if tuple(sinks.shape) != (heads,):
        raise InputError(f"sinks must have shape [heads] = [{heads}], got {_shape(sinks)}.")
    _check_like("sinks", sinks, value, FLOATING)
    if normalisation != "softmax":
        raise InputError(
            f"sinks: expected normalisation='softmax', because a sink takes its share from a sum that other functions do not "
            f"divide by, got {normalisation!r}. Attend without sinks."
        )


def _check_column(column: Sequence[tuple[Tensor, Tensor]], q: tuple[Tensor, ...], value: Tensor) -> None:
    if column and len(q) > 1:
        raise InputError(
            f"column: expected one term, because a column stands beside the scores of one layer, got {len(q)}. Attend "
            "without a column, or with one term."
        )
    batch, kv_heads, _, value_dim = value.shape
    for i, pair in enumerate(column):
        for name, tensor, dim in zip(("keys", "values"), pair, (q[0].shape[3], value_dim), strict=True):
            wanted = [batch, kv_heads, q[0].shape[2], dim]
            if list(tensor.shape) != wanted:
                raise InputError(
                    f"column[{i}]: its {name} must have shape [batch, kv_heads, query, dim] = {wanted}, got {_shape(tensor)}."
                )
            _check_like(f"column[{i}]: its {name}", tensor, value, (value.dtype,))


def _weights(given: Sequence[float | int] | Tensor, q: tuple[Tensor, ...]) -> float | Tensor:
    """Return one number if all terms share it, otherwise a tensor "#batch #heads term" in the type of the sums."""
    terms, heads = len(q), q[0].shape[1]
    if isinstance(given, Tensor):
        if tuple(given.shape) not in ((terms,), (heads, terms)):
            raise InputError(
                f"weights must have shape [term] = [{terms}] or [heads, term] = [{heads}, {terms}], "
                f"got {_shape(given)}."
            )
        _check_like("weights", given, q[0], FLOATING)
        return given.expand(1, *given.shape) if given.ndim == 2 else given.expand(1, 1, terms)
    numbers = tuple(given)
    if len(numbers) != terms:
        raise InputError(f"weights must hold one number per term, {terms}, got {len(numbers)}.")
    if not all(math.isfinite(number) for number in numbers):
        raise InputError(f"weights must be finite, got {numbers}.")
    if len(set(numbers)) == 1:
        return float(numbers[0])
    dtype = torch.float64 if q[0].dtype == torch.float64 else torch.float32
    return constant([numbers], q[0].device, dtype)[None]


def _seed(seed: Tensor | None, dropout: float, value: Tensor) -> Tensor | None:
    if dropout == 0:
        return None
    if seed is None:
        return draw_seed(value.device)
    if seed.dtype != torch.int64 or seed.ndim:
        raise InputError(f"seed must be an int64 scalar tensor, got {_name(seed.dtype)} of shape {_shape(seed)}.")
    _check_like("seed", seed, value, (torch.int64,))
    return seed


def draw_seed(device: torch.device) -> Tensor:
    """Draw a seed for dropout from torch's global generator."""
    return torch.randint(2**63 - 1, (), dtype=torch.int64, device=device)


def _check_like(name: str, tensor: Tensor, value: Tensor, dtypes: tuple[torch.dtype, ...]) -> None:
    if tensor.dtype not in dtypes:
        raise InputError(f"{name} must be one of {', '.join(map(_name, dtypes))}, got {_name(tensor.dtype)}.")
    if tensor.device != value.device:
        raise InputError(f"{name} must be on the device of value, {value.device}, got {tensor.device}.")


def _shape(tensor: Tensor) -> str:
    return str(list(tensor.shape))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
