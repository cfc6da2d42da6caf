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
        (torch.full((4,), 1.1), True),
        (torch.full((4,), 0.9), False),
        (torch.tensor([9.0, -9.0, 9.0, -9.0]), False),  # large where it matters
    ],
)
def test_only_the_part_that_cannot_matter_is_noted(bias: torch.Tensor, noted: bool) -> None:
    assert bool(notes(bias)) == noted


def test_the_note_names_the_parameter_and_its_size() -> None:
    (note,) = notes(torch.full((4,), 600.0))
    assert note.startswith("0.bias has walked far where it cannot matter: 600 per entry, 6e+02 times the rows")
