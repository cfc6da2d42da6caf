"""What a graph does not say once and for all is not claimed: constants that are no masks, integers that differ between
inputs, learned numbers that are compared, random numbers, and weights that a call writes."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import addnorm
from addnorm.errors import InputError
from addnorm.symmetry.bases.representative import canonicalised, equal_up_to, quantise_ready_model, random_moves

X = torch.randn(20, 5, 3, generator=torch.Generator().manual_seed(0))
TOKENS = torch.tensor([[0, 1, 2, 3, 4], [4, 3, 2, 1, 0]])


class Units(nn.Module):
    """A map, a function, a map."""

    def __init__(self, outputs: int = 4) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.up, self.down = nn.Linear(3, 4, bias=False), nn.Linear(outputs, 2, bias=False)
        self.shift = nn.Parameter(torch.tensor([0.05, -0.1, 0.2, 1.0]))

    def made(self, x: Tensor) -> Tensor:
        return torch.relu(self.up(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.made(x))


class HugeConstant(Units):
    def made(self, x: Tensor) -> Tensor:
        return torch.relu(self.up(x)) + 2e4


class VeryNegative(Units):
    def made(self, x: Tensor) -> Tensor:
        return torch.relu(self.up(x)) - 2e4


class Filled(Units):
    def made(self, x: Tensor) -> Tensor:
        return torch.relu(self.up(x)).masked_fill(torch.arange(4) == 2, -1e4)


class ComparedWeights(Units):
    def made(self, x: Tensor) -> Tensor:
        return self.up(x) + torch.where(self.shift > 0, self.shift, 0.1 * self.shift)


class DividedByTheLargest(Units):
    def made(self, x: Tensor) -> Tensor:
        return F.linear(x, self.up.weight / self.up.weight.abs().amax())


class Noisy(Units):
    def made(self, x: Tensor) -> Tensor:
        return torch.relu(self.up(x)) * (torch.rand(4) < 0.5).double()


class WritesOnce(Units):
    """As RWKV, whose first call divides the weights of deep layers by powers of two, for half precision."""

    def __init__(self) -> None:
        super().__init__()
        self.is_divided = False

    def made(self, x: Tensor) -> Tensor:
        if not self.is_divided:
            with torch.no_grad():
                self.up.weight.div_(4)
                self.down.weight.div_(2)
            self.is_divided = True
        return torch.relu(self.up(x))


class WritesAlways(Units):
    def made(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.down.weight.mul_(1.001)
        return torch.relu(self.up(x))


class WritesPart(Units):
    def made(self, x: Tensor) -> Tensor:
        units = torch.relu(self.up(x)).clone()
        units[..., 0] = 1.0
        units[..., 1].add_(2.0)
        return units


class DividedByAFarWeight(Units):
    """The second map's weight is computed, beside a score of -1e38 that is computed from a weight as well."""

    def made(self, x: Tensor) -> Tensor:
        scores = torch.stack([self.shift, self.shift - 1e38])
        return torch.relu(self.up(x)) * (torch.softmax(scores, 0).sum(0) + 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.made(x), self.down.weight / 2)


@pytest.mark.parametrize(
    ("cls", "redundant", "explained"),
    [
        (Units, 4, 4),
        (HugeConstant, 2, 0),
        (VeryNegative, 2, 0),
        (Filled, 3, 0),
        (ComparedWeights, 16, 6),
        (DividedByTheLargest, 14, None),
        (WritesOnce, 4, 4),
        (WritesAlways, 0, 0),
        (WritesPart, 3, 2),
        (DividedByAFarWeight, 4, 4),
    ],
)
def test_none_is_refuted(cls: type[Units], redundant: int, explained: int | None) -> None:
    found = addnorm.symmetries(cls().eval(), X, points=1)
    assert found.refuted == ()
    assert found.redundant == redundant
    assert explained in (None, found.explained)
    assert any("writes down.weight" in note for note in found.notes) == (cls is WritesAlways)


def test_random_numbers_are_no_constants() -> None:
    found = addnorm.symmetries(Noisy().eval(), X, points=1)
    assert found.refuted == ()


def test_a_move_is_made_at_the_weights_after_the_first_call() -> None:
    model = WritesOnce().eval()
    moved, difference = addnorm.symmetries(model, X, points=1).move("scale of a unit", 1)
    assert difference < 1e-12
    assert not model.is_divided
    twin = WritesOnce().double().eval()
    torch.testing.assert_close(moved(X.double()), twin(X.double()), rtol=1e-9, atol=1e-12)


def test_weights_that_the_first_call_changes_have_no_canonical_form() -> None:
    """A checkpoint of what the call has left would be divided once more after it is loaded."""
    for analyse in (canonicalised, quantise_ready_model, random_moves):
        with pytest.raises(InputError, match=r"first call changes up\.weight\. Switch that off first"):
            analyse(WritesOnce().eval(), X)
    with pytest.raises(InputError, match=r"first call changes up\.weight"):
        equal_up_to(WritesOnce().eval(), WritesOnce().eval(), X)


class Table(nn.Module):
    """A table, and what integers do beside looking it up."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.table, self.flag = nn.Embedding(9, 3), nn.Linear(1, 3, bias=False)
        self.up, self.down = nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False)
        self.rows = nn.Parameter(torch.randn(9, 4))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(self.table(tokens))))


class MapOfAFlag(Table):
    def forward(self, tokens: Tensor) -> Tensor:
        flag = (tokens == 8).to(self.flag.weight.dtype)[..., None]
        return self.down(self.up(self.table(tokens) + self.flag(flag)))


class ShiftByAFlag(Table):
    def forward(self, tokens: Tensor) -> Tensor:
        flag = (tokens == 8).to(self.flag.weight.dtype)[..., None]
        return self.down(torch.relu(self.up(self.table(tokens))) + flag)


class RowsOfAWeight(Table):
    def forward(self, tokens: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(self.table(tokens))) + self.rows[tokens])


@pytest.mark.parametrize("cls", [Table, MapOfAFlag, ShiftByAFlag, RowsOfAWeight])
def test_integers_that_these_inputs_lack(cls: type[Table]) -> None:
    """No given token is 8, nor read from the second half of the tables."""
    found = addnorm.symmetries(cls().eval(), TOKENS, points=1)
    assert found.refuted == ()
    assert found.explained + sum(each.size for each in found.unexplained) == found.redundant
    assert (cls is Table) <= (found.explained > 0)


class Positions(nn.Module):
    """A table of positions longer than the inputs, before a norm and beside it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.table, self.norm = nn.Parameter(torch.randn(16, 3)), nn.LayerNorm(3)
        self.map, self.last = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.table[: x.shape[1]]
        return self.last(x + self.map(self.norm(x)))


def test_a_move_is_compared_at_positions_that_it_moves() -> None:
    found = addnorm.symmetries(Positions().eval(), X, points=1)
    assert found.refuted == ()
    assert max(found.move(each.name, index)[1] for each in found.families for index in range(each.size)) < 1e-9
