"""The training loop: what decides a step, and that nothing else does."""

import math
from dataclasses import replace

import pytest
import torch

import addnorm
from addnorm.catalogue import ROOMS
from addnorm.data import prepare
from addnorm.data.corpora.synthetic import Synthetic
from addnorm.data.tokenizers.bytes import Bytes
from addnorm.errors import InputError
from addnorm.study.definition import Training
from addnorm.training.loop import Trainer
from addnorm.training.objective import loss_sums, make_batch, metrics
from addnorm.training.ranks import Alone
from synthetic_run import synthetic_run

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return prepare(Synthetic(), Bytes(), tmp_path_factory.mktemp("data") / "data")


def spec_of(dataset, preset="base", seed=0, depth=2, **changes):
    model = addnorm.preset(
        preset, vocab=257, width=16, depth=depth, heads=2, kv_heads=1, hidden=16, max_seq=16, **changes
    )
    training = Training(steps=8, batch=2, seq=16, eval_sequences=4)
    return synthetic_run(dataset, model, training, variant=preset, seed=seed)


def weights(trainer):
    return {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}


def test_two_trainers_of_one_spec_do_the_same_to_the_last_bit(dataset):
    a, b = (Trainer(spec_of(dataset, dropout=0.1), dataset, CPU) for _ in range(2))
    for _ in range(4):
        torch.rand(7)  # whatever else draws random numbers in the process must not matter
        assert a.train_step() == b.train_step()
    assert all(torch.equal(x, y) for x, y in zip(weights(a).values(), weights(b).values(), strict=True))


def test_going_on_from_a_state_is_the_same_as_never_stopping(dataset):
    whole = Trainer(spec_of(dataset, dropout=0.1), dataset, CPU)
    steps = [whole.train_step() for _ in range(3)]
    state = torch.load(_saved(whole.state()), weights_only=True)
    steps += [whole.train_step() for _ in range(3)]
    resumed = Trainer(spec_of(dataset, dropout=0.1), dataset, CPU)
    resumed.load_state(state)
    assert [resumed.train_step() for _ in range(3)] == steps[3:]
    assert all(torch.equal(x, y) for x, y in zip(weights(whole).values(), weights(resumed).values(), strict=True))


def _saved(state):
    import io

    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize("objective", ["causal", "masked"])
def test_shards_add_up_to_the_batch(dataset, objective):
    spec = spec_of(dataset, objective=objective)
    spec = replace(spec, training=replace(spec.training, batch=4))
    parts = replace(spec, training=replace(spec.training, shards=4))
    whole, split = (Trainer(each, dataset, CPU).train_step() for each in (spec, parts))
    # Sums of float32 numbers of one size in another order.
    assert split.loss == pytest.approx(whole.loss, rel=2**-20)
    assert split.grad_norm == pytest.approx(whole.grad_norm, rel=2**-18)


def test_every_shard_has_random_numbers_of_its_own(dataset):
    spec = spec_of(dataset, dropout=0.5)
    spec = replace(spec, training=replace(spec.training, shards=2))
    trainer, seen = Trainer(spec, dataset, CPU), []
    trainer.model.embedding_dropout.register_forward_hook(lambda module, inputs, output: seen.append(output == 0))
    trainer.train_step()
    first, second = seen
    assert first.shape == second.shape == (1, 16, 16)
    assert not torch.equal(first, second)


def test_more_ranks_than_shards_are_refused(dataset):
    class Two(Alone):
        size = 2

    with pytest.raises(InputError, match="expected at most as many ranks as shards, 1, got 2"):
        Trainer(spec_of(dataset), dataset, CPU, Two())


def test_seeds_differ(dataset):
    a, b = (Trainer(spec_of(dataset, seed=seed), dataset, CPU) for seed in (0, 1))
    assert a.train_step() != b.train_step()


def test_variants_start_equal_where_they_have_the_same_parameters_and_see_the_same_batches(dataset):
    # v4m5 starts as v4m1; with the same batches their first losses are equal to rounding.
    base, v4m1, v4m5 = (Trainer(spec_of(dataset, preset), dataset, CPU) for preset in ("base", "v4m1", "v4m5"))
    for name, tensor in weights(base).items():
        assert torch.equal(tensor, weights(v4m5)[name])
    first, other = (trainer.train_step().loss.item() for trainer in (v4m1, v4m5))
    assert first == pytest.approx(other, rel=1e-6)


def test_the_schedule_sets_each_steps_rate(dataset):
    spec = spec_of(dataset)
    schedule = ROOMS["schedule"].make("constant", warmup=4.0)
    spec = replace(spec, training=replace(spec.training, schedule=schedule))
    trainer = Trainer(spec, dataset, CPU)
    rates = []
    for _ in range(6):
        rates.append(trainer.learning_rate)
        trainer.train_step()
        assert {group["lr"] for group in trainer.optimizer.param_groups} == {rates[-1]}
    peak = spec.training.optimizer.learning_rate
    assert rates == [peak * schedule.factor(step, 8) for step in range(6)]
    assert rates[0] < rates[3] <= peak == rates[5]


def test_evaluation_changes_nothing_and_is_the_mean_over_all_windows(dataset):
    trainer = Trainer(spec_of(dataset), dataset, CPU)
    trainer.train_step()
    before = weights(trainer)
    found = trainer.evaluate()
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(trainer).items())
    assert found == trainer.evaluate()
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))
    spec = trainer.spec
    one_by_one = replace(spec, training=replace(spec.training, batch=1))
    other = Trainer(one_by_one, dataset, CPU)
    other.model.load_state_dict(before)
    assert other.evaluate()["loss"] == pytest.approx(found["loss"], rel=1e-6)
    assert other.evaluate()["accuracy"] == found["accuracy"]


@pytest.mark.parametrize("objective", ["causal", "masked"])
@pytest.mark.parametrize(("final", "windows"), [(None, 4), (3, 3), ("all", None)])
def test_the_last_evaluation_scores_as_much_text_as_was_asked_for(dataset, objective, final, windows):
    spec = spec_of(dataset, objective=objective)
    spec = replace(spec, training=replace(spec.training, final_sequences=final))
    trainer = Trainer(spec, dataset, CPU)
    before = trainer.evaluate()
    found = trainer.evaluate_at_end()
    text = found.pop("text")
    there = (len(dataset.held) - 1) // 16
    assert text["held_sequences"] == there > 64
    assert text["sequences"] == (there if windows is None else windows)
    assert len(text["part_losses"]) == len(text["part_tokens"]) == min(64, text["sequences"])
    # Both are sums of the same float32 numbers, in another order and width.
    whole = sum(loss * count for loss, count in zip(text["part_losses"], text["part_tokens"], strict=True))
    assert whole / sum(text["part_tokens"]) == pytest.approx(found["loss"], rel=1e-5)
    if objective == "causal":
        assert sum(text["part_tokens"]) == 16 * text["sequences"]
    assert (found == before) == (final is None)
    # The last point of the curve is of the curve's own windows.
    assert ("curve_loss" in text) == (final == "all" and objective == "causal")
    if "curve_loss" in text:
        assert text["curve_loss"] == pytest.approx(before["loss"], rel=1e-6)


def test_a_number_of_last_sequences_is_checked():
    with pytest.raises(InputError, match=r"training\.final_sequences: expected a whole number of at least 1, got 0"):
        Training(final_sequences=0)
    with pytest.raises(InputError, match=r"training\.final_sequences: expected .*, got 'al'"):
        Training(final_sequences="al")


def test_masked_models_are_scored_at_hidden_positions_only(dataset):
    trainer = Trainer(spec_of(dataset, objective="masked"), dataset, CPU)
    first = trainer.train_step()
    assert math.isfinite(first.loss)
    assert math.isfinite(trainer.evaluate()["loss"])


def test_accuracy_and_loss_of_a_model_that_knows_the_answer(dataset):
    import numpy as np

    windows = np.array([[3, 1, 2, 1], [0, 2, 2, 2]])
    batch = make_batch("causal", windows, dataset, seed=0, step=0, device=CPU)
    assert batch.targets.tolist() == [[1, 2, 1], [2, 2, 2]]

    class Knows(torch.nn.Module):
        def forward(self, tokens):
            logits = torch.zeros(*tokens.shape, 4)
            logits[..., 2] = 5.0  # always says 2
            return logits

    found = loss_sums(Knows()(batch.inputs), batch)
    log_sum = math.log(math.exp(5) + 3)
    assert found.hits.item() == 4
    assert found.count == 6
    assert found.nats.item() == pytest.approx(6 * log_sum - 4 * 5)
    told = metrics(found.nats.item(), 4, 6, num_bytes=6)
    assert told["accuracy"] == pytest.approx(4 / 6)
    assert told["bits_per_byte"] == pytest.approx(told["loss"] / math.log(2))


def test_a_state_whose_decay_reached_other_parameters_is_refused(dataset):
    trainer = Trainer(spec_of(dataset, residual="gate"), dataset, CPU)
    state = trainer.state()
    trainer.load_state(state)
    matrices, rest = state["optimizer"]["param_groups"]
    matrices["params"].append(rest["params"].pop())  # as when the gate's bias counted as a matrix
    with pytest.raises(
        InputError, match=r"expected optimizer groups of \[.*\] parameters, got .*Finish it with that version"
    ):
        trainer.load_state(state)
