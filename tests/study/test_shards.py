"""Shards and devices of a training: what is accepted, what a run's identity holds, what a folder's plan keeps."""

from dataclasses import replace
from typing import Any

import pytest

from addnorm.errors import InputError
from addnorm.model.presets import preset
from addnorm.optimization.optimizers.muon import MuonSpec
from addnorm.optimization.optimizers.tiger import TigerSpec
from addnorm.study.definition import Study, Training
from addnorm.study.encoding import encode
from addnorm.study.expansion import expand, resolve_shards, run_identity, validate

SIZES = {"vocab": 257, "width": 8, "depth": 1, "heads": 2, "kv_heads": 2, "hidden": 8, "max_seq": 256}


def study_of(**training: Any) -> Study:
    return Study(name="s", variants={"base": preset("base", **SIZES)}, training=Training(**training))


def identity(**training: Any) -> str:
    (run, *_) = expand(resolve_shards(study_of(**training)), "hash")
    return run_identity(run)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"shards": 3}, "training.shards: expected a power of two that divides the batch, got 3. The largest is 16"),
        ({"shards": 0}, "training.shards: expected a power of two"),
        ({"batch": 12, "shards": 8}, "got 8. The largest is 4 for a batch of 12"),
        ({"devices": 3}, "training.devices: expected a power of two, got 3"),
        ({"devices": 8, "shards": 4}, "training.devices: expected at most the number of shards, 4, got 8"),
        ({"devices": 2, "batch": 5}, "training.devices: expected at most the number of shards, 1, got 2"),
        ({"parallel": "sharded", "compile": True}, "training.compile: expected false with training.parallel: sharded"),
        (
            {"parallel": "sharded", "optimizer": MuonSpec()},
            "training.optimizer: expected one that updates entry by entry",
        ),
        (
            {"parallel": "sharded", "optimizer": TigerSpec()},
            "training.optimizer: expected one that updates entry by entry",
        ),
        ({"parallel": "split"}, "training.parallel: expected one of 'replicated', 'sharded'"),
    ],
)
def test_shards_and_devices_that_do_not_fit_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Training(**fields)


def test_weights_that_a_replay_needs_at_once_are_not_shared_out() -> None:
    study = replace(
        study_of(devices=2, parallel="sharded"), variants={"again": preset("base", **SIZES, residual="replay")}
    )
    with pytest.raises(
        InputError, match=r"\$.variants.again: training.parallel: sharded: expected a residual that does"
    ):
        validate(study)
    validate(study_of(devices=2, parallel="sharded"))


def test_one_shard_is_the_run_of_before() -> None:
    assert identity() == identity(shards=1)
    assert "shards" not in encode(Training())
    assert "devices" not in encode(Training())
    assert identity(shards=2) != identity()


def test_devices_are_no_part_of_a_runs_identity() -> None:
    assert identity(shards=8) == identity(shards=8, devices=2) == identity(devices=4)
    assert identity(shards=8) == identity(devices=4, parallel="sharded")


@pytest.mark.parametrize("fields", [{"compile": True}, {"deterministic": True}, {"precision": "tf32"}], ids=str)
def test_what_changes_the_last_bits_is_part_of_a_runs_identity(fields: dict[str, Any]) -> None:
    assert identity(**fields) != identity()


@pytest.mark.parametrize(("batch", "shards"), [(16, 8), (12, 4), (64, 8), (2, 2)])
def test_several_devices_choose_the_most_shards_up_to_eight(batch: int, shards: int) -> None:
    assert resolve_shards(study_of(batch=batch, devices=2)).training.shards == shards
    assert resolve_shards(study_of(batch=batch)).training.shards is None


def test_a_plan_keeps_its_shards() -> None:
    plan = {"runs": [{"variant": "base", "spec": {"training": {"shards": 4}}}]}
    assert resolve_shards(study_of(), plan).training.shards == 4
    assert resolve_shards(study_of(devices=2), plan).training.shards == 4
    with pytest.raises(
        InputError, match=r"\$.training.devices: expected at most the shards of the study's plan, 4, got 8"
    ):
        resolve_shards(study_of(devices=8), plan)
    plan["runs"][0]["spec"]["training"].pop("shards")  # type: ignore[index]
    with pytest.raises(InputError, match="shards of the study's plan, 1, got 2"):
        resolve_shards(study_of(devices=2), plan)


def test_variants_keep_their_own_shards() -> None:
    study = study_of(devices=2)
    own = replace(study.training, shards=2)
    study = replace(
        study, variants={"base": study.variants["base"], "b": study.variants["base"]}, variant_training={"b": own}
    )
    resolved = resolve_shards(study)
    assert (resolved.training_of("base").shards, resolved.training_of("b").shards) == (8, 2)


def test_batch_norm_is_refused_with_more_than_one_shard() -> None:
    study = replace(study_of(), variants={"b": preset("base", norm="batch", **SIZES)})
    validate(study)
    validate(replace(study, training=Training(shards=1)))
    for training in (Training(shards=2), Training(devices=2)):
        with pytest.raises(
            InputError, match=r"\$.variants.b: expected modules that treat each sequence alone.*BatchNorm"
        ):
            validate(replace(study, training=training))
