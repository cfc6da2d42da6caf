"""What an operation is called decides which rule it has: one of another library, one that rounds and one that reads bits are
others than torch's; and both analyses know the functions that keep every positive factor."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import addnorm
from addnorm.redundancy.execution.operation_names import name_of
from addnorm.symmetry import analysis
from addnorm.symmetry.bases import representative
from addnorm.symmetry.bases.representative import canonicalised, equal_up_to, freedom_of, random_moves
from addnorm.symmetry.moves import Comparison

X = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))


@torch.library.custom_op("addnorm_tests::relu", mutates_args=(), schema="(Tensor self) -> Tensor")
def own_relu(x: Tensor) -> Tensor:
    return torch.tanh(x)


own_relu.register_fake(torch.empty_like)
own_relu.register_autograd(
    lambda ctx, grad: grad * (1 - torch.tanh(ctx.saved_tensors[0]) ** 2),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def clipped(x: Tensor) -> Tensor:
    return torch.where(x.view(torch.int32) > 0, x, 0.5 * x) if x.dtype == torch.float32 else F.leaky_relu(x, 0.5)


FUNCTIONS: dict[str, tuple[Any, int]] = {
    "relu": (torch.relu, 5),
    "leaky relu": (lambda x: F.leaky_relu(x, 0.1), 5),
    "absolute": (torch.abs, 5),
    "the relu of another library": (own_relu, 0),
    "a division that rounds": (lambda x: torch.div(x, 0.25, rounding_mode="floor") + torch.relu(x), 0),
    "bits of the sign": (clipped, 0),
}


class Layer(nn.Module):
    """A map, a function of single entries, a map."""

    def __init__(self, name: str = "relu") -> None:
        super().__init__()
        torch.manual_seed(1)
        self.up, self.down = nn.Linear(4, 5), nn.Linear(5, 3)
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.down(FUNCTIONS[self.name][0](self.up(x)))
        return made


@pytest.mark.parametrize("name", FUNCTIONS)
def test_both_analyses_know_which_units_have_a_scale(name: str) -> None:
    model, scales = Layer(name).eval(), FUNCTIONS[name][1]
    found = addnorm.symmetries(model, X, points=1)
    assert found.refuted == ()
    assert found.explained == scales
    freedom = freedom_of(model, X)
    assert freedom.sizes().get("scale of a unit", 0) == scales
    for made in (random_moves(model, X, freedom=freedom), canonicalised(model, X, freedom=freedom)):
        assert made.certificate.passed


def test_a_name_tells_libraries_and_roundings_apart() -> None:
    ops = torch.ops.aten
    assert name_of(ops.relu.default) == "relu"
    assert name_of(torch.ops.addnorm_tests.relu.default) == "addnorm_tests::relu"
    assert len({name_of(ops.div.Tensor), name_of(ops.div.Tensor_mode)}) == 2
    assert name_of(ops.view.default) != name_of(ops.view.dtype)


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.unused, self.norm, self.down = nn.Linear(4, 4), nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.down(self.norm(self.up(x)))
        return made


def test_numbers_that_nothing_reads_do_not_matter() -> None:
    model = Unused().eval()
    found = addnorm.symmetries(model, X, points=1)
    names = [name for name, _ in model.named_parameters()]
    assert found.unread == 20
    assert found.effective_of([name for name in names if "unused" in name]) == 0
    assert found.effective_of(names) == found.effective


def test_of_many_directions_every_family_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    moved, tried = Comparison.moved, set()

    def watched(self: Comparison, propagation: Any, weights: Any, direction: Any, amount: float) -> Any:
        tried.add(direction.family)
        return moved(self, propagation, weights, direction, amount)

    monkeypatch.setattr(Comparison, "moved", watched)
    monkeypatch.setattr(analysis, "_MOST_MOVES", 1)
    found = addnorm.symmetries(Unused().eval(), X, points=1)
    assert {family.name for family in found.families} == tried
    assert len(tried) > 1
    assert "in every family by a finite move" in found.notes[-1]


def test_two_models_of_one_class_are_exported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    exported: list[nn.Module] = []
    export = representative.export
    monkeypatch.setattr(
        representative, "export", lambda model, *args, **named: exported.append(model) or export(model, *args, **named)
    )
    assert equal_up_to(Layer().eval(), Layer().eval(), X).equal
    assert len(exported) == 1
