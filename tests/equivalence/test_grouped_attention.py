"""Every implementation gives the formula's numbers and gradients."""

import math
from dataclasses import replace

import pytest
import torch
from grouped_attention_cases import BATCH, HEAD_DIM, IN_TORCH, Case, cases, leaves, paired, plain, with_gradients
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from addnorm.kernels.grouped_attention import IMPLEMENTATIONS, DistanceBias, attend, problem
from addnorm.kernels.grouped_attention.arguments import problem_of
from addnorm.kernels.grouped_attention.panel import NARROW
from addnorm.kernels.grouped_attention.streaming import streaming
from pairwise import pairwise

LENGTHS = [(1, 1), (7, 7), (64, 64), (130, 130), (5, 130)]
CHECKED = (7, 7)
"""The lengths at which shapes are checked: they have the same names at all."""
CHOICES = {
    "terms": (1, 3),
    "causal": (True, False),
    "kv_heads": (2, 4),
    "padded": (True, False),
    "biased": (True, False),
}
SETTINGS = cases(**CHOICES)
# One unit of float64 rounding per entry of the longest sum (a row of scores, of values, of dS), times the few sums that
# follow each other; results are of size 1 to 10.
ROUNDING = 2**-52 * 130 * 3 * 10


def assert_same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=ROUNDING * max(1.0, other.abs().max().item()))


def run(case: Case, implementation, seed: int = 0) -> list[torch.Tensor]:
    arguments = case.arguments(seed)
    return with_gradients(implementation(problem_of(**arguments)), arguments)


def small_tiles(problem):
    return streaming(problem, budget=1)


@pytest.mark.parametrize(
    ("query", "key"),
    [pytest.param(*lengths, marks=() if lengths == CHECKED else pytest.mark.plain) for lengths in LENGTHS],
)
def test_every_implementation_equals_the_reference(query: int, key: int) -> None:
    # At every length every pair of settings.
    tried = paired(**CHOICES, weights=("equal", "numbers", "per term", "per head"), dropout=(0.0, 0.4))
    assert_implementations_agree([replace(case, query=query, key=key) for case in tried])


@pytest.mark.plain  # the shapes are those above
@pytest.mark.parametrize(("terms", "value_dim"), [(3, NARROW - 1), (4, NARROW)])
def test_narrow_products_and_others_are_the_same(terms: int, value_dim: int) -> None:
    # Gradients of queries take the same way as attended values.
    assert (terms * HEAD_DIM < NARROW) == (value_dim < NARROW)
    assert_implementations_agree(
        [replace(case, terms=terms, value_dim=value_dim, query=70, key=70) for case in SETTINGS]
    )


@pytest.mark.plain  # the shapes are those above
def test_so_it_does_in_every_combination_of_what_forms_a_tile() -> None:
    assert_implementations_agree(cases(**CHOICES, dropout=(0.0, 0.4)))


@pytest.mark.plain  # the shapes are those above
@pytest.mark.parametrize("common", [0.0, 300.0, -1e4])
@pytest.mark.parametrize("by_distance", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_bias_is_not_rounded_to_the_type_of_the_values(
    dtype: torch.dtype, by_distance: bool, common: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a row's biases have in common changes nothing, whatever its size: bfloat16 rounds 300 by 1."""
    monkeypatch.setattr(problem, "MULTIPLIES_BFLOAT16", True)
    for changes in paired(causal=(True, False), padded=(True, False), query=(5, 40), terms=(1, 2)):
        case = replace(changes, by_distance=by_distance, key=40, dtype=dtype, weights="equal", value_dim=HEAD_DIM)
        arguments, exact = case.arguments(), replace(case, dtype=torch.float64).arguments()
        exact = {
            name: tensor_of(exact[name], lambda tensor: tensor.to(dtype).double())
            for name in ("queries", "keys", "value")
        }
        bias = tensor_of(replace(case, dtype=torch.float32).arguments()["bias"], lambda each: each + common)
        exact_bias = tensor_of(bias, Tensor.double)
        expected = attend(**{**arguments, **exact, "bias": exact_bias}, impl="reference")
        for impl in IN_TORCH:
            found = attend(**{**arguments, "bias": bias}, impl=impl).double()
            # Probabilities, scores near 1 and the result are rounded to the type, the shifted bias of size 4 too.
            bound = 16 * torch.finfo(dtype).eps * float(expected.detach().abs().max())
            torch.testing.assert_close(found, expected, rtol=0, atol=bound)


def tensor_of(given, change):
    """The tensors of an argument, changed."""
    if isinstance(given, DistanceBias):
        return replace(given, values=change(given.values.detach()))
    return change(given.detach()) if isinstance(given, Tensor) else [change(each.detach()) for each in given]


@pytest.mark.plain  # the shapes are those above
@pytest.mark.parametrize("weights", ["zero", "negative"])
def test_a_shared_weight_may_be_zero_or_negative(weights: str) -> None:
    """Torch's own attention scales what it has masked with -inf."""
    tried = paired(terms=(1, 3), causal=(True, False), padded=(True, False), biased=(True, False), key=(7, 130))
    assert_implementations_agree([replace(case, weights=weights, value_dim=HEAD_DIM) for case in tried])
    tried = paired(terms=(1, 2), sliding_window=(None, 5), query=(1, 7, 130))
    assert_implementations_agree(
        [replace(case, weights=weights, biased=False, padded=False, key=130) for case in tried]
    )


def assert_implementations_agree(tried: list[Case]) -> None:
    for case in tried:
        others = {"streaming": small_tiles} | ({} if case.dropout else {"sdpa": IMPLEMENTATIONS["sdpa"]})
        expected = run(case, IMPLEMENTATIONS["reference"])
        assert all(tensor.isfinite().all() for tensor in expected), case
        for name, implementation in others.items():
            try:
                assert_same(run(case, implementation), expected)
            except AssertionError as error:
                raise AssertionError(f"{name}, {case}: {error}") from error


@pytest.mark.parametrize("value_dim", [1, 4, 16])
@pytest.mark.parametrize("impl", IN_TORCH)
def test_value_width_is_free(value_dim: int, impl: str) -> None:
    case = Case(value_dim=value_dim)
    assert_same(run(case, IMPLEMENTATIONS[impl]), run(case, IMPLEMENTATIONS["reference"]))


@pytest.mark.parametrize(
    "case", cases(causal=(True, False), kv_heads=(2, 4), biased=(True, False), key=(7, 9)), ids=str
)
def test_reference_equals_the_formula(case: Case) -> None:
    arguments = replace(case, padded=False).arguments()
    padding = torch.ones(BATCH, case.key, dtype=torch.bool)
    padding[1, 1 : case.key // 2] = False
    arguments["padding"] = padding
    expected = with_gradients(plain(**arguments), arguments)
    assert_same(with_gradients(attend(**arguments, impl="reference"), arguments), expected)


@pytest.mark.plain  # many passes of one shape
@pytest.mark.parametrize("impl", IN_TORCH)
def test_gradients_are_those_of_finite_differences(impl: str) -> None:
    arguments = Case(query=3, key=4).arguments()
    tensors = leaves(arguments)

    def function(q0, q1, q2, k0, k1, k2, value, weights, bias):
        given = {"queries": [q0, q1, q2], "keys": [k0, k1, k2], "value": value, "weights": weights, "bias": bias}
        return attend(**{**arguments, **given}, impl=impl)

    assert torch.autograd.gradcheck(function, tensors, fast_mode=True)


@pytest.mark.plain  # the shapes are those of the comparison with the reference, above
@pytest.mark.parametrize("impl", IN_TORCH)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("weights", ["equal", "per head"])
def test_rounding_is_within_twice_that_of_the_plain_computation(impl: str, dtype: torch.dtype, weights: str) -> None:
    case = Case(query=130, key=130, padded=False, dtype=dtype, weights=weights, value_dim=4)
    arguments = case.arguments()
    exact = {name: _double(value) for name, value in arguments.items()}
    expected = with_gradients(plain(**exact), exact)
    rounded = with_gradients(plain(**arguments), arguments)
    found = with_gradients(attend(**arguments, impl=impl), arguments)
    for one, other, truth in zip(found, rounded, expected, strict=True):
        assert one.dtype == dtype
        assert (one - truth).norm() <= 2 * (other - truth).norm()


@pytest.mark.plain  # the shapes are those of the comparison with the reference, above
@pytest.mark.parametrize(
    ("narrow", "weights", "kv_heads", "biased", "terms"),
    pairwise((False, True), ("equal", "per head"), (2, 4), (False, True), (1, 3)),
)
def test_rounding_of_either_kind_of_tile(
    narrow: bool, weights: str, kv_heads: int, biased: bool, terms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several tiles, sums over tiles included, against float64 and against the formula in bfloat16."""
    monkeypatch.setattr("addnorm.kernels.grouped_attention.problem.MULTIPLIES_BFLOAT16", narrow)
    changes = {"weights": weights, "kv_heads": kv_heads, "biased": biased, "terms": terms}
    case = Case(query=300, key=300, padded=False, dtype=torch.bfloat16, **changes)
    arguments = case.arguments()
    assert problem_of(**arguments).tile_dtype == (torch.bfloat16 if narrow else torch.float32)
    exact = {name: _double(value) for name, value in arguments.items()}
    expected = with_gradients(plain(**exact), exact)
    rounded = with_gradients(plain(**arguments), arguments)
    found = with_gradients(small_tiles(problem_of(**arguments)), arguments)
    for one, other, truth in zip(found, rounded, expected, strict=True):
        assert one.dtype == torch.bfloat16
        assert (one - truth).norm() <= 2 * (other - truth).norm()


def _double(value):
    if isinstance(value, list):
        return [_double(entry) for entry in value]
    if isinstance(value, torch.Tensor):
        return value.detach().double().requires_grad_()
    return value


@pytest.mark.plain  # the shapes are those of the comparison with the reference, above
@settings(derandomize=True, deadline=None, max_examples=25)
@given(key=st.integers(1, 150), shorter=st.integers(0, 149), seed=st.integers(0, 9), drawn=st.sampled_from(SETTINGS))
def test_any_length(key: int, shorter: int, seed: int, drawn: Case) -> None:
    case = replace(drawn, key=key, query=max(1, key - shorter))
    assert_same(run(case, small_tiles, seed), run(case, IMPLEMENTATIONS["reference"], seed))


@pytest.mark.parametrize("impl", IN_TORCH)
def test_rows_without_a_key_give_zeros_and_no_gradient(impl: str) -> None:
    arguments = Case(query=7, key=7).arguments()
    arguments["padding"] = torch.ones(BATCH, 7, dtype=torch.bool)
    arguments["padding"][0, :3] = False
    arguments["bias"] = arguments["bias"].detach().clone()
    arguments["bias"][:, :, 5] = -math.inf
    arguments["bias"].requires_grad_()
    attended, *gradients = with_gradients(attend(**arguments, impl=impl), arguments)
    dead = torch.zeros(BATCH, 7, dtype=torch.bool)
    dead[0, :3] = dead[:, 5] = True
    assert (attended.transpose(1, 2)[dead] == 0).all()
    assert (attended.transpose(1, 2)[~dead] != 0).all()
    assert all(gradient.isfinite().all() for gradient in gradients)
    for gradient in gradients[:3]:
        assert (gradient.transpose(1, 2)[dead] == 0).all()


@pytest.mark.plain  # as above
@pytest.mark.parametrize("impl", IN_TORCH)
@pytest.mark.parametrize(("query", "key"), [(130, 130), (5, 130), (1, 9)])
def test_no_row_reads_a_later_key(impl: str, query: int, key: int) -> None:
    case = Case(query=query, key=key, padded=False)
    for row in {0, query // 2, query - 1}:
        arguments = case.arguments()
        attended = attend(**arguments, impl=impl)
        last = row + key - query
        read = torch.autograd.grad(attended[:, :, row].square().sum(), [*arguments["keys"], arguments["value"]])
        for gradient in read:
            assert (gradient[:, :, last + 1 :] == 0).all()
        assert (read[-1][:, :, last] != 0).any()


@pytest.mark.plain  # the shapes are those of the comparison with the reference, above
@pytest.mark.parametrize("case", cases(causal=(True, False), kv_heads=(1, 2, 4)), ids=str)
def test_the_size_of_a_tile_changes_rounding_only(case: Case) -> None:
    case = replace(case, query=130, key=130, dropout=0.2)
    expected = run(case, lambda problem: streaming(problem, budget=2**24))
    for budget in (1, 130 * 64, 130 * 130 * 2, 130 * 128 * 8):
        assert_same(run(case, lambda problem, budget=budget: streaming(problem, budget)), expected)


@pytest.mark.plain  # as above
@pytest.mark.parametrize("impl", IN_TORCH)
def test_inputs_stay_as_they_are_and_nothing_unwritten_is_read(impl: str) -> None:
    arguments = Case(query=130, key=130).arguments()
    before = [tensor.detach().clone() for tensor in leaves(arguments)]
    torch.use_deterministic_algorithms(True)  # Fills what torch.empty returns with NaN.
    try:
        results = with_gradients(attend(**arguments, impl=impl), arguments)
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(result.isfinite().all() for result in results)
    assert all(torch.equal(one, other) for one, other in zip(leaves(arguments), before, strict=True))


@pytest.mark.parametrize("impl", IN_TORCH)
def test_stacked_terms_equal_separate_ones(impl: str) -> None:
    arguments = Case().arguments()
    stacked = {**arguments, "queries": torch.stack(arguments["queries"]), "keys": torch.stack(arguments["keys"])}
    assert torch.equal(attend(**stacked, impl=impl), attend(**arguments, impl=impl))


@pytest.mark.parametrize("impl", IN_TORCH)
def test_layouts_other_than_contiguous_are_welcome(impl: str) -> None:
    arguments = Case(query=64, key=64).arguments()
    expected = with_gradients(attend(**arguments, impl=impl), arguments)
    for name in ("queries", "keys"):
        arguments[name] = [_positions_first(tensor) for tensor in arguments[name]]
    arguments["value"] = _positions_first(arguments["value"])
    assert_same(with_gradients(attend(**arguments, impl=impl), arguments), expected)


def _positions_first(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()


@pytest.mark.parametrize("impl", IN_TORCH)
@pytest.mark.parametrize("sliding_window", [1, 5, 64, 200])
@pytest.mark.parametrize(
    ("query", "key"), [(1, 9), *(pytest.param(query, 130, marks=pytest.mark.plain) for query in (130, 5))]
)
def test_a_sliding_window_sees_the_last_keys(impl: str, sliding_window: int, query: int, key: int) -> None:
    for by_distance, dropout in ((False, 0.0), (True, 0.0), (False, 0.4)):
        if dropout and impl == "sdpa":
            continue
        case = Case(query=query, key=key, sliding_window=sliding_window, by_distance=by_distance, dropout=dropout)
        implementation = small_tiles if impl == "streaming" else IMPLEMENTATIONS[impl]
        assert_same(run(case, implementation), run(case, IMPLEMENTATIONS["reference"]))
    arguments = replace(Case(query=query, key=key, sliding_window=sliding_window), padded=False).arguments()
    assert_same(
        with_gradients(attend(**arguments, impl=impl), arguments), with_gradients(plain(**arguments), arguments)
    )
