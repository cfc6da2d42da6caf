"""The built-in studies, and what a study is expanded to."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from addnorm import preset
from addnorm.data.corpora.stdlib import Stdlib
from addnorm.data.corpora.text import Text
from addnorm.data.tokenizers.bpe import Bpe
from addnorm.errors import InputError, UnknownName
from addnorm.model.presets import PRESETS
from addnorm.optimization.optimizers.adamw import AdamW
from addnorm.optimization.schedules.cosine import Cosine
from addnorm.position.learned import Learned
from addnorm.residual.schedule import Schedule
from addnorm.statistics import FEWEST_SEEDS
from addnorm.study.built_in import study_names, study_profiles, study_source
from addnorm.study.decoding import decode
from addnorm.study.definition import RunSpec, Study, Training
from addnorm.study.encoding import encode
from addnorm.study.expansion import expand, fit_models, run_identity, run_name, validate
from addnorm.study.loading import load_study
from addnorm.supervision.step_cost import step_cost
from sampled import sampled

ALL = [(name, profile) for name in study_names() for profile in study_profiles(name)]


def small() -> Study:
    model = preset("base", width=16, depth=2, heads=2, kv_heads=1, hidden=8, max_seq=8)
    return Study(
        name="s",
        variants={"a": model, "b": replace(model, hidden=16)},
        seeds=(4, 2),
        training=Training(seq=12, steps=3),
    )


@pytest.mark.parametrize(("name", "profile"), sampled(3, ALL))
def test_built_in_profiles_load_and_build(name: str, profile: str) -> None:
    study = load_study(name, profile=profile)
    assert study.name == name
    assert study.about
    assert study.references
    validate(fit_models(study, 300))
    untuned = replace(study, tune=None)  # its axes are values of any type, which `load_study` reads
    assert decode(Study, encode(untuned)) == untuned


CONTROLS = {
    "small": {
        "streams_free": "add_53",
        "gated_attention": "add_56",
        "dynamic_dense": "add_60",
        "streams_identity": "add_70",
        "streams_sinkhorn": "add_113",
    },
    "long": {
        "streams_free": "add_69",
        "gated_attention": "add_75",
        "dynamic_dense": "add_75",
        "streams_identity": "add_86",
        "streams_sinkhorn": "add_129",
    },
}


@pytest.mark.parametrize("profile", CONTROLS)
def test_joints_with_parameters_of_their_own_have_a_plain_sum_as_large(profile: str) -> None:
    study, alone = (load_study("depth-mixing", profile=name) for name in (f"{profile}_parameters", profile))
    with torch.device("meta"):
        models = {name: replace(spec, vocab=256).build() for name, spec in study.variants.items()}
    numbers = {name: sum(each.numel() for each in model.parameters()) for name, model in models.items()}
    one, controls = study.variants["add"], CONTROLS[profile]
    larger = {name for name in alone.variants if numbers[name] > 1.02 * numbers["add"]}
    assert larger == {"add_large", *controls}
    assert set(study.variants) == {*alone.variants, *controls.values()}
    half_an_entry = 3 * one.width * one.depth / 2  # of all feed-forwards
    for name, control in controls.items():
        assert abs(numbers[name] - numbers[control]) <= half_an_entry
        assert study.variants[control] == replace(one, hidden=study.variants[control].hidden)
    assert all(study.variants[name] == spec for name, spec in alone.variants.items())
    assert study.training == alone.training


@pytest.mark.parametrize(
    "name", [name for name in study_names() if name not in ("demo", "depth-mixing", "depth-tasks", "four-questions")]
)
def test_every_study_of_a_source_is_quick_unless_told_otherwise(name: str) -> None:
    assert {"quick", "paper"} <= set(study_profiles(name))
    assert load_study(name) == load_study(name, profile="quick")


def test_the_ladder_of_the_four_questions_is_one_design_at_five_widths() -> None:
    sizes = {width: load_study("four-questions", profile=f"w{width}") for width in (16, 24, 32, 48, 64)}
    assert [len(study.seeds) for study in sizes.values()] == [12, 12, 10, 8, 6]
    for width, study in sizes.items():
        assert len(study.replicate) == len(study.seeds)
        assert not set(study.replicate) & set(study.seeds)
        assert study.references == ("base",)
        assert len(study.variants) == 5
        for model in study.variants.values():
            assert (model.width, model.width // model.heads, model.hidden) == (width, 8, 2 * width)
            assert model.scaling is not None
            assert model.scaling.width == 32
        # 20 tokens for each parameter of the plain sum, and the same FLOPs for all: the seeds differ, nothing else.
        cost = step_cost(fit_models(study, 256).variants["base"], study.training)
        assert study.training.flops == pytest.approx(20 * cost.parameters * cost.flops_per_token, rel=0.05)
        assert not study.variant_training
    base = sizes[24]
    for study in sizes.values():
        assert (study.corpus, study.tokenizer, study.margin) == (base.corpus, base.tokenizer, base.margin)
        assert replace(study.training, flops=None) == replace(base.training, flops=None)
    prose = load_study("four-questions", profile="w24", settings=["corpus={kind: stdlib, package: scipy}"])
    assert prose.corpus == Stdlib(package="scipy")


def test_a_copy_of_a_built_in_study_is_the_same_study(tmp_path: Path) -> None:
    copy = tmp_path / "copy.yaml"
    copy.write_text(study_source("residual-scores"), encoding="utf-8")
    assert load_study(copy) == load_study("residual-scores")


def test_the_paper_profile_is_the_sources_set_up() -> None:
    study = load_study("residual-scores", profile="paper")
    names = ["base", "v2m1", "v2m3", "v3m1", "v3m3_1", "v3m3_2", "v4m1", "v4m2", "v4m3", "v4m4", "v4m5", "v4m6", "v4m7"]
    assert list(study.variants) == names
    assert study.references == ("base", "v2m1", "v2m3")
    training = study.training
    assert (training.steps, training.batch, training.seq) == (170_025, 2, 2048)
    assert training.optimizer == AdamW(learning_rate=3e-4, weight_decay=0.1, decay_on="everything")
    assert training.schedule == Cosine(warmup=0.015, final=0.0)
    assert study.tokenizer == Bpe(vocab=32_000)
    assert isinstance(study.corpus, Text)
    assert dict(fit_models(study, 32_000).variants) == {name: PRESETS[name]() for name in names}
    with torch.device("meta"):
        parameters = sum(p.numel() for p in study.variants["base"].build().parameters())
    assert round(parameters / 1e6, 1) == 51.7


def test_unknown_studies_are_told() -> None:
    with pytest.raises(InputError) as caught:
        load_study("residual-score")
    assert str(caught.value).startswith("no study 'residual-score'. Did you mean 'residual-scores'? Known: ")
    with pytest.raises(UnknownName, match="no built-in study 'x'"):
        study_source("x")
    known = "quick, long, small, wide, long_decay, long_compute, long_tuned, paper"
    with pytest.raises(InputError, match=rf"no profile 'papr', did you mean 'paper'\? Known: {known}\.$"):
        load_study("residual-scores", profile="papr")


def test_models_are_fitted_to_the_data() -> None:
    study = small()
    fitted = fit_models(
        replace(study, variants={**study.variants, "m": replace(study.variants["a"], objective="masked")}), 50
    )
    assert [model.vocab for model in fitted.variants.values()] == [50, 50, 51]
    assert {model.max_seq for model in fitted.variants.values()} == {12}
    long = replace(study, variants={"a": replace(study.variants["a"], max_seq=99)})
    assert fit_models(long, 50).variants["a"].max_seq == 99


def test_what_does_not_fit_is_found_before_anything_starts() -> None:
    study = small()
    odd = replace(study.variants["a"], width=6, heads=2)  # head width 3: no pairs to rotate
    with pytest.raises(InputError) as caught:
        validate(replace(study, variants={"fine": study.variants["a"], "odd": odd}))
    assert str(caught.value).startswith("study 's': $.variants.odd: rope rotates pairs: head width 3")


def test_a_schedule_of_the_residual_must_fit_the_training() -> None:
    study = small()
    steps, depth = study.training.steps, study.variants["a"].depth
    fits, long = (replace(study.variants["a"], residual=Schedule(steps=steps // depth + more)) for more in (0, 1))
    validate(replace(study, variants={"fits": fits}))
    with pytest.raises(InputError) as caught:
        validate(replace(study, variants={"fits": fits, "long": long}))
    assert str(caught.value) == (
        f"study 's': $.variants.long: residual.steps: expected at most {steps // depth}, so that {depth} layers have joined "
        f"within {steps} training steps, got {steps // depth + 1}."
    )


def test_building_on_meta_takes_no_memory() -> None:
    huge = replace(small().variants["a"], width=2**20, hidden=2**22, vocab=2**22, position=Learned())
    validate(replace(small(), variants={"huge": huge}))  # 10^14 parameters


def test_runs_go_seed_by_seed() -> None:
    runs = expand(small(), "hash")
    assert [(run.seed, run.variant) for run in runs] == [(4, "a"), (4, "b"), (2, "a"), (2, "b")]
    assert {run.data_hash for run in runs} == {"hash"}
    assert [decode(RunSpec, encode(run)) for run in runs] == list(runs)


def test_a_runs_name_is_variant_seed_and_identity() -> None:
    run = expand(small(), "hash")[0]
    assert run_name(run) == f"a-s4-{run_identity(run)[:8]}"
    assert len({run_name(each) for each in expand(small(), "hash")}) == 4


def test_everything_that_decides_the_result_is_in_the_identity() -> None:
    run = expand(small(), "hash")[0]
    others = [
        replace(run, seed=5),
        replace(run, data_hash="other"),
        replace(run, model=replace(run.model, hidden=9)),
        replace(run, training=replace(run.training, steps=4)),
        replace(run, corpus=replace(run.corpus, held_out=0.1)),
        replace(run, tokenizer=Bpe()),
    ]
    assert len({run_identity(each) for each in (run, *others)}) == 7


def test_names_decide_nothing() -> None:
    run = expand(small(), "hash")[0]
    assert run_identity(replace(run, study="other", variant="renamed")) == run_identity(run)


def test_names_are_the_same_in_every_process() -> None:
    code = (
        "from addnorm.study.loading import load_study; from addnorm.study.expansion import expand, run_name\n"
        "print(run_name(expand(load_study('residual-scores'), 'h')[-1]))"
    )
    again = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert again.stdout.strip() == run_name(expand(load_study("residual-scores"), "h")[-1])


def test_the_demo_joins_one_network_in_five_ways() -> None:
    study = load_study("demo")
    validate(fit_models(study, 256))
    assert list(study.variants) == ["pre", "sandwich", "post", "scale", "small_start"]
    assert {model.depth for model in study.variants.values()} == {24}
    assert min(len(study.seeds), len(study.replicate)) >= FEWEST_SEEDS
    weights = {name: dict(model.build(0).named_parameters()) for name, model in study.variants.items()}
    matrices = [name for name, weight in weights["pre"].items() if weight.ndim > 1]
    for name in ("sandwich", "post", "scale"):
        assert all(torch.equal(weights[name][matrix], weights["pre"][matrix]) for matrix in matrices)
    smaller = {matrix: (weights["small_start"][matrix] / weights["pre"][matrix]).detach() for matrix in matrices}
    # The embeddings and what reads the stream are those of `pre`; of the smaller ones, each layer has two.
    assert {round(ratio.mean().item(), 4) for ratio in smaller.values()} == {1.0, round(48**-0.5, 4)}
    assert sum(ratio.mean().item() < 0.5 for ratio in smaller.values()) == 48
