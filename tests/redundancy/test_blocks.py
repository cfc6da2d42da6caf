"""Each kind of block: the static count equals that of the Jacobian, and moves along the null space change nothing."""

from functools import cache

import pytest
import torch
from block_kinds import KINDS, TOKENS, WIDTH
from cancelling_kinds import CANCELLING
from null_checks import Case, audited, contains, counted, hold
from torch import nn

from addnorm.redundancy.rewriting.folds import compensations
from sampled import sampled

pytestmark = pytest.mark.compiled

ALL = KINDS | CANCELLING
PESSIMISTIC = {"router", "softmax by hand", "buffered"}
"""Kinds for which the static method finds less than there is. Router: a vector added to every expert's output comes through
whole because the shares sum to one, which is known of the softmax but lost when it is cut into single shares. Softmax by
hand, in a buffer too: the largest score takes the k bias along when it is subtracted, but exp and a sum are not recognised as
weights that sum to one, so the v bias counts as effective."""


class Between(nn.Module):
    """A block between two linear maps, the first without bias."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.block, self.last = nn.Linear(WIDTH, WIDTH, bias=False), ALL[kind](), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.block(self.first(x)))


@cache
def between(kind: str) -> Case:
    """A kind's analysis, shared by the tests below."""
    return audited(Between(kind), torch.randn(3, TOKENS, WIDTH), track="bias+tables")


@pytest.mark.parametrize("kind", sampled(3, ALL))
def test_counts_what_the_jacobian_counts(kind: str) -> None:
    case = between(kind)
    hold(case)
    number = counted(case)
    assert case.analysis.space.dim < number if kind in PESSIMISTIC else case.analysis.space.dim == number


@pytest.mark.parametrize("kind", ["batch norm", "instance norm", "eager", "fused", "dropped weights"])
def test_training_mode(kind: str) -> None:
    case = audited(Between(kind), torch.randn(3, TOKENS, WIDTH), training=True)
    hold(case)
    assert case.analysis.space.dim == counted(case)


KEYS = {
    "eager": 6, "fused": 6, "masked": 6, "score residual": 6, "talking heads": 6, "grouped": 3, "softmax by hand": 6,
    "buffered": 6, "refilled": 6, "dropped weights": 6, "table": 6, "rotary": 0, "partial rotary": 4, "slow rotary": 4,
    "normed heads": 2, "eager normed keys": 2, "refilled elsewhere": 0, "soft cap": 0, "sigmoid": 0, "sink": 0,
    "prefix": 0, "normed keys": 0,
}  # fmt: skip
"""Redundant directions of the k bias alone, by hand: all of them where only the softmax sees the scores; the unrotated half of
two heads of four, a third of two heads of six; what a layer norm takes out of each of two heads; none where something between
bias and softmax is no sum, or a key without the bias takes part."""


@pytest.mark.parametrize("kind", KEYS)
def test_the_k_bias(kind: str) -> None:
    case = between(kind)
    name = "block.one.k.bias" if kind == "score residual" else "block.k.bias"
    assert len(case.analysis.space.redundant(name)) == KEYS[kind]
    assert bool(case.analysis.blockers[name]) == (KEYS[kind] < case.tracked[name].size)


VALUES = {"eager": 6, "fused": 6, "masked": 6, "talking heads": 6, "grouped": 3, "sigmoid": 0, "sink": 0, "prefix": 0}
"""Directions of the v bias that the o bias absorbs: all of them if the weights sum to a known number."""


@pytest.mark.parametrize("kind", VALUES)
def test_the_v_bias(kind: str) -> None:
    case = audited(Between(kind), torch.randn(3, TOKENS, WIDTH))  # a learned prefix, tracked too, would absorb v
    space = case.analysis.space
    assert space.absorbable("block.v.bias") == VALUES[kind]
    if VALUES[kind] == case.tracked["block.v.bias"].size:
        wanted = torch.randn(case.tracked["block.v.bias"].coordinate_shape, dtype=torch.float64)
        folds = list(compensations(space, case.tracked["block.v.bias"], wanted))
        assert folds
        # The bias of the map behind the block absorbs what the o bias does.
        assert all(fold.moved.keys() in ({"block.o.bias"}, {"last.bias"}) for fold in folds)
        assert all(contains(space, {"block.v.bias": wanted, **fold.moved}) for fold in folds)
