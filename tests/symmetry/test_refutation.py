"""A wrong rule is refuted by the Jacobian; what no rule knows is reported as unexplained, by parameters."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import addnorm
from addnorm.symmetry.actions.call import RULES, Call, require_value
from addnorm.symmetry.actions.system import by_datum, renumbered
from addnorm.symmetry.actions.values import State


class TwoLayers(nn.Module):
    """A linear map, a function of single entries, and a linear map."""

    def __init__(self, function: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)  # of other draws some unit may be dead at all inputs, and so unread
        self.up, self.function, self.down = nn.Linear(3, 4), function, nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.function(self.up(x)))


X = torch.randn(20, 5, 3, generator=torch.Generator().manual_seed(0))


def test_a_unit_scale_of_relu_and_none_of_gelu() -> None:
    relu = addnorm.symmetries(TwoLayers(nn.ReLU()), X)
    assert (relu.redundant, relu.explained, relu.refuted) == (4, 4, ())
    assert [each.name for each in relu.families] == ["scale of a unit"]
    gelu = addnorm.symmetries(TwoLayers(nn.GELU()), X)
    assert (gelu.redundant, gelu.explained, gelu.refuted) == (0, 0, ())


def test_two_linear_maps_have_a_basis_between_them() -> None:
    found = addnorm.symmetries(nn.Sequential(nn.Linear(3, 2, bias=False), nn.Linear(2, 3, bias=False)), X)
    assert (found.redundant, found.explained) == (4, 4)


def test_a_wrong_rule_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_if_homogeneous(call: Call) -> State:
        value = require_value(call.operand("self").state)
        whole = call.system.whole(value)
        call.system.drop(value)
        call.system.diagonal(whole.space)
        call.system.equations.vanish(whole.space.shift)
        space = call.system.space(whole.space.size, linear=whole.space.linear, shift=np.full(whole.space.size, -1))
        return renumbered(whole.with_free(()), space, by_datum(whole)[0])

    monkeypatch.setitem(RULES, "gelu", as_if_homogeneous)
    found = addnorm.symmetries(TwoLayers(nn.GELU()), X)
    assert (found.redundant, found.explained, len(found.refuted)) == (0, 0, 4)
    assert "moves the output by" in found.refuted[0]


def test_a_missing_rule_leaves_directions_unexplained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(RULES, "relu")
    found = addnorm.symmetries(TwoLayers(nn.ReLU()), X)
    assert (found.redundant, found.explained, sum(each.size for each in found.unexplained)) == (4, 0, 4)
    assert found.unexplained[0].parameters == ("up.weight", "up.bias", "down.weight")


def test_the_row_of_a_padding_token_is_read() -> None:
    table = nn.Sequential(nn.Embedding(9, 3, padding_idx=1), nn.Linear(3, 4))
    found = addnorm.symmetries(table, torch.arange(9)[None])
    # A basis of the 3 numbers between the maps, and a constant from the table into the bias.
    assert (found.unread, found.redundant, found.explained, found.refuted) == (0, 12, 12, ())


class Positioned(nn.Module):
    """A table of nine positions, added to the input, and a linear map."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.map = nn.Parameter(torch.randn(9, 3)), nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.map(x + self.table[: x.shape[1]])


def test_unread_rows_are_not_free() -> None:
    found = addnorm.symmetries(Positioned(), X)
    # Inputs have at most six positions; a constant goes from their rows into the bias.
    assert (found.parameters, found.unread) == (43, 9)
    assert (found.redundant, found.explained) == (3, 3)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(100, 100), "expected a model with 1 to 5000 floating-point numbers"),
        (nn.ReLU(), "expected a model with 1 to 5000 floating-point numbers"),
    ],
)
def test_bad_input(model: nn.Module, message: str) -> None:
    with pytest.raises(addnorm.errors.InputError, match=message):
        addnorm.symmetries(model, torch.zeros(2, 100))
