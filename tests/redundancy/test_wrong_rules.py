"""Wrong rules, planted one by one in place of the right ones: moving along the null space that they claim must change
an output.

They are what one might believe of a rule without having derived it.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from block_kinds import TOKENS, WIDTH
from null_checks import ROUNDING, audited, change
from test_blocks import Between

from addnorm.redundancy.execution.generic_weights import generic
from addnorm.redundancy.graph.rule import OpCall
from addnorm.redundancy.graph.rules import rules
from addnorm.redundancy.graph.rules.arithmetic import mul
from addnorm.redundancy.graph.rules.products import linear
from addnorm.redundancy.graph.rules.softmax import compare
from addnorm.redundancy.graph.shift import broadcast, scaled, zero_shift
from addnorm.redundancy.graph.value import Mask, NodeValue, Output, Plane
from sampled import sampled

pytestmark = pytest.mark.compiled


def rotation_without_position(call: OpCall, first: Any, second: Any = -1.0, **settings: Any) -> Output:
    """Every position rotates as the first one does."""
    if isinstance(second, NodeValue) and second.known is not None and second.known.dim() > 1:
        angle = second.known[..., :1, :].expand(second.known.shape)
        second = NodeValue(second.shape, second.shift, angle)
    return mul(call, first, second, **settings)


def norm_that_hides_its_own_shift(call: OpCall, value: NodeValue, *rest: Any) -> list[Output]:
    """A layer norm cancels the mean of its own bias too."""
    call.demand_constant_value(value, [-1])
    return call.all_unmoved()


def norm_along_any_axis(call: OpCall, value: NodeValue, *rest: Any) -> list[Output]:
    """A shift that is the same for all positions cancels."""
    call.demand_constant_value(value, [1])
    return call.all_unmoved()


def linear_gelu(call: OpCall, value: NodeValue, *_: Any, **__: Any) -> Output:
    return Output(scaled(value.shift, 0.5), value.data_shifts)


def mask_forgotten(call: OpCall, value: NodeValue, mask: NodeValue, fill: Any) -> Output:
    """Filled entries shift as the others do."""
    return Output(broadcast(value.shift, call.shape), value.data_shifts)


def any_mask_hides(call: OpCall, value: NodeValue, mask: NodeValue, fill: Any) -> Output:
    """A softmax ignores a filled entry, whatever its number."""
    return Output(broadcast(value.shift, call.shape), value.data_shifts, masked=Mask(hides=True, infinite=True))


def comparison_that_never_jumps(call: OpCall, *_: Any, **__: Any) -> Output:
    return call.unmoved()


def norm_in_every_plane(call: OpCall, value: NodeValue, *rest: Any) -> list[Output]:
    """The entries add up to the same number, whatever the gains."""
    outputs = rules()["native_layer_norm"](call, value, *rest)
    normal = torch.ones(1, call.shape[-1], dtype=torch.float64) / call.shape[-1] ** 0.5
    return [Output(outputs[0].shift, plane=Plane(len(call.shape) - 1, lambda: normal))]


class _Sharing:
    """The first of a bias's two uses counts as another parameter's."""

    def __init__(self) -> None:
        self.used = False

    def __call__(self, call: OpCall, value: NodeValue, weight: NodeValue, bias: NodeValue | None = None) -> Output:
        if bias is not None and not self.used:
            self.used, bias = True, NodeValue(bias.shape, zero_shift(bias.shape), bias.known)
        return linear(call, value, weight, bias)


def unmasked_table(call: OpCall, weight: NodeValue, index: NodeValue, *_: Any, **__: Any) -> Output:
    """All rows have the same shift."""
    return call.unmoved()


FACTS: dict[str, tuple[str, Callable[..., Any], str]] = {
    "a rotary position turns all keys alike": ("mul", rotation_without_position, "partial rotary"),
    "a norm hides its own shift": ("layer_norm", norm_that_hides_its_own_shift, "layer norm"),
    "a layer norm forgives what all positions share": ("layer_norm", norm_along_any_axis, "normed heads"),
    "GELU is linear": ("gelu", linear_gelu, "feed forward"),
    "masked entries move too": ("masked_fill", mask_forgotten, "strayed"),
    "whatever is filled in is hidden": ("masked_fill", any_mask_hides, "refilled elsewhere"),
    "normed keys add up to one number": ("layer_norm", norm_in_every_plane, "normed heads"),
    "two uses are two parameters": ("linear", _Sharing(), "twice"),
    "rows of a table are alike": ("embedding", unmasked_table, "table"),
}
"""The operation, its wrong rule, and the kind of block that shows it."""


@pytest.mark.parametrize("fact", sampled(3, FACTS))
def test_a_wrong_fact_is_caught(fact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op, wrong, kind = FACTS[fact]
    x = torch.randn(3, TOKENS, WIDTH, generator=torch.Generator().manual_seed(0))
    honest = audited(Between(kind), x, track="bias+tables")
    assert change(honest, honest.analysis.space, generic(honest.model)) <= ROUNDING
    monkeypatch.setitem(rules(), op, wrong)
    fooled = audited(Between(kind), x, track="bias+tables")
    assert change(fooled, fooled.analysis.space, generic(fooled.model)) > 1e3 * ROUNDING


def test_a_comparison_with_a_number_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only comparisons with infinity do not change."""

    class Stepped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(WIDTH, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.inner(x) > 0).to(x.dtype)

    x = torch.randn(3, TOKENS, WIDTH, generator=torch.Generator().manual_seed(0))
    assert audited(Stepped(), x).analysis.space.dim == 0
    assert rules()["gt"] is compare
    monkeypatch.setitem(rules(), "gt", comparison_that_never_jumps)
    fooled = audited(Stepped(), x)
    assert change(fooled, fooled.analysis.space, generic(fooled.model)) > 0.1
