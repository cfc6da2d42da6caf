"""Tables: the free directions of one that tokens index, and the size up to which every entry is tracked."""

import pytest
import torch
from null_checks import audited, hold
from torch import nn

import addnorm
from addnorm.redundancy.execution.tracked_parameters import LARGEST_TABLE

pytestmark = pytest.mark.compiled

ROWS, WIDTH = 7, 4


class Looked(nn.Module):
    """A table that tokens index, then a layer norm or a linear map, a non-linearity, and a head."""

    def __init__(self, rows: int, width: int, *, norm: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, width)
        self.first = nn.LayerNorm(width) if norm else nn.Linear(width, width)
        self.head = nn.Linear(width, width, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.first(self.table(ids))))


def ids(rows: int) -> torch.Tensor:
    """Every row, several times."""
    return torch.arange(24).reshape(3, 8) % rows


@pytest.mark.parametrize(("norm", "free"), [(True, ROWS), (False, WIDTH)])
def test_rows_that_tokens_index(norm: bool, free: int) -> None:
    """A layer norm cancels one number added to all of a row, another one for each row. A linear map with a bias cancels what
    all rows share."""
    torch.manual_seed(0)
    model = Looked(ROWS, WIDTH, norm=norm)
    case = audited(model, ids(ROWS), track="bias+tables")
    assert case.analysis.space.dim == free
    assert len(case.analysis.space.redundant("table.weight")) == (free if norm else 0)
    hold(case)
    audit = addnorm.audit(model, ids(ROWS), track="bias+tables")
    # Not by the rank of the gradients at one point: a norm hides a row's scale but for its eps, and behind a tanh that is
    # nearly flat there so little is left that it would count as nothing.
    assert (audit.joint_null, audit.numeric_joint_null, audit.disagreements) == (free, free, ())


@pytest.mark.parametrize(("rows", "followed", "free"), [(128, 1024, 128), (129, 8, 1)])
@pytest.mark.thorough
def test_the_largest_table_that_is_tracked_entry_by_entry(rows: int, followed: int, free: int) -> None:
    """Beyond the limit a move of the table is one row added to all: one direction of what a layer norm cancels, not one per
    row; and a note says so."""
    assert LARGEST_TABLE == 1024
    torch.manual_seed(0)
    audit = addnorm.audit(Looked(rows, 8, norm=True), ids(24), track="bias+tables", methods="static")
    table = audit.finding("table.weight")
    assert (table.size, table.redundant_dof) == (followed, free)
    assert any("only for adding one row to all rows" in note for note in audit.notes) == (rows == 129)
