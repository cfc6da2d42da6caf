"""A rewrite transferred from a smaller model of the class: it equals the rewrite from the large model's own audit."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel

import addnorm
from addnorm.errors import InputError
from addnorm.redundancy.execution.copies import copy_of
from addnorm.redundancy.execution.float64 import Float64Mode, WideningMode
from addnorm.redundancy.rewriting import recipe as recipes

pytestmark = pytest.mark.compiled

TOKENS = {"input_ids": torch.randint(5, 30, (3, 6), generator=torch.Generator().manual_seed(0))}


def bert(layers: int, width: int) -> nn.Module:
    """A BERT with nonzero biases, as after training."""
    sizes = {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_attention_heads": 2,
    }
    torch.manual_seed(layers)
    model = BertModel(BertConfig(**sizes, vocab_size=30, max_position_embeddings=16), add_pooling_layer=False).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module")
def small() -> addnorm.Audit:
    return addnorm.audit(bert(2, 8), TOKENS, methods="static")


@pytest.mark.thorough
def test_the_large_models_own_audit_removes_the_same_except_what_is_listed(small: addnorm.Audit) -> None:
    """Of every layer k, v, the second feed-forward bias and the first one's norm go by products of weights; the output
    projection's would go by the inverse of one plus two of them, which is of the small model's size."""
    full = bert(3, 16)
    before = {name: value.clone() for name, value in full.state_dict().items()}
    made, certificate = small.transfer(full, TOKENS)
    assert certificate.passed
    assert [row.dtype for row in certificate.compared] == ["float64", "float32"]
    transferred = {*certificate.removed, *certificate.zeroed}
    _, own = addnorm.audit(full, TOKENS, methods="static").strip()
    unlike = {*own.removed, *own.zeroed} ^ transferred
    assert unlike == {f"encoder.layer.{at}.attention.output.dense.bias" for at in range(3)}
    assert all("no product of weights gives it" in reason for reason in certificate.left)
    assert {reason.partition(":")[0] for reason in certificate.left} == {
        f"encoder.layer.{at}.attention.output.dense.bias" for at in range(2)
    }
    for name in certificate.removed:
        assert name not in dict(made.named_parameters())
    with torch.no_grad():
        torch.testing.assert_close(made(**TOKENS)[0], full(**TOKENS)[0])
    assert all(torch.equal(value, before[name]) for name, value in full.state_dict().items())
    assert made.embeddings.word_embeddings.weight is full.embeddings.word_embeddings.weight


def test_a_wrong_step_does_not_pass(small: addnorm.Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: the absorbing bias is wrong by a thousandth."""
    honest = recipes._explained

    def careless(*arguments: object) -> object:
        terms = honest(*arguments)
        return terms and tuple(replace(term, times=0.999 * term.times) for term in terms)

    monkeypatch.setattr(recipes, "_explained", careless)
    _, certificate = small.transfer(bert(3, 16), TOKENS)
    assert not certificate.passed
    assert not any(row.passed for row in certificate.compared)


def test_bfloat16_is_certified_in_bfloat16_and_float64(small: addnorm.Audit) -> None:
    made, certificate = small.transfer(bert(3, 16).bfloat16(), TOKENS)
    assert certificate.passed
    assert [row.dtype for row in certificate.compared] == ["float64", "float64", "bfloat16"]
    assert [row.stored for row in certificate.compared] == ["", "bfloat16", ""]
    assert {parameter.dtype for parameter in made.parameters()} == {torch.bfloat16}


def test_another_class_is_refused(small: addnorm.Audit) -> None:
    with pytest.raises(InputError, match="expected a model of the audited class BertModel, got Linear"):
        small.transfer(nn.Linear(3, 3), torch.randn(2, 3))


def test_widening_is_a_float64_copy() -> None:
    """A model in bfloat16, whose own outputs differ in the third digit."""
    model = bert(2, 16).bfloat16()
    with torch.no_grad(), Float64Mode():
        expected = copy_of(model, torch.float64)(**TOKENS)[0]
    with torch.no_grad(), WideningMode():
        widened = model(**TOKENS)[0]
    assert widened.dtype == torch.float64
    torch.testing.assert_close(widened, expected, rtol=1e-13, atol=1e-13)


def test_carry_is_an_alias_of_transfer(small: addnorm.Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    full, given = bert(2, 8), []

    def transfer(*arguments: object, **options: object) -> str:
        given.append((arguments, options))
        return "rewritten"

    monkeypatch.setattr(addnorm.Audit, "transfer", transfer)
    assert small.carry(full, TOKENS, max_amplification=3.0) == "rewritten"
    assert given == [((small, full, TOKENS), {"max_amplification": 3.0})]


class ThroughFloat32(nn.Module):
    """Two maps, between which numbers pass through float32 in a way that no type of the weights changes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        torch.manual_seed(width)
        self.up, self.down = nn.Linear(4, width), nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.down(self.up(x).type("torch.FloatTensor").to(self.down.weight.dtype))
        return made


def test_rounding_of_a_lower_precision_inside_counts_once_in_every_format() -> None:
    x = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
    audit = addnorm.audit(ThroughFloat32(6).eval(), x)
    for _, certificate in (audit.strip(), audit.transfer(ThroughFloat32(9).eval(), x)):
        assert certificate.passed
        rows = {each.dtype: each for each in certificate.compared}
        assert 1e-9 < rows["float64"].bound < 1e-2  # float32's rounding, not float64's
        for dtype in rows.keys() - {"float64"}:
            # Not float32's rounding over float64's, a factor that would pass anything.
            assert rows[dtype].bound < 1e3 * torch.finfo(getattr(torch, dtype)).eps
