"""What a worker writes down of its scalars' layers and coefficients is what `explain` finds from the model itself."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open

from addnorm.block.gau import Gau
from addnorm.catalogue import ROOMS
from addnorm.errors import InputError
from addnorm.insight.scalars.coefficients import coefficients
from addnorm.insight.scalars.published import explain_published
from addnorm.model.presets import preset
from addnorm.model.spec import ModelSpec
from addnorm.store import StudyFolder
from addnorm.study.decoding import decode
from addnorm.study.definition import RunSpec
from addnorm.study.loading import load_study
from addnorm.testing.contract import shrunk
from addnorm.training.coefficients import coefficients_of

LEARNED_SCORES = [
    kind for kind in ROOMS["scores"].kinds() if list(preset("base", scores=kind).build_scores().parameters())
]


def test_it_is_what_explain_finds(finished):
    run = next(run for run in StudyFolder(finished).runs() if run.spec["variant"] == "v4m5")
    with safe_open(run.path / "scalars.safetensors", framework="np") as file:
        names = json.loads(file.metadata()["names"])
        told = json.loads(file.metadata()["effective"])
        values = file.get_tensor("value")
    expected = coefficients(decode(RunSpec, run.spec["spec"]).model, names, values)
    scores = [place for place, name in enumerate(names) if name.startswith("scores.")]
    assert len(scores) == 3
    for place in scores:
        assert told[place][0] == expected[place][0]
        # The worker's parameters are float32, and so is the exponential that it takes of them.
        assert abs(told[place][1] - expected[place][1]) <= 4 * 2**-24 * abs(expected[place][1])


@pytest.mark.parametrize("body", ["transformer", "gau"])
@pytest.mark.parametrize("kind", LEARNED_SCORES)
def test_learned_scores_are_explained_as_the_built_model_weighs_them(kind: str, body: str) -> None:
    spec = _spec(kind, body)
    model = spec.build(seed=0)
    draws = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.scores.parameters():
            parameter += torch.rand(parameter.shape, generator=draws)
    names, values = [], []
    for name, parameter in model.scores.named_parameters():
        names += [f"scores.{name}[{index}]" for index in range(parameter.numel())]
        values += parameter.flatten().tolist()
    explained = coefficients(spec, names, np.array(values))
    recorded = coefficients_of(model.mechanisms(), names)
    assert {layer for layer, _ in recorded} == set(range(spec.attention_shape.depth))
    for place, name in enumerate(names):
        parameter, index = name.removesuffix("]").split("[")
        last = parameter.rpartition(".")[2]
        layer, entry = (int(last), int(index)) if last.isdigit() else (int(index), -1)
        expected = torch.as_tensor(model.scores.weights(layer)).flatten()[entry].item()
        assert explained[place][0] == recorded[place][0] == layer
        assert recorded[place][1] == expected
        # A built model's parameters are float32: the exponent, of at most 8, is rounded at each of its few terms.
        assert explained[place][1] == pytest.approx(expected, rel=32 * 2**-24)


@pytest.mark.parametrize("body", ["transformer", "gau"])
@pytest.mark.parametrize("kind", LEARNED_SCORES)
def test_printed_values_are_explained_as_the_built_model_weighs_them(kind: str, body: str) -> None:
    spec = _spec(kind, body)
    model = spec.build(seed=0)
    printed: dict[str, list[object]] = {}
    for name, parameter in model.scores.named_parameters():
        family, _, layer = name.partition(".")
        shown = (parameter.exp() if family.startswith("log_") else parameter).tolist()
        printed.setdefault(family.removeprefix("log_"), []).extend([shown] if layer else shown)
    content = {"variants": {kind: {"parameters": printed}}}
    study = load_study("residual-scores", profile="paper")
    run = RunSpec(
        study=study.name,
        variant=kind,
        seed=0,
        model=spec,
        training=study.training,
        corpus=study.corpus,
        tokenizer=study.tokenizer,
        data_hash="",
    )
    entries = explain_published(content, run, kind).scalars
    assert len(entries) == sum(parameter.numel() for parameter in model.scores.parameters())
    assert {entry.layer for entry in entries} == set(range(spec.attention_shape.depth))
    for entry in entries:
        assert entry.layer is not None
        expected = torch.as_tensor(model.scores.weights(entry.layer)).flatten()
        # At the start all layers that join have one weight.
        assert entry.effective == pytest.approx(expected[-1].item(), rel=32 * 2**-24)


def test_a_record_of_another_model_is_refused() -> None:
    spec = _spec("free", "gau")
    names = [f"scores.log_a.1[{index}]" for index in range(3)]
    with pytest.raises(InputError, match=r"expected 2 entries of scores\.log_a\.1, got 3"):
        coefficients(spec, names, np.zeros(3))
    with pytest.raises(InputError, match=r"expected 0 entries of scores\.log_a\.4, got 1"):
        coefficients(spec, ["scores.log_a.4[0]"], np.zeros(1))


def test_residuals_are_explained_as_the_worker_records_them() -> None:
    for kind in ROOMS["residual"].kinds():
        for weights in ("mean", "softmax") if kind in ("cumulative", "replay") else (None,):
            settings = {} if weights is None else {"weights": weights}
            if ROOMS["residual"].make(kind).separate_reads:
                settings = {"reads": "one"}  # the only ones that units have
            joined = {"kind": kind, **settings}
            spec = shrunk(preset("gau_alpha", placement="pre", residual=joined), depth=2, block=Gau(key_dim=8))
            model = spec.build(seed=0)
            names, values = [], []
            for name, parameter in model.residual.named_parameters():
                names += [f"residual.{name}[{index}]" for index in range(parameter.numel())]
                values += parameter.flatten().tolist()
            found = coefficients(spec, names, np.array(values))
            for place, (layer, coefficient) in enumerate(coefficients_of(model.mechanisms(), names)):
                expected = values[place] if coefficient is None else coefficient
                assert found[place] == (layer, pytest.approx(expected, rel=2**-20))


def _spec(kind: str, body: str) -> ModelSpec:
    scores = {"kind": kind, "earlier": 1.0} if kind == "signed" else kind  # all weights of a layer start equal
    if body == "gau":
        return shrunk(preset("gau_alpha", scores=scores), depth=2, block=Gau(key_dim=8))
    return shrunk(preset("base", scores=scores), depth=3)
