"""Trained early exits: what they add to the objective, and that a weight of zero adds nothing."""

from dataclasses import replace

import pytest
import torch
from test_train import CPU, dataset, spec_of, weights  # noqa: F401  a fixture

import addnorm
from addnorm.data import held_batches
from addnorm.errors import InputError
from addnorm.model.trace import Trace
from addnorm.optimization.optimizers.adamw import AdamW
from addnorm.study.definition import Study, Training
from addnorm.study.expansion import validate
from addnorm.training.loop import Trainer
from addnorm.training.objective import Batch, exit_divergence, loss_sums


def trainer_of(dataset, exits, preset="base", **changes):  # noqa: F811
    spec = spec_of(dataset, preset, **changes)
    return Trainer(replace(spec, training=replace(spec.training, exits=exits)), dataset, CPU)


def test_a_weight_of_zero_trains_the_same_model_to_the_last_bit(dataset):  # noqa: F811
    plain, zero, trained = (trainer_of(dataset, exits, dropout=0.1) for exits in (None, 0.0, 1.0))
    for _ in range(4):
        assert plain.train_step() == zero.train_step()
        trained.train_step()
    assert all(torch.equal(x, y) for x, y in zip(weights(plain).values(), weights(zero).values(), strict=True))
    assert not all(torch.equal(x, y) for x, y in zip(weights(plain).values(), weights(trained).values(), strict=True))
    first, second = plain.evaluate(), zero.evaluate()
    assert {name: second[name] for name in first} == first
    assert second.keys() - first.keys() == {"exit_loss", "exit_loss_1"}


@pytest.mark.parametrize("preset", ["base", "v2m3", "v4m1"])
@pytest.mark.parametrize("objective", ["causal", "masked"])
@pytest.mark.parametrize("shards", [1, 2])
def test_gradients_are_those_of_the_written_objective(dataset, preset, objective, shards):  # noqa: F811
    trainer = trainer_of(dataset, 0.7, preset, objective=objective, depth=3)
    trainer.training, trainer.shards = replace(trainer.training, shards=shards), shards
    model = trainer.model.train()
    batch = trainer._batches.take(0)
    trainer._gradients(batch)
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    whole, trace = batch.rows(0, 2, CPU), Trace()
    scored = torch.ones_like(whole.targets, dtype=torch.bool) if whole.mask is None else whole.mask
    answer = model(whole.inputs, trace=trace).log_softmax(-1)
    objective_value = -answer.gather(-1, whole.targets[..., None])[..., 0][scored].mean()
    streams = [[site.after for site in trace.sites if site.site.layer == layer][-1] for layer in (0, 1)]
    for stream in streams:
        of_exit = model.read_out(stream).log_softmax(-1)
        held = answer.detach()
        objective_value = objective_value + 0.7 / 2 * (held.exp() * (held - of_exit)).sum(-1)[scored].mean()
    objective_value.backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            scale = parameter.grad.abs().max()
            assert torch.allclose(found[name], parameter.grad, rtol=1e-4, atol=1e-5 * float(scale) + 1e-9), name


def test_the_divergence_is_checked_against_finite_differences():
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 5, dtype=torch.float64)
    batch = Batch(inputs=torch.zeros(2, 3, dtype=torch.int64), targets=torch.zeros(2, 3, dtype=torch.int64), mask=None)
    exits = [torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    assert torch.autograd.gradcheck(lambda *of: exit_divergence(of, logits, batch), exits)
    assert exit_divergence([logits, logits], logits, batch).item() == pytest.approx(0, abs=1e-12)
    # Two outcomes, answer (3/4, 1/4), exit (1/2, 1/2): 3/4 log 3/2 + 1/4 log 1/2 for each of six positions.
    answer = torch.tensor([3.0, 1.0], dtype=torch.float64).log().expand(2, 3, 2)
    assert exit_divergence([torch.zeros(2, 3, 2)], answer, batch).item() == pytest.approx(6 * 0.1308120, rel=1e-5)


def test_exit_losses_are_those_of_the_stream_after_each_layer(dataset):  # noqa: F811
    trainer = trainer_of(dataset, 0.0, "v2m3", depth=3)
    found = trainer.evaluate_at_end()
    model, total, count = trainer.model.eval(), torch.zeros(2), 0
    with torch.no_grad():
        for windows in held_batches(dataset, 2, 16, 4):
            tokens = torch.from_numpy(windows)
            part = Batch(inputs=tokens[:, :-1], targets=tokens[:, 1:], mask=None)
            trace = Trace()
            model(part.inputs, trace=trace)
            for layer in (0, 1):
                stream = [site.after for site in trace.sites if site.site.layer == layer][-1]
                total[layer] += loss_sums(model.read_out(stream), part).nats
            count += part.count
    assert [found["exit_loss_1"], found["exit_loss_2"]] == pytest.approx((total / count).tolist(), rel=1e-5)
    assert found["exit_loss"] == pytest.approx(float(total.mean()) / count, rel=1e-5)


def test_training_draws_exits_to_the_answer(dataset):  # noqa: F811
    apart = []
    for weight in (0.0, 1.0):
        spec = spec_of(dataset, init_std=0.2)
        training = replace(spec.training, steps=60, optimizer=AdamW(learning_rate=1e-2), exits=weight)
        trainer = Trainer(replace(spec, training=training), dataset, CPU)
        for _ in range(60):
            trainer.train_step()
        batch, exits = trainer._batches.take(60).rows(0, 2, CPU), []
        with torch.no_grad():
            logits = trainer.model.eval()(batch.inputs, exits=exits)
            apart.append(exit_divergence(exits, logits, batch).item())
    assert apart[1] < 0.5 * apart[0]


def test_what_has_no_exits_is_refused():
    with pytest.raises(InputError, match=r"training\.exits: expected null or a number of at least 0, got -1"):
        Training(exits=-1.0)
    with pytest.raises(InputError, match=r"training\.compile: expected false with training\.exits, got True"):
        Training(exits=1.0, compile=True)
    one = addnorm.preset("base", vocab=257, width=16, depth=1, heads=2, kv_heads=1, hidden=16, max_seq=16)
    with pytest.raises(InputError, match=r"training\.exits: expected a model of two layers or more, got 1"):
        validate(Study(name="one", variants={"base": one}, training=Training(exits=1.0, seq=16)))
