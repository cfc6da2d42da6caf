"""The built-in study depth-tasks: every joint of the catalogue, at equal parameters, on every task."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from addnorm.catalogue import room
from addnorm.data.corpora._tasks import TaskSpec
from addnorm.model.spec import ModelSpec
from addnorm.study.definition import Study
from addnorm.study.loading import load_study

PROFILES = ("brackets", "copying", "induction", "k_hop", "permutations", "recall")


@pytest.fixture(scope="module", params=PROFILES)
def study(request: pytest.FixtureRequest) -> Study:
    return load_study("depth-tasks", profile=request.param)


def parameters(model: ModelSpec) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in replace(model, vocab=256).build().parameters())


def kinds(models: Mapping[str, Any], name: str) -> set[str]:
    return {getattr(model, name).kind for model in models.values()}


def test_the_profiles_are_the_tasks() -> None:
    corpora = room("corpus")
    assert set(PROFILES) == {kind for kind in corpora.kinds() if issubclass(corpora.spec_class(kind), TaskSpec)}


def test_a_profile_has_its_task_and_windows_of_whole_episodes(study: Study) -> None:
    assert study.corpus.episodes is not None
    assert study.training.seq == study.corpus.episodes.tokens <= 64
    assert study.references == ("plain",)


@pytest.mark.parametrize("name", ["residual", "scores", "column"])
def test_every_joint_of_the_catalogue_is_a_variant(study: Study, name: str) -> None:
    assert kinds(study.variants, name) == set(room(name).kinds()) - set(room(name).plugins)


def test_joints_inside_attention_and_norms_are_variants(study: Study) -> None:
    models = study.variants.values()
    assert {"gated"} <= {model.norm.kind for model in models}
    assert {"clip"} <= {model.qk_norm.kind for model in models if model.qk_norm is not None}
    assert {"query"} <= {model.sink.kind for model in models}
    assert {"relative_bank", "interleaved_rope"} <= {model.position.kind for model in models}
    assert {"hybrid_gate"} <= {model.attended.kind for model in models}
    assert {"normed", "first", "depth_attention"} <= {model.values.kind for model in models}
    assert {"token_tables"} <= {model.block.kind for model in models}
    assert any(model.convolution is not None for model in models)


def test_all_variants_have_the_parameters_of_the_plain_model(study: Study) -> None:
    plain = parameters(study.variants["plain"])
    others = {name: parameters(model) / plain - 1 for name, model in study.variants.items()}
    assert {name: share for name, share in others.items() if abs(share) > 0.02} == {}
