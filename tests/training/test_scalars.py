"""The two parts of every learned scalar's move: exact, complete, and what they say they are."""

import copy

import pytest
import torch
from torch import nn

from addnorm.catalogue import ROOMS
from addnorm.training.scalars import ScalarRecorder


class Toy(nn.Module):
    def __init__(self):
        super().__init__()
        self.gains = nn.Parameter(torch.tensor([1.0, -0.5, 2.0]))
        self.alone = nn.Parameter(torch.tensor([0.7]))  # never in the loss

    def forward(self, x):
        return (self.gains * x).sum() ** 2 + self.gains[1]


OPTIMIZERS = {
    "adamw": {"learning_rate": 0.05, "weight_decay": 0.3, "decay_on": "everything"},
    "sgd": {"learning_rate": 0.01, "weight_decay": 0.3, "decay_on": "everything"},
    "tiger": {"learning_rate": 0.01, "weight_decay": 0.3, "decay_on": "everything"},
}


def train(kind, steps, **changes):
    torch.manual_seed(0)
    spec = ROOMS["optimizer"].make(kind, **(OPTIMIZERS[kind] | changes))
    model = Toy()
    optimizer = spec.build(spec.groups(model))
    recorder = ScalarRecorder({"toy": model}, spec, optimizer)
    inputs = torch.randn(steps, 3) * 0.3
    rates = torch.linspace(0.2, 1.0, steps).tolist()
    for x, rate in zip(inputs, rates, strict=True):
        optimizer.zero_grad()
        (model(x) + 0 * model.alone.sum()).backward()
        for group in optimizer.param_groups:
            group["lr"] = spec.learning_rate * rate
        recorder.before_step()
        optimizer.step()
        recorder.after_step()
    return model, recorder, spec, optimizer, (inputs, rates)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_init_plus_both_parts_is_the_value(kind):
    model, recorder, *_ = train(kind, 150)
    found = recorder.summary()
    assert recorder.names() == ["toy.gains[0]", "toy.gains[1]", "toy.gains[2]", "toy.alone[0]"]
    whole = found["value"] - found["init"]
    # 150 sums in float64 of moves of size one at most.
    assert (found["decay"] + found["gradient"] - whole).abs().max() <= 150 * 2**-52
    assert torch.equal(found["value"], torch.cat([model.gains, model.alone]).detach().double())
    assert (found["decay"][:3].abs() > 1e-3).all()
    assert (found["gradient"][:3].abs() > 1e-3).all()


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_each_steps_parts_are_what_the_optimizer_does_with_only_one_of_them(kind):
    """One more step from the same state: without decay only the gradient's part happens, without a gradient only decay's."""
    model, recorder, spec, optimizer, _ = train(kind, 20)
    x = torch.tensor([0.2, -0.1, 0.4])
    before = recorder.summary()

    def one_step(weight_decay, weight):
        other, state = copy.deepcopy(model), copy.deepcopy(optimizer.state_dict())
        fresh = spec.build(spec.groups(other))
        fresh.load_state_dict(state)
        for group in fresh.param_groups:
            group["weight_decay"] = weight_decay
        other.zero_grad()
        start = other.gains.detach().double().clone()
        (weight * other(x) + 0 * other.alone.sum()).backward()
        fresh.step()
        return other.gains.detach().double() - start

    gradient_only = one_step(0.0, 1.0)
    optimizer.zero_grad()
    (model(x) + 0 * model.alone.sum()).backward()
    recorder.before_step()
    optimizer.step()
    recorder.after_step()
    after = recorder.summary()
    gradient = (after["gradient"] - before["gradient"])[:3]
    # The optimizer works in float32: each of its few roundings is 6e-8 of a number of size 2 at most.
    assert (gradient - gradient_only).abs().max() <= 8 * 2**-24 * 2
    decay = (after["decay"] - before["decay"])[:3]
    group = optimizer.param_groups[0]
    assert torch.allclose(decay, -before["value"][:3] * spec.decay_rate(model.gains, group), rtol=1e-12)


def test_an_undriven_scalar_moves_by_decay_alone_and_ends_where_the_product_says():
    _, recorder, spec, _, (_, rates) = train("adamw", 150)
    found = recorder.summary()
    expected = 0.7
    for rate in rates:
        expected *= 1 - spec.learning_rate * rate * spec.weight_decay
    assert found["value"][3].item() == pytest.approx(expected, rel=150 * 2**-24)
    assert found["gradient"][3].abs().item() <= 150 * 2**-24
    assert found["mean_absolute"][3].item() == 0
    assert (0.7 * found["log_kept"][3].exp()).item() == pytest.approx(expected, rel=1e-7)


def test_nothing_decays_where_decay_is_off():
    _, recorder, *_ = train("adamw", 30, decay_on="matrices")
    found = recorder.summary()
    assert (found["decay"] == 0).all()
    assert (found["log_kept"] == 0).all()


def test_r_has_the_singular_values_of_all_gradients():
    rows = []
    model, recorder, _, optimizer, _ = train("sgd", 0)
    for x in torch.randn(200, 3):
        optimizer.zero_grad()
        (model(x) + 0 * model.alone.sum()).backward()
        rows.append(torch.cat([model.gains.grad, model.alone.grad]).double())
        recorder.before_step()
        optimizer.step()
        recorder.after_step()
    factor = recorder.summary()["R.toy"]
    assert factor.shape[0] <= 4 < len(rows)
    assert torch.allclose(torch.linalg.svdvals(factor), torch.linalg.svdvals(torch.stack(rows)), atol=1e-12 * len(rows))


def test_a_resumed_recorder_goes_on_as_if_nothing_had_happened():
    _, recorder, *_ = train("adamw", 40)
    state = copy.deepcopy(recorder.state())
    before = recorder.summary()
    _, other, *_ = train("adamw", 0)
    other.load_state(state)
    for name, value in other.summary().items():
        if name != "value":
            assert torch.equal(value, before[name]), name
