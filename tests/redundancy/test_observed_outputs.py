"""Outputs that must not change: everything that a module returns, also integers, losses and numbers in Python objects."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from toys import data, seeded

import addnorm
from addnorm.errors import InputError
from addnorm.redundancy import Audit
from addnorm.redundancy.execution.observation import observed, observed_names

pytestmark = pytest.mark.compiled

X = data(2, 5, 4)


class Quantised(nn.Module):
    """A vector-quantised autoencoder: the bias before the code book moves the codes, and nothing else that has a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(4, 3), nn.Linear(4, 4)
        self.register_buffer("book", data(6, 3, seed=1))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        distances = (self.encode(x)[..., None, :] - self.book).square().sum(-1)
        return {"reconstruction": self.decode(x), "codes": distances.argmin(-1)}


class Variational(nn.Module):
    """Returns the mean alone; the bias of the variance moves only the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.variance = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        mean, variance = self.mean(x), self.variance(x)
        return {"sample": mean, "kl_loss": (mean.square() + variance.exp() - variance).sum(-1)}


class Hidden(nn.Module):
    """The bias of the norm's input moves the states but not the logits, except for their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.head = nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = self.up(x)
        return {"logits": self.head(self.norm(hidden)), "hidden_states": hidden, "pooler_output": hidden[:, 0]}


class Threshold(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.gate = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.left(x), self.gate(x) > 0


@pytest.mark.parametrize(
    ("build", "name", "watched"),
    [
        (Quantised, "encode.bias", "codes (int64)"),
        (Variational, "variance.bias", "kl_loss"),
        (Hidden, "up.bias", "hidden_states"),
        (Threshold, "gate.bias", "output[1] (bool)"),
    ],
)
@pytest.mark.parametrize("methods", ["both", "numeric"])
def test_a_bias_that_moves_only_a_side_output_is_effective(build, name: str, watched: str, methods: str) -> None:
    audit = addnorm.audit(seeded(build), X, methods=methods)
    assert audit.finding(name).verdict == "effective"
    assert audit.finding(name).redundant_dof == 0
    assert watched in audit.observed
    assert audit.unobserved == ()
    assert audit.disagreements == ()
    assert audit.to_json()["observed"] == list(audit.observed)
    _, certificate = audit.strip()
    assert certificate.passed
    assert name not in (*certificate.removed, *certificate.zeroed, *certificate.reduced)


class Chosen(nn.Module):
    """Scores, and the class with the largest one: an equal shift of all scores keeps the class but not the scores."""

    def __init__(self) -> None:
        super().__init__()
        self.score, self.other = nn.Linear(4, 3), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.other(x), self.score(x).argmax(-1)


def test_a_shift_that_no_chosen_class_can_see_stays_redundant() -> None:
    """The static method proves the common shift, and moves of any size confirm it."""
    audit = addnorm.audit(seeded(Chosen), X)
    score = audit.finding("score.bias")
    assert (score.verdict, score.redundant_dof, score.directions.kind) == ("partly redundant", 1, "all-ones")
    assert audit.disagreements == ()
    _, certificate = audit.strip()
    assert certificate.passed
    assert "score.bias" in certificate.reduced
    exact = certificate.compared[0]
    assert (exact.integers_changed, exact.integers > 0) == (0, True)


def test_a_certificate_fails_when_an_integer_changes_along_the_claimed_freedom(monkeypatch) -> None:
    """Planted fault: a rule that lets a bias pass into a comparison. The bias is zero, so its removal itself is invisible."""
    from addnorm.redundancy.graph.rules import softmax

    model = seeded(Threshold)
    with torch.no_grad():
        model.gate.bias.zero_()
    monkeypatch.setitem(softmax.rule.__globals__["RULES"], "gt", lambda call, *_: call.unmoved())
    audit = addnorm.audit(model, X, methods="static")
    assert audit.finding("gate.bias").verdict == "redundant"
    _, certificate = audit.strip()
    assert not certificate.passed
    assert [each.passed for each in certificate.compared] == [False, True, True]
    assert certificate.compared[0].integers_changed > 0


@dataclass
class Result:
    logits: Tensor
    mems: Tensor


class Thing:
    def __init__(self, tensor: Tensor) -> None:
        self.inner, self.kind = tensor, "thing"


def test_everything_with_numbers_is_observed_under_its_path() -> None:
    one = torch.ones(2, 3)
    output = {
        "loss": one.sum(),
        "result": Result(logits=one, mems=one),
        "list": [one, (one, 3, True, 0.5, None, "text")],
        "object": Thing(one),
        "array": np.ones(2),
        "wave": torch.ones(2, dtype=torch.complex64),
        "labels": {1, 2},
    }
    names = observed_names(output, "logits")
    assert names.observed == (
        "loss",
        "result.logits",
        "result.mems",
        "list[0]",
        "list[1][0]",
        "list[1][1] (int64)",
        "list[1][2] (bool)",
        "list[1][3]",
        "object.inner",
        "array",
        "wave",
    )
    assert names.omitted == ("labels (set)",)
    assert observed_names(one, "logits").observed == ("output",)


def test_only_transformers_outputs_have_auxiliary_fields() -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")
    one = torch.ones(2, 3)
    names = observed_names(
        outputs.Seq2SeqLMOutput(loss=one.sum(), logits=one, encoder_last_hidden_state=one, decoder_attentions=(one,)),
        "logits",
    )
    assert names.observed == ("logits",)
    assert names.omitted == ("loss", "decoder_attentions", "encoder_last_hidden_state")
    inner = outputs.BaseModelOutputWithPooling(last_hidden_state=one, pooler_output=one, hidden_states=(one, one))
    names = observed_names({"own": inner, "attentions": one}, "logits")
    assert names.observed == ("own.last_hidden_state", "own.pooler_output", "attentions")
    assert names.omitted == ("own.hidden_states",)


def test_the_softmax_concerns_scores_and_no_axis_of_one_entry() -> None:
    scores, other = data(2, 3), data(2, 1)
    tensors = observed({"logits": scores, "values": scores, "step": torch.tensor(3)}, "softmax")
    torch.testing.assert_close(tensors, (scores.log_softmax(-1), scores, torch.tensor(3)))
    assert observed(other, "softmax")[0] is other
    assert observed((other, scores.sum()), "loss")[1].dim() == 0


def test_a_model_that_returns_integers_alone_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"floating-point tensors, got Tensor with int64 only. .* the scores from which"
    ):
        observed(torch.ones(2, dtype=torch.int64), "logits")


class Itemised(nn.Module):
    """A Python number from the data: torch.export gives it a symbol, not a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, float]:
        return self.left(x), self.right(x).mean().item()


def test_numbers_that_leave_tensors_are_observed_by_the_numerical_method() -> None:
    audit: Audit = addnorm.audit(seeded(Itemised), X)
    assert audit.methods == "numeric"
    assert audit.observed == ("output[0]", "output[1]")
    assert "a Python number from data" in audit.notes[0]
    assert audit.finding("right.bias").redundant_dof == 2
