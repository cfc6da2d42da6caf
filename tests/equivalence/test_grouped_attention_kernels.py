"""The GPU kernels give the formula's numbers and gradients: in Triton's interpreter here, on a GPU where there is one."""

from dataclasses import replace

import pytest
import torch
from compiled_kernels import assert_compiles
from grouped_attention_cases import HEADS, Case, leaves, paired, plain, with_gradients
from test_grouped_attention_memory import Watch

from addnorm.kernels.grouped_attention import attend
from addnorm.kernels.grouped_attention.arguments import problem_of
from addnorm.kernels.grouped_attention.reference import reference

pytest.importorskip("triton")

from addnorm.kernels.grouped_attention import launches
from addnorm.kernels.grouped_attention.triton import operators
from sampled import sampled

# Triton's interpreter runs a kernel's own source and cannot see through the shape checker, like torch's tracers.
pytestmark = pytest.mark.compiled
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# The interpreter's time is that of the tiles, batch × heads × blocks × terms: each is two where it is not the subject.
BASE = Case(
    query=21, key=21, padded=False, biased=False, weights="equal", terms=2, heads=2, kv_heads=2, dtype=torch.float32
)
RULES = [
    *paired(weights=("equal", "numbers", "per term", "per head"), heads=(2, 4), causal=(True, False)),
    Case(
        weights="per head", heads=4, terms=3, causal=True
    ),  # groups of heads that see parts of blocks, each with its rule
]
SIDES = {
    "matrix bias": {"biased": True},
    "bias by distance": {"biased": True, "by_distance": True},
    "padding": {"padded": True},
    "dropout": {"dropout": 0.4},
    "window": {"sliding_window": 5},
    "window over a block": {"sliding_window": 18, "biased": True, "by_distance": True},
    "everything": {"biased": True, "padded": True, "dropout": 0.3},
    "fewer queries": {"query": 5, "biased": True, "by_distance": True},
    "one query": {"query": 1},
    "one key": {"query": 1, "key": 1},
    "one term": {"terms": 1},
    "a weight of zero": {"weights": "zero"},
    "a negative weight": {"weights": "negative"},
    "three terms": {"terms": 3, "weights": "per term"},
    "many terms": {"terms": 32, "weights": "per term", "query": 5, "key": 5},
    "wide value": {"value_dim": 17},
    "whole blocks": {"query": 32, "key": 32, "padded": True},
    "sinks": {"padded": True, "dropout": 0.3, "sinks": True},
    "cap": {"cap": 1.5, "weights": "per head"},
    "one capped term": {"cap": 1.5, "biased": True, "by_distance": True, "terms": 1, "dropout": 0.3, "heads": 4},
}
# Products and sums in float32: one unit of rounding per entry of the longest sum (a row of scores, of values, of dS),
# times the few sums that follow each other; 32 terms are one more sum.
ROUNDING = 2**-23 * 32 * 3 * 10


@pytest.fixture(autouse=True)
def quick_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save a third of the time: at each call inside a kernel the interpreter looks again for what it has long replaced."""
    if DEVICE == "cuda":
        return
    from triton.runtime.interpreter import InterpretedFunction

    first_call = InterpretedFunction.__call__

    def call(self, *args, **kwargs):
        known = self.fn in self.rewritten_fn
        return self.rewrite()(*args, **kwargs) if known else first_call(self, *args, **kwargs)

    monkeypatch.setattr(InterpretedFunction, "__call__", call)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 16, so that short problems have several of them and a remainder."""
    monkeypatch.setattr(launches, "usual_launch", lambda *_, **__: launches.Launch(16, 16, 8, 1))


def on_device(value):
    if isinstance(value, list):
        return [on_device(entry) for entry in value]
    if isinstance(value, torch.Tensor):
        return value.detach().to(DEVICE).requires_grad_(value.requires_grad)
    if hasattr(value, "values") and hasattr(value, "first"):
        return replace(value, values=on_device(value.values))
    return value


def assert_equals_the_reference(case: Case) -> None:
    arguments = {name: on_device(value) for name, value in case.arguments().items()}
    expected = with_gradients(reference(problem_of(**arguments)), arguments)
    found = with_gradients(attend(**arguments, impl="triton"), arguments)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=0, atol=ROUNDING * max(1.0, other.abs().max().item()))


@pytest.mark.parametrize("rule", sampled(3, RULES), ids=str)
def test_every_weight_rule_equals_the_reference(rule: Case) -> None:
    assert_equals_the_reference(
        replace(
            BASE,
            batch=1,  # several are in the tests below
            weights=rule.weights,
            heads=rule.heads,
            causal=rule.causal,
            terms=rule.terms,
            padded=True,
        )
    )


@pytest.mark.parametrize("side", sampled(4, SIDES))
def test_every_side_input_equals_the_reference(side: str) -> None:
    assert_equals_the_reference(replace(BASE, **SIDES[side]))


@pytest.mark.parametrize(
    ("dtype", "weights"),
    sampled(
        2,
        [
            (torch.bfloat16, "per head"),
            (torch.float32, "per head"),
            (torch.bfloat16, "equal"),  # adds nothing to the others but the path without a gradient of weights
            (torch.float16, "per head"),
        ],
    ),
    ids=str,
)
def test_rounding_is_within_twice_that_of_the_plain_computation(dtype: torch.dtype, weights: str) -> None:
    # As many numbers as make the norms below comparable.
    sizes = {"query": 40, "key": 40, "heads": 4, "kv_heads": 4, "terms": 3, "value_dim": 4, "batch": 1}
    case = replace(BASE, dtype=dtype, weights=weights, **sizes)
    arguments = {name: on_device(value) for name, value in case.arguments().items()}
    exact = {name: _double(value) for name, value in arguments.items()}
    expected = with_gradients(plain(**exact), exact)
    rounded = with_gradients(plain(**arguments), arguments)
    found = with_gradients(attend(**arguments, impl="triton"), arguments)
    for one, other, truth in zip(found, rounded, expected, strict=True):
        assert one.dtype == dtype
        assert (one - truth).norm() <= 2 * (other - truth).norm()


def _double(value):
    if isinstance(value, list):
        return [_double(entry) for entry in value]
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().double().requires_grad_()
    return value


def test_rows_without_a_key_give_zeros_and_nothing_unwritten_is_read() -> None:
    arguments = {name: on_device(value) for name, value in replace(BASE, padded=True).arguments().items()}
    torch.use_deterministic_algorithms(True)  # Fills what torch.empty returns with NaN.
    try:
        attended, *gradients = with_gradients(attend(**arguments, impl="triton"), arguments)
    finally:
        torch.use_deterministic_algorithms(False)
    assert (attended[1] == 0).all()
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert all((gradient[1] == 0).all() for gradient in gradients[:3])


def test_the_kernels_run_and_give_the_same_bits_every_time() -> None:
    arguments = {name: on_device(value) for name, value in replace(BASE, weights="per head").arguments().items()}
    runs = []
    for _ in range(2):
        with Watch(arguments) as seen:
            runs.append(with_gradients(attend(**arguments, impl="triton"), arguments))
        assert "addnorm.attend_grouped.default" in seen.operations
        assert "addnorm.differentiate_grouped.default" in seen.operations
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


@pytest.mark.parametrize("form", ["matrix bias", "bias by distance"])
def test_the_gradient_of_a_bias_is_the_same_where_programs_must_not_share_it(form: str) -> None:
    # With deterministic algorithms each program has elements of its own, which are summed afterwards.
    torch.use_deterministic_algorithms(True)
    try:
        assert_equals_the_reference(replace(BASE, **SIDES[form], query=18))
    finally:
        torch.use_deterministic_algorithms(False)


def test_no_tensor_has_a_matrix_of_entries() -> None:
    case = replace(BASE, query=96, key=96, terms=1, batch=1, heads=1, kv_heads=1)
    arguments = {name: on_device(value) for name, value in case.arguments().items()}
    with Watch(arguments) as seen:
        torch.autograd.grad(attend(**arguments, impl="triton").sum(), leaves(arguments))
    assert seen.largest < 96 * 96 * 4 / 4


def test_export_sees_one_call() -> None:
    class Attention(torch.nn.Module):
        def forward(self, q, k, v):
            return attend((q, q), (k, k), v, (0.5, 0.25), causal=True, impl="triton")

    tensors = tuple(torch.randn(2, HEADS, 21, 4, device=DEVICE) for _ in range(3))
    exported = torch.export.export(Attention(), tensors)
    called = [str(node.target) for node in exported.graph.nodes if "addnorm" in str(node.target)]
    assert called == ["addnorm.attend_grouped.default"]
    assert torch.equal(exported.module()(*tensors), Attention()(*tensors))


def test_the_operators_keep_their_schema_and_shapes() -> None:
    q = torch.randn(2, 1, 2, 5, 4, device=DEVICE)
    weights = torch.ones(1, 2, 2, device=DEVICE)
    given = (q, q, q[0], weights, None, None, 0, None, None, 0.0, True, 0, 0.0)
    out, log_sum = operators.attend_grouped(*given)
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(operators.attend_grouped, given, test_utils=checks)
    torch.library.opcheck(operators.differentiate_grouped, (*given, log_sum, log_sum, out, False), test_utils=checks)


@pytest.mark.thorough
def test_the_kernels_compile_for_gpus_that_are_not_here() -> None:
    assert_compiles("attend_rows", "differentiate_rows", "differentiate_keys")
