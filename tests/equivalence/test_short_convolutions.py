"""Short convolutions: formula, plain start, decoding, padding, what stays redundant, roles, export, what is refused."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from addnorm import ModelSpec, generate, preset
from addnorm.errors import InputError
from addnorm.model.cache import Cache
from addnorm.model.convolution import ShortConvolution
from addnorm.roles import roles
from addnorm.testing.contract import shrunk
from addnorm.testing.laws import LAWS, some_tokens, subject

pytestmark = pytest.mark.plain  # numbers; the laws check the shapes

EVERYWHERE = {"positions": 3, "of": ["input", "query", "key", "value"]}


def spec(**changes: Any) -> ModelSpec:
    changes = {"convolution": EVERYWHERE, "heads": 4, "kv_heads": 2} | changes
    return shrunk(preset("llama", **changes), init_std=0.4, kv_heads=changes["kv_heads"])


@pytest.mark.parametrize("objective", ["causal", "masked"])
def test_it_is_its_formula(objective: str) -> None:
    generator = torch.Generator().manual_seed(0)
    offsets = [-1, -2] if objective == "causal" else [-1, -2, 1, 2]
    module = ShortConvolution(5, offsets, 0, "key").double()
    weight = torch.randn(len(offsets), 5, generator=generator, dtype=torch.float64)
    module.load_state_dict({"weight": weight})
    x = torch.randn(2, 7, 5, generator=generator, dtype=torch.float64)
    padding = torch.arange(7) >= torch.tensor([0, 3])[:, None]  # on the left
    expected = x.clone()
    for item in range(2):
        for position in range(7):
            for number, offset in enumerate(offsets):
                other = position + offset
                if 0 <= other < 7 and padding[item, other]:
                    expected[item, position] += weight[number] * x[item, other]
    torch.testing.assert_close(module(x, padding, None), expected, rtol=1e-14, atol=1e-14)
    # The same as torch's depthwise convolution, whose kernel is in the order of positions.
    if objective == "causal":
        kernel = torch.cat([weight.flip(0), torch.ones(1, 5)]).T[:, None]
        theirs = torch.nn.functional.conv1d(x.mT, kernel, padding=2, groups=5)[..., :7].mT
        torch.testing.assert_close(module(x, None, None), theirs, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_keys_and_values_are_mixed_between_bias_and_rotation(kv_heads: int) -> None:
    model = subject(spec(kv_heads=kv_heads, placement="none", bias={"k": True}))
    body, tokens = model.layers[0].attention.body, some_tokens(model.spec)
    cache = model.new_cache()
    with torch.no_grad():
        model(tokens, cache=cache)
        x = body.convolution["input"](model.embedding(tokens), None, None)
        key = x @ body.key.weight.T + body.qk_bias.vectors()[1]
        c = body.convolution["key"].weight
        mixed = key.clone()
        mixed[:, 1:] += c[0] * key[:, :-1]
        mixed[:, 2:] += c[1] * key[:, :-2]
        by_head = mixed.unflatten(-1, (kv_heads, 8)).transpose(1, 2)
        expected = model.position.rotate_layer(0, by_head, by_head, model.position.prepare(0, 9, x))[1]
    empty = by_head[..., :0, :]
    torch.testing.assert_close(cache.keys[0].append(empty), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"convolution": {"positions": 12}}, marks=pytest.mark.thorough),
        pytest.param({"scores": "sum", "qk_norm": "rms", "block": "parallel"}, marks=pytest.mark.thorough),
        {"residual": "hyper_connections", "values": "first", "attended": "gate"},
        {
            "convolution": {"of": ["query", "key", "value"]},
            "residual": {"kind": "block_attention", "separate": (True,)},
        },
        pytest.param({"forgetting": {}, "sharing": {"layers": 1}, "windows": (3, None)}, marks=pytest.mark.thorough),
        pytest.param({"column": "earlier", "sink": "logit", "norm": "batch"}, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_it_keeps_the_laws(changes: dict[str, Any]) -> None:
    for law in LAWS.values():
        law(spec(**changes))


@pytest.mark.parametrize("objective", ["causal", "masked"])
def test_at_the_start_it_is_the_plain_model(objective: str) -> None:
    model, plain = subject(spec(objective=objective)), subject(spec(objective=objective, convolution=None))
    plain.load_state_dict({name: model.state_dict()[name] for name in plain.state_dict()})
    tokens = some_tokens(model.spec)
    assert not torch.allclose(model(tokens), plain(tokens))  # off the start, every number matters
    start = spec(objective=objective).build()
    for name, parameter in model.named_parameters():
        if ".convolution." in name:
            assert not start.get_parameter(name).any()
            parameter.data.zero_()
    assert torch.equal(model(tokens), plain(tokens))


def test_left_padding_is_the_sequence_alone() -> None:
    model = subject(spec(position="none"))
    tokens = some_tokens(model.spec)
    padding = torch.arange(9) >= torch.tensor([4, 0])[:, None]
    with torch.no_grad():
        together, alone = model(tokens, padding=padding), model(tokens[:1, 4:])
    torch.testing.assert_close(together[:1, 4:], alone, rtol=1e-11, atol=1e-11)


def test_generation_repeats_full_passes_also_for_chosen_sequences() -> None:
    model, prompt = subject(spec()), some_tokens(spec())[:, :2]  # a prompt shorter than the convolution
    expected = prompt
    for _ in range(5):
        expected = torch.cat([expected, model(expected)[:, -1:].argmax(-1)], 1)
    assert torch.equal(generate(model, prompt, new_tokens=5), expected)
    with torch.no_grad():
        cache = model.new_cache()
        model(expected[:, :4], cache=cache)
        swapped = cache.select(torch.tensor([1, 0, 1]))
        rows = expected[torch.tensor([1, 0, 1])]
        parts = model(rows[:, 4:], cache=swapped)
        torch.testing.assert_close(parts, model(rows)[:, 4:], rtol=1e-10, atol=1e-10)


def test_a_cache_keeps_no_more_than_the_last_inputs() -> None:
    cache = Cache(1)
    cache.preceded((0, "key"), torch.ones(1, 500, 4), 3)
    assert cache.recent[0, "key"].untyped_storage().nbytes() == 3 * 4 * 4


def test_the_key_bias_matters_through_the_first_positions_alone() -> None:
    """Every key has c-weighted copies of the bias, the first positions fewer of them."""
    one = replace(spec(position="none", bias={"k": True}, convolution={"of": ["key"]}), depth=1)
    model = subject(one)
    body, tokens = model.layers[0].attention.body, some_tokens(model.spec)
    with torch.no_grad():
        before = model(tokens)
        body.qk_bias.k += 0.5
        assert (model(tokens) - before).abs().max() > 1e-3
        # Where the first keys are out of a window's sight, it goes.
        seen = subject(replace(one, windows=(2,)))
        before = seen(tokens)
        seen.layers[0].attention.body.qk_bias.k += 0.5
        torch.testing.assert_close(seen(tokens)[:, 4:], before[:, 4:], rtol=1e-11, atol=1e-11)
        assert (seen(tokens)[:, :4] - before[:, :4]).abs().max() > 1e-3


def test_its_numbers_act_entry_by_entry() -> None:
    model = spec().build()
    found = {role for name, role in roles(model).items() if ".convolution." in name}
    assert found == {"vector"}
    assert any(path.endswith(".convolution") for path in model.mechanisms())


@pytest.mark.thorough
def test_it_is_exported_and_compiled_to_the_same_numbers() -> None:
    model = subject(spec())
    tokens = some_tokens(model.spec)
    with torch.no_grad():
        expected = model(tokens)
        exported = torch.export.export(model, (tokens,)).module()
        torch.testing.assert_close(exported(tokens), expected, rtol=1e-11, atol=1e-11)
        traced = torch.compile(model, backend="eager", fullgraph=True)
        torch.testing.assert_close(traced(tokens), expected, rtol=1e-11, atol=1e-11)


def test_what_cannot_be_convolved_is_refused() -> None:
    for changes, said in (
        ({"block": "gau", "heads": 1, "kv_heads": None}, "convolution: expected null with block 'gau', because one"),
        ({"residual": "replay"}, "convolution: expected null with residual 'replay', because an earlier layer"),
        (
            {"residual": {"kind": "block_attention", "separate": (True,)}},
            r"convolution\.of: expected no 'input' with residual 'block_attention'",
        ),
        ({"convolution": {"width": 4}}, "convolution has no field 'width'"),
        ({"convolution": {"positions": 1}}, r"convolution\.positions: expected a whole number of at least 2, got 1"),
        ({"convolution": {"of": []}}, r"convolution\.of: expected different entries, one at least, got \(\)"),
        ({"convolution": {"of": ["key", "key"]}}, r"convolution\.of: expected different entries"),
        ({"convolution": {"of": ["keys"]}}, r"convolution\.of: expected"),
    ):
        with pytest.raises(InputError, match=said):
            spec(**changes)
