"""Einstein sums with an ellipsis are those with a letter for each axis that it stands for."""

import pytest
import torch
from torch import Tensor, nn

import addnorm


class Summed(nn.Module):
    """A layer with a bias in front of an Einstein sum."""

    def __init__(self, equation: str, shape: tuple[int, ...], *, data_first: bool) -> None:
        super().__init__()
        self.map, self.weight, self.last = nn.Linear(4, 5), nn.Parameter(torch.randn(shape)), nn.Linear(3, 3)
        self.equation, self.data_first = equation, data_first

    def forward(self, x: Tensor) -> Tensor:
        parts = (self.map(x), self.weight) if self.data_first else (self.weight, self.map(x))
        return self.last(torch.einsum(self.equation, *parts))


@pytest.mark.parametrize(
    ("equation", "spelled", "shape", "data_first"),
    [
        ("...d,de->...e", "bsd,de->bse", (5, 3), True),
        ("ed,...d->...e", "ed,bsd->bse", (3, 5), False),
    ],
)
def test_it_proves_what_letters_do(equation: str, spelled: str, shape: tuple[int, ...], data_first: bool) -> None:
    x = torch.randn(2, 6, 4)
    audits = []
    for each in (equation, spelled):
        torch.manual_seed(0)
        audits.append(addnorm.audit(Summed(each, shape, data_first=data_first).eval(), x))
    one, other = audits
    assert one.joint_null == other.joint_null == 5
    assert [(each.verdict, each.redundant_dof) for each in one.findings] == [
        (each.verdict, each.redundant_dof) for each in other.findings
    ]
    assert not {"unproved", "undecided"} & {each.verdict for each in one.findings}
