"""Consecutive linear layers: the singular values of their product decrease to rounding, and none of the biases is redundant.

By hand: a bias b of layer i reaches the output as W_n ... W_{i+1} b. Square random factors are regular, so only b = 0 leaves
the output as it is, however small the singular values of the product are: 0 redundant directions. The last layer takes over
every other bias, so all of them are absorbable, and the null space has (n - 1) * width dimensions.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
import torch
from torch import nn
from toys import data, seeded

import addnorm
from addnorm.redundancy.algebra.rank import conditioned, kernel_and_clarity
from pairwise import pairwise
from sampled import sampled

pytestmark = pytest.mark.compiled

Ending = Callable[[nn.Module, int], nn.Module]


def chain(depth: int, width: int) -> nn.Module:
    return seeded(lambda: nn.Sequential(*[nn.Linear(width, width) for _ in range(depth)]))


ENDINGS: dict[str, Ending] = {
    "its own bias": lambda model, width: model,
    "a layer without bias": lambda model, width: nn.Sequential(model, seeded(nn.Linear, width, width, False)),
    "an activation": lambda model, width: nn.Sequential(model, nn.Tanh(), seeded(nn.Linear, width, 3)),
}


@pytest.mark.parametrize(("depth", "width", "ending"), sampled(3, pairwise([5, 20, 40], [16, 64], list(ENDINGS))))
def test_the_proof_loses_no_direction_in_a_deep_product(depth: int, width: int, ending: str) -> None:
    model = ENDINGS[ending](chain(depth, width), width)
    audit = addnorm.audit(model, data(3, width), methods="static")
    assert audit.joint_null == (depth - 1) * width
    assert [each.redundant_dof for each in audit.findings] == [0] * len(audit.findings)
    assert [each.verdict for each in audit.findings[:depth]] == ["foldable"] * depth


def test_a_long_chain_before_a_norm_has_no_more_than_its_one_direction_a_bias() -> None:
    """A layer norm forgives what is equal in all numbers: one direction of each bias. In one chain of 120 a second one of the
    first two biases was claimed, whose effect is near rounding. Where the product's condition, 7e13 here, leaves no room above
    what counts as zero, nothing is claimed of a bias alone."""
    torch.manual_seed(11)
    layers = [nn.Linear(16, 16) for _ in range(10)]
    model = nn.Sequential(*layers, nn.LayerNorm(16, elementwise_affine=False), nn.Linear(16, 3))
    audit = addnorm.audit(model, data(3, 16), methods="static")
    assert audit.joint_null == 9 * 16 + 1
    assert all(each.redundant_dof <= 1 for each in audit.findings)


@pytest.mark.parametrize("seed", [57, 571])
def test_a_last_layer_that_is_badly_conditioned_makes_no_bias_redundant(seed: int) -> None:
    """One draw in 250 of a layer of width 64 has a condition beyond 1e4 at the numbers of the proof: a direction of the first
    biases was called redundant, whose effect is 3e-14 of the largest one's, with a clear gap."""
    depth, width = 10, 64
    torch.manual_seed(seed)
    last = nn.Linear(width, width, bias=False)
    audit = addnorm.audit(nn.Sequential(chain(depth, width), last), data(3, width), methods="static")
    assert audit.joint_null == (depth - 1) * width
    assert [each.redundant_dof for each in audit.findings] == [0] * depth


@pytest.mark.parametrize(
    ("depth", "width", "methods"),
    [
        (5, 16, "both"),
        (10, 16, "numeric"),
        (20, 16, "both"),
        (10, 32, "numeric"),
        *(
            pytest.param(*further, marks=pytest.mark.soak)
            for further in [
                (5, 16, "numeric"),
                (10, 16, "both"),
                (20, 16, "numeric"),
                (20, 32, "both"),
                (20, 32, "numeric"),
            ]
        ),
    ],
)
def test_no_method_calls_a_small_singular_value_a_zero(
    depth: int, width: int, methods: Literal["both", "numeric"]
) -> None:
    audit = addnorm.audit(chain(depth, width), data(3, width), methods=methods)
    for each in audit.findings:
        assert each.redundant_dof == 0, each.parameter
        assert each.verdict in {"foldable", "undecided"}, each.parameter
        assert each.verdict == "foldable" or "too ill-conditioned for float64" in each.reason


def test_a_bias_tracked_alone_is_not_lost_in_a_deep_product() -> None:
    audit = addnorm.audit(chain(20, 32), data(3, 32), methods="static", track=r"^0\.bias")
    assert [(each.verdict, each.redundant_dof) for each in audit.findings] == [("effective", 0)]


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_the_kernel_of_one_singular_layer_is_found(depth: int) -> None:
    width = 16
    model = chain(depth, width)
    held = Cut(model[-1])  # type: ignore[index]
    model[-1] = held  # type: ignore[operator]
    audit = addnorm.audit(model, data(3, width))
    assert audit.disagreements == ()
    # The last layer does not read the first number that reaches it: one direction of every bias before it is lost.
    assert [each.redundant_dof for each in audit.findings] == [1] * (depth - 1) + [0]


class Cut(nn.Module):
    """A linear layer that does not read its first number, whatever the weights are."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear
        self.kept: torch.Tensor
        self.register_buffer("kept", torch.ones(linear.in_features).index_fill(0, torch.tensor([0]), 0.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.linear.weight * self.kept, self.linear.bias)


def test_a_narrow_place_deep_in_a_product_is_undecided_rather_than_wrong() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(chain(20, 32), nn.Linear(32, 8), chain(20, 8))
    audit = addnorm.audit(model, data(3, 32), methods="static")
    for each in audit.findings:
        assert each.redundant_dof in {0, 24}, each.parameter


def test_a_null_space_is_clear_only_with_a_gap() -> None:
    falling = np.diag(10.0 ** -np.arange(17.0))
    kernel, clear = kernel_and_clarity(falling)
    assert kernel.shape[1] > 0
    assert not clear
    singular = np.diag([1.0, 0.1, 0.01, 1e-16])
    kernel, clear = kernel_and_clarity(singular)
    assert (kernel.shape[1], clear) == (1, True)


def test_a_matrix_is_regular_if_no_row_depends_on_the_others() -> None:
    numbers = np.random.default_rng(0).standard_normal
    assert conditioned(numbers((5, 5)))[0]
    assert conditioned(numbers((5, 9)))[0]
    assert not conditioned(numbers((9, 5)))[0]
    lost = numbers((5, 5))
    lost[3] = lost[0] - lost[1]
    assert not conditioned(lost)[0]
    assert conditioned(np.diag([1.0, 1.0, 1e-3]))[1] == pytest.approx(1e3 * (2 / 3) ** 0.5, rel=1e-3)
