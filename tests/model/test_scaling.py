"""Scaling: the standard parametrisation at the base size, and its factors against a hand derivation elsewhere."""

from dataclasses import replace

import pytest
import torch

import addnorm
from addnorm.catalogue import ROOMS
from addnorm.data import prepare
from addnorm.data.corpora.synthetic import Synthetic
from addnorm.data.tokenizers.bytes import Bytes
from addnorm.errors import InputError
from addnorm.model.scaling import Scaling, rate_factors
from addnorm.model.spec import ModelSpec
from addnorm.optimization.optimizers.adamw import AdamW
from addnorm.roles import roles
from addnorm.study.definition import Study, Training
from addnorm.training.loop import Trainer
from synthetic_run import synthetic_run

SMALL = addnorm.preset("base", vocab=257, width=16, depth=2, heads=2, kv_heads=1, hidden=32, max_seq=16)
BERT = addnorm.preset(
    "bert", objective="causal", vocab=257, width=16, depth=2, heads=2, hidden=32, max_seq=16, dropout=0
)


def wider(model: ModelSpec, times: int, **changes: object) -> ModelSpec:
    return replace(
        model,
        width=model.width * times,
        heads=model.heads * times,
        kv_heads=None if model.kv_heads is None else model.kv_heads * times,
        hidden=model.hidden * times,
        **changes,
    )


def trained(model: ModelSpec, dataset, steps: int = 3) -> Trainer:
    training = Training(steps=8, batch=2, seq=16, eval_sequences=4, optimizer=AdamW(learning_rate=1e-2))
    spec = synthetic_run(dataset, model, training)
    trainer = Trainer(spec, dataset, torch.device("cpu"))
    for _ in range(steps):
        trainer.train_step()
    return trainer


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return prepare(Synthetic(), Bytes(), tmp_path_factory.mktemp("data") / "data")


@pytest.mark.plain
@pytest.mark.parametrize("model", [SMALL, BERT])
@pytest.mark.parametrize(
    "scaling", [Scaling(width=16), Scaling(width=16, depth=2), Scaling(width=16, depth=2, power=1.0)]
)
def test_at_the_base_size_training_is_the_standard_one_bit_for_bit(model, scaling, dataset):
    plain, scaled = (trained(each, dataset) for each in (model, replace(model, scaling=scaling)))
    assert len(scaled.optimizer.param_groups) == len(plain.optimizer.param_groups)
    for name, tensor in plain.model.state_dict().items():
        assert torch.equal(tensor, scaled.model.state_dict()[name]), name
    assert scaled.evaluate() == plain.evaluate()


def test_the_start_rates_and_decays_are_those_of_the_table():
    model = wider(SMALL, 4, scaling=Scaling(width=16))
    standard = replace(model, scaling=None)
    built, plain = model.build(seed=1), standard.build(seed=1)
    factors, role_of = rate_factors(built), roles(built)
    assert set(role_of.values()) >= {"embedding", "head", "hidden_matrix", "vector"}
    for (name, parameter), other in zip(built.named_parameters(), plain.parameters(), strict=True):
        hidden = role_of[name] == "hidden_matrix"
        # m = 4: std / sqrt(4), rate / 4, and the decay of a step, rate * decay, as before.
        torch.testing.assert_close(parameter, other / 2 if hidden else other, rtol=1e-6, atol=0)
        assert factors[id(parameter)] == ((0.25, 4.0) if hidden else (1.0, 1.0)), name
    assert not rate_factors(plain)


def test_logits_and_branches_are_scaled_in_float64():
    model = wider(SMALL, 2, scaling=Scaling(width=16, depth=1))
    scaled, plain = model.build().double(), replace(model, scaling=None).build().double()
    plain.load_state_dict(scaled.state_dict())
    x = torch.randn(2, 3, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(scaled.read_out(x), plain.read_out(x) / 2, rtol=1e-14, atol=0)
    for one, other in zip(scaled.branches(), plain.branches(), strict=True):
        assert one.factor == pytest.approx(other.factor / 2**0.5, rel=1e-15)
    half = Scaling(width=16, depth=1, power=0.5)
    whole = Scaling(width=16, depth=1, power=1.0)
    assert (half.depth_rate(4), whole.depth_rate(4)) == (0.5, 1.0)
    assert (half.branch_factor(4), whole.branch_factor(4)) == (0.5, 0.25)


def test_a_step_uses_the_scaled_rates_and_the_decay_of_a_step_stays(dataset):
    trainer = trained(wider(SMALL, 2, scaling=Scaling(width=16, depth=1)), dataset)
    groups = trainer.optimizer.param_groups
    by_rate = {group.get("rate", 1.0) for group in groups}
    assert sorted(by_rate) == pytest.approx([0.5 * 0.5**0.5, 0.5**0.5, 1.0])
    rate = trainer.learning_rate_at(trainer.step - 1)
    for group in groups:
        assert group["lr"] == pytest.approx(rate * group.get("rate", 1.0))
    matrices = [group for group in groups if group["weight_decay"] and group.get("rate", 1.0) < 0.5]
    assert matrices
    assert all(group["weight_decay"] == pytest.approx(2 * 0.1) for group in matrices)


def test_optimizers_of_other_steps_and_wrong_sizes_are_refused():
    with pytest.raises(InputError, match=r"variants\.wide\.scaling: expected an optimizer .* got 'sgd'"):
        Study(
            name="s",
            variants={"wide": replace(SMALL, scaling=Scaling(width=8))},
            training=Training(optimizer=ROOMS["optimizer"].make("sgd", learning_rate=0.1)),
        )
    with pytest.raises(InputError, match=r"scaling\.width: expected a whole number of at least 1, got 0"):
        Scaling(width=0)
    with pytest.raises(InputError, match=r"scaling\.power: expected a number from 0\.5 to 1, got 2\.0"):
        Scaling(width=1, power=2.0)
    with pytest.raises(InputError, match=r"scaling\.depth: expected a whole number of at least 1, got -1"):
        Scaling(width=1, depth=-1)
