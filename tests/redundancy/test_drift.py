"""The note about a redundant part that has walked far."""

import pytest
import torch
from torch import nn

import addnorm


def notes(bias: torch.Tensor) -> list[str]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(9, 4), nn.LayerNorm(4), nn.Linear(4, 2)).eval()
    with torch.no_grad():
        model[0].weight.fill_(1 / 3)  # rows of norm one
        model[0].weight.add_(1e-3 * torch.randn(4, 9))
        model[0].bias.copy_(bias)
    return [each for each in addnorm.audit(model, torch.randn(3, 9), methods="static").notes if "walked far" in each]


@pytest.mark.parametrize(
    ("bias", "noted"),
    [
        (torch.full((4,), 0.7), True),  # a fresh bias of 9 inputs is at most 1/3
        (torch.full((4,), 0.6), False),
        (torch.tensor([9.0, -9.0, 9.0, -9.0]), False),  # large where it matters
    ],
)
def test_only_the_part_that_cannot_matter_is_noted(bias: torch.Tensor, noted: bool) -> None:
    assert bool(notes(bias)) == noted


def test_no_fresh_model_is_noted_at_any_width() -> None:
    for width in (1, 2, 64):
        torch.manual_seed(width)
        model = nn.Sequential(nn.Linear(width, 4), nn.LayerNorm(4), nn.Linear(4, 2)).eval()
        assert not any("walked" in note for note in addnorm.audit(model, torch.randn(3, width), methods="static").notes)


def test_the_note_names_the_parameter_and_both_of_its_sizes() -> None:
    (note,) = notes(torch.full((4,), 600.0))
    assert note.startswith(
        "0.bias has walked far where it cannot matter: an entry of 600, 1.8e+03 times the largest of a"
    )
    assert "and 6e+02 times the row of its weight" in note


def test_a_large_entry_is_noted_among_small_ones_and_for_a_fused_projection() -> None:
    """An ALBERT of rxnmapper: 256 inputs, one entry of 0.32 in a key bias whose entries are 0.045 on average."""
    layer = nn.TransformerEncoderLayer(16, 2, 16, dropout=0.0, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    assert not addnorm.audit(layer, x, methods="static").finding("self_attn.in_proj_bias").idle_norm
    with torch.no_grad():
        layer.self_attn.in_proj_bias[20] = 0.6  # a key's entry, 2.4 times the largest of a fresh bias
    (note,) = (each for each in addnorm.audit(layer, x, methods="static").notes if "walked" in each)
    assert note.startswith("self_attn.in_proj_bias has walked far where it cannot matter: an entry of 0.6, 2.4 times")


def test_a_tensor_without_a_weight_of_its_own_is_not_judged_by_another() -> None:
    """Three axes, and a bias in its name or not: neither is the weight that a shift of a stream adds to."""

    class Shifted(nn.Module):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.register_parameter(name, nn.Parameter(torch.full((1, 2, 4), 50.0)))
            self.register_parameter("weight", nn.Parameter(torch.ones(3, 2, 4)))
            self.name, self.norm = name, nn.LayerNorm((2, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(x * self.weight.sum() + getattr(self, self.name))

    for name in ("pre", "bias"):
        audit = addnorm.audit(Shifted(name).eval(), torch.randn(5, 2, 4), track=rf"^{name}$", methods="static")
        assert audit.finding(name).redundant_dof == 1
        assert not any("walked" in note for note in audit.notes)


class Conv1D(nn.Module):
    """As Transformers' class of this name, which stores [in, out]."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(size, size)), nn.Parameter(torch.zeros(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.bias


def test_the_row_of_a_square_weight_is_that_of_its_class() -> None:
    found = []
    for cls in (nn.Linear, Conv1D):
        torch.manual_seed(0)
        model = nn.Sequential(cls(8) if cls is Conv1D else cls(8, 8), nn.LayerNorm(8), nn.Linear(8, 2)).eval()
        rows = torch.full((8, 8), 0.01)
        rows[0] = 100.0
        with torch.no_grad():
            model[0].weight.copy_(rows.T if cls is Conv1D else rows)
            model[0].bias.fill_(3.0)
        found += [each for each in addnorm.audit(model, torch.randn(3, 8), methods="static").notes if "walked" in each]
    assert len(found) == 2
    assert found[0] == found[1]
