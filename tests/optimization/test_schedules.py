"""Schedules: values by hand, and what weight decay alone leaves of a scalar."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from addnorm.catalogue import ROOMS
from addnorm.errors import InputError
from addnorm.optimization.optimizers import Group
from addnorm.optimization.optimizers.adamw import AdamW
from addnorm.optimization.optimizers.sgd import Sgd
from addnorm.optimization.optimizers.tiger import TigerSpec
from addnorm.optimization.schedules import decay_factor
from addnorm.optimization.schedules.constant import Constant
from addnorm.optimization.schedules.cosine import Cosine
from addnorm.optimization.schedules.wsd import Wsd

KINDS = ROOMS["schedule"].kinds()


@pytest.mark.parametrize("kind", KINDS)
class TestEvery:
    def test_warms_up_in_a_line_from_zero_to_the_peak(self, kind: str) -> None:
        schedule = ROOMS["schedule"].make(kind, warmup=4.0)
        assert [schedule.factor(step, 10) for step in range(5)] == [0, 0.25, 0.5, 0.75, 1]

    def test_without_warm_up_starts_at_the_peak(self, kind: str) -> None:
        assert ROOMS["schedule"].make(kind, warmup=0.0).factor(0, 10) == 1

    def test_stays_between_zero_and_one(self, kind: str) -> None:
        schedule = ROOMS["schedule"].make(kind)
        assert all(0 <= schedule.factor(step, 1000) <= 1 for step in range(1000))

    @pytest.mark.parametrize(
        ("warmup", "steps", "count"), [(0.015, 170_025, 2551), (0.07, 100, 7), (0.5, 3, 2), (7.0, 10, 7), (0.0, 10, 0)]
    )
    def test_a_share_is_rounded_up_to_steps(self, kind: str, warmup: float, steps: int, count: int) -> None:
        assert ROOMS["schedule"].make(kind, warmup=warmup).warmup_steps(steps) == count

    @pytest.mark.parametrize("warmup", [-0.1, 1.5])
    def test_a_warm_up_that_is_neither_share_nor_steps_is_refused(self, kind: str, warmup: float) -> None:
        with pytest.raises(
            InputError, match="warmup: expected a share of all steps below 1, or a whole number of steps"
        ):
            ROOMS["schedule"].make(kind, warmup=warmup)

    @pytest.mark.parametrize(("warmup", "steps"), [(10.0, 10), (0.9, 1)])
    def test_a_warm_up_as_long_as_the_run_is_refused(self, kind: str, warmup: float, steps: int) -> None:
        with pytest.raises(InputError, match=f"warmup: expected fewer steps than the run's {steps}, got {steps}"):
            ROOMS["schedule"].make(kind, warmup=warmup).factor(0, steps)

    def test_all_factors_at_once_are_the_factors(self, kind: str) -> None:
        schedule = ROOMS["schedule"].make(kind, warmup=0.1)
        assert schedule.factors(50).tolist() == [schedule.factor(step, 50) for step in range(50)]

    @pytest.mark.parametrize("step", [-1, 10])
    def test_a_step_outside_the_run_is_refused(self, kind: str, step: int) -> None:
        with pytest.raises(InputError, match="step: expected a number from 0 to 9"):
            ROOMS["schedule"].make(kind).factor(step, 10)


class TestCosine:
    def test_by_hand(self) -> None:
        schedule = Cosine(warmup=2.0, final=0.2)
        root = math.sqrt(0.5)
        expected = [0, 0.5, 1, 0.2 + 0.4 * (1 + root), 0.6, 0.2 + 0.4 * (1 - root)]
        assert [schedule.factor(step, 6) for step in range(6)] == pytest.approx(expected, rel=1e-15)

    def test_the_end_lies_one_step_behind_the_last(self) -> None:
        schedule = Cosine(warmup=0.0)
        assert schedule.factor(99, 100) == pytest.approx((1 - math.cos(math.pi / 100)) / 2, rel=1e-10)

    @pytest.mark.parametrize("final", [-0.1, 1.1])
    def test_a_final_share_out_of_range_is_refused(self, final: float) -> None:
        with pytest.raises(InputError, match="final: expected a share of the peak"):
            Cosine(final=final)


class TestWsd:
    @pytest.mark.parametrize(
        ("shape", "last"), [("linear", [1, 0.8, 0.6, 0.4]), ("sqrt", [1, 1 - 0.8 * 0.5, 1 - 0.8 * math.sqrt(0.5)])]
    )
    def test_by_hand(self, shape: str, last: list[float]) -> None:
        schedule = Wsd(warmup=2.0, decay=0.5, shape=shape, final=0.2)  # type: ignore[arg-type]
        found = [schedule.factor(step, 10) for step in range(10)]
        assert found[:6] == [0, 0.5, 1, 1, 1, 1]
        places = range(6, 10) if shape == "linear" else (6, 7, 8)
        assert [found[place] for place in places] == pytest.approx(last, rel=1e-15)

    @pytest.mark.parametrize(("field", "value"), [("decay", 0.0), ("decay", 1.1), ("final", -0.1)])
    def test_shares_out_of_range_are_refused(self, field: str, value: float) -> None:
        with pytest.raises(InputError, match=f"{field}: expected a share"):
            Wsd(**{field: value})  # type: ignore[arg-type]


def test_constant_stays_at_the_peak() -> None:
    assert {Constant(warmup=3.0).factor(step, 100) for step in range(3, 100)} == {1.0}


class TestDecayFactor:
    KUANG_2025 = (Cosine(warmup=0.015), AdamW(learning_rate=3e-4, weight_decay=0.1), 170_025)

    def test_of_kuang_2025_is_the_number_that_it_prints(self) -> None:
        # `b` of V4M4's first layer gets no gradient, starts at 1 and ends, in float32, at "0.078046".
        assert f"{decay_factor(*self.KUANG_2025):.5f}" == "0.07805"
        assert f"{decay_factor(*self.KUANG_2025, dtype=np.float32):.6f}" == "0.078046"

    def test_of_kuang_2025_is_close_to_the_integral(self) -> None:
        # Σ lr·wd = 3e-5 (W/2 + (N - W)/2) up to half a step at either end, each of at most 3e-5.
        exponent = 3e-5 * 170_025 / 2
        assert -math.log(decay_factor(*self.KUANG_2025)) == pytest.approx(exponent, abs=2 * 3e-5 + 170_025 * 3e-5**2)

    @pytest.mark.parametrize("warmup", [0.0, 0.1])
    def test_is_what_a_trained_scalar_without_gradient_shows_to_the_bit(self, warmup: float) -> None:
        schedule, spec, steps = Cosine(warmup=warmup), AdamW(learning_rate=0.05, weight_decay=0.1), 500
        scalar = nn.Parameter(torch.ones(()))
        scalar.grad = torch.zeros(())
        optimizer = spec.build([Group(params=[scalar], weight_decay=0.1, role="elementwise")])
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = spec.learning_rate * schedule.factor(step, steps)
            optimizer.step()
        assert scalar.item() == decay_factor(schedule, spec, steps, dtype=np.float32)

    def test_constant_is_a_power(self) -> None:
        spec = Sgd(learning_rate=0.5, weight_decay=0.01)
        assert decay_factor(Constant(warmup=0.0), spec, 100) == pytest.approx((1 - 0.005) ** 100, rel=1e-13)

    def test_tiger_decays_scalars_at_half_the_rate(self) -> None:
        spec = TigerSpec(learning_rate=0.5, weight_decay=0.01)
        assert decay_factor(Constant(warmup=0.0), spec, 100) == pytest.approx((1 - 0.0025) ** 100, rel=1e-13)

    def test_no_decay_leaves_everything(self) -> None:
        assert decay_factor(Cosine(), AdamW(weight_decay=0.0), 100) == 1
