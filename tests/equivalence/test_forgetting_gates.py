"""Forgetting gates: formula, exactness in every type and form, decoding, what stays redundant, what is refused."""

from typing import Any

import pytest
import torch

from addnorm import ModelSpec, preset
from addnorm.errors import InputError
from addnorm.model.forgetting import with_gates
from addnorm.testing.contract import shrunk
from addnorm.testing.laws import LAWS, some_tokens, subject

pytestmark = pytest.mark.plain  # numbers; the laws check the shapes


def spec(**changes: Any) -> ModelSpec:
    usual = {"forgetting": {"start": 1.0}, "heads": 4, "kv_heads": 2}
    changes = usual | changes
    return shrunk(preset("llama", **changes), init_std=0.4, kv_heads=changes["kv_heads"])


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("impl", ["auto", "reference", "sdpa"])
def test_it_is_its_formula(kv_heads: int, impl: str) -> None:
    model = subject(spec(kv_heads=kv_heads, position="none", placement="none", attention=impl))
    body = model.layers[0].attention.body
    seen: list[Any] = []
    body.output.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    tokens = some_tokens(model.spec)
    with torch.no_grad():
        x = model.embedding(tokens)
        model(tokens)
        heads = {"query": 4, "key": kv_heads, "value": kv_heads}
        q, k, v = ((x @ getattr(body, n).weight.T).unflatten(-1, (m, 8)).transpose(1, 2) for n, m in heads.items())
        k, v = (each.repeat_interleave(4 // kv_heads, 1) for each in (k, v))
        gate = torch.sigmoid(x @ body.forgetting.weight.T + body.forgetting.bias)
        decay = torch.zeros(2, 4, 9, 9, dtype=torch.float64)
        for row in range(9):
            for column in range(row + 1):
                decay[:, :, row, column] = gate[:, column + 1 : row + 1].log().sum(1)
        hidden = torch.full((9, 9), float("-inf")).triu(1)
        expected = torch.softmax(q @ k.mT / 8**0.5 + decay + hidden, -1) @ v
    torch.testing.assert_close(seen[0], expected.transpose(1, 2).flatten(2), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"scores": "sum"},
        {"scores": "weighted", "position": "alibi"},
        {"position": "alibi", "sink": "logit"},
        pytest.param({"score_cap": 1.0, "windows": (3, None)}, marks=pytest.mark.thorough),
        pytest.param({"normalisation": "softpick", "residual": "replay"}, marks=pytest.mark.thorough),
        pytest.param({"block": "gau", "heads": 1, "kv_heads": None}, marks=pytest.mark.thorough),
        pytest.param({"values": "first", "attended": "gate", "qk_norm": "rms"}, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_it_keeps_the_laws(changes: dict[str, Any]) -> None:
    for name, law in LAWS.items():
        if name != "ignores_padding":  # which asks for a masked model too
            law(spec(**changes))


def test_padding_after_a_sequence_changes_nothing() -> None:
    model, tokens = subject(spec()), some_tokens(spec())
    padding = torch.arange(9) < torch.tensor([5, 9])[:, None]
    with torch.no_grad():
        together, alone = model(tokens, padding=padding), model(tokens[:1, :5])
    torch.testing.assert_close(together[:1, :5], alone, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("scores", ["own", "sum"])
def test_open_gates_are_no_gates(scores: str) -> None:
    model = subject(spec(forgetting={"start": 800.0}, scores=scores))
    other = subject(spec(forgetting=None, scores=scores))
    other.load_state_dict({name: model.state_dict()[name] for name in other.state_dict()})
    tokens = some_tokens(model.spec)
    torch.testing.assert_close(model(tokens), other(tokens), rtol=1e-11, atol=1e-11)


def test_entries_and_matrix_agree() -> None:
    """A cap that is far away takes the matrix, none the entries."""
    model, capped = subject(spec()), subject(spec(score_cap=1e7))
    capped.load_state_dict(model.state_dict())
    tokens = some_tokens(model.spec)
    torch.testing.assert_close(model(tokens), capped(tokens), rtol=1e-9, atol=1e-9)


def test_narrow_types_keep_the_sums_of_float32() -> None:
    """In bfloat16 sums of some thousands would have gaps of 16, and near keys the same score."""
    total = -torch.rand(1, 4, 4000, generator=torch.Generator().manual_seed(0)).cumsum(-1)
    zero = torch.zeros(1, 4, 4000, 8, dtype=torch.bfloat16)
    query, key = with_gates(zero, zero[:, :2], total, 8**-0.5)
    rows = slice(3900, 4000)
    scores = query[:, :, rows].double() @ key.repeat_interleave(2, 1)[:, :, rows].double().mT * 8**-0.5
    expected = (total[:, :, rows, None] - total[:, :, None, rows]).double()
    assert (scores - expected).abs().max() <= 4 * torch.finfo(torch.float32).eps * total.abs().max()


def test_the_key_bias_stays_redundant() -> None:
    model = subject(spec(position="none", bias={"q": True, "k": True}))
    tokens = some_tokens(model.spec)
    with torch.no_grad():
        before = model(tokens)
        for layer in model.layers:
            layer.attention.body.qk_bias.k += 0.5
        torch.testing.assert_close(model(tokens), before, rtol=1e-10, atol=1e-10)


def test_what_cannot_forget_is_refused() -> None:
    for changes, said in (
        ({"objective": "masked"}, "forgetting: expected null with objective 'masked', because a gate forgets what"),
        (
            {"attention": "running", "scores": "sum"},
            "attention: running: expected forgetting null, because every layer",
        ),
        ({"forgetting": {"begin": 1.0}}, "forgetting has no field 'begin'"),
        ({"forgetting": {"start": "x"}}, "forgetting.start: expected a finite number, got 'x'"),
    ):
        with pytest.raises(InputError, match=said):
            spec(**changes)
