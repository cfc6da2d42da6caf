"""The model's specification, its errors, its passes."""

import copy
from dataclasses import replace

import pytest
import torch

from addnorm import ModelSpec, preset
from addnorm.bias import Biases
from addnorm.catalogue import ROOMS
from addnorm.errors import InputError, UnknownName
from addnorm.model.architecture import Dropout
from addnorm.testing.contract import check_mechanism, shrunk, tiny
from addnorm.testing.laws import some_tokens, subject


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"width": 30, "heads": 4},
            "heads must divide the width: width 30 / heads 4 leaves 2. Choose heads from [1, 2, 3, 5, 6, 10, 15, 30].",
        ),
        (
            {"heads": 8, "kv_heads": 3},
            "kv_heads must divide heads: heads 8 / kv_heads 3 leaves 2. Choose kv_heads from [1, 2, 4, 8].",
        ),
        ({"depth": 0}, "depth: expected a whole number of at least 1, got 0."),
        ({"vocab": 0}, "vocab: expected a whole number of at least 1, got 0."),
        ({"init_std": 0.0}, "init_std: expected a positive number, got 0.0."),
    ],
)
def test_sizes_that_do_not_fit(changes: dict[str, int], message: str) -> None:
    with pytest.raises(InputError) as caught:
        preset("base", **changes)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (
            "objective",
            "casual",
            "model.objective: expected one of 'causal', 'masked', got 'casual'. Did you mean 'causal'?",
        ),
        (
            "activation",
            "swish",
            "model.activation: expected one of 'geglu_tanh', 'gelu', 'gelu_tanh', 'relu', 'squared_relu', 'swiglu', "
            "got 'swish'.",
        ),
        ("residual", "rezero", "model.residual: expected a ResidualSpec, got 'rezero'."),
        ("kv_heads", 2.0, "model.kv_heads: expected a whole number or null, got 2.0."),
        ("tied", "no", "model.tied: expected true or false, got 'no'."),
        ("init_std", float("nan"), "model.init_std: expected a finite number, got nan."),
        ("width", True, "model.width: expected a whole number, got True."),
    ],
)
def test_a_value_of_the_wrong_kind(field: str, value: object, message: str) -> None:
    # Set behind the constructor's back: in this session jaxtyping stands before it and raises an error of its own.
    wrong = copy.copy(ModelSpec())
    object.__setattr__(wrong, field, value)
    with pytest.raises(InputError) as caught:
        wrong.__post_init__()
    assert str(caught.value).startswith(message)


def test_dropout_rates_and_bias_switches() -> None:
    with pytest.raises(InputError, match=r"dropout\.branch must lie in \[0, 1\), got 1\.0\."):
        Dropout(branch=1.0)
    with pytest.raises(InputError, match=r"bias has no switch 'queries'"):
        preset("base", bias={"queries": True})
    assert preset("gpt2", bias={"k": False}).bias == replace(Biases.all(True, head=False), k=False)
    assert preset("base", dropout=0.2).dropout == Dropout.all(0.2)


def test_unknown_names_are_met_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"^no preset 'gpt3'\. Did you mean 'gpt[12]'\? Known: .*\bbase, "):
        preset("gpt3")
    with pytest.raises(UnknownName, match=r"^no residual 'rezro'\. Did you mean 'rezero'\? Known: add, "):
        preset("base", residual="rezro")
    with pytest.raises(InputError, match=r"^a model has no field 'widht'\. Did you mean 'width'\?"):
        preset("base", widht=3)
    with pytest.raises(InputError, match=r"residual as a mapping needs a 'kind'"):
        preset("base", residual={"alpha": 1.0})
    with pytest.raises(UnknownName, match=r"no room of mechanisms 'residuals'"):
        check_mechanism("residuals", ModelSpec().residual)


def test_a_mechanism_that_does_not_fit_the_sizes() -> None:
    with pytest.raises(
        InputError, match=r"rope rotates pairs: head width 3 x fraction 1\.0 = 3 must be an even number"
    ):
        preset("base", width=12, heads=4, kv_heads=2).build()
    with pytest.raises(InputError, match=r"'shared_vector' is one parameter of q and k: switch both q and k on"):
        preset("base", qk_bias="shared_vector", bias={"q": True}).build()
    with pytest.raises(InputError, match=r"sinusoidal positions need an even width, got 15"):
        preset("base", width=15, heads=1, kv_heads=1, position="sinusoidal").build()


def test_overrides_by_spec_by_name_and_by_mapping_are_one() -> None:
    spec = ROOMS["residual"].make("scale", alpha=0.1)
    assert preset("base", residual=spec) == preset("base", residual="scale")
    assert preset("base", residual=spec) == preset("base", residual={"kind": "scale", "alpha": 0.1})


def test_a_cache_needs_a_causal_model_without_padding() -> None:
    masked, causal = subject(shrunk(preset("bert"))), subject(shrunk(preset("base")))
    tokens = some_tokens(causal.spec)
    for model, padding in ((masked, None), (causal, torch.ones_like(tokens, dtype=torch.bool))):
        with pytest.raises(InputError, match="cache: expected a causal model and no padding, got"):
            model(tokens, padding=padding, cache=model.new_cache())


def test_a_masked_model_sees_the_future_and_a_causal_one_does_not() -> None:
    for objective, sees in (("masked", True), ("causal", False)):
        model = subject(shrunk(preset("base"), objective=objective))
        tokens = some_tokens(model.spec)
        changed = tokens.clone()
        changed[:, -1] = (changed[:, -1] + 1) % model.spec.vocab
        with torch.no_grad():
            assert ((model(tokens) - model(changed))[:, 0].abs().max() > 1e-6).item() is sees


def test_dropout_acts_in_training_at_each_of_its_three_places() -> None:
    for place in ("attention", "branch", "embedding"):
        model = subject(shrunk(preset("base"), dropout=Dropout(**{place: 0.5})))
        tokens = some_tokens(model.spec)
        with torch.no_grad():
            assert torch.equal(model(tokens), model(tokens))
            model.train()
            torch.manual_seed(0)
            first, second = model(tokens), model(tokens)
            torch.manual_seed(0)
            assert torch.equal(model(tokens), first)
        assert not torch.equal(first, second)


def test_a_checked_mechanism_of_the_wrong_room_is_told_so() -> None:
    wrong = ROOMS["scores"].make("sum")
    assert tiny("scores", wrong).scores == wrong
    with pytest.raises(InputError, match=r"^a residual must be a ResidualSpec, got Sum\(window=None\)\.$"):
        check_mechanism("residual", wrong)
