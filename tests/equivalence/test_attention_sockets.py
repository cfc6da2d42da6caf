"""What happens inside attention beside scores: values, sinks, what becomes of attended values, norms of queries and keys.

What a sibling declares to equal is held in `test_siblings`.
Each fact is exact in float64; `comparing` says to how much rounding.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from comparing import assert_same_function, gradients, make, tiny, twins
from grouped_attention_cases import Case, plain, with_gradients
from torch import Tensor

from addnorm import preset
from addnorm.attended.exclusive import ExclusiveAttended
from addnorm.bias import Biases
from addnorm.block.gau import Gau
from addnorm.errors import InputError
from addnorm.insight.score_terms.ours import parts_of
from addnorm.kernels.grouped_attention import IMPLEMENTATIONS, attend, choose, problem_of
from addnorm.kernels.grouped_attention.streaming import streaming
from addnorm.model.spec import ModelSpec
from addnorm.model.transformer import Transformer
from addnorm.position import PositionSpec
from addnorm.position.rope import Rope
from addnorm.testing.laws import rounding, some_tokens, subject

ROUNDING = 2**-52 * 7 * 3 * 10
"""One unit of rounding per entry of a row of scores, times the few sums that follow each other."""


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=ROUNDING * max(1.0, other.abs().max().item()))


class TestSinksOfAttend:
    cases = pytest.mark.parametrize(
        "case",
        [
            Case(padded=False, sinks=True),
            Case(padded=False, by_distance=True, causal=False, weights="equal", sinks=True),
            Case(padded=False, biased=False, sliding_window=3, kv_heads=4, weights="per term", sinks=True),
            Case(padded=False, biased=False, terms=1, query=3, sinks=True),
        ],
        ids=str,
    )

    @cases
    @pytest.mark.parametrize("impl", ["reference", "streaming"])
    def test_they_are_the_formula_with_its_gradients(self, impl: str, case: Case) -> None:
        arguments = case.arguments()
        expected = with_gradients(plain(**arguments), arguments)
        assert_same(with_gradients(attend(**arguments, impl=impl), arguments), expected)

    def test_small_tiles_rows_without_a_key_and_dropout(self) -> None:
        """Item 1 is all padding: its sinks have everything, and get no gradient."""
        arguments = Case(dropout=0.4, sinks=True).arguments()
        problem = problem_of(**arguments)
        expected = with_gradients(IMPLEMENTATIONS["reference"](problem), arguments)
        found = with_gradients(streaming(problem, budget=1), arguments)
        assert_same(found, expected)
        assert (found[0][1] == 0).all()

    def test_a_sink_scales_a_row_by_the_sigmoid_of_its_log_sum(self) -> None:
        arguments = Case(padded=False, biased=False, terms=1, weights="equal", sinks=True).arguments()
        sinks = arguments["sinks"]
        without = attend(**(arguments | {"sinks": None}), impl="reference")
        keys = arguments["keys"][0].repeat_interleave(2, 1)
        scores = 0.5 * arguments["queries"][0] @ keys.mT
        later = torch.ones(7, 7, dtype=torch.bool).triu(1)
        share = torch.sigmoid(scores.masked_fill(later, -torch.inf).logsumexp(-1) - sinks[:, None])
        for impl in ("reference", "streaming"):
            assert_same([attend(**arguments, impl=impl)], [share[..., None] * without])
            nothing = attend(**(arguments | {"sinks": torch.full_like(sinks, -800.0)}), impl=impl)
            assert_same([nothing], [without])

    def test_bfloat16_rounds_no_more_than_the_plain_computation(self) -> None:
        case = Case(query=130, key=130, padded=False, dtype=torch.bfloat16, value_dim=4, sinks=True)
        arguments = case.arguments()
        exact = {name: _double(value) for name, value in arguments.items()}
        truth = with_gradients(plain(**exact), exact)
        rounded = with_gradients(plain(**arguments), arguments)
        for impl in ("reference", "streaming"):
            found = with_gradients(attend(**arguments, impl=impl), arguments)
            for one, other, right in zip(found, rounded, truth, strict=True):
                assert (one - right).norm() <= 2 * (other - right).norm()

    def test_gradients_of_single_samples(self) -> None:
        arguments = Case(padded=False, biased=False, weights="equal", sinks=True).arguments()
        queries = torch.stack([torch.stack(arguments["queries"]) * factor for factor in (1.0, 2.0)]).detach()
        fixed = {name: _detached(value) for name, value in arguments.items() if name not in ("queries", "sinks")}

        def loss(q: Tensor, sinks: Tensor) -> Tensor:
            return attend(q, **fixed, sinks=sinks, impl="streaming").sin().sum()

        sinks = arguments["sinks"].detach()
        together = torch.func.vmap(torch.func.grad(loss, argnums=1), in_dims=(0, None))(queries, sinks)
        alone = [torch.func.grad(loss, argnums=1)(each, sinks) for each in queries]
        assert_same([together], [torch.stack(alone)])

    def test_auto_never_takes_what_has_no_place_for_them_and_by_name_it_says_so(self) -> None:
        case = Case(padded=False, biased=False, terms=1, value_dim=4)
        assert choose(problem_of(**case.arguments())) == "sdpa"
        arguments = replace(case, sinks=True).arguments()
        assert choose(problem_of(**arguments)) == "streaming"
        with pytest.raises(InputError, match=r"^impl='sdpa' takes no sinks, .* Use impl='streaming' or 'reference'\.$"):
            attend(**arguments, impl="sdpa")
        with pytest.raises(InputError, match=r"^sinks must have shape \[heads\] = \[4\], got \[2\]\.$"):
            problem_of(**(arguments | {"sinks": arguments["sinks"][:2]}))
        with pytest.raises(InputError, match=r"^sinks: expected normalisation='softmax', .* got 'squared_relu'"):
            attend(**arguments, normalisation="squared_relu")


def _detached(value: Any) -> Any:
    if isinstance(value, list):
        return [_detached(entry) for entry in value]
    return value.detach() if isinstance(value, Tensor) else value


def _double(value: Any) -> Any:
    if isinstance(value, list):
        return [_double(entry) for entry in value]
    return value.detach().double().requires_grad_() if isinstance(value, Tensor) else value


# --- in models ---

EVERY_BIAS = {"bias": Biases.all(True)}


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def change(model: Transformer, **changed: Callable[[Tensor], Tensor]) -> None:
    """Change every parameter whose name ends so."""
    with torch.no_grad():
        for ending, by in changed.items():
            found = [
                parameter for name, parameter in model.named_parameters() if name.endswith(ending.replace("__", "."))
            ]
            assert found
            for parameter in found:
                parameter.copy_(by(parameter))


class TestValues:
    def test_shared_values_have_one_matrix(self) -> None:
        model = tiny(values=make("values", "first", weights="shared")).build()
        names = {name for name, _ in model.named_parameters() if "body.value." in name}
        assert names == {"layers.0.attention.body.value.weight"}

    @pytest.mark.parametrize("kv_heads", [4, 2])
    def test_a_constant_value_folds_into_the_output(self, kv_heads: int) -> None:
        """λ1 b_l + λ2 b_1 is one value at every position, so every row of attention passes it on as it is."""
        spec = tiny(values=make("values", "first", weights="learned"), kv_heads=kv_heads, **EVERY_BIAS)
        model, folded = subject(spec), subject(spec)
        values: Any = model.values
        with torch.no_grad():
            first = model.layers[0].attention.body.value.bias
            for index, layer in enumerate(folded.layers):
                body = layer.attention.body
                own = model.layers[index].attention.body.value.bias
                constant = own if not index else values.own[index - 1] * own + values.first[index - 1] * first
                by_head = constant.view(kv_heads, -1).repeat_interleave(spec.heads // kv_heads, 0).flatten()
                body.output.bias.add_(body.output.weight @ by_head)
                body.value.bias.zero_()
            tokens = some_tokens(spec)
            gap = (model(tokens) - folded(tokens)).abs().max().item()
            assert gap <= rounding(model, tokens)

    @pytest.mark.parametrize("gate", [False, True])
    def test_a_table_adds_a_row_per_token_in_the_layers_that_have_one(self, gate: bool) -> None:
        spec = tiny(values=make("values", "table", gate=gate))
        with_table, plain_model = twins(spec, tiny())
        assert {name.split(".")[2] for name, _ in with_table.named_parameters() if name.startswith("values.table")} == {
            "0",
            "2",
        }
        tokens = some_tokens(spec)
        values: Any = with_table.values
        for layer in (0, 1, 2):
            own, x = draw(2, 2, 9, 8), draw(2, 9, spec.width)
            joined = values.join(layer, own, [], x, tokens)
            if layer == 1:
                assert joined is own
                continue
            rows = values.table[str(layer)].weight[tokens].view(2, 9, -1, 8).transpose(1, 2)
            factor = (2 * torch.sigmoid(x @ values.gate[str(layer)].T)).mT[..., None] if gate else 1.0
            assert_same([joined], [own + factor * rows])
        change(with_table, **{f"table__{layer}__weight": torch.zeros_like for layer in (0, 2)})
        assert_same_function(with_table, plain_model, plain_model)


class TestSinks:
    def test_every_way_to_attend_gives_the_same(self) -> None:
        spec = tiny(scores=make("scores", "sum"), sink=make("sink", "logit"))
        streamed = subject(replace(spec, attention="streaming"))
        for attention in ("reference", "auto"):
            assert_same_function(subject(replace(spec, attention=attention)), streamed, streamed)
        with pytest.raises(
            InputError, match=r"^attention: running: expected sink 'none', because .* got 'logit'\. Use 'auto'"
        ):
            subject(replace(spec, attention="running"))

    def test_units_that_do_not_divide_by_a_sum_refuse_them(self) -> None:
        gau = {"block": Gau(normalisation="squared_relu"), "heads": 1, "kv_heads": None}
        with pytest.raises(
            InputError, match=r"^sink: expected 'none' with block\.normalisation 'squared_relu', because .*'logit'"
        ):
            tiny(sink=make("sink", "logit"), **gau)


class TestAttended:
    @pytest.mark.parametrize("per", ["head", "channel"])
    @pytest.mark.parametrize("replays", [False, True])
    def test_a_gate_without_weights_halves_what_is_attended(self, per: str, replays: bool) -> None:
        residual = {"residual": make("residual", "replay", weights="mean")} if replays else {}
        one, other = twins(tiny(attended=make("attended", "gate", per=per), **residual), tiny(**residual))
        change(one, attended__weight=torch.zeros_like)
        change(other, attention__body__output__weight=lambda weight: weight / 2)
        tokens = some_tokens(one.spec)
        with torch.no_grad():
            gap = (one(tokens) - other(tokens)).abs().max().item()
            assert gap <= rounding(one, tokens)

    @pytest.mark.parametrize("kv_heads", [1, 2, 4])
    def test_exclusive_attention_has_nothing_of_the_own_value(self, kv_heads: int) -> None:
        seen: list[tuple[Tensor, Tensor]] = []
        model = subject(tiny(attended=make("attended", "exclusive"), kv_heads=kv_heads))
        for module in model.modules():
            if isinstance(module, ExclusiveAttended):
                module.register_forward_hook(lambda _module, inputs, output: seen.append((inputs[2], output)))
        model(some_tokens(model.spec))
        assert len(seen) == model.spec.depth
        for value, output in seen:
            own = value.repeat_interleave(4 // kv_heads, 1)
            size = own.norm(dim=-1) * output.norm(dim=-1)
            assert (((own * output).sum(-1)).abs() <= 2**-52 * 8 * 10 * size.clamp(min=1)).all()
            assert (output[:, :, 0].abs() <= 2**-52 * 100).all()  # the first position has seen its own value alone


class TestNormsOfQueriesAndKeys:
    @pytest.mark.parametrize("gau", [False, True])
    def test_the_size_of_their_matrices_does_not_matter(self, gau: bool) -> None:
        norm = {"qk_norm": make("norm", "rms", eps=1e-300)}
        units = {"block": Gau(key_dim=8), "heads": 1, "kv_heads": None} if gau else {}
        spec = tiny(**norm, **units)
        model, scaled = subject(spec), subject(spec)
        ends = ("query_scale", "key_scale") if gau else ("body__query__weight", "body__key__weight")
        change(scaled, **{ends[0]: lambda weight: 8 * weight, ends[1]: lambda weight: weight / 64})
        tokens = some_tokens(spec)
        with torch.no_grad():
            assert torch.equal(model(tokens), scaled(tokens))  # powers of two
            change(model, query_norm__weight=lambda gain: 3 * gain)
            assert not torch.allclose(model(tokens), scaled(tokens))  # and what they say, they say through their norms

    def test_they_act_before_rotation_on_each_head(self) -> None:
        spec = tiny(qk_norm=make("norm", "rms"), bias=Biases(q=True, k=True))
        model = subject(spec)
        body: Any = model.layers[0].attention.body
        x = draw(2, 5, spec.width)
        q_bias, _ = body.qk_bias.vectors()
        query = body.split(body.query(x, q_bias), body.query_norm)
        by_hand = (x @ body.query.weight.T + q_bias).view(2, 5, 4, 8).transpose(1, 2)
        mean = by_hand.square().mean(-1, keepdim=True)
        assert_same([query], [by_hand / (mean + 1e-5).sqrt() * body.query_norm.weight])

    def test_a_position_may_forbid_them(self) -> None:
        with pytest.raises(
            InputError, match=r"^qk_norm: expected no norm .* because it reads the size of a query, got 'rms'\."
        ):
            tiny(qk_norm=make("norm", "rms"), position=ReadsSizes())

    def test_there_are_no_four_terms_behind_a_norm(self) -> None:
        model = tiny(qk_norm=make("norm", "rms"), **EVERY_BIAS).build()
        with pytest.raises(
            InputError, match=r"^the four terms: expected queries and keys without a norm, got qk_norm 'rms'"
        ):
            next(parts_of(model, some_tokens(model.spec)))


@dataclass(frozen=True, kw_only=True)
class ReadsSizes(PositionSpec):
    @property
    def refuses_qk_norm(self) -> str:
        return "it reads the size of a query"

    def build(self, shape: Any) -> Any:
        return Rope().build(shape)


# --- together ---


def test_everything_at_the_start_has_a_gradient() -> None:
    """None starts where it cannot learn: no coefficient, gate or table of any of them."""
    for values in ("first", "table"):
        settings = {"weights": "learned"} if values == "first" else {}
        spec = tiny(
            values=make("values", values, **settings),
            sink=make("sink", "logit"),
            attended=make("attended", "gate"),
            qk_norm=make("norm", "rms"),
        )
        model = spec.build().double()
        found = gradients(model, model(some_tokens(spec)))
        new = [name for name in found if name.startswith(("values", "sink")) or "attended" in name or "_norm." in name]
        assert len(new) >= 3 * 5
        for name in new:
            assert found[name].abs().max() > 1e-6, name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"residual": "replay", "values": "first"},
            r"^values: expected 'own' with residual 'replay', because .* got 'first'\.",
        ),
        (
            {"values": {"kind": "first", "weights": "shared"}, "heads": 1, "kv_heads": None, "block": Gau()},
            r"^values: expected values of its own in every layer, because one matrix makes all .* got 'first'",
        ),
        ({"qk_norm": "rsm"}, r"did you mean 'rms'\?|Did you mean 'rms'\?"),
        ({"sink": "logits"}, r"Did you mean 'logit'\?"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        preset("base", **changes).build()


@pytest.mark.parametrize("values", ["first", "table"])
def test_layers_computed_again_have_the_same_gradients(values: str) -> None:
    """Activation checkpointing calls a layer's attention a second time, when later ones have passed."""
    from torch.utils.checkpoint import checkpoint

    model = subject(tiny(values=make("values", values)))
    tokens = some_tokens(model.spec)
    expected = gradients(model, model(tokens))
    for branch in model.branches():
        forward = branch.forward
        branch.forward = lambda *args, forward=forward: checkpoint(forward, *args, use_reentrant=False)  # type: ignore[method-assign, misc]
    found = gradients(model, model(tokens))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_presets_have_what_their_names_say() -> None:
    qwen, oss = preset("qwen3"), preset("gpt_oss")
    assert (qwen.qk_norm, qwen.kv_heads, qwen.bias) == (make("norm", "rms", eps=1e-6), 8, Biases())
    assert (oss.sink.kind, oss.heads // (oss.kv_heads or 1), oss.bias.k) == ("logit", 5, True)
    with torch.device("meta"):
        model = qwen.build()
    # 8.19 billion, with 6.95 outside of the embedding and the head (the source's table 1).
    assert sum(parameter.numel() for parameter in model.parameters()) == 8_190_735_360
    assert ModelSpec().values.kind == "own"
