"""The perturbation by which rounding is measured: it changes every weight and is undone exactly."""

import pytest
import torch
from torch import nn
from toys import seeded

from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.copies import copy_of
from addnorm.redundancy.execution.inputs import bind
from addnorm.redundancy.execution.perturbation import STEP, perturbed
from addnorm.redundancy.execution.tracked_parameters import track_parameters
from addnorm.redundancy.numeric.probe import Probe


class Weights(nn.Module):
    """Numbers that are hard to restore, in various shapes."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        kind = torch.finfo(torch.float32 if dtype == torch.float64 else dtype)
        hard = [
            0.0,
            -0.0,
            1.0,
            -2.0,
            kind.max,
            -kind.max,
            kind.tiny,
            kind.smallest_normal,
            1 + kind.eps,
            1 - kind.eps / 2,
        ]
        self.hard = nn.Parameter(torch.tensor(hard, dtype=dtype))
        self.one = nn.Parameter(torch.tensor(0.1, dtype=dtype))
        self.empty = nn.Parameter(torch.zeros(0, 3, dtype=dtype))
        self.wide = nn.Parameter(torch.randn(3, 700_000).to(dtype))
        self.turned = nn.Parameter(torch.randn(5, 4).to(dtype).T)
        self.counts = nn.Parameter(torch.arange(3), requires_grad=False)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_every_number_moves_by_the_step_and_is_restored_bit_for_bit(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = copy_of(Weights(dtype), torch.float64)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    with perturbed(model, 3):
        for name, value in model.named_parameters():
            if not value.is_floating_point():
                assert torch.equal(value, before[name])
                continue
            # float64's own numbers may round once more; those of fewer bits are multiplied exactly.
            ratio = (value / before[name])[before[name] != 0]
            torch.testing.assert_close((ratio - 1).abs(), torch.full_like(ratio, STEP), rtol=1e-7, atol=0)
    for name, value in model.named_parameters():
        assert torch.equal(value, before[name]), name
        assert torch.equal(torch.signbit(value.double()), torch.signbit(before[name].double())), name


def test_parameters_are_restored_when_the_model_raises() -> None:
    model = copy_of(seeded(lambda: nn.Linear(4, 4)), torch.float64)
    before = model.weight.detach().clone()
    with pytest.raises(RuntimeError), perturbed(model, 0):
        raise RuntimeError
    assert torch.equal(model.weight, before)


class Difference(nn.Module):
    """The difference of two large numbers: its relative rounding error is `large` times that of each."""

    def __init__(self, large: float) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.tensor([large]))
        self.second = nn.Parameter(torch.tensor([large - 1]))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.first - x * self.second + self.bias


def test_rounding_follows_the_condition_of_the_model() -> None:
    """The two weights differ in sign half of the time: over four cases the change is 2 large x step with probability 15/16,
    and with these seeds it is."""
    roundings = []
    for large in (4.0, 4096.0):
        model = Difference(large)
        x = torch.randn(2, 3, 1)
        tracked = track_parameters(model, x)
        copied = copy_of(model, torch.float64)
        cases = Cases.of(copied, bind(x), "logits")
        roundings.append(Probe(copied, tracked, "logits").rounding([(0, cases(number)[1]) for number in range(4)]))
    assert 500 < roundings[1] / roundings[0] < 2000
