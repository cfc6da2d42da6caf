"""`addnorm plan --cluster`: what fits, how long, how much storage and network, on devices that are given by numbers."""

import functools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from addnorm.cli import main
from addnorm.errors import InputError
from addnorm.model.presets import preset
from addnorm.study.definition import Study, Training
from addnorm.supervision import cluster_estimate
from addnorm.supervision.cluster_estimate import Cluster, estimate_on_cluster
from addnorm.supervision.cost_estimate import estimate_cost
from addnorm.supervision.step_cost import step_cost

SIZES = {"vocab": 64, "depth": 2, "heads": 2, "kv_heads": 2, "max_seq": 64}
STUDY = Study(
    name="sizes",
    seeds=(0, 1, 2),
    variants={f"w{width}": preset("base", width=width, hidden=2 * width, **SIZES) for width in (16, 64)},
    training=Training(steps=100, batch=16, seq=64),
)
PLENTY = Cluster(gpus=8, flops_per_second=1e12, memory_bytes=10**10)

STEP_COST = functools.cache(step_cost)


@pytest.fixture(autouse=True)
def _each_step_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates ask for the same few steps again and again, each for a second."""
    monkeypatch.setattr(cluster_estimate, "step_cost", STEP_COST)


def test_one_device_at_the_measured_speed_takes_the_time_of_the_cost_model() -> None:
    cost = estimate_cost(STUDY, workers=1)
    found = estimate_on_cluster(STUDY, replace(PLENTY, gpus=1, flops_per_second=cost.flops_per_second))
    for ours, counted in zip(found.variants, cost.variants, strict=True):
        assert ours.seconds == pytest.approx(counted.seconds)
        assert (ours.peak_bytes, ours.flops) == (counted.peak_bytes, counted.flops)
    assert found.seconds == pytest.approx(cost.seconds)
    assert found.device_hours == pytest.approx(cost.seconds / 3600)


def test_runs_start_as_devices_become_free() -> None:
    small, large = (variant.seconds for variant in estimate_on_cluster(STUDY, PLENTY).variants)
    assert estimate_on_cluster(STUDY, PLENTY).seconds == pytest.approx(large)  # six runs, eight devices
    # On two devices: small, small, large on one; large, small, large on the other, which ends last.
    assert large > 2 * small
    assert estimate_on_cluster(STUDY, replace(PLENTY, gpus=2)).seconds == pytest.approx(2 * large + small)


def test_several_devices_divide_the_time_and_send_the_gradient() -> None:
    training = replace(STUDY.training, shards=8, devices=4)
    found = estimate_on_cluster(replace(STUDY, training=training), replace(PLENTY, link_bytes_per_second=1e9))
    alone = estimate_on_cluster(replace(STUDY, training=replace(training, devices=1)), PLENTY)
    weights = STEP_COST(STUDY.variants["w64"], training).weight_bytes
    large = found.variants[1]
    assert (found.at_once, large.devices) == (2, 4)
    assert large.seconds == pytest.approx(alone.variants[1].seconds / 4)
    assert (large.tree_bytes, large.ring_bytes) == (2 * weights, round(1.5 * weights))
    assert large.tree_seconds == pytest.approx(2 * weights * 100 / 1e9)
    assert alone.variants[1].tree_bytes == alone.variants[1].ring_bytes == 0


def test_storage_is_that_of_the_files_a_run_leaves() -> None:
    weights = sum(p.numel() for p in STUDY.variants["w16"].build().parameters()) * 4
    found = estimate_on_cluster(STUDY, PLENTY)
    counters = 4 * len(list(STUDY.variants["w16"].build().parameters()))
    assert found.variants[0].storage_bytes == 2 * (3 * weights + counters) + weights
    assert found.storage_bytes == 3 * sum(variant.storage_bytes for variant in found.variants)


def test_what_does_not_fit_gets_the_setting_that_makes_it_fit() -> None:
    model, training = STUDY.variants["w64"], STUDY.training
    needed, seen = STEP_COST(model, training).peak_bytes, set()
    study = replace(STUDY, variants={"w64": model})
    for share in (1.0, 0.99, 0.7, 0.5, 0.4, 0.3, 0.001):
        memory = int(needed * share)
        (found,) = estimate_on_cluster(study, replace(PLENTY, memory_bytes=memory)).variants
        assert (found.runs_per_device > 0) == (share == 1.0)
        if found.remedy is None:
            assert share in (1.0, 0.001)
            continue
        seen.add(found.remedy)
        settings = [setting.split("=") for setting in found.remedy.replace("training.", "").split(" and ")]
        values = {name: value == "true" if name == "recompute" else int(value) for name, value in settings}
        assert STEP_COST(model, replace(training, **values)).peak_bytes <= memory  # type: ignore[arg-type]
    assert "training.recompute=true" in seen
    assert len(seen) > 1


def test_weights_that_do_not_fit_are_shared_out() -> None:
    model = preset("base", **{**SIZES, "depth": 6}, width=256, hidden=512)
    training = Training(steps=10, batch=8, seq=8, shards=8, devices=8)
    study = Study(name="wide", seeds=(0,), variants={"wide": model}, training=training)
    whole = STEP_COST(model, training)
    shared = STEP_COST(model, replace(training, parallel="sharded"))
    # Weights, their partial sum, the newest gradient and two states, of which an eighth stays, beside the gathered branches.
    assert shared.peak_bytes < whole.peak_bytes - 0.6 * 5 * whole.weight_bytes
    short = replace(PLENTY, memory_bytes=whole.peak_bytes // 2)
    (found,) = estimate_on_cluster(study, short).variants
    assert (found.runs_per_device, found.remedy) == (0, "training.parallel=sharded")
    sharded = replace(study, training=replace(training, parallel="sharded"))
    (fitting,) = estimate_on_cluster(sharded, replace(short, link_bytes_per_second=1e9)).variants
    assert fitting.runs_per_device >= 1
    assert fitting.tree_bytes == pytest.approx(3 * 7 / 8 * whole.weight_bytes, abs=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpus=8,tflop=1,memory=80", "expected gpus, tflops, memory, link, got 'tflop'. Did you mean 'tflops'?"),
        ("gpus=8,memory=80", "got no tflops"),
        ("gpus=1.5,tflops=1,memory=80", "gpus: expected a whole number of devices"),
        ("gpus=8,tflops=0,memory=80", "tflops: expected TFLOP/s that each sustains, a positive number, got '0'"),
        ("gpus=8,tflops=x,memory=80", "got 'x'"),
        ("", "got ''"),
    ],
)
def test_a_cluster_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        Cluster.parse(text)
    assert message in str(error.value)


def test_more_devices_than_the_cluster_has_are_refused() -> None:
    study = replace(STUDY, training=replace(STUDY.training, devices=8))
    with pytest.raises(InputError, match="expected at most the 4 devices of --cluster, got 8"):
        estimate_on_cluster(study, replace(PLENTY, gpus=4))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(
        "name: one\ntokenizer: bytes\ntraining: {steps: 10, batch: 4, seq: 16, devices: 2}\n"
        "model: {preset: base, width: 16, depth: 1, heads: 2, kv_heads: 2, hidden: 16, max_seq: 16}\nvariants: {base: {}}\n"
    )
    assert main(["plan", str(file), "--cluster", "gpus=4,tflops=1,memory=0.0001,link=10"]) == 0
    out = capsys.readouterr().out
    assert "one: 3 runs on 4 devices of 1 TFLOP/s and 100 kB, 2 at once" in out
    assert "base does not fit" in out
    assert "Summing gradients adds up to" in out
    assert main(["plan", str(file), "--cluster", "gpus=4,tflops=1,memory=1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["variants"][0]["runs_per_device"] > 1
    assert main(["plan", str(file), "--cluster", "gpus=1,tflops=1,memory=1"]) == 2
    assert "training.devices: expected at most the 1 devices" in capsys.readouterr().err
