"""Optimizers: each against its formula by hand, decay apart from the gradient, and what decays at all."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn

from addnorm.catalogue import ROOMS
from addnorm.errors import InputError
from addnorm.optimization.optimizers import Group, OptimizerSpec, parameter_groups
from addnorm.optimization.optimizers.adamw import AdamW
from addnorm.optimization.optimizers.sgd import Sgd
from addnorm.optimization.optimizers.tiger import TigerSpec

KINDS = ROOMS["optimizer"].kinds()


class Scaled(nn.Module):
    """A branch scalar, a matrix that is marked, one that is not, and a table that no role is declared for."""

    no_decay = ("pairs",)
    parameter_roles = {"pairs": "hidden_matrix", "maps": "hidden_matrix"}

    def __init__(self) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(0.5))
        self.pairs = nn.Parameter(torch.ones(3, 3))
        self.maps = nn.Parameter(torch.ones(2, 3, 3))
        self.table = nn.Parameter(torch.ones(3, 3))


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.norm = nn.LayerNorm(4)
        self.linear = nn.Linear(4, 4)
        self.scaled = Scaled()
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.frozen = nn.Parameter(torch.ones(4, 4), requires_grad=False)


def names(model: nn.Module, groups: list[Group]) -> dict[str, tuple[str, float]]:
    name_of = {id(parameter): name for name, parameter in model.named_parameters()}
    listed = [(name_of[id(p)], (g["role"], g["weight_decay"])) for g in groups for p in g["params"]]
    assert len(listed) == len(dict(listed)), "each parameter once"
    return dict(listed)


def group(*parameters: nn.Parameter, weight_decay: float, role: Any = "matrix") -> list[Group]:
    return [Group(params=list(parameters), weight_decay=weight_decay, role=role)]


MATRICES = {"embedding.weight", "linear.weight", "scaled.maps"}
REST = {"norm.weight", "norm.bias", "linear.bias", "scaled.alpha", "scaled.pairs", "scaled.table"}


class TestParameterGroups:
    @pytest.mark.parametrize(("decay_on", "rest"), [("matrices", 0.0), ("everything", 0.1)])
    def test_what_decays(self, decay_on: Any, rest: float) -> None:
        model = Network()
        assert names(model, parameter_groups(model, weight_decay=0.1, decay_on=decay_on)) == {
            **dict.fromkeys(MATRICES, ("matrix", 0.1)),
            **dict.fromkeys(REST, ("elementwise", rest)),
        }

    def test_a_copy_of_the_model_is_grouped_alike(self) -> None:
        model = copy.deepcopy(Network())
        listed = names(model, parameter_groups(model, weight_decay=0.1, decay_on="matrices"))
        assert listed["scaled.pairs"] == ("elementwise", 0.0)

    def test_a_marked_parameter_does_not_decay(self) -> None:
        model = Network()
        model.linear.weight.no_decay = True  # type: ignore[assignment]
        listed = names(model, parameter_groups(model, weight_decay=0.1, decay_on="matrices"))
        assert listed["linear.weight"] == ("elementwise", 0.0)

    def test_a_group_of_nothing_is_left_out(self) -> None:
        (only,) = parameter_groups(nn.Linear(2, 2, bias=False), weight_decay=0.1, decay_on="matrices")
        assert only["role"] == "matrix"

    def test_a_mark_for_no_parameter_is_an_error(self) -> None:
        class Misspelt(nn.Linear):
            no_decay = ("wieght",)

        with pytest.raises(AttributeError, match="wieght"):
            parameter_groups(Misspelt(2, 2), weight_decay=0.1, decay_on="matrices")

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_spec_groups_by_its_own_fields(self, kind: str) -> None:
        model = Network()
        spec = ROOMS["optimizer"].make(kind, weight_decay=0.3, decay_on="everything")
        assert {decay for _, decay in names(model, spec.groups(model)).values()} == {0.3}


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for entry in optimizer.param_groups:
            entry["lr"] = 0.01 * (1 + step)
            for parameter in entry["params"]:
                parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()


@pytest.mark.parametrize("kind", KINDS)
class TestEvery:
    def test_without_gradient_only_the_stated_share_decays(self, kind: str) -> None:
        spec: OptimizerSpec = ROOMS["optimizer"].make(kind, weight_decay=0.1, decay_on="everything")
        model = Network().double()
        optimizer = spec.build(spec.groups(model))
        for entry in optimizer.param_groups:
            entry["lr"] = 0.02
            for parameter in entry["params"]:
                nn.init.uniform_(parameter, 0.5, 1.5)
                parameter.grad = torch.zeros_like(parameter)
                rate = spec.decay_rate(parameter, entry)
                assert 0 < rate < 0.02 * 0.1 * 1.5
                parameter.expected = parameter.detach() * (1 - rate)
        optimizer.step()
        for parameter in (p for entry in optimizer.param_groups for p in entry["params"]):
            # Two float64 roundings of numbers near one.
            torch.testing.assert_close(parameter.detach(), parameter.expected, rtol=4 * 2**-53, atol=0)

    def test_the_gradient_leaves_the_decay_as_it_is(self, kind: str) -> None:
        # The same run with and without decay differs by exactly the decay in its first step.
        moved = {}
        for decay in (0.0, 0.5):
            torch.manual_seed(0)
            parameter = nn.Parameter(torch.randn(4, 4, dtype=torch.float64))
            start = parameter.detach().clone()
            spec = ROOMS["optimizer"].make(kind, learning_rate=0.1, weight_decay=decay)
            optimizer = spec.build(group(parameter, weight_decay=decay))
            rate = spec.decay_rate(parameter, optimizer.param_groups[0])
            parameter.grad = torch.randn(4, 4, dtype=torch.float64)
            optimizer.step()
            moved[decay] = parameter.detach() + rate * start
        torch.testing.assert_close(moved[0.0], moved[0.5], rtol=0, atol=8 * 2**-53 * 4)

    def test_a_reopened_run_goes_on_bit_for_bit(self, kind: str) -> None:
        torch.manual_seed(0)
        spec: OptimizerSpec = ROOMS["optimizer"].make(kind)
        model = Network()
        optimizer = spec.build(spec.groups(model))
        train(model, optimizer, range(3))
        reopened = Network()
        reopened.load_state_dict(model.state_dict())
        second = spec.build(spec.groups(reopened))
        second.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        train(model, optimizer, range(3, 6))
        train(reopened, second, range(3, 6))
        for name, value in model.state_dict().items():
            assert torch.equal(value, reopened.state_dict()[name]), name

    def test_a_parameter_without_gradient_stays(self, kind: str) -> None:
        spec: OptimizerSpec = ROOMS["optimizer"].make(kind, weight_decay=0.1)
        parameter = nn.Parameter(torch.ones(2, 2))
        spec.build(group(parameter, weight_decay=0.1)).step()
        assert torch.equal(parameter.detach(), torch.ones(2, 2))

    def test_the_gradient_is_left_alone(self, kind: str) -> None:
        parameter = nn.Parameter(torch.ones(2, 2))
        gradient = torch.tensor([[1.0, -2.0], [3.0, 0.0]])
        parameter.grad = gradient.clone()
        ROOMS["optimizer"].make(kind).build(group(parameter, weight_decay=0.1)).step()
        assert torch.equal(parameter.grad, gradient)

    @pytest.mark.parametrize(
        ("field", "value"), [("learning_rate", 0.0), ("learning_rate", math.nan), ("weight_decay", -0.1)]
    )
    def test_numbers_out_of_range_are_refused(self, kind: str, field: str, value: float) -> None:
        with pytest.raises(InputError, match=rf"{kind}\.{field}: expected"):
            ROOMS["optimizer"].make(kind, **{field: value})


class TestTiger:
    def test_two_steps_of_a_matrix_by_hand(self) -> None:
        matrix = nn.Parameter(torch.tensor([[3.0, -4.0], [0.0, 0.0]], dtype=torch.float64))
        optimizer = TigerSpec(beta=0.9).build(group(matrix, weight_decay=0.5))
        optimizer.param_groups[0]["lr"] = 0.1
        matrix.grad = torch.tensor([[2.0, 1.0], [-3.0, 0.0]], dtype=torch.float64)
        optimizer.step()
        # RMS = sqrt((9 + 16) / 4) = 2.5, eta = 0.25; m = 0.1 g; sign(m) = [1, 1, -1, 0].
        first = [[3 - 0.25 * (1 + 1.5), -4 - 0.25 * (1 - 2)], [0.25, 0.0]]
        torch.testing.assert_close(matrix.detach(), torch.tensor(first, dtype=torch.float64), rtol=1e-15, atol=0)
        matrix.grad = torch.tensor([[-1.0, -1.0], [9.0, 0.1]], dtype=torch.float64)
        optimizer.step()
        # m = 0.9 [0.2, 0.1, -0.3, 0] + 0.1 g = [0.08, -0.01, 0.63, 0.01]
        rms = math.sqrt((2.375**2 + 3.75**2 + 0.25**2) / 4)
        signs = ((1, -1), (1, 1))
        second = [
            [w - 0.1 * rms * (s + 0.5 * w) for w, s in zip(row, sign, strict=True)]
            for row, sign in zip(first, signs, strict=True)
        ]
        torch.testing.assert_close(matrix.detach(), torch.tensor(second, dtype=torch.float64), rtol=1e-14, atol=0)

    @pytest.mark.parametrize("role", ["elementwise", "matrix"])
    def test_vectors_and_scalars_move_by_half_the_rate(self, role: str) -> None:
        vector = nn.Parameter(torch.tensor([100.0, 0.0], dtype=torch.float64))
        scalar = nn.Parameter(torch.tensor(7.0, dtype=torch.float64))
        optimizer = TigerSpec(learning_rate=0.1).build(group(vector, scalar, weight_decay=0.0, role=role))
        vector.grad, scalar.grad = torch.tensor([1e-9, -1e9]).double(), torch.tensor(-1.0).double()
        optimizer.step()
        assert vector.tolist() == [100 - 0.05, 0.05]
        assert scalar.item() == 7.05

    def test_a_marked_table_moves_like_a_scalar(self) -> None:
        model = Network()
        spec = TigerSpec(learning_rate=0.1, weight_decay=0.0)
        optimizer = spec.build(spec.groups(model))
        model.scaled.pairs.grad = torch.ones(3, 3)
        optimizer.step()
        assert torch.equal(model.scaled.pairs.detach(), torch.full((3, 3), 1 - 0.05))

    @pytest.mark.parametrize(("floor", "moved"), [(0.0, 0.0), (0.01, -0.001)])
    def test_a_matrix_of_zeros_moves_by_the_floor(self, floor: float, moved: float) -> None:
        matrix = nn.Parameter(torch.zeros(2, 2))
        optimizer = TigerSpec(learning_rate=0.1, rms_floor=floor).build(group(matrix, weight_decay=0.1))
        matrix.grad = torch.ones(2, 2)
        optimizer.step()
        torch.testing.assert_close(matrix.detach(), torch.full((2, 2), moved), rtol=2**-22, atol=0)

    @pytest.mark.parametrize(("field", "value"), [("beta", 1.0), ("beta", -0.1), ("rms_floor", -1.0)])
    def test_fields_out_of_range_are_refused(self, field: str, value: float) -> None:
        with pytest.raises(InputError, match=field):
            TigerSpec(**{field: value})  # type: ignore[arg-type]


class TestAdamW:
    def test_a_step_by_hand(self) -> None:
        scalar = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
        optimizer = AdamW(betas=(0.8, 0.9), eps=0.5).build(group(scalar, weight_decay=0.25))
        optimizer.param_groups[0]["lr"] = 0.1
        scalar.grad = torch.tensor(3.0, dtype=torch.float64)
        optimizer.step()
        scalar.grad = torch.tensor(1.0, dtype=torch.float64)
        optimizer.step()
        first = 2.0 * (1 - 0.025) - 0.1 * 3 / (3 + 0.5)
        m, v = 0.8 * 0.6 + 0.2, 0.9 * 0.9 + 0.1
        second = first * (1 - 0.025) - 0.1 * (m / (1 - 0.64)) / (math.sqrt(v / (1 - 0.81)) + 0.5)
        assert scalar.item() == pytest.approx(second, rel=1e-14)

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"betas": (0.9, 1.0)}, r"betas: expected numbers from 0 to below 1"),
            ({"eps": 0.0}, "eps: expected a positive number"),
        ],
    )
    def test_fields_out_of_range_are_refused(self, fields: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            AdamW(**fields)


class TestSgd:
    def test_decay_stays_out_of_the_momentum(self) -> None:
        scalar = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
        optimizer = Sgd(momentum=0.5).build(group(scalar, weight_decay=0.25))
        optimizer.param_groups[0]["lr"] = 0.1
        for gradient in (1.0, 3.0):
            scalar.grad = torch.tensor(gradient, dtype=torch.float64)
            optimizer.step()
        first = 2 * (1 - 0.025) - 0.1 * 1
        assert scalar.item() == pytest.approx(first * (1 - 0.025) - 0.1 * (0.5 + 3), rel=1e-15)

    def test_without_decay_it_is_torchs(self) -> None:
        ours, theirs = (nn.Parameter(torch.linspace(-1, 1, 12).reshape(3, 4)) for _ in range(2))
        pair = (Sgd().build(group(ours, weight_decay=0.0)), torch.optim.SGD([theirs], lr=0.1, momentum=0.9))
        for step in range(5):
            for parameter, optimizer in zip((ours, theirs), pair, strict=True):
                parameter.grad = torch.cos(parameter.detach() * (step + 1))
                optimizer.step()
        torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=2**-20, atol=2**-22)

    def test_momentum_of_one_is_refused(self) -> None:
        with pytest.raises(InputError, match="momentum: expected a number from 0 to below 1"):
            Sgd(momentum=1.0)
