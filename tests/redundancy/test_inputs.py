"""Inputs in three forms, fresh inputs of the same kind, and refusals in one sentence."""

import pytest
import torch
import toys
from torch import Tensor, nn
from toys import WIDTH, data, seeded, tokens

import addnorm
from addnorm.errors import InputError
from addnorm.redundancy.analysis import check_options
from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.checks import check_model
from addnorm.redundancy.execution.copies import copy_of
from addnorm.redundancy.execution.inputs import bind


class Masked(nn.Module):
    """Tokens and a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(7, 4), nn.Linear(4, 3)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.head(self.table(ids)) * mask[..., None]


def cases(model: nn.Module, inputs: object) -> Cases:
    return Cases.of(copy_of(model, torch.float64), bind(inputs), "logits")


def test_fresh_tokens_stay_within_the_table_and_masks_stay_as_they_are() -> None:
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    model_cases = cases(seeded(Masked), {"ids": torch.ones(2, 4, dtype=torch.int64), "mask": mask})
    assert model_cases.fresh
    assert model_cases.lengths == (2, 5, 9)
    drawn = [model_cases(number)[1].kwargs for number in range(0, 40, 4)]
    assert all(torch.equal(each["mask"], mask) for each in drawn)
    seen = torch.cat([each["ids"].flatten() for each in drawn])
    assert set(seen.tolist()) == set(range(7))
    longer = model_cases(3)[1].kwargs
    assert longer["ids"].shape == longer["mask"].shape == (2, 9)


def test_floats_keep_their_mean_and_spread_and_their_width() -> None:
    model_cases = cases(seeded(toys.Attention), 5 + 0.1 * data(2, 200, WIDTH))
    drawn = model_cases(4)[1].args[0]
    assert drawn.shape == (2, 200, WIDTH)
    assert drawn.dtype == torch.float64
    # Standard errors of the mean and the deviation of 2400 numbers are 0.002 and 0.0014.
    assert float(drawn.mean()) == pytest.approx(5, abs=0.02)
    assert float(drawn.std()) == pytest.approx(0.1, abs=0.01)


def test_a_model_of_one_length_is_tested_only_there() -> None:
    assert cases(nn.Linear(5, 3), data(4, 5)).lengths == ()


def test_single_inputs_of_ones_are_data_and_not_a_mask() -> None:
    assert not torch.equal(cases(nn.Linear(5, 3), torch.ones(4, 5))(1)[1].args[0], torch.ones(4, 5))


@pytest.mark.parametrize("model", [nn.Linear(3, 3, bias=False), nn.RMSNorm(3)])
def test_a_model_without_biases_has_nothing_to_audit(model: nn.Module) -> None:
    audit = addnorm.audit(model, data(2, 3))
    assert (audit.findings, audit.joint_null, audit.size) == ((), 0, 0)
    assert audit.notes == (f"{type(model).__name__} has no biases, so there is nothing to audit",)
    assert audit.agreed
    with pytest.raises(
        InputError, match="has no parameter of the kind that was audited, so that nothing can be removed"
    ):
        audit.strip()


def test_values_that_the_annotations_exclude_are_refused() -> None:
    with pytest.raises(InputError, match=r"expected a torch.nn.Module, got int"):
        check_model(3)
    with pytest.raises(InputError, match=r"no observation 'logit'. Did you mean 'logits'"):
        check_options("logit", "both")
    with pytest.raises(InputError, match=r"no method 'all'"):
        check_options("loss", "all")


def test_positional_keyword_and_single_inputs_are_equivalent() -> None:
    model, x = seeded(nn.Linear, 3, 2), data(2, 3)
    findings = [addnorm.audit(model, given, methods="numeric").findings for given in (x, (x,), [x], {"input": x})]
    assert all(each == findings[0] for each in findings)


def test_tables_are_tracked_on_request() -> None:
    audit = addnorm.audit(seeded(toys.Padded), tokens(2, 8), methods="numeric", track="bias+tables")
    assert {each.parameter for each in audit.findings} == {"table.weight", "head.bias"}


def test_a_model_that_does_not_fit_into_memory_is_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("addnorm.redundancy.analysis.left_bytes", lambda: 100)
    with pytest.warns(
        UserWarning, match=r"an audit of Linear needs about 1.56e-07 GB of memory, and 1e-07 GB are available"
    ):
        audit = addnorm.audit(nn.Linear(2, 2), torch.randn(3, 2), methods="numeric")
    assert audit.notes[0].startswith("an audit of Linear needs about")
