"""Softpick and capped scores: formula and gradients in every implementation, memory, decoding, and what refuses them."""

import math
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch
from grouped_attention_cases import BATCH, HEADS, Case, cases, entry_by_entry, paired, with_gradients
from test_grouped_attention import assert_same
from test_grouped_attention_memory import Watch, leaves
from torch import Tensor

from addnorm import audit, preset
from addnorm.bias import Biases
from addnorm.errors import InputError
from addnorm.kernels.grouped_attention import DistanceBias, attend
from addnorm.kernels.grouped_attention.dropout import block
from addnorm.kernels.grouped_attention.normalisation import SOFTPICK_EPS, softpick
from addnorm.testing.contract import shrunk
from addnorm.testing.laws import some_tokens, subject

pytestmark = pytest.mark.plain  # the laws check the shapes

ROWS = mock.patch("addnorm.kernels.grouped_attention.streaming.budget_of", return_value=1)  # 64 rows at a time
CHOICES: dict[str, Any] = {
    "causal": (True, False),
    "kv_heads": (2, 4),
    "padded": (True, False),
    "biased": (True, False),
    "by_distance": (True, False),
}
KINDS: list[dict[str, Any]] = [
    {"normalisation": "softpick"},
    {"cap": 0.7},
    {"normalisation": "softpick", "cap": 1.5},
    {"normalisation": "squared_relu", "cap": 1.5},
]


def plain(
    queries: Any, keys: Any, value: Tensor, weights: Any, *, causal: bool, bias: Any, padding: Any, dropout: float,
    seed: Any, normalisation: str = "softmax", cap: float | None = None, sliding_window: int | None = None,
    sinks: Any = None,
) -> Tensor:  # fmt: skip
    """The formulas, in terms of whole matrices and masks that are multiplied in."""
    assert sinks is None
    heads, query, key = queries[0].shape[1], queries[0].shape[2], value.shape[2]
    spread = [k.repeat_interleave(heads // value.shape[1], 1) for k in keys]
    scores = sum(w * (q @ k.mT) for w, q, k in zip(weights.T[:, :, None, None], queries, spread, strict=True))
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    if isinstance(bias, DistanceBias):
        bias = entry_by_entry(bias, query, key, causal)
    scores = scores + (0.0 if bias is None else bias)
    seen = torch.ones(query, key).tril(key - query).bool() if causal else torch.ones(query, key).bool()
    seen = seen if sliding_window is None else seen.triu(key - query - sliding_window + 1)
    seen = seen if padding is None else seen & padding[:, None, None, :]
    if normalisation == "softpick":
        moved = (scores.exp() - 1) * seen
        attention = moved.relu() / (moved.abs().sum(-1, keepdim=True) + SOFTPICK_EPS)
    elif normalisation == "squared_relu":
        attention = scores.relu().square() * seen / seen.sum(-1, keepdim=True).clamp(min=1)
    else:
        shares = scores.exp() * seen
        total = shares.sum(-1, keepdim=True)
        attention = shares / total.masked_fill(total == 0, 1.0)
    if dropout:
        size = [slice(0, extent) for extent in attention.shape[:3]]
        kept = block(seed, batch=size[0], heads=size[1], rows=size[2], columns=slice(0, key), dropout=dropout)
        attention = attention * kept / (1 - dropout)
    return attention @ value.repeat_interleave(heads // value.shape[1], 1)


@pytest.mark.parametrize(("query", "key"), [(7, 7), pytest.param(5, 130, marks=pytest.mark.thorough), (130, 130)])
@pytest.mark.parametrize(
    "kind", [*KINDS[:2], *(pytest.param(kind, marks=pytest.mark.thorough) for kind in KINDS[2:])], ids=str
)
def test_it_is_its_formula(kind: dict[str, Any], query: int, key: int) -> None:
    with ROWS:
        for number, case in enumerate(paired(**CHOICES)):
            window = 5 if case.causal and number % 2 else None
            sized = replace(case, query=query, key=key, dropout=0.4 * (number % 3 == 0), sliding_window=window)
            arguments = sized.arguments()
            expected = with_gradients(plain(**arguments, **kind), arguments)
            for impl in ("auto", "reference") if query < 64 else ("auto",):
                assert_same(with_gradients(attend(**arguments, **kind, impl=impl), arguments), expected)


@pytest.mark.parametrize("size", [1e-12, 1.0, 50.0, 1e4])
@pytest.mark.parametrize("sign", [-1, 0, 1])
def test_softpick_is_stable(size: float, sign: int) -> None:
    """Where exp overflows, where exp - 1 cancels, and where every score is negative: against 50 digits."""
    mpmath = pytest.importorskip("mpmath")
    mpmath.mp.dps = 50
    scores = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * size
    scores = scores.abs() * sign if sign else scores
    scores[0, 3] = -math.inf
    scores.requires_grad_()
    found = softpick(scores)
    found.square().sum().backward()
    assert scores.grad.isfinite().all()
    for row, values in zip(scores.tolist(), found.tolist(), strict=True):
        moved = [mpmath.expm1(mpmath.mpf(s)) if s > -math.inf else mpmath.mpf(0) for s in row]
        total = sum(abs(m) for m in moved) + mpmath.mpf(SOFTPICK_EPS)
        expected = [float(max(m, 0) / total) for m in moved]
        # exp of a rounded difference of numbers up to 5 sizes: as many units of rounding, and one for each of the six terms.
        allowed = torch.finfo(torch.float64).eps * (5 * max(size, 1) + 16)
        assert values == pytest.approx(expected, rel=allowed, abs=allowed * 1e-6)


def test_without_a_visible_key_nothing_is_attended_to() -> None:
    for kind in KINDS:
        arguments = Case(causal=False, padded=True).arguments()
        arguments["padding"] = torch.zeros_like(arguments["padding"])
        assert (attend(**arguments, **kind) == 0).all()


@pytest.mark.parametrize("kind", KINDS[:2], ids=str)
def test_memory_is_linear_in_the_length(kind: dict[str, Any]) -> None:
    peaks, case = [], cases(causal=(True,), by_distance=(True,))[0]
    with ROWS:
        for length in (192, 384, 768):
            arguments = replace(case, query=length, key=length, padded=False, dtype=torch.float32).arguments()
            with Watch(arguments) as seen:
                attended = attend(**arguments, **kind)
                torch.autograd.grad(attended, leaves(arguments), torch.ones_like(attended))
                peaks.append(seen.peak)
    assert seen.largest < BATCH * HEADS * 768 * 768 * 4 / 2  # by half less than one matrix for every head
    assert (peaks[2] - peaks[1]) / (peaks[1] - peaks[0]) == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize("impl", ["sdpa", "triton"])
def test_what_cannot_compute_them_refuses(impl: str) -> None:
    arguments = Case(dtype=torch.float32).arguments()
    with pytest.raises(InputError, match=r"takes normalisation='softmax', got 'softpick'. Use impl='streaming'"):
        attend(**arguments, normalisation="softpick", impl=impl)
    if impl == "sdpa":
        with pytest.raises(InputError, match=r"impl='sdpa' takes no cap of scores.*got 2.0. Use impl='streaming'"):
            attend(**arguments, cap=2.0, impl=impl)
    with pytest.raises(InputError, match="sinks: expected normalisation='softmax'"):
        attend(**(arguments | {"sinks": torch.zeros(HEADS)}), normalisation="softpick")
    with pytest.raises(InputError, match="cap: expected a positive number or None, got -1"):
        attend(**arguments, cap=-1.0)


def test_fields_of_models_that_do_not_fit_are_refused() -> None:
    small = {"vocab": 11, "width": 8, "depth": 2, "heads": 1, "hidden": 8, "max_seq": 16}
    for changes, said in (
        (
            {"normalisation": "softpick", "sink": "logit"},
            "sink: expected 'none' with normalisation 'softpick', because",
        ),
        ({"normalisation": "softpick", "block": "gau"}, "Set block.normalisation to 'softpick' instead"),
        ({"score_cap": 0.0}, r"score_cap: expected a positive number or null, got 0\.0"),
        (
            {"score_cap": 2.0, "attention": "running", "scores": "sum"},
            "attention: expected 'auto', .* with score_cap 2.0",
        ),
        ({"normalisation": "softpick", "attention": "sdpa"}, "with normalisation 'softpick', which no other"),
    ):
        with pytest.raises(InputError, match=said):
            preset("llama", **(small | changes))


@pytest.mark.parametrize("changes", [{"normalisation": "softpick"}, {"score_cap": 1.0}], ids=str)
@pytest.mark.parametrize("scores", ["own", "sum", "weighted"])
def test_decoding_sums_before_it_caps(changes: dict[str, Any], scores: str) -> None:
    spec = preset("llama", scores=scores, **changes)
    model, tokens = subject(shrunk(spec, init_std=0.5)), some_tokens(spec.__class__(vocab=11))
    with torch.no_grad():
        cache = model.new_cache()
        pieces = [model(piece, cache=cache) for piece in tokens.split([4, 1, 1, 3], dim=1)]
        torch.testing.assert_close(torch.cat(pieces, dim=1), model(tokens), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("changes", [{"normalisation": "softpick"}, {"score_cap": 1.0}, {}], ids=str)
def test_the_key_bias_matters_to_all_but_the_softmax(changes: dict[str, Any]) -> None:
    spec = preset("llama", position="none", bias=Biases(q=True, k=True), **changes)
    model = subject(shrunk(spec))
    tokens = some_tokens(model.spec)
    with torch.no_grad():
        before = model(tokens)
        for layer in model.layers:
            layer.attention.body.qk_bias.k += 0.5
        moved = (model(tokens) - before).abs().max()
    assert (moved > 1e-3) == bool(changes)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"normalisation": "softpick"}, "effective"),
        ({"score_cap": 2.0}, "effective"),
        ({"forgetting": {"start": 1.0}}, "redundant"),
    ],
    ids=str,
)
def test_audits_find_what_becomes_of_the_key_bias(changes: dict[str, Any], verdict: str) -> None:
    model = shrunk(preset("llama", position="none", bias={"k": True}, **changes), depth=1).build()
    found = audit(model, some_tokens(model.spec))
    assert found.disagreements == ()
    verdicts = {finding.parameter.rpartition(".")[2]: finding.verdict for finding in found.findings}
    assert verdicts["k"] == verdict


def test_a_wide_cap_is_no_cap() -> None:
    arguments = Case().arguments()
    torch.testing.assert_close(attend(**arguments, cap=1e7), attend(**arguments), rtol=1e-9, atol=1e-9)
