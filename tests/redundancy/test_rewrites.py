"""Removal with its certificate, the canonical form, equivalence, lint. Numerical method only, without export."""

import pytest
import torch
import toys
from torch import nn
from toys import WIDTH, data, seeded

import addnorm
from addnorm.errors import InputError
from addnorm.redundancy import Audit, Certificate


def numeric(model: nn.Module, inputs: object, **options: object) -> Audit:
    return addnorm.audit(model, inputs, **options | {"methods": "numeric"})


def outputs(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(x)


def row(certificate: Certificate, mode: str, dtype: str) -> float:
    (difference,) = (each.difference for each in certificate.compared if (each.mode, each.dtype) == (mode, dtype))
    return difference


def test_the_key_bias_is_removed_and_the_output_bias_absorbs_the_value_bias() -> None:
    model = seeded(toys.Attention)
    stripped, certificate = numeric(model, data(2, 4, WIDTH)).strip()
    assert certificate.removed == ("k.bias", "v.bias")
    assert certificate.changed == ("o.bias",)
    assert stripped.k.bias is None
    assert stripped.v.bias is None
    expected = model.o.bias + model.o.weight @ model.v.bias
    torch.testing.assert_close(stripped.o.bias, expected)
    assert certificate.passed
    assert certificate.lengths
    assert certificate.fresh > len(certificate.lengths)
    assert row(certificate, "eval", "float64") < 1e-13
    assert {each.dtype for each in certificate.compared} == {"float64", "float32", "bfloat16"}
    assert sum(p.numel() for p in stripped.parameters()) == sum(p.numel() for p in model.parameters()) - 2 * WIDTH


def test_a_wrong_rewrite_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: the absorbing bias is wrong by a thousandth."""
    import addnorm.redundancy.rewriting.strip as strip

    honest = strip.plan_removals

    def careless(*args: object, **kwargs: object) -> object:
        planned = honest(*args, **kwargs)
        planned.values["o.bias"].mul_(1.001)
        return planned

    monkeypatch.setattr(strip, "plan_removals", careless)
    _, certificate = numeric(seeded(toys.Attention), data(2, 4, WIDTH)).strip()
    assert not certificate.passed
    assert {each.dtype for each in certificate.compared if not each.passed} >= {"float64", "float32"}


@pytest.mark.parametrize("training", [True, False])
def test_the_removal_of_a_bias_before_batch_norm_moves_the_running_mean(training: bool) -> None:
    model = seeded(toys.Convolved)
    image = data(5, 2, 4, 4)
    stripped, certificate = numeric(model, image, training=training).strip()
    assert certificate.removed == ("conv.bias",)
    assert certificate.changed == ("norm.running_mean",)
    assert certificate.passed
    assert {each.mode for each in certificate.compared} == ({"eval", "training"} if training else {"eval"})
    torch.testing.assert_close(outputs(stripped, image), outputs(model, image))
    torch.testing.assert_close(stripped.train()(image), model.train()(image))


def test_removing_the_bias_alone_would_break_evaluation() -> None:
    """Without moving the running mean the output changes."""
    model, other = seeded(toys.Convolved), seeded(toys.Convolved)
    other.conv.bias = None
    image = data(5, 2, 4, 4)
    assert float((outputs(other, image) - outputs(model, image)).abs().max()) > 1e-3


def test_classes_that_need_numbers_get_zeros_that_are_not_trained() -> None:
    model = seeded(lambda: nn.LSTM(3, 4, batch_first=True))
    stripped, certificate = numeric(model, data(2, 5, 3)).strip()
    assert certificate.removed == ()
    assert len(certificate.zeroed) == 1
    assert certificate.passed
    assert not any(
        name in dict(stripped.named_parameters()) and p.requires_grad and not p.any()
        for name, p in stripped.named_parameters()
    )


def test_a_preference_decides_which_of_two_is_removed_and_the_limit_refuses_large_amplification() -> None:
    model = seeded(toys.Attention)
    audit = numeric(model, data(2, 4, WIDTH))
    _, first = audit.strip(prefer=["o.bias"], max_amplification=1e9)
    assert first.removed == ("o.bias", "k.bias")
    _, second = audit.strip(prefer=["o.bias"], max_amplification=1e-3)
    assert "o.bias" in second.refused
    with pytest.raises(InputError, match=r"expected `prefer` to match removable parameters, got 'nothing'.*k.bias"):
        audit.strip(prefer=["nothing"])


def test_biases_at_zero_are_removed_only_if_any_value_could_be() -> None:
    model = seeded(toys.Attention)
    with torch.no_grad():
        for linear in (model.q, model.k, model.v, model.o):
            linear.bias.zero_()
    _, certificate = numeric(model, data(2, 4, WIDTH)).strip()
    assert certificate.removed == ("k.bias", "v.bias")


def test_a_model_changed_since_its_audit_is_not_rewritten() -> None:
    model = seeded(toys.Attention)
    audit = numeric(model, data(2, 4, WIDTH))
    with torch.no_grad():
        model.k.bias.add_(1)
    with pytest.raises(InputError, match="as they were at the audit, got changed ones"):
        audit.strip()


def test_the_canonical_form_is_smallest_equivalent_and_unique() -> None:
    model = seeded(toys.PostNorm)
    x = data(2, 4, WIDTH)
    canonical = numeric(model, x).canonicalize()
    assert canonical.state_dict().keys() == model.state_dict().keys()
    torch.testing.assert_close(outputs(canonical, x), outputs(model, x), rtol=1e-4, atol=1e-5)
    assert not bool(canonical.attention.k.bias.any())
    assert _size(canonical) < _size(model)
    moved = seeded(toys.PostNorm)
    with torch.no_grad():
        moved.attention.k.bias.add_(3.0)
        moved.attention.v.bias.add_(1.0)
        moved.attention.o.bias.sub_(moved.attention.o.weight.sum(1))
    again = numeric(moved, x).canonicalize()
    for name, value in canonical.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], value, rtol=1e-5, atol=1e-6)


def _size(model: nn.Module) -> float:
    return sum(float(p.detach().square().sum()) for name, p in model.named_parameters() if name.endswith("bias"))


def test_equivalence_is_equality_up_to_the_null_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("addnorm.redundancy.equivalence.audit", numeric)
    model, other = seeded(toys.Attention), seeded(toys.Attention)
    x = data(2, 4, WIDTH)
    with torch.no_grad():
        other.k.bias.add_(3.0)
    same = addnorm.equivalent(model, other, x)
    assert same
    assert same.moved == pytest.approx(3.0, rel=1e-6)
    assert same.difference <= same.bound
    stripped, _ = numeric(model, x).strip()
    assert addnorm.equivalent(model, stripped, x)
    assert addnorm.equivalent(stripped, model, x)
    with torch.no_grad():
        other.q.bias[0] += 0.25
    different = addnorm.equivalent(model, other, x)
    assert not different
    assert different.parameter == "q.bias"
    assert different.difference == pytest.approx(0.25, rel=1e-6)
    with pytest.raises(InputError, match="whose parameters match in name and shape, got different ones"):
        addnorm.equivalent(model, nn.Linear(WIDTH, WIDTH), x)


def test_lint_suggests_the_line_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("addnorm.redundancy.linter.audit", numeric)
    lines = addnorm.lint(seeded(toys.Attention), data(2, 4, WIDTH))
    assert len(lines) == 2
    assert lines[0].startswith("k.bias: no value of it changes the output")
    assert lines[0].endswith("Write nn.Linear(6, 6, bias=False): 6 numbers less.")
    assert lines[1].startswith("v.bias: it changes the output when moved alone, but o.bias can absorb all of it.")
    assert addnorm.lint(nn.Sequential(nn.Linear(WIDTH, 3), nn.Tanh()), data(4, WIDTH)) == []
