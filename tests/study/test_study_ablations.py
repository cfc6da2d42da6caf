"""What the built-in studies' variants are: each differs from its reference in what its name says, and in nothing else."""

from dataclasses import fields, replace

import pytest
import torch

from addnorm import preset
from addnorm.bias import Biases
from addnorm.model.architecture import Dropout
from addnorm.model.spec import ModelSpec
from addnorm.optimization.optimizers.adamw import AdamW
from addnorm.placement.none import Bare
from addnorm.placement.post import Post
from addnorm.placement.pre import Pre
from addnorm.placement.sandwich import Sandwich
from addnorm.residual.gate import Gate
from addnorm.residual.rezero import ReZero
from addnorm.residual.scale import Scale
from addnorm.scores.accumulated_projections import AccumulatedProjections
from addnorm.scores.mean import Mean
from addnorm.scores.sum import Sum
from addnorm.study.built_in import study_profiles
from addnorm.study.definition import Study
from addnorm.study.expansion import fit_models
from addnorm.study.loading import load_study

SWITCHES = {"q": "q", "k": "k", "v": "v", "o": "o", "up": "up", "down": "down", "shift": "norm"}
FOLDED = {"qkv": "q k v", "kv_shift": "k v norm", "qkv_down": "q k v down", "kvo_down": "k v o down"}
BIASED = {
    "q": "qk_bias.q",
    "k": "qk_bias.k",
    "v": "value.bias",
    "o": "output.bias",
    "up": "up.bias",
    "down": "down.bias",
}


def switched_off(model: ModelSpec) -> set[str]:
    return {field.name for field in fields(Biases) if not getattr(model.bias, field.name)}


@pytest.mark.parametrize(("profile", "placement"), [("quick", "pre"), ("quick_post", "post")])
def test_every_bias_is_left_out_once(profile: str, placement: str) -> None:
    study = load_study("bias-ablation", profile=profile)
    whole = study.variants[placement]
    assert study.references == (placement,)
    assert switched_off(whole) == {"head"}
    assert whole.placement == (Pre() if placement == "pre" else Post(embedding=True))
    for name, model in study.variants.items():
        left_out = name.removeprefix(placement).removeprefix("_no_")
        if left_out == "_none":
            expected = set(SWITCHES.values())
        else:
            expected = {SWITCHES[left_out]} if left_out in SWITCHES else set(FOLDED.get(left_out, "").split())
        on = {"head"} if left_out == "_head" else set()
        assert switched_off(model) == ({"head"} | expected) - on, name
        assert replace(model, bias=whole.bias) == whole, name
    assert {name for name in SWITCHES if f"{placement}_no_{name}" in study.variants} == set(SWITCHES)


@pytest.mark.parametrize(("profile", "reference"), [("quick_batch", "post_batch"), ("quick_batch_pre", "pre_batch")])
def test_batch_norms_differ_from_their_reference_by_biases_alone(profile: str, reference: str) -> None:
    study = load_study("bias-ablation", profile=profile)
    whole = study.variants[reference]
    assert study.references == (reference,)
    for name, model in study.variants.items():
        assert replace(model, bias=whole.bias) == whole, name
        left_out = name.removeprefix(reference).removeprefix("_no_")
        assert switched_off(model) == {"head"} | set({"kvo_down": "k v o down"}.get(left_out, left_out).split()), name


@pytest.mark.parametrize("variant", ["pre_no_kv_shift", "post_no_qkv_down", "post_no_kvo_down"])
def test_what_is_left_out_is_not_built(variant: str) -> None:
    model = load_study("bias-ablation", profile="paper").variants[variant]
    with torch.device("meta"):
        names = [name for name, _ in replace(model, vocab=300, depth=2).build().named_parameters()]
    for switch, ending in BIASED.items():
        there = [name for name in names if name.endswith(f"body.{ending}")]
        assert bool(there) == getattr(model.bias, switch), switch
    assert any(name.endswith("norm.bias") for name in names) == model.bias.norm


@pytest.mark.parametrize("name", ["bias-ablation", "norm-placement", "realformer"])
def test_quick_profiles_have_seeds_enough_and_leave_biases_alone(name: str) -> None:
    """Five seeds; decay would hide how far unused biases walk."""
    for profile in study_profiles(name):
        study = load_study(name, profile=profile)
        assert len(study.seeds) == 5, profile
        assert isinstance(study.training.optimizer, AdamW)
        assert study.training.optimizer.decay_on == "matrices"


def differences(study: Study, reference: str) -> dict[str, dict[str, object]]:
    """Per variant, the fields in which it differs from the reference."""
    base = study.variants[reference]
    return {
        name: {
            field.name: getattr(model, field.name)
            for field in fields(ModelSpec)
            if getattr(model, field.name) != getattr(base, field.name)
        }
        for name, model in study.variants.items()
    }


def test_norm_placement_changes_the_joint_alone() -> None:
    assert differences(load_study("norm-placement"), "pre") == {
        "pre": {},
        "post": {"placement": Post()},
        "sandwich": {"placement": Sandwich()},
        "rezero": {"placement": Bare(), "residual": ReZero()},
        "scale": {"residual": Scale(alpha=0.1)},
        "gate": {"residual": Gate()},
    }
    depth = load_study("norm-placement", profile="quick_depth")
    assert differences(depth, "post")["realformer"] == {"scores": Sum()}
    assert {model.depth for model in depth.variants.values()} == {48}


def test_dropout_changes_the_rate_alone() -> None:
    study = load_study("norm-placement", profile="quick_dropout")
    for reference in study.references:
        found = differences(study, reference)
        for rate in (0.1, 0.2):
            assert found[f"{reference}_dropout_{rate}"] == {"dropout": Dropout.all(rate)}
    # The rates are worth asking about where the same text comes round again and again.
    assert study.training.steps * study.training.batch * study.training.seq > 10 * 12_000


def test_realformer_variants() -> None:
    study = load_study("realformer", profile="paper")
    assert differences(study, "post") == {
        "post": {},
        "pre": {"placement": Pre()},
        "realformer": {"scores": Sum()},
        "realformer_mean": {"scores": Mean()},
        "accumulated_projections": {"scores": AccumulatedProjections()},
        "pre_sum": {"placement": Pre(), "scores": Sum()},
        "rezero": {"placement": Bare(), "residual": ReZero()},
    }


def test_the_paper_profiles_have_the_sizes_they_name() -> None:
    bert = fit_models(load_study("realformer", profile="paper"), 30_521).variants
    assert bert["realformer"] == preset("realformer")
    assert bert["post"] == preset("bert")
    gpt2 = load_study("norm-placement", profile="paper").variants["pre"]
    assert gpt2 == preset("gpt2", dropout=0, init_branch="same")


def test_qk_bias_variants_differ_in_biases_of_q_and_k_or_in_position() -> None:
    for profile in ("quick", "quick_gau", "paper"):
        study = load_study("qk-bias", profile=profile)
        found = differences(study, "rope")
        assert found.pop("rope") == {}
        for name, changed in found.items():
            if name.startswith("rope_qk"):
                assert changed.pop("bias") == Biases(q=True, k=True)
                shape = name.removeprefix("rope_qk").removeprefix("_") or "linear"
                assert [spec.kind for spec in changed.values()] == ([shape] if shape != "linear" else []), name
            else:
                assert {field: spec.kind for field, spec in changed.items()} == {"position": name}
        assert (study.variants["rope"].block.kind == "gau") == (profile != "quick")
    paper = load_study("qk-bias", profile="paper")
    assert (paper.training.seq, paper.training.batch, paper.training.optimizer.kind) == (512, 512, "tiger")
    assert fit_models(paper, 12_000).variants["rope"] == preset("gau_alpha")
