"""Random networks of many kinds of block, moved along the null space that the audit claims: nothing may change.

Ten networks share one graph and one export.
"""

import random

import pytest
import torch
from block_kinds import KINDS, TOKENS, WIDTH
from null_checks import ROUNDING, Case, audited, change
from torch import nn

from addnorm.audit import rule
from addnorm.audit.generic import generic
from addnorm.audit.rules import rules

pytestmark = pytest.mark.compiled

GRAPHS, NETWORKS = 30, 10


class Network(nn.Module):
    """One or two random blocks, some with a residual, some between norms."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([KINDS[draw.choice(list(KINDS))]() for _ in range(draw.choice((1, 2)))])
        self.residual = [draw.random() < 0.6 for _ in self.blocks]
        self.placement = draw.choice(("none", "none", "pre", "post"))
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in self.blocks])
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block, norm, residual in zip(self.blocks, self.norms, self.residual, strict=True):
            y = block(norm(x) if self.placement == "pre" else x)
            x = x + y if residual else y
            x = norm(x) if self.placement == "post" else x
        return self.head(x)


class Side(nn.Module):
    """Networks on the same input, their outputs beside each other."""

    def __init__(self, draw: random.Random, count: int) -> None:
        super().__init__()
        self.networks = nn.ModuleList([Network(draw) for _ in range(count)])

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [network(x) for network in self.networks]


def networks(seed: int, count: int = NETWORKS) -> Case:
    torch.manual_seed(seed)
    draw = random.Random(seed)
    observe = draw.choice(("logits", "softmax"))
    return audited(Side(draw, count), torch.randn(3, TOKENS, WIDTH), observe=observe, training=seed % 3 == 0)


@pytest.mark.parametrize("seed", range(GRAPHS))
def test_nothing_changes_along_the_null_space(seed: int) -> None:
    case = networks(seed)
    assert case.found.space.dim >= NETWORKS  # at the very least each network has something before its head or in it
    assert change(case, case.found.space, generic(case.model)) <= ROUNDING


def _still(site: rule.Site, *_: object, **__: object) -> list[rule.Out]:
    """A rule that is wrong for nearly everything: nothing moves, whatever the inputs do."""
    return site.all_still()


@pytest.mark.parametrize("op", ["tanh", "softmax", "layer_norm", "gelu", "linear", "add"])
def test_a_wrong_rule_is_caught(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rules(), op, _still)
    worst = 0.0
    for seed in (1, 2):
        case = networks(seed)
        worst = max(worst, change(case, case.found.space, generic(case.model)))
    assert worst > 1e3 * ROUNDING
