"""Learned numbers that other parameters can absorb are called gauges, with the family that does it, others not."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from addnorm import ModelSpec, preset
from addnorm.catalogue import family_of
from addnorm.errors import UnknownName
from addnorm.insight.identifiable import gauges
from addnorm.insight.scalars.run_record import _absorbed as absorbed
from addnorm.testing.laws import some_tokens, subject


def toy(**changes: Any) -> ModelSpec:
    sizes = {"vocab": 11, "width": 16, "depth": 3, "heads": 2, "kv_heads": 1, "hidden": 24, "max_seq": 16}
    return preset("llama", **(sizes | changes))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ()),
        pytest.param({"residual": "rezero"}, ("residual.alpha",), marks=pytest.mark.thorough),
        # The weights of the embeddings could be absorbed as well, but only by those of the stream.
        ({"residual": "lambdas"}, ("residual.stream",)),
        pytest.param({"residual": "dense"}, (), marks=pytest.mark.soak),
        pytest.param(
            {"values": {"kind": "first", "weights": "learned"}},
            ("values.own", "values.first"),
            marks=pytest.mark.thorough,
        ),
        # Any change of the weights is a change of the exponents.
        pytest.param({"scores": "power"}, ("scores.a",), marks=pytest.mark.thorough),
        pytest.param({"scores": "weighted", "residual": "rezero"}, ("residual.alpha",), marks=pytest.mark.soak),
    ],
    ids=str,
)
def test_gauges(changes: Any, expected: tuple[str, ...]) -> None:
    spec = toy(**changes)
    scalars: Any = [SimpleNamespace(parameter=name) for name, _ in spec.build().named_parameters()]
    found = absorbed(spec, scalars)
    assert tuple(found) == expected
    assert set(found.values()) <= {("learned factor of a branch",)}
    assert family_of("residual.alpha.3") == "residual.alpha"


def test_a_number_that_is_no_scalar_of_a_joint_is_no_gauge() -> None:
    assert absorbed(toy(residual="rezero"), [SimpleNamespace(parameter="embedding.weight")]) == {}  # type: ignore[list-item]


def test_an_unknown_name_is_refused() -> None:
    """Without it the group would hold fewer numbers than asked for, or be left out as if it were none."""
    with pytest.raises(UnknownName, match=r"no parameter 'residual.alhpa'. Did you mean 'residual.alpha'"):
        gauges(toy(residual="rezero"), {"alpha": ["residual.alpha", "residual.alhpa"]})


def test_effective_lambdas_are_those_of_a_model_without_lambda() -> None:
    """The same logits with every lambda at 1, if the branches' last matrices take the sizes over."""
    spec = toy(residual={"kind": "lambdas", "skips": True, "backout": True}, norm={"kind": "rms", "eps": 1e-30})
    one, other = subject(spec), subject(spec)
    sizes = one.residual.stream.detach().cumprod(0)
    effective = {name: values for name, (_, values) in one.residual.coefficients().items()}
    with torch.no_grad():
        other.residual.stream.fill_(1.0)
        other.residual.embedding.copy_(effective["embedding"])
        other.residual.skip.copy_(torch.logit(effective["skip"]))
        other.residual.backout.copy_(effective["backout"][0])
        for layer, (attention, feedforward) in enumerate(zip(*[iter(other.branches())] * 2, strict=True)):
            attention.body.output.weight.div_(sizes[layer])
            feedforward.body.down.weight.div_(sizes[layer])
    tokens = some_tokens(spec)
    torch.testing.assert_close(other(tokens), one(tokens), rtol=0, atol=1e-9)
