"""Wrong facts, planted one by one where a rule states the right one: moving along what they claim must change an output.

They are what one might believe of a rule without having derived it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from block_kinds import TOKENS, WIDTH
from null_checks import ROUNDING, audited, change
from test_blocks import Between

from addnorm.redundancy.execution.generic_weights import generic
from addnorm.redundancy.graph.rule import Site
from addnorm.redundancy.graph.rules import rules
from addnorm.redundancy.graph.rules.arithmetic import mul
from addnorm.redundancy.graph.rules.products import linear
from addnorm.redundancy.graph.rules.softmax import compare
from addnorm.redundancy.graph.shift import scaled, spread, still
from addnorm.redundancy.graph.value import Mask, Out, Plane, Value

pytestmark = pytest.mark.compiled


def rotation_without_position(site: Site, first: Any, second: Any = -1.0, **settings: Any) -> Out:
    """Every position turns as the first one does."""
    if isinstance(second, Value) and second.known is not None and second.known.dim() > 1:
        angle = second.known[..., :1, :].expand(second.known.shape)
        second = Value(second.shape, second.shift, angle)
    return mul(site, first, second, **settings)


def norm_that_hides_its_own_shift(site: Site, value: Value, *rest: Any) -> list[Out]:
    """What a layer norm takes out, it takes out of its own bias too."""
    site.level(value, [-1])
    return site.all_still()


def norm_along_any_axis(site: Site, value: Value, *rest: Any) -> list[Out]:
    """A shift that is the same for all positions cancels."""
    site.level(value, [1])
    return site.all_still()


def linear_gelu(site: Site, value: Value, *_: Any, **__: Any) -> Out:
    return Out(scaled(value.shift, 0.5), value.loose)


def mask_forgotten(site: Site, value: Value, mask: Value, fill: Any) -> Out:
    """Filled entries move as the others do."""
    return Out(spread(value.shift, site.shape), value.loose)


def any_mask_hides(site: Site, value: Value, mask: Value, fill: Any) -> Out:
    """Whatever a place is filled with, a softmax does not see it."""
    return Out(spread(value.shift, site.shape), value.loose, masked=Mask(hides=True, endless=True))


def comparison_that_never_jumps(site: Site, *_: Any, **__: Any) -> Out:
    return site.still()


def norm_in_every_plane(site: Site, value: Value, *rest: Any) -> list[Out]:
    """The entries add up to the same number, whatever the gains."""
    found = rules()["native_layer_norm"](site, value, *rest)
    normal = torch.ones(1, site.shape[-1], dtype=torch.float64) / site.shape[-1] ** 0.5
    return [Out(found[0].shift, plane=Plane(len(site.shape) - 1, lambda: normal))]


class _Sharing:
    """The first of a bias' two uses is taken for another parameter's."""

    def __init__(self) -> None:
        self.used = False

    def __call__(self, site: Site, value: Value, weight: Value, bias: Value | None = None) -> Out:
        if bias is not None and not self.used:
            self.used, bias = True, Value(bias.shape, still(bias.shape), bias.known)
        return linear(site, value, weight, bias)


def unmasked_table(site: Site, weight: Value, index: Value, *_: Any, **__: Any) -> Out:
    """Which row is read makes no difference."""
    return site.still()


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


@pytest.mark.parametrize("fact", FACTS)
def test_a_wrong_fact_is_caught(fact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op, wrong, kind = FACTS[fact]
    x = torch.randn(3, TOKENS, WIDTH, generator=torch.Generator().manual_seed(0))
    honest = audited(Between(kind), x, track="bias+tables")
    assert change(honest, honest.found.space, generic(honest.model)) <= ROUNDING
    monkeypatch.setitem(rules(), op, wrong)
    fooled = audited(Between(kind), x, track="bias+tables")
    assert change(fooled, fooled.found.space, generic(fooled.model)) > 1e3 * ROUNDING


def test_comparing_with_a_number_may_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only comparisons with infinity hold still."""

    class Stepped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(WIDTH, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.inner(x) > 0).to(x.dtype)

    x = torch.randn(3, TOKENS, WIDTH, generator=torch.Generator().manual_seed(0))
    assert audited(Stepped(), x).found.space.dim == 0
    assert rules()["gt"] is compare
    monkeypatch.setitem(rules(), "gt", comparison_that_never_jumps)
    fooled = audited(Stepped(), x)
    assert change(fooled, fooled.found.space, generic(fooled.model)) > 0.1
