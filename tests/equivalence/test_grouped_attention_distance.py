"""A bias by distance is the matrix that it stands for, in every implementation, forward and backward, at linear memory."""

from dataclasses import replace

import pytest
import torch
from grouped_attention_cases import HEADS, IN_TORCH, Case, cases, entry_by_entry, leaves, paired, plain, with_gradients
from hypothesis import given, settings
from hypothesis import strategies as st
from test_grouped_attention import CHECKED, assert_same, run, small_tiles
from test_grouped_attention_memory import growth, watch
from torch.utils.flop_counter import FlopCounterMode

from addnorm.errors import InputError
from addnorm.kernels.grouped_attention import IMPLEMENTATIONS, DistanceBias, attend, choose
from addnorm.kernels.grouped_attention.arguments import problem_of
from addnorm.kernels.grouped_attention.sdpa import holds_matrix
from addnorm.kernels.grouped_attention.streaming import streaming
from sampled import sampled

BASE = Case(by_distance=True)
LENGTHS = [(1, 1), (7, 7), (1, 9), (5, 130), (130, 130)]
CHOICES = {"terms": (1, 3), "causal": (True, False), "kv_heads": (1, 4), "padded": (True, False)}
SETTINGS = cases(by_distance=(True,), **CHOICES)


@pytest.mark.parametrize(
    ("query", "key"),
    [pytest.param(*lengths, marks=() if lengths == CHECKED else pytest.mark.plain) for lengths in LENGTHS],
)
@pytest.mark.parametrize("impl", ["streaming", "sdpa"])
def test_every_implementation_equals_the_reference(query: int, key: int, impl: str) -> None:
    implementation = small_tiles if impl == "streaming" else IMPLEMENTATIONS[impl]
    # All combinations at one length; at the others every pair.
    tried = SETTINGS if (query, key) == CHECKED else [replace(case, by_distance=True) for case in paired(**CHOICES)]
    for case in (replace(case, query=query, key=key) for case in tried):
        assert_same(run(case, implementation), run(case, IMPLEMENTATIONS["reference"]))


@pytest.mark.parametrize("impl", IN_TORCH)
@pytest.mark.parametrize(
    "case", cases(by_distance=(True,), causal=(True, False), query=(3, 7), padded=(False,)), ids=str
)
def test_it_is_the_matrix_written_entry_by_entry(impl: str, case: Case) -> None:
    arguments = case.arguments()
    expected = with_gradients(plain(**arguments), arguments)
    assert_same(with_gradients(attend(**arguments, impl=impl), arguments), expected)


def test_more_queries_than_keys() -> None:
    case = replace(BASE, causal=False, padded=False, query=9, key=4)
    assert_same(run(case, small_tiles), run(case, IMPLEMENTATIONS["reference"]))
    bias = case.arguments()["bias"]
    assert torch.equal(bias.matrix(9, 4), entry_by_entry(bias, 9, 4, causal=False))


@pytest.mark.plain  # the shapes are those of the comparison with the reference, above
@settings(derandomize=True, deadline=None, max_examples=25)
@given(key=st.integers(1, 150), shorter=st.integers(0, 149), budget=st.integers(0, 17), drawn=st.sampled_from(SETTINGS))
def test_any_length_and_any_tile(key: int, shorter: int, budget: int, drawn: Case) -> None:
    case = replace(drawn, key=key, query=max(1, key - shorter))
    found = run(case, lambda problem: streaming(problem, budget=2**budget))
    assert_same(found, run(case, IMPLEMENTATIONS["reference"]))


@pytest.mark.parametrize("impl", IN_TORCH)
@pytest.mark.parametrize("causal", [True, False])
def test_one_row_of_values_serves_all_heads(impl: str, causal: bool) -> None:
    arguments = replace(BASE, causal=causal).arguments()
    one = arguments["bias"].values[:1].detach().requires_grad_()
    all_heads = DistanceBias(values=one.expand(HEADS, -1), first=arguments["bias"].first)
    found, expected = (
        attend(**arguments | {"bias": bias}, impl=impl)
        for bias in (DistanceBias(values=one, first=all_heads.first), all_heads)
    )
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(out.square().sum(), one) for out in (found, expected)))


@pytest.mark.plain  # as above
@pytest.mark.parametrize("dtype", sampled(2, [torch.bfloat16, torch.float32]), ids=str)
def test_rounding_is_within_twice_that_of_the_plain_computation(dtype: torch.dtype) -> None:
    case = replace(BASE, query=130, key=130, padded=False, dtype=dtype)
    arguments = case.arguments()
    exact = {name: _double(value) for name, value in arguments.items()}
    exact["bias"] = DistanceBias(values=_double(arguments["bias"].values), first=arguments["bias"].first)
    expected = with_gradients(plain(**exact), exact)
    rounded = with_gradients(plain(**arguments), arguments)
    found = with_gradients(attend(**arguments, impl="streaming"), arguments)
    for one, other, truth in zip(found, rounded, expected, strict=True):
        assert one.dtype == dtype
        assert (one - truth).norm() <= 2 * (other - truth).norm()


def _double(value):
    if isinstance(value, list):
        return [_double(entry) for entry in value]
    return value.detach().double().requires_grad_() if isinstance(value, torch.Tensor) else value


@pytest.mark.plain  # long sequences of the same shapes
@pytest.mark.parametrize("causal", sampled(2, [True, False]))
def test_memory_is_linear_in_the_length(causal: bool) -> None:
    case = replace(BASE, padded=False, kv_heads=2, dtype=torch.float32, causal=causal)
    assert growth(small_tiles, case) == pytest.approx(2, rel=0.05)
    long = replace(case, query=768, key=768)
    assert watch(long, small_tiles).largest < 768 * 768 * 4 / 2


@pytest.mark.parametrize("query", [1, 7])
def test_auto_never_makes_a_matrix_of_it(query: int) -> None:
    problem = problem_of(**replace(BASE, terms=1, value_dim=4, padded=False, query=query).arguments())
    assert choose(problem) == "streaming"
    assert holds_matrix(problem)


def test_gradients_of_every_sample() -> None:
    """torch.func.vmap, with the values shared by the samples and with values of their own."""
    arguments = replace(BASE, padded=False, query=130, key=130).arguments()
    first, queries = arguments["bias"].first, torch.stack([arguments["queries"][0]] * 2).detach()
    queries[1] *= 2

    def loss(values, query, impl):
        given = arguments | {"queries": [query, *arguments["queries"][1:]]}
        return attend(**given | {"bias": DistanceBias(values=values, first=first)}, impl=impl).square().sum()

    values = arguments["bias"].values.detach()
    for axes, mapped in (((None, 0), values), ((0, 0), torch.stack([values, values + 1]))):
        found, expected = (
            torch.func.vmap(torch.func.grad(lambda v, q, impl=impl: loss(v, q, impl)), in_dims=axes)(mapped, queries)
            for impl in ("streaming", "reference")
        )
        torch.testing.assert_close(found, expected)


def test_it_costs_no_product() -> None:
    counts = []
    for biased in (False, True):
        with FlopCounterMode(display=False) as counter:
            run(replace(BASE, biased=biased), small_tiles)
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    ("changes", "shape", "first", "message"),
    [
        ({}, (HEADS + 1, 7), 0, r"bias.values must have shape \[heads, span\] = \[1 or 4, span\], got \[5, 7\]"),
        ({}, (1, HEADS, 7), 0, r"bias.values must have shape \[heads, span\]"),
        ({}, (HEADS, 6), 0, r"0 to 6 \(7 queries, 7 keys, causal=True\), got 0 to 5"),
        ({}, (HEADS, 7), 1, r"got 1 to 7\."),
        ({"causal": False}, (HEADS, 7), 0, r"-6 to 6 \(7 queries, 7 keys, causal=False\), got 0 to 6"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, bool], shape: tuple[int, ...], first: int, message: str) -> None:
    bias = object.__new__(DistanceBias)  # past jaxtyping, which refuses a wrong number of axes before attend can
    object.__setattr__(bias, "values", torch.zeros(*shape, dtype=torch.float64))
    object.__setattr__(bias, "first", first)
    with pytest.raises(InputError, match=message):
        attend(**replace(BASE, **changes).arguments() | {"bias": bias})


def test_the_type_of_its_values_is_checked() -> None:
    bias = DistanceBias(values=torch.zeros(HEADS, 7).to(torch.float8_e5m2), first=0)
    with pytest.raises(InputError, match=r"bias.values must be one of float64.*got float8_e5m2"):
        attend(**BASE.arguments() | {"bias": bias})


def test_leaves_counts_the_values() -> None:
    """The comparisons above rest on `leaves` handing out the gradient of the values."""
    arguments = BASE.arguments()
    assert any(leaf is arguments["bias"].values for leaf in leaves(arguments))


class Attention(torch.nn.Module):
    def forward(self, query, key, value, values):
        bias = DistanceBias(values=values, first=-130)
        return attend([query], [key], value, [0.5], causal=True, bias=bias, impl="streaming")


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")  # torch's own export of torch 2.13
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # Dynamo's own, torch 2.13
@pytest.mark.parametrize("trained", sampled(2, [True, False]))
@pytest.mark.parametrize("how", sampled(2, ["export", "compile"]))
def test_traced_numbers_are_the_same(how: str, trained: bool) -> None:
    given = replace(BASE, query=130, key=130, value_dim=4).arguments()
    values = torch.randn(HEADS, 261, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    tensors = [t.detach() for t in (given["queries"][0], given["keys"][0], given["value"], values)]
    tensors = tuple(tensor.requires_grad_(trained) for tensor in tensors)
    if how == "export":
        traced = torch.export.export(Attention(), tensors, strict=False).module()
    else:
        traced = torch.compile(Attention(), fullgraph=True, backend="aot_eager", dynamic=False)
    found, expected = traced(*tensors), Attention()(*tensors)
    torch.testing.assert_close(found, expected)
    if trained:
        torch.testing.assert_close(*(torch.autograd.grad(out.square().sum(), tensors) for out in (found, expected)))
