"""Claims that were once refuted or missing: what no reader reads, class tokens, batched products, and finite moves."""

import pytest
import torch
from random_modules import inputs, module
from torch import Tensor, nn
from torch.nn import functional as F

import addnorm
from addnorm.symmetry import structure

X = torch.randn(24, 5, 4, generator=torch.Generator().manual_seed(0))


class Residual(nn.Module):
    """Two maps with a SiLU between, beside a sum, and a map to fewer numbers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down, self.last = nn.Linear(4, 3), nn.Linear(3, 4), nn.Linear(4, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x + self.down(F.silu(self.up(x))))


def test_what_no_reader_reads_is_a_family() -> None:
    found = addnorm.symmetries(Residual().eval(), X)
    # Two of four channels' directions reach no output: 2 · 3 numbers of the columns, and 2 of the bias.
    assert {each.name: each.size for each in found.families} == {
        "subspace that no reader reads": 6,
        "redundant bias": 2,
    }
    assert (found.redundant, found.explained, found.refuted) == (8, 8, ())
    moved, difference = found.move("subspace that no reader reads", 4, amount=2.0)
    assert difference < 1e-9
    before = Residual().double().get_parameter("down.weight")
    assert float((moved.get_parameter("down.weight") - before).detach().norm()) > 0.1


class Classified(nn.Module):
    """A class token before the places, a norm with rotations, and a map."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.token = nn.Linear(4, 4, bias=False), nn.Parameter(torch.randn(1, 1, 4))
        self.places, self.norm, self.last = nn.Parameter(torch.randn(1, 6, 4)), nn.RMSNorm(4), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        whole = torch.cat([self.token.expand(len(x), 1, 4), self.first(x)], 1)
        return self.last(self.norm(whole + self.places))


def test_a_class_token_turns_with_the_stream() -> None:
    found = addnorm.symmetries(Classified().eval(), X, points=1)
    assert found.refuted == ()
    turned = [each for family in found.families for each in family.members if "last.weight" in each.parameters]
    # The gains, and the rotations of four channels, which move the token, the places and both maps.
    assert [(each.size, "token" in each.parameters) for each in turned] == [(4, False), (6, True)]


class Batched(nn.Module):
    """Attention of two heads with a constant bias, heads and batch in one axis."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key, self.value = (nn.Linear(4, 4, bias=False) for _ in range(3))
        self.output = nn.Linear(4, 4, bias=False)
        self.register_buffer("bias", torch.randn(1, 5, 5))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            each(x).unflatten(-1, (2, 2)).transpose(1, 2).flatten(0, 1) for each in (self.query, self.key, self.value)
        )
        bias = self.get_buffer("bias").expand(len(query), -1, -1)
        scores = torch.baddbmm(bias, query, key.transpose(1, 2), beta=1.0, alpha=0.5)
        made = torch.bmm(scores.softmax(-1), value)
        return self.output(made.unflatten(0, (-1, 2)).transpose(1, 2).flatten(-2))


def test_heads_in_the_axis_of_the_batch() -> None:
    found = addnorm.symmetries(Batched().eval(), X, points=1)
    sizes = {each.name: each.size for each in found.families}
    assert sizes == {"basis of queries and keys": 8, "basis of values": 8}
    assert (found.redundant, found.explained, found.refuted) == (16, 16, ())


@pytest.mark.parametrize(
    ("seed", "explained"),
    [(2002, 20), (2052, 28), pytest.param(2062, 29, marks=pytest.mark.thorough), (2165, 48), (10055, 41), (70201, 31)],
    ids=[
        "gain beside a mean",
        "gain beside a basis",
        "tiny gain",
        "two null forms",
        "two kinds of windows",
        "moving form",
    ],
)
def test_a_representative_with_a_finite_move_is_found(seed: int, explained: int) -> None:
    found = addnorm.symmetries(module(seed), inputs(seed), points=1)
    assert (found.explained, found.refuted) == (explained, ())


class SharedLayers(nn.Module):
    """One post-norm layer used twice, after a map into a wider stream, as in ALBERT."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.widen, self.norm, self.last = nn.Linear(3, 5), nn.LayerNorm(5), nn.Linear(5, 4)
        self.up, self.down = nn.Linear(5, 6), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.widen(x)
        for _ in range(2):
            x = self.norm(x + self.down(torch.tanh(self.up(x))))
        return self.last(x)


def test_null_forms_of_a_shared_layer_stay_along_a_move(monkeypatch: pytest.MonkeyPatch) -> None:
    found = addnorm.symmetries(SharedLayers().eval(), X[..., :3], points=1)
    assert (found.redundant, found.explained, found.refuted) == (18, 17, ())
    monkeypatch.setattr(structure, "_with_still_forms", lambda basis, *_: basis)
    assert addnorm.symmetries(SharedLayers().eval(), X[..., :3], points=1).refuted


def test_learned_biases_of_scores_are_kept_by_a_product_of_their_factors() -> None:
    """GAU's additive position has a complex number per pair of entries and head: a -> c a, b -> b / conj(c)."""
    sizes = {"vocab": 7, "width": 4, "depth": 1, "heads": 1, "hidden": 3, "max_seq": 16}
    model = addnorm.preset("llama", **sizes, position="gau_additive").build(seed=0).eval()
    found = addnorm.symmetries(model, torch.arange(18).reshape(2, 9) % 7, points=1)
    assert found.family("learned factor of a branch").size == 4
    assert (found.redundant, found.unexplained, found.refuted) == (found.explained, (), ())


class Scaled(nn.Embedding):
    """A table whose rows are scaled, as BART has it."""

    def forward(self, tokens: Tensor) -> Tensor:
        return 2.0 * super().forward(tokens)


class Recurrent(nn.Module):
    """A table with a padding token, a map of the token before, a layer scale and a norm."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.map, self.own = Scaled(9, 4, padding_idx=1), nn.Linear(4, 4, bias=False), nn.Linear(4, 4)
        self.scale, self.norm, self.last = nn.Parameter(torch.randn(4)), nn.LayerNorm(4), nn.Linear(4, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        before = torch.cat([self.map(x.new_zeros(len(x), 1, 4)), self.map(x)[:, :-1]], 1)
        gate = torch.softmax(self.own(x), -1).type_as(x)
        return self.last(self.norm(self.scale * (before + gate)))


def test_zeros_at_the_start_padding_rows_and_layer_scales() -> None:
    found = addnorm.symmetries(Recurrent().eval(), torch.arange(27).reshape(3, 9) % 9, points=1)
    assert found.unread == 0, "the padding token's row is read"
    assert found.family("gain into the next matrix").size == 4
    assert found.family("subspace that no reader reads").size == 4
    # Left: a constant of the table that the map takes to what the norm removes, but not at the first place.
    assert (found.redundant, found.explained, found.refuted) == (37, 36, ())
    assert [each.parameters for each in found.unexplained] == [("table.weight", "own.bias")]


class TiedBehindNorms(nn.Module):
    """A table that is added to before a norm, and reads what another norm makes of the stream, with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.added = nn.Embedding(7, 4), nn.Parameter(torch.randn(4))
        self.norm, self.map, self.last = nn.LayerNorm(4, 0.1), nn.Linear(4, 4), nn.LayerNorm(4, 0.1, bias=False)
        self.bias = nn.Parameter(torch.zeros(7))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.last(torch.tanh(self.map(self.norm(self.table(tokens) + self.added))))
        return x @ self.table.weight.T + self.bias


def test_a_tied_table_moves_along_a_straight_line() -> None:
    """Its rows take a constant from what is added to them, and a part that the last norm's result does not see."""
    tokens = torch.arange(14).reshape(2, 7) % 7
    torch.manual_seed(0)
    model = TiedBehindNorms().eval()
    found = addnorm.symmetries(model, tokens, points=1)
    assert not found.refuted
    assert found.explained >= 4 + 4
    for family in found.families:
        for index in range(family.size):
            assert found.move(family.name, index, 0.3)[1] < 1e-9
