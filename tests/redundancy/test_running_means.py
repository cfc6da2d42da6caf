"""Rewrites of models in which several removed biases reach one batch norm, or one removed bias was to absorb another.

The first kind is RepViT's block as its authors train it (THU-MIG/RepViT#80): two routes into one running mean.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import addnorm
from sampled import sampled

WIDTH = 3


def normed(*, bias: bool, kernel: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(WIDTH, WIDTH, kernel, padding=kernel // 2, groups=WIDTH, bias=bias)
    return nn.Sequential(conv, nn.BatchNorm2d(WIDTH))


class Branches(nn.Module):
    """Branches a to d, norms p and q, and a forward pass of them."""

    def __init__(self, forward: Callable[["Branches", Tensor], Tensor]) -> None:
        super().__init__()
        self.called = forward
        self.a, self.b = normed(bias=False, kernel=3), normed(bias=True)
        self.c, self.d = nn.Conv2d(WIDTH, WIDTH, 1), nn.Conv2d(WIDTH, WIDTH, 1)
        self.p, self.q = nn.BatchNorm2d(WIDTH), nn.BatchNorm2d(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.called(self, x)


def read_twice(m: Branches, x: Tensor) -> Tensor:
    """The removed bias moves one norm's input and an output's bias."""
    h = m.c(x) + m.b(x)
    return torch.relu(m.p(m.b(h))) + m.d(h)


KINDS: dict[str, Callable[[Branches, Tensor], Tensor]] = {
    "two routes": lambda m, x: torch.sigmoid(m.p(m.a(x) + m.c(x) + x)),
    "three routes": lambda m, x: torch.sigmoid(m.p(m.a(x) + m.b(x) + m.c(x) + x)),
    "a scaled route": lambda m, x: torch.relu(m.p(m.a(x) - 0.5 * m.c(x))),
    "a norm into a norm": lambda m, x: torch.relu(m.q(m.p(m.c(x)))),
    "three norms": lambda m, x: torch.relu(m.q(m.p(m.b(x)) + m.d(x))),
    "summed branches": lambda m, x: m.c(torch.relu(m.a(x) + m.b(x) + m.p(x))),
    "a chain": lambda m, x: torch.relu(m.p(m.d(m.c(x)))),
    "a norm, a chain, a norm": lambda m, x: torch.relu(m.q(m.d(m.p(m.c(x))))),
    "two norms read one bias": lambda m, x: torch.relu(m.p(h := m.c(x))) + torch.sigmoid(m.q(h)),
    "read twice": read_twice,
}


CASES = [(kind, training) for kind in KINDS for training in (False, True)]
CASES.remove(("read twice", True))  # its norm is called twice with other inputs, and has one running mean


@pytest.mark.parametrize(("kind", "training"), sampled(4, CASES))
def test_every_removal_is_absorbed_once(kind: str, training: bool) -> None:
    torch.manual_seed(0)
    model = Branches(KINDS[kind]).double().train(training)
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            for each in (norm.running_mean, norm.weight, norm.bias):
                nn.init.normal_(each)
            nn.init.uniform_(norm.running_var, 0.5, 2.0)
    x = torch.randn(2, WIDTH, 4, 4, dtype=torch.float64)
    before = model.eval()(x)
    smaller, certificate = addnorm.audit(model.train(training), x, training=training).strip()
    assert certificate.passed
    assert certificate.removed
    torch.testing.assert_close(smaller.eval()(x), before, rtol=1e-11, atol=1e-11)


def test_a_bias_before_two_norms_of_which_one_sees_it_squared_stays() -> None:
    """The near false claim: the same sum, but the second reader is no norm and no bias can absorb what it sees."""
    torch.manual_seed(0)
    model = Branches(lambda m, x: torch.relu(m.p(h := m.c(x) + m.d(x))) + h.square()).double().eval()
    x = torch.randn(2, WIDTH, 4, 4, dtype=torch.float64)
    smaller, certificate = addnorm.audit(model, x).strip()
    assert certificate.passed
    assert len(certificate.removed) == 1
    torch.testing.assert_close(smaller(x), model(x), rtol=1e-11, atol=1e-11)
