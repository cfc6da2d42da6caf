"""Shifts with the same factor, and rows that nothing reads, in whole modules against their Jacobian: DeBERTa's shared keys,
class attention, a factor that moves itself."""

import pytest
import torch
from null_checks import ROUNDING, audited, change, counted, hold
from torch import Tensor, nn

from addnorm.redundancy.execution.generic_weights import generic
from addnorm.redundancy.graph import like_factors, propagation, read_entries
from addnorm.redundancy.graph.rules import arithmetic

pytestmark = pytest.mark.compiled

D, BUCKETS = 6, 5


class Disentangled(nn.Module):
    """Content and positions meet through the same queries and keys, as in DeBERTa with shared projections."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.query, self.key, self.share = nn.Linear(D, D), nn.Linear(D, D), share
        self.norm = nn.LayerNorm(D)
        self.places = nn.Parameter(torch.randn(2 * BUCKETS - 1, D))

    def forward(self, x: Tensor) -> Tensor:
        at = torch.arange(x.shape[1])
        apart = (at[:, None] - at[None, :]).clamp(1 - BUCKETS, BUCKETS - 1) + BUCKETS - 1
        places = self.norm(self.places)
        q, k, place_q, place_k = self.query(x), self.key(x), self.query(places), self.key(places)
        apart = apart.expand(len(x), -1, -1)
        scores = q @ k.mT / 3
        scores = scores + (q @ place_k.mT).gather(-1, apart) / 3
        scores = scores + (k @ place_q.mT).gather(-1, apart.mT).mT / (3 * self.share)
        return scores.softmax(-1)


def test_shared_keys_of_content_and_positions() -> None:
    """Shifts a of content queries, b of position queries and c of content keys change a score by (a + b) k_j + a p_k + c p_q,
    which is none where b = -a and W_k a + W_q c is a normal of the places; position keys are free: 6 + 1."""
    case = audited(Disentangled(1.0).eval(), torch.randn(2, 7, D))
    assert case.analysis.space.dim == counted(case) == D + 1
    hold(case)


@pytest.mark.parametrize("share", [2.0, -1.0])
def test_unequal_shares_are_weighed(share: float) -> None:
    case = audited(Disentangled(share).eval(), torch.randn(2, 7, D))
    assert case.analysis.space.dim <= counted(case)
    hold(case)


class ClassAttention(nn.Module):
    """A class token that alone is updated, a norm of all tokens, and an output of the class token alone, as in XCiT."""

    def __init__(self, reads: int) -> None:
        super().__init__()
        self.norm, self.up, self.down, self.last = nn.LayerNorm(D), nn.Linear(D, D), nn.Linear(D, D), nn.LayerNorm(D)
        self.reads = reads

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        first = self.down(self.up(x[:, :1]).relu())
        return self.last(x + torch.cat([first, x[:, 1:]], 1))[:, : self.reads].tanh()


def test_a_norm_of_rows_that_nothing_reads() -> None:
    dims = []
    for reads in (1, 2):
        case = audited(ClassAttention(reads).eval(), torch.randn(2, 4, D))
        dims.append(case.analysis.space.dim)
        assert dims[-1] == counted(case)
        hold(case)
    # Where the other rows are not read, the first norm's shift need not be constant in them.
    assert dims[0] > dims[1]


class Swapped(nn.Module):
    """The same product twice, its factors exchanged; `kept` adds one of them."""

    def __init__(self, kept: bool) -> None:
        super().__init__()
        self.one, self.other, self.kept = nn.Linear(D, D), nn.Linear(D, D), kept

    def forward(self, x: Tensor) -> Tensor:
        one, other = self.one(x), self.other(x)
        out = (one + x) * other - other * one
        return out + one if self.kept else out


@pytest.mark.parametrize(("kept", "dim"), [(False, D), (True, D)])
def test_a_factor_that_moves_itself(kept: bool, dim: int) -> None:
    """(one + x) other - other one is x other: the first bias is free, the second is not."""
    case = audited(Swapped(kept).eval(), torch.randn(2, 4, D))
    assert case.analysis.space.dim == counted(case) == (0 if kept else dim)
    hold(case)


class Halves(nn.Module):
    """Two products with different factors, which another operation reads too."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        one, share, other = self.one(x), x.sigmoid(), x.tanh()
        return one * share - one * other + share * other


def _any_factor(products: tuple[like_factors.Product, like_factors.Product], *rest: object) -> object:
    """Planted fault: all factors are the same."""
    one, other = products
    return like_factors.merged_source((one, like_factors.replace(other, factor=one.factor, moved=one.moved)), *rest)


def test_factors_taken_for_the_same_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arithmetic, "merged_source", _any_factor)
    case = audited(Halves().eval(), torch.randn(2, 4, D))
    assert change(case, case.analysis.space, generic(case.model)) > 1e3 * ROUNDING


def test_rows_that_are_read_after_all_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: only the first row of anything is read."""

    def first_alone(node: propagation.fx.Node, read: object) -> dict[propagation.fx.Node, read_entries.Entries]:
        if "norm" not in node.name:
            return {}
        return {source: {1: torch.arange(4) == 0} for source in node.all_input_nodes if source.op == "call_function"}

    monkeypatch.setattr(propagation, "as_read", first_alone)
    case = audited(ClassAttention(2).eval(), torch.randn(2, 4, D))
    assert change(case, case.analysis.space, generic(case.model)) > 1e3 * ROUNDING
