"""Squared-ReLU attention equals its formula, gradients included, and its memory grows with the length, not its square."""

from dataclasses import replace
from functools import partial
from unittest import mock

import pytest
import torch
from grouped_attention_cases import BATCH, HEADS, Case, cases, entry_by_entry, paired, with_gradients
from test_grouped_attention import assert_same
from test_grouped_attention_memory import Watch, leaves
from torch import Tensor

from addnorm.errors import InputError, UnknownName
from addnorm.kernels.grouped_attention import DistanceBias, attend
from addnorm.kernels.grouped_attention.arguments import problem_of
from addnorm.kernels.grouped_attention.dropout import block

attend_squared_relu = partial(attend, normalisation="squared_relu")
CHOICES = {
    "causal": (True, False),
    "kv_heads": (2, 4),
    "padded": (True, False),
    "biased": (True, False),
    "by_distance": (True, False),
}
SETTINGS = [case for case in cases(**CHOICES) if case.biased or not case.by_distance]
PAIRS = paired(**CHOICES)


def plain(
    queries, keys, value, weights, *, causal, bias, padding, dropout, seed, sliding_window=None, sinks=None
) -> Tensor:
    """relu(scores)² over the number of keys that a row sees, times the values."""
    assert sinks is None  # they take their share from the sum of a softmax
    heads, query, key = queries[0].shape[1], queries[0].shape[2], value.shape[2]
    spread = [k.repeat_interleave(heads // value.shape[1], 1) for k in keys]
    scores = sum(w * (q @ k.mT) for w, q, k in zip(weights.T[:, :, None, None], queries, spread, strict=True))
    if isinstance(bias, DistanceBias):
        bias = entry_by_entry(bias, query, key, causal)
    seen = torch.ones(query, key).tril(key - query).bool() if causal else torch.ones(query, key).bool()
    seen = seen if sliding_window is None else seen.triu(key - query - sliding_window + 1)
    seen = seen if padding is None else seen & padding[:, None, None, :]
    attention = (scores + (0.0 if bias is None else bias)).clamp(min=0) ** 2 * seen
    attention = attention / seen.sum(-1, keepdim=True).clamp(min=1)
    if dropout:
        size = [slice(0, extent) for extent in attention.shape[:3]]
        kept = block(seed, batch=size[0], heads=size[1], rows=size[2], columns=slice(0, key), dropout=dropout)
        attention = attention * kept / (1 - dropout)
    return attention @ value.repeat_interleave(heads // value.shape[1], 1)


OTHERS = [pytest.param(*lengths, marks=pytest.mark.plain) for lengths in ((1, 1), (5, 130), (130, 130))]
"""Of the shapes that (7, 7) has."""


@pytest.mark.parametrize(("query", "key"), [(7, 7), *OTHERS])
@pytest.mark.parametrize("dropout", [0.4, pytest.param(0.0, marks=[pytest.mark.plain, pytest.mark.thorough])])
def test_it_is_its_formula(query: int, key: int, dropout: float) -> None:
    with mock.patch("addnorm.kernels.grouped_attention.streaming.budget_of", return_value=1):  # tiles of 64 rows
        for case in SETTINGS if query < 64 else PAIRS:
            arguments = replace(case, query=query, key=key, dropout=dropout).arguments()
            expected = with_gradients(plain(**arguments), arguments)
            for impl in ("auto", "reference") if query < 64 else ("auto",):
                assert_same(with_gradients(attend_squared_relu(**arguments, impl=impl), arguments), expected)


def test_without_gradients_it_gives_the_same() -> None:
    arguments = Case(query=130, key=130).arguments()
    with torch.no_grad():
        found = attend_squared_relu(**arguments)
    assert torch.equal(found, attend_squared_relu(**arguments).detach())


@pytest.mark.plain  # bytes of long sequences
@pytest.mark.parametrize("case", cases(causal=(True, False), by_distance=(True,)), ids=str)
def test_memory_is_linear_in_the_length(case: Case) -> None:
    peaks = []
    with mock.patch("addnorm.kernels.grouped_attention.streaming.budget_of", return_value=1):
        for length in (192, 384, 768):
            arguments = replace(case, query=length, key=length, padded=False, dtype=torch.float32).arguments()
            with Watch(arguments) as seen:
                attended = attend_squared_relu(**arguments)
                torch.autograd.grad(attended, leaves(arguments), torch.ones_like(attended))
                peaks.append(seen.peak)
    assert seen.largest < BATCH * HEADS * 768 * 768 * 4 / 2  # by half less than one matrix for every head
    # 2 if linear, 4 if quadratic; the last tile of a causal problem is as long as the sequence.
    assert (peaks[2] - peaks[1]) / (peaks[1] - peaks[0]) == pytest.approx(2, rel=0.1)


def test_a_sliding_window_sees_the_last_keys() -> None:
    with mock.patch("addnorm.kernels.grouped_attention.streaming.budget_of", return_value=1):
        for query, key in ((7, 7), (5, 130), (130, 130)):
            arguments = Case(query=query, key=key, sliding_window=5).arguments()
            found, expected = (
                with_gradients(function(**arguments), arguments) for function in (attend_squared_relu, plain)
            )
            assert_same(found, expected)


@pytest.mark.parametrize("impl", ["sdpa", "triton"])
def test_what_knows_the_softmax_alone_refuses(impl: str) -> None:
    with pytest.raises(InputError, match=r"takes normalisation='softmax', got 'squared_relu'. Use impl='streaming'"):
        attend_squared_relu(**Case(dtype=torch.float32).arguments(), impl=impl)


def test_another_normalisation_is_refused() -> None:
    arguments = Case().arguments()
    with pytest.raises(UnknownName, match="Did you mean 'squared_relu'"):
        problem_of(**arguments, normalisation="squared_rel")
