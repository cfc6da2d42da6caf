"""Layers that share parameters: the same logits as without sharing, counted, initialised, trained and audited once."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from addnorm import ModelSpec, audit, load_hf, preset, save_hf
from addnorm.bias import Biases
from addnorm.errors import InputError
from addnorm.model.sharing import LayerSharing
from addnorm.optimization.optimizers._groups import parameter_groups
from addnorm.roles import roles
from addnorm.testing.contract import shrunk
from addnorm.testing.laws import LAWS, some_tokens, subject
from addnorm.training.checkpoint import save_final

pytestmark = pytest.mark.plain  # the parts are checked by themselves

SHARED = [
    ({"layers": 1}, [0, 0, 0, 0]),
    ({"layers": 3}, [0, 1, 2, 0]),
    ({"layers": 2, "order": "consecutive"}, [0, 0, 2, 2]),
    ({"layers": 4}, [0, 1, 2, 3]),
]


def spec(sharing: Any, **changes: Any) -> ModelSpec:
    return shrunk(preset("llama", sharing=sharing, bias=Biases.all(True), kv_heads=2, heads=4, **changes), depth=4)


@pytest.mark.parametrize(("sharing", "sources"), SHARED, ids=str)
def test_it_equals_a_model_whose_layers_have_equal_numbers(sharing: Any, sources: list[int]) -> None:
    model = subject(spec(sharing, scores="weighted"))
    other = dataclasses.replace(model.spec, sharing=None).build().double().eval()
    other.load_state_dict(model.state_dict())
    for one, each in zip(model.layers, sources, strict=True):
        assert one.attention.body.query.weight is model.layers[each].attention.body.query.weight
    tokens = some_tokens(model.spec)
    assert torch.equal(model(tokens), other(tokens))
    numbers = sum(p.numel() for p in model.parameters())
    inside = sum(p.numel() for p in other.layers[0].parameters())
    assert numbers == sum(p.numel() for p in other.parameters()) - inside * (4 - len(set(sources)))


@pytest.mark.parametrize("sharing", [{"layers": 1}, {"layers": 2, "order": "consecutive"}], ids=str)
@pytest.mark.parametrize(
    "changes",
    [
        {"scores": "sum"},
        *(
            pytest.param(changes, marks=pytest.mark.thorough)
            for changes in ({}, {"residual": "replay"}, {"residual": {"kind": "streams"}, "norm": "batch"})
        ),
    ],
    ids=str,
)
def test_it_keeps_the_laws(sharing: Any, changes: dict[str, Any]) -> None:
    for law in LAWS.values():
        law(spec(sharing, **changes))


def test_it_starts_as_its_first_layers_do() -> None:
    shared, own = spec({"layers": 2}).build(seed=3).state_dict(), spec(None).build(seed=3).state_dict()
    for name, value in shared.items():
        source = name.replace("layers.2.", "layers.0.").replace("layers.3.", "layers.1.")
        assert torch.equal(value, own[source]), name


def test_parameters_have_one_role_one_group_and_are_listed_once() -> None:
    model = spec({"layers": 1}, qk_norm="rms").build()
    assert not [name for name in roles(model) if name.startswith("layers.") and not name.startswith("layers.0.")]
    filled = [path for path, part in model.mechanisms().items() if any(True for _ in part.parameters())]
    assert "layers.0.attention.body.query_norm" in filled
    assert not [path for path in filled if path.startswith("layers.") and not path.startswith("layers.0.")]
    groups = parameter_groups(model, weight_decay=0.1, decay_on="matrices")
    grouped = [id(value) for group in groups for value in group["params"]]
    assert len(grouped) == len(set(grouped)) == len(list(model.parameters()))


def test_its_gradient_is_the_sum_over_its_layers() -> None:
    model = subject(spec({"layers": 1}))
    other = dataclasses.replace(model.spec, sharing=None).build().double().eval()
    other.load_state_dict(model.state_dict())
    for each in (model, other):
        tokens = some_tokens(each.spec)
        nn.functional.cross_entropy(each(tokens).flatten(0, 1), tokens.flatten()).backward()
    apart = sum(layer.feedforward.body.up.weight.grad for layer in other.layers)
    torch.testing.assert_close(model.layers[0].feedforward.body.up.weight.grad, apart, rtol=1e-10, atol=1e-12)


def test_what_is_written_and_read_is_shared_again(tmp_path: Path) -> None:
    model = subject(spec({"layers": 2})).float()
    save_final(tmp_path / "final.safetensors", model.state_dict())
    again = model.spec.build(seed=9)
    again.load_state_dict(safetensors.torch.load_file(tmp_path / "final.safetensors"))
    tokens = some_tokens(model.spec)
    assert torch.equal(again(tokens), model(tokens))
    assert save_hf(model, tmp_path / "hf").architecture == "AddnormForCausalLM"
    loaded = load_hf(tmp_path / "hf")
    assert torch.equal(loaded(tokens), model(tokens))
    assert loaded.layers[2].attention.body.key.weight is loaded.layers[0].attention.body.key.weight


@pytest.mark.thorough
def test_an_audit_counts_a_shared_bias_once() -> None:
    found = {}
    for name, sharing in (("shared", {"layers": 1}), ("own", None)):
        model = shrunk(
            preset("llama", sharing=sharing, bias={"k": True, "v": True, "o": True}, position="none"), depth=2, heads=4,
        ).build()  # fmt: skip
        found[name] = audit(model, some_tokens(model.spec))
        assert found[name].disagreements == ()
    names = {name: [finding.parameter for finding in each.findings] for name, each in found.items()}
    assert not [each for each in names["shared"] if each.startswith("layers.1.")]
    assert len(names["own"]) == 2 * len(names["shared"])
    assert 2 * found["shared"].joint_null == found["own"].joint_null > 0


def test_what_cannot_be_shared_is_refused() -> None:
    for changes, said in (
        ({"sharing": {"layers": 5}}, "sharing.layers: expected at most the depth, 4, got 5"),
        (
            {"sharing": {"layers": 3, "order": "consecutive"}},
            "sharing.layers: expected a divisor of the depth, 4, with",
        ),
        ({"sharing": {"layers": 0}}, "sharing.layers: expected a whole number of at least 1, got 0"),
        ({"sharing": {"layer": 1}}, "sharing has no field 'layer'. Did you mean 'layers'"),
        ({"sharing": {"order": "random"}}, "sharing.order: expected one of 'cyclic', 'consecutive', got 'random'"),
        (
            {"sharing": {"layers": 1}, "placement": "mix"},
            "expected the same parameters in layers 0 and 1, which share them",
        ),
    ):
        with pytest.raises(InputError, match=said):
            preset("llama", depth=4, width=8, heads=1, hidden=8, vocab=8, max_seq=8, **changes).build()
    assert LayerSharing().source(3, 4) == 0
