"""Lion, Muon and schedule-free AdamW in float64 against formulas that are computed in another way."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from addnorm.errors import InputError
from addnorm.model.presets import preset
from addnorm.optimization.optimizers import Group, OptimizerSpec
from addnorm.optimization.optimizers.adamw import AdamW
from addnorm.optimization.optimizers.lion import LionSpec
from addnorm.optimization.optimizers.muon import MuonSpec, orthogonalised
from addnorm.optimization.optimizers.schedule_free import ScheduleFreeSpec
from addnorm.supervision.step_cost import state_bytes

RATES = (0.01, 0.03, 0.02, 0.005)
Matrix = NDArray[np.float64]


def gradients(shape: tuple[int, ...]) -> list[Matrix]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape) for _ in RATES]


def trained(
    spec: OptimizerSpec, shape: tuple[int, ...], *, weight_decay: float, role: Any
) -> tuple[Matrix, Matrix, Any]:
    """A parameter before and after steps with `gradients`, and what the optimizer keeps at the end."""
    start = np.random.default_rng(1).standard_normal(shape)
    parameter = nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = spec.build([Group(params=[parameter], weight_decay=weight_decay, role=role)])
    for rate, gradient in zip(RATES, gradients(shape), strict=True):
        optimizer.param_groups[0]["lr"] = rate
        parameter.grad = torch.from_numpy(gradient)
        optimizer.step()
    with spec.averaged(optimizer):
        kept = parameter.detach().numpy().copy()
    return start, parameter.detach().numpy(), kept


class TestLion:
    def test_steps_are_the_papers(self) -> None:
        start, found, kept = trained(LionSpec(betas=(0.8, 0.95)), (5, 3), weight_decay=0.2, role="matrix")
        theta, momentum = start, np.zeros_like(start)
        for rate, gradient in zip(RATES, gradients((5, 3)), strict=True):
            theta = theta - rate * (np.sign(0.8 * momentum + 0.2 * gradient) + 0.2 * theta)
            momentum = 0.95 * momentum + 0.05 * gradient
        np.testing.assert_allclose(found, theta, rtol=1e-14)
        assert np.array_equal(kept, found)

    def test_betas_of_one_are_refused(self) -> None:
        with pytest.raises(InputError, match="betas: expected numbers from 0 to below 1"):
            LionSpec(betas=(0.9, 1.0))


class TestMuon:
    @staticmethod
    def by_singular_values(matrix: Matrix) -> Matrix:
        """The iteration is a polynomial of the singular values, applied here without any product of matrices."""
        left, values, right = np.linalg.svd(matrix, full_matrices=False)
        values = values / np.sqrt((values**2).sum())
        for _ in range(5):
            values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
        return np.asarray((left * values) @ right)

    @pytest.mark.parametrize("nesterov", [True, False])
    @pytest.mark.parametrize(
        ("shape", "scale", "size"),
        [((6, 4), "shape", math.sqrt(1.5)), ((4, 6), "shape", 1.0), ((4, 9), "rms", 0.2 * 3)],
    )
    def test_hidden_matrices_move_by_the_orthogonalised_momentum(
        self, shape: tuple[int, int], scale: Any, size: float, nesterov: bool
    ) -> None:
        spec = MuonSpec(momentum=0.9, nesterov=nesterov, scale=scale)
        start, found, _ = trained(spec, shape, weight_decay=0.1, role="hidden_matrix")
        theta, momentum = start, np.zeros_like(start)
        for rate, gradient in zip(RATES, gradients(shape), strict=True):
            momentum = 0.9 * momentum + 0.1 * gradient
            step = self.by_singular_values(0.9 * momentum + 0.1 * gradient if nesterov else momentum)
            theta = theta - rate * (size * step + 0.1 * theta)
        np.testing.assert_allclose(found, theta, rtol=1e-9, atol=1e-12)  # the iteration amplifies rounding by about 1e3

    def test_all_singular_values_come_close_to_one(self) -> None:
        torch.manual_seed(0)
        stack = orthogonalised(torch.randn(3, 8, 32, dtype=torch.float64))
        values = torch.linalg.svdvals(stack)
        assert values.shape == (3, 8)
        assert 0.65 < values.min() < values.max() < 1.25
        assert torch.equal(orthogonalised(torch.zeros(2, 3)), torch.zeros(2, 3))

    def test_a_stack_is_orthogonalised_matrix_by_matrix(self) -> None:
        torch.manual_seed(0)
        stack = torch.randn(2, 5, 3, dtype=torch.float64)
        alone = torch.stack([orthogonalised(matrix) for matrix in stack])
        torch.testing.assert_close(orthogonalised(stack), alone, rtol=1e-12, atol=1e-14)

    @pytest.mark.parametrize("role", ["matrix", "elementwise"])
    def test_all_others_move_as_torchs_adamw_at_the_second_rate(self, role: str) -> None:
        spec = MuonSpec(learning_rate=0.02, adamw_learning_rate=0.005, betas=(0.8, 0.9))
        start, found, _ = trained(spec, (4, 3), weight_decay=0.1, role=role)
        theirs = nn.Parameter(torch.from_numpy(start))
        reference = torch.optim.AdamW([theirs], betas=(0.8, 0.9), eps=spec.eps, weight_decay=0.1)
        for rate, gradient in zip(RATES, gradients((4, 3)), strict=True):
            reference.param_groups[0]["lr"] = rate / 4
            theirs.grad = torch.from_numpy(gradient)
            reference.step()
        np.testing.assert_allclose(found, theirs.detach().numpy(), rtol=1e-12)

    def test_roles_come_from_the_modules(self) -> None:
        model = preset("base", vocab=9, width=8, depth=1, heads=2, kv_heads=2, hidden=8, max_seq=4, tied=False).build(
            seed=0
        )
        name_of = {id(parameter): name for name, parameter in model.named_parameters()}
        by_role = {group["role"]: {name_of[id(p)] for p in group["params"]} for group in MuonSpec().groups(model)}
        assert by_role["matrix"] == {"embedding.weight", "head.weight"}
        assert len(by_role["hidden_matrix"]) == 7  # q, k, v, o, gate, up, down
        assert all(model.get_parameter(name).ndim == 2 for name in by_role["hidden_matrix"])


class TestScheduleFree:
    def test_the_three_sequences_are_the_papers(self) -> None:
        spec = ScheduleFreeSpec(betas=(0.8, 0.9), eps=0.01)
        start, found, kept = trained(spec, (4, 3), weight_decay=0.0, role="matrix")
        x, z, square, weights, largest = start, start, np.zeros_like(start), 0.0, 0.0
        for step, (rate, gradient) in enumerate(zip(RATES, gradients((4, 3)), strict=True), start=1):
            square = 0.9 * square + 0.1 * gradient**2
            z = z - rate * gradient / (np.sqrt(square / (1 - 0.9**step)) + 0.01)
            largest = max(largest, rate)
            weights += largest**2
            share = largest**2 / weights
            x = (1 - share) * x + share * z
        np.testing.assert_allclose(kept, x, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(found, 0.2 * z + 0.8 * x, rtol=1e-12, atol=1e-14)

    def test_decay_multiplies_the_average_too(self) -> None:
        parameter = nn.Parameter(torch.ones(1, dtype=torch.float64))
        spec = ScheduleFreeSpec()
        optimizer = spec.build([Group(params=[parameter], weight_decay=0.5, role="matrix")])
        for rate in RATES:
            optimizer.param_groups[0]["lr"] = rate
            parameter.grad = torch.zeros(1, dtype=torch.float64)
            optimizer.step()
        expected = math.prod(1 - 0.5 * rate for rate in RATES)
        assert parameter.item() == pytest.approx(expected, rel=1e-14)
        with spec.averaged(optimizer):
            assert parameter.item() == pytest.approx(expected, rel=1e-14)

    def test_training_values_come_back_to_the_bit(self) -> None:
        parameter = nn.Parameter(torch.tensor([1.0, 2.0]))
        spec = ScheduleFreeSpec()
        optimizer = spec.build([Group(params=[parameter], weight_decay=0.1, role="matrix")])
        for _ in range(2):
            parameter.grad = torch.tensor([0.3, -0.7])
            optimizer.step()
        before = parameter.detach().clone()
        with spec.averaged(optimizer):
            assert not torch.equal(parameter.detach(), before)
        assert torch.equal(parameter.detach(), before)

    def test_a_step_at_rate_zero_moves_nothing(self) -> None:
        parameter = nn.Parameter(torch.tensor([1.0]))
        optimizer = ScheduleFreeSpec().build([Group(params=[parameter], weight_decay=0.1, role="matrix")])
        optimizer.param_groups[0]["lr"], parameter.grad = 0.0, torch.ones(1)
        optimizer.step()
        assert parameter.item() == 1.0


def test_the_bytes_of_a_state_are_the_optimizers_own() -> None:
    model = preset("base", vocab=9, width=8, depth=2, heads=2, kv_heads=2, hidden=8, max_seq=4).build(seed=0)
    entries = sum(parameter.numel() for parameter in model.parameters())
    hidden = sum(
        p.numel() for group in MuonSpec().groups(model) if group["role"] == "hidden_matrix" for p in group["params"]
    )
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    assert state_bytes(LionSpec(), model) == 4 * entries
    assert state_bytes(ScheduleFreeSpec(), model) == 8 * entries
    assert state_bytes(MuonSpec(), model) == 4 * hidden + 8 * (entries - hidden)
    counters = 4 * len(list(model.parameters()))
    assert state_bytes(AdamW(), model) == 8 * entries + counters
