"""Values some of whose entries were overwritten, where an operation reads them that no mask is meant for; and factors of fused
sums. Moving along what is claimed changes nothing."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from null_checks import audited, counted, hold
from torch import Tensor, nn
from torch.nn import functional as F

pytestmark = pytest.mark.compiled

X = torch.randn(4, 5, 8, generator=torch.Generator().manual_seed(0))
PAD = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 1], [0, 1, 0, 1, 0], [1, 0, 0, 0, 0]]).bool()


class Parts(nn.Module):
    """Linear maps of the data, a table, vectors, and what is made of them."""

    def __init__(self, function: Callable[[Any, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.q, self.k, self.v, self.r = (nn.Linear(8, 6) for _ in range(4))
        self.plain = nn.Linear(8, 6, bias=False)
        self.vector = nn.Parameter(torch.randn(6))
        self.lstm, self.gru, self.rnn = nn.LSTMCell(6, 6), nn.GRUCell(6, 6), nn.RNNCell(6, 6)

    def forward(self, x: Tensor, pad: Tensor) -> Tensor:
        return self.function(self, x, pad)


def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]


def filled(y: Tensor, pad: Tensor, number: float = 0.0) -> Tensor:
    return y.masked_fill(pad[..., None], number)


def scores(m: Any, x: Tensor, alpha: float, beta: float) -> Tensor:
    """Two products with the same keys, of which torch multiplies each by a number."""
    keys = m.plain(x).transpose(1, 2)
    both = torch.baddbmm(torch.bmm(m.r(x), keys), m.q(x), keys, alpha=alpha, beta=beta)
    return torch.tanh(both + torch.zeros(5, 5)) @ m.plain(x)


MODELS: dict[str, tuple[Callable[[Any, Tensor, Tensor], Tensor], int]] = {
    # A shift of all keys but some is none that softmax cancels.
    "keys filled with zeros": (lambda m, x, pad: attended(m.q(x), filled(m.k(x), pad), m.plain(x)), 0),
    "keys filled with a number that hides scores": (
        lambda m, x, pad: attended(m.q(x), filled(m.k(x), pad, -1e4), m.plain(x)),
        0,
    ),
    "queries filled with zeros": (lambda m, x, pad: attended(filled(m.q(x), pad), m.plain(x), m.plain(x)), 0),
    "values filled with zeros": (lambda m, x, pad: attended(m.plain(x), m.plain(x), filled(m.v(x), pad)), 0),
    "keys that are not filled": (lambda m, x, pad: attended(m.q(x), m.k(x), filled(m.plain(x), pad)), 6),
    # A cell adds two vectors of its own, whose sum alone matters.
    "the input of an LSTM cell": (lambda m, x, pad: m.lstm(filled(m.q(x), pad).flatten(0, 1))[0], 24),
    "the input of a GRU cell": (lambda m, x, pad: m.gru(filled(m.q(x), pad).flatten(0, 1)), 12),
    "the input of an RNN cell": (lambda m, x, pad: m.rnn(filled(m.q(x), pad).flatten(0, 1)), 6),
    "a bias of a map": (lambda m, x, pad: F.linear(x, m.plain.weight, m.vector.masked_fill(pad[0, :1], 0)), 0),
    "a shift of a norm": (
        lambda m, x, pad: F.layer_norm(m.q(x), (6,), None, m.vector.masked_fill(x[0, 0, :6] > 0, 0)) - m.r(x),
        1,
    ),
    "two products, one of them halved": (lambda m, x, pad: scores(m, x, 0.5, 1.0), 6),
    "two products, one of them doubled": (lambda m, x, pad: scores(m, x, 1.0, 2.0), 6),
    "two products, one of them subtracted": (lambda m, x, pad: scores(m, x, -1.0, 0.25), 6),
    "a product without a factor": (lambda m, x, pad: scores(m, x, 0.0, 1.0), 6),
}


@pytest.mark.parametrize("name", MODELS)
def test_no_more_is_claimed_than_is_there(name: str) -> None:
    function, expected = MODELS[name]
    case = audited(Parts(function).eval(), (X, PAD))
    hold(case)
    assert case.analysis.space.dim == expected <= counted(case)
