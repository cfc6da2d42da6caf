"""`training.init_from`: a training that starts from the weights of an exported model."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import addnorm
from addnorm.errors import InputError
from addnorm.study.definition import RunSpec, Study, Training
from addnorm.study.expansion import expand, run_identity, validate
from addnorm.study.initial_weights import initial_model
from addnorm.study.loading import load_study

SIZES: dict[str, Any] = {"vocab": 19, "width": 16, "depth": 3, "heads": 2, "hidden": 16, "max_seq": 8}
NEUTRAL = {
    "residual": {"kind": "rezero", "alpha_init": 1.0},
    "scores": "signed",
    "values": {"kind": "first", "weights": "learned"},
}
TOKENS = torch.arange(16).view(2, 8)


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    (tmp_path / "exported").mkdir()
    plain = addnorm.preset("llama", **SIZES).build(seed=7)
    save_file(plain.state_dict(), tmp_path / "exported" / "model.safetensors")
    return tmp_path / "exported"


def a_run(folder: Path, **changes: Any) -> RunSpec:
    study = Study(
        name="tuned",
        variants={"it": addnorm.preset("llama", **{**SIZES, **changes})},
        seeds=(0,),
        training=Training(seq=8, init_from=str(folder)),
    )
    validate(study)
    return expand(study, "0")[0]


@pytest.mark.parametrize("joints", [{}, NEUTRAL], ids=["plain", "joined"])
def test_a_run_starts_where_the_exported_model_is(exported: Path, joints: dict[str, Any]) -> None:
    trained = addnorm.preset("llama", **SIZES).build(seed=7)
    model = initial_model(a_run(exported, **joints))
    torch.testing.assert_close(model(TOKENS), trained(TOKENS), rtol=1e-5, atol=1e-6)
    fresh = initial_model(replace(a_run(exported, **joints), training=Training(seq=8)))
    assert (fresh(TOKENS) - trained(TOKENS)).abs().max() > 0.01


def test_the_weights_are_part_of_a_runs_identity(exported: Path) -> None:
    run = a_run(exported)
    first = run_identity(run)
    weights = addnorm.preset("llama", **SIZES).build(seed=8).state_dict()
    save_file(weights, exported / "model.safetensors")
    assert run_identity(run) != first
    assert run_identity(replace(run, training=Training(seq=8))) not in (first, run_identity(run))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"residual": "rezero"},
            r"expected a mechanism that begins as the plain one.*Set it to ReZero\(alpha_init=1.0\)",
        ),
        ({"residual": "gate"}, "can start as 'add' and learn from there"),
        ({"vocab": 20}, r"embedding.weight: expected shape \[20, 16\], got \[19, 16\]"),
        ({"depth": 2}, r"got also layers\.2"),
        ({"norm": "layer", "bias": True}, "got no .*Only residual, scores, values may differ"),
    ],
)
def test_weights_of_another_model_are_refused_before_training(
    exported: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        a_run(exported, **changes)


def test_a_path_is_relative_to_the_study_file(exported: Path) -> None:
    file = exported.parent / "tuned.yaml"
    file.write_text(
        "name: tuned\nvariants: {a: {preset: llama}, b: {preset: llama, training: {init_from: exported}}}\n"
    )
    study = load_study(file)
    assert study.training.init_from is None
    assert study.training_of("b").init_from == str(exported)
    file.write_text("name: tuned\nvariants: {a: {preset: llama, training: {init_from: nowhere}}}\n")
    with pytest.raises(InputError, match=r"training\.init_from: .*nowhere/model\.safetensors: expected weights"):
        validate(load_study(file))
