"""Columns of earlier layers: the formula and its gradients, identities of whole models, decoding, audits, what refuses them."""

from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch
from grouped_attention_cases import HEAD_DIM, Case, entry_by_entry, leaves, paired
from test_grouped_attention import assert_same
from torch import Tensor

from addnorm import ModelSpec, audit, preset
from addnorm.errors import InputError
from addnorm.kernels.grouped_attention import DistanceBias, attend
from addnorm.kernels.grouped_attention.dropout import block
from addnorm.kernels.grouped_attention.normalisation import SOFTPICK_EPS
from addnorm.model.trace import Trace
from addnorm.testing.contract import shrunk
from addnorm.testing.laws import some_tokens, subject

pytestmark = pytest.mark.plain  # the laws check the shapes

ROWS = mock.patch("addnorm.kernels.grouped_attention.streaming.budget_of", return_value=1)  # 64 rows at a time
ENTRIES = 3
CHOICES: dict[str, Any] = {
    "causal": (True, False),
    "kv_heads": (2, 4),
    "padded": (True, False),
    "biased": (True, False),
    "by_distance": (True, False),
    "sinks": (True, False),
    "weights": ("equal", "per head"),
}


def with_column(case: Case) -> dict[str, Any]:
    """Arguments of `attend`: those of the case, with one term, and a column."""
    arguments = replace(case, terms=1).arguments()
    source, like = torch.Generator().manual_seed(7), arguments["value"]

    def draw(dim: int) -> Tensor:
        entry = torch.randn(case.batch, case.kv_heads, case.query, dim, generator=source, dtype=torch.float64)
        return entry.to(like.dtype).requires_grad_()

    return arguments | {"column": [(draw(HEAD_DIM), draw(case.value_dim)) for _ in range(ENTRIES)]}


def row_by_row(
    queries: Any, keys: Any, value: Tensor, weights: Any, *, causal: bool, bias: Any, padding: Any, dropout: float,
    seed: Any, sliding_window: int | None, sinks: Any, column: Any, cap: float | None = None,
    normalisation: str = "softmax",
) -> Tensor:  # fmt: skip
    """One row of one head at a time: the scores of the keys that it sees, then those of its own column."""
    (q,), (k,) = queries, keys
    batch, heads, query, key, group = *q.shape[:3], k.shape[2], q.shape[1] // k.shape[1]
    weights = torch.as_tensor(weights, dtype=q.dtype).expand(heads, 1)
    if isinstance(bias, DistanceBias):
        bias = entry_by_entry(bias, query, key, causal)
    if bias is not None:
        bias = bias.expand(batch, heads, query, key)

    def row(b: int, h: int, r: int) -> Tensor:
        shared, own = h // group, r + key - query
        seen = [
            j
            for j in range(key)
            if (not causal or j <= own)
            and (sliding_window is None or j > own - sliding_window)
            and (padding is None or padding[b, j])
        ]
        scores = [weights[h, 0] * (q[b, h, r] @ k[b, shared, j]) for j in seen]
        further = [weights[h, 0] * (q[b, h, r] @ entry[b, shared, r]) for entry, _ in column]
        if cap is not None:
            scores, further = ([cap * torch.tanh(score / cap) for score in each] for each in (scores, further))
        if bias is not None:
            scores = [score + bias[b, h, r, j] for score, j in zip(scores, seen, strict=True)]
        joined = torch.stack([*scores, *further])
        if normalisation == "softpick":
            moved = joined.exp() - 1
            attention = moved.relu() / (moved.abs().sum() + SOFTPICK_EPS)
        else:
            attention = joined.exp() / (joined.exp().sum() + (0.0 if sinks is None else sinks[h].exp()))
        if dropout:
            places = [*seen, *range(key, key + len(column))]
            at = {"batch": slice(b, b + 1), "heads": slice(h, h + 1), "rows": slice(r, r + 1)}
            kept = block(seed, **at, columns=slice(0, key + len(column)), dropout=dropout)[0, 0, 0]
            attention = attention * kept[places] / (1 - dropout)
        gathered = [value[b, shared, j] for j in seen] + [entry[b, shared, r] for _, entry in column]
        return torch.stack([share * each for share, each in zip(attention, gathered, strict=True)]).sum(0)

    rows = [row(b, h, r) for b in range(batch) for h in range(heads) for r in range(query)]
    return torch.stack(rows).view(batch, heads, query, -1)


def derivatives(attended: Tensor, arguments: dict[str, Any]) -> list[Tensor]:
    """The result and the gradient of every leaf, for one fixed gradient of the result."""
    grad = torch.randn(attended.shape, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    every = [*leaves(arguments), *(tensor for pair in arguments["column"] for tensor in pair)]
    return [attended.detach(), *torch.autograd.grad(attended, every, grad.to(attended.dtype))]


@pytest.mark.parametrize(
    "kind", [{}, {"cap": 0.7}, pytest.param({"normalisation": "softpick"}, marks=pytest.mark.thorough)], ids=str
)
@pytest.mark.parametrize("key", [5, pytest.param(8, marks=pytest.mark.thorough)])
def test_it_is_its_formula(kind: dict[str, Any], key: int) -> None:
    for number, case in enumerate(paired(**CHOICES)):
        window = 3 if case.causal and number % 2 else None
        sized = replace(case, query=5, key=key, dropout=0.4 * (number % 3 == 0), sliding_window=window)
        if "normalisation" in kind:
            sized = replace(sized, sinks=False)
        arguments = with_column(sized)
        expected = derivatives(row_by_row(**arguments, **kind), arguments)
        for impl in ("auto", "reference"):
            assert_same(derivatives(attend(**arguments, **kind, impl=impl), arguments), expected)


def test_many_rows_are_computed_in_parts() -> None:
    for case in paired(**CHOICES)[:4]:
        arguments = with_column(replace(case, query=130, key=150, dropout=0.2))
        with ROWS:
            found = derivatives(attend(**arguments), arguments)
        assert_same(found, derivatives(attend(**arguments, impl="reference"), arguments))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_sums_are_wide(dtype: torch.dtype) -> None:
    """Narrow inputs are rounded on the way in and out alone, so that float64 differs by one rounding of the result."""
    arguments = with_column(Case(causal=True, padded=False, dtype=dtype))
    wide = {name: _wide(value) for name, value in arguments.items()}
    exact = attend(**wide, impl="reference")
    # float32: scores of HEAD_DIM products and sums of at most 7 + ENTRIES shares, each rounded.
    inside = torch.finfo(torch.float32).eps * (2 * HEAD_DIM * 40 + 7 + ENTRIES)
    allowed = (torch.finfo(dtype).eps + inside) * max(
        value.abs().max().item() for value in (wide["value"], *(value for _, value in wide["column"]))
    )
    for impl in ("streaming", "reference"):
        assert (attend(**arguments, impl=impl).double() - exact).abs().max() <= allowed


def _wide(value: Any) -> Any:
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.detach().double()
    if isinstance(value, list | tuple):
        return [_wide(each) for each in value]
    return value


def spec(**changes: Any) -> ModelSpec:
    return shrunk(preset("llama", **({"column": "earlier", "bias": True, "kv_heads": 2} | changes)), init_std=0.5)


def test_a_column_of_zeros_is_a_sink() -> None:
    """With keys and values of zero in the first layer, the second one's column is a key of score zero without a value."""
    sizes = {"depth": 2, "bias": False, "position": "rope"}
    model = subject(shrunk(preset("llama", column="earlier", **sizes), depth=2))
    other = subject(shrunk(preset("llama", sink={"kind": "constant", "value": 0.0}, **sizes), depth=2))
    other.load_state_dict(model.state_dict() | {"sink.sinks": other.sink.sinks})
    for each in (model, other):
        with torch.no_grad():
            for projection in (each.layers[0].attention.body.key, each.layers[0].attention.body.value):
                projection.weight.zero_()
    tokens = some_tokens(model.spec)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), other(tokens), rtol=1e-12, atol=1e-12)


def test_one_layers_keys_matter_and_a_common_shift_does_not() -> None:
    """Values as well: a common shift passes through every layer's attention, and its output matrix takes it."""
    model = subject(spec(position="none"))
    tokens, layers = some_tokens(model.spec), [layer.attention.body for layer in model.layers]
    shift = torch.linspace(-1, 1, layers[0].qk_bias.k.numel()).double()
    with torch.no_grad():
        before = model(tokens)

        def moved(*which: int) -> float:
            for layer in which:
                layers[layer].qk_bias.k.add_(shift.view_as(layers[layer].qk_bias.k))
            change = (model(tokens) - before).abs().max().item()
            for layer in which:
                layers[layer].qk_bias.k.sub_(shift.view_as(layers[layer].qk_bias.k))
            return change

        assert min(moved(layer) for layer in range(len(layers))) > 1e-3
        assert moved(*range(len(layers))) < 1e-9
        for layer in layers:
            layer.value.bias += shift
            shifted = shift.view(2, 1, -1).expand(2, 2, -1).reshape(-1)  # query heads 0, 1 read value head 0
            layer.output.bias -= layer.output.weight @ shifted
        assert (model(tokens) - before).abs().max() < 1e-9


@pytest.mark.parametrize("position", ["rope", "xpos"])
def test_a_columns_scores_do_not_depend_on_the_position(position: str) -> None:
    """Rows that see themselves alone, and their columns, depend on their token alone; in the source's code they do not."""
    model = subject(spec(position=position, windows=(1,)))
    with torch.no_grad():
        logits = model(torch.full((1, 9), 3))
    torch.testing.assert_close(logits, logits[:, :1].expand_as(logits), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("most", [1, 2, None])
def test_the_nearest_layers_stand_in_the_column(most: int | None) -> None:
    model = spec(depth=4, column={"kind": "earlier", "most": most}).build()
    reach = 3 if most is None else most
    assert [model.column.sources(layer) for layer in range(4)] == [
        tuple(range(max(0, layer - reach), layer)) for layer in range(4)
    ]


def test_gates_forget_nothing_of_a_column() -> None:
    """As further entries of queries and keys, and as a matrix, which is what capped scores take."""
    model, capped = (subject(spec(forgetting={"start": 1.0}, score_cap=cap)) for cap in (None, 1e7))
    capped.load_state_dict(model.state_dict())
    tokens = some_tokens(model.spec)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), capped(tokens), rtol=1e-9, atol=1e-9)


def test_a_trace_applies_the_attention_to_the_sequence() -> None:
    model = subject(spec())
    trace, tokens = Trace(), some_tokens(model.spec)
    with torch.no_grad():
        model(tokens, trace=trace)
        shares = [each.apply(torch.ones_like(each.problem.value)) for each in trace.attentions]
    torch.testing.assert_close(shares[0], torch.ones_like(shares[0]))
    assert all(share.max() <= 1 + 1e-12 and share.min() < 0.9 for share in shares[1:])


@pytest.mark.parametrize("block", ["gau", "parallel", "macaron"])
def test_every_block_has_columns(block: str) -> None:
    model = subject(spec(block=block) if block != "gau" else spec(block=block, heads=1, kv_heads=1))
    tokens = some_tokens(model.spec)
    logits = model(tokens)
    assert model.column.sources(model.spec.attention_shape.depth - 1)
    other = replace(model.spec, column=preset("llama").column).build().double().eval()
    other.load_state_dict(model.state_dict())
    assert (logits - other(tokens)).abs().max() > 1e-6


@pytest.mark.thorough
def test_audits_prove_what_becomes_of_key_and_value_biases() -> None:
    model = shrunk(preset("llama", position="none", bias=True, column="earlier"), depth=2).build()
    found = audit(model, some_tokens(model.spec))
    assert found.disagreements == ()
    verdicts = {
        (each.parameter.rpartition(".")[2], each.verdict) for each in found.findings if "qk_bias" in each.parameter
    }
    assert verdicts == {("q", "effective"), ("k", "foldable")}
    values = {each.verdict for each in found.findings if each.parameter.endswith("value.bias")}
    assert values == {"foldable"}


@pytest.mark.parametrize("impl", ["sdpa", "triton"])
def test_what_cannot_compute_them_refuses(impl: str) -> None:
    arguments = with_column(Case(dtype=torch.float32))
    with pytest.raises(InputError, match=rf"impl='{impl}' takes no column.*Use impl='streaming' or 'reference'"):
        attend(**arguments, impl=impl)


def test_columns_that_do_not_fit_are_refused() -> None:
    arguments = with_column(Case())
    two = Case(terms=2).arguments()
    with pytest.raises(InputError, match=r"column: expected one term, .* got 2\. Attend without"):
        attend(**two, column=arguments["column"])
    keys, values = arguments["column"][0]
    for pair, said in (
        ((keys[:, :, 1:], values), r"column\[0\]: its keys must have shape .*, got \[2, 2, 6, 4\]"),
        ((keys, values[..., 1:]), r"column\[0\]: its values must have shape .* = \[2, 2, 7, 3\], got \[2, 2, 7, 2\]"),
        ((keys.float(), values), r"column\[0\]: its keys must be one of float64, got float32"),
    ):
        with pytest.raises(InputError, match=said):
            attend(**(arguments | {"column": [pair]}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scores": "sum"}, "column: expected 'none' with scores 'sum', because .* Set column to 'none', or scores to"),
        ({"residual": "replay"}, "column: expected 'none' with residual 'replay', because .* another residual"),
        ({"attention": "running"}, "attention: expected 'auto', 'reference' or 'streaming' with column 'earlier'"),
        ({"attention": "sdpa"}, "attention: expected 'auto', 'reference' or 'streaming' with column 'earlier'"),
        ({"column": {"kind": "earlier", "most": -1}}, "most must be at least 0, or null|most: expected at least 0"),
    ],
    ids=str,
)
def test_fields_of_models_that_do_not_fit_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        spec(**changes)
