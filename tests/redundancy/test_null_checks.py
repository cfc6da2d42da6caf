"""The checks that refute a claimed null space: a choice that rounding makes refutes nothing, a real change always does."""

import pytest
import torch
from grammar_truth import Compared, compared
from null_checks import ROUNDING, Case, RoundingChooses, audited, change, spanned
from torch import Tensor, nn

from addnorm.redundancy.graph.null_space import NullSpace


class Tied(nn.Module):
    """Chooses between a row and its negative by two sums of the same numbers in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.score(x)
        first, again = (scores + 1).sum(-1, keepdim=True), scores.flip(-1).cumsum(-1)[..., -1:] + 6
        return torch.where(first > again, x, -x)


class Chosen(nn.Module):
    """Chooses by the sign of a score, which its bias moves."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(self.score(x) > 0, x, -x)


def claimed(model: nn.Module) -> tuple[Case, NullSpace]:
    """The case of a model, and the claim that none of its biases matters."""
    case = audited(model.double(), torch.randn(64, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    return case, spanned(case.tracked, torch.eye(case.tracked.size))


def test_a_choice_among_equal_scores_refutes_nothing() -> None:
    torch.manual_seed(0)
    case, space = claimed(Tied())
    with pytest.raises(RoundingChooses, match="so does rounding"):
        change(case, space, case.model)


def test_a_choice_that_a_move_changes_refutes_the_claim() -> None:
    torch.manual_seed(0)
    case, space = claimed(Chosen())
    assert change(case, space, case.model) > 1e6 * ROUNDING


def test_a_change_far_above_that_of_rounding_refutes_the_claim() -> None:
    """Many equal scores, but the output jumps by a thousandth only, and the claim is wrong by more."""

    class Both(Tied):
        def forward(self, x: Tensor) -> Tensor:
            return 1e-3 * super().forward(x) + self.score(x)

    torch.manual_seed(0)
    case, space = claimed(Both())
    assert change(case, space, case.model) > 1e6 * ROUNDING


def test_a_skipped_module_with_a_refuted_claim_is_false() -> None:
    assert Compared(seed=0, proved=1, truth=0, change=1.0, skipped="the Jacobian is not finite").false
    assert not Compared(seed=0, proved=1, truth=0, change=0.0, skipped="the Jacobian is not finite").false


def test_a_drawn_module_with_equal_scores_is_no_false_proof() -> None:
    """Module 117508 takes the two largest of scores of which two are equal, on nearly every input."""
    assert not compared(117508).false
