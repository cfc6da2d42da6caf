"""The cost estimate: memory against a real training step in a process of its own, sums of scores, how it counts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from addnorm import preset
from addnorm.catalogue import ROOMS, add_plugin, remove_plugin
from addnorm.study.definition import Training
from addnorm.study.expansion import fit_models
from addnorm.study.loading import load_study
from addnorm.supervision import cost_estimate
from addnorm.supervision.cost_estimate import estimate_cost
from addnorm.supervision.step_cost import _count_on, state_bytes, step_cost
from addnorm.training import use as peak

# Warmed up with a small model, so that what torch's kernels and optimizers set aside at their first use does not count.
# The peak is the kernel's own, reset just before. Each model has a process of its own, forked when torch has been imported.
PROGRAM = """
import dataclasses, json, os, sys
import torch
from torch.nn import functional as F
import addnorm
from addnorm.study.expansion import fit_models
from addnorm.supervision.step_cost import step_cost

torch.set_num_threads(1)
study = fit_models(addnorm.load_study("residual-scores", profile="quick"), 256)
training = dataclasses.replace(study.training, batch=study.training.batch // 4)


def train(spec, batch, seq):
    model = spec.build().train()
    optimizer = training.optimizer.build(training.optimizer.groups(model))
    for _ in range(2):
        tokens = torch.randint(spec.vocab, (batch, seq + 1))
        F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


def resident(field):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(field))


for variant in sys.argv[1:]:
    if os.fork():
        assert os.wait()[1] == 0
        continue
    train(addnorm.preset(variant, vocab=8, width=16, depth=2, heads=2, kv_heads=2, hidden=16, max_seq=8), 1, 8)
    spec = study.variants[variant]
    planned = step_cost(spec, training).peak_bytes
    open("/proc/self/clear_refs", "w").write("5")
    before = resident("VmRSS")
    train(spec, training.batch, training.seq)
    print(json.dumps({"variant": variant, "planned": planned, "measured": resident("VmHWM") - before}))
    break
"""
PEAKS = ("base", "v3m1", "v4m1")


@pytest.fixture(scope="module")
def peaks() -> dict[str, dict[str, int]]:
    """The planned and the measured peak of each model."""
    found = subprocess.run([sys.executable, "-c", PROGRAM, *PEAKS], capture_output=True, text=True, check=True)
    return {line["variant"]: line for line in map(json.loads, found.stdout.splitlines())}


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the kernel's peak of a process is Linux's own")
@pytest.mark.parametrize("variant", PEAKS)
@pytest.mark.thorough
def test_a_plans_peak_is_that_of_a_real_step(peaks: dict[str, dict[str, int]], variant: str) -> None:
    grown = peaks[variant]
    assert grown["measured"] / 2 < grown["planned"] < grown["measured"] * 2, grown


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the kernel's peak of a process is Linux's own")
@pytest.mark.thorough
def test_a_plan_of_hundreds_of_megabytes_is_within_a_tenth() -> None:
    benchmark = Path(__file__).parents[2] / "benchmarks/plan_memory.py"
    command = [sys.executable, str(benchmark), "--rooms", "residual", "--kinds", "add", "attention", "streams"]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "further off than 10%: none" in found.stdout


def test_a_plan_says_what_each_way_of_summing_scores_costs() -> None:
    study = load_study("residual-scores", settings=("seeds=[0]", "variants=[base, v4m1, v4m5]", "references=[base]"))
    found = {cost.variant: cost.ways for cost in estimate_cost(fit_models(study, 256), workers=1).variants}
    assert [way.attention for way in found["v4m1"]] == ["running", "streaming"]
    assert [way.taken for way in found["v4m1"]] == [True, False]
    summed, streamed = found["v4m1"]
    assert summed.flops_per_token < streamed.flops_per_token
    assert summed.peak_bytes > streamed.peak_bytes
    assert [way.attention for way in found["v4m5"]] == ["stored", "streaming"]
    stored, streamed = found["v4m5"]
    assert stored.taken
    assert not streamed.taken
    assert stored.flops_per_token < streamed.flops_per_token, "no product is made twice"
    assert stored.peak_bytes > summed.peak_bytes, "a matrix per layer, not two"
    assert found["base"] == ()


class Operations(TorchDispatchMode):
    """How many operations ran."""

    number = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.number += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(("name", "attention"), [("gau_alpha", "auto"), ("v4m5", "streaming"), ("v4m5", "stored")])
def test_a_large_step_is_counted_in_as_many_operations_as_a_small_one(name: str, attention: str) -> None:
    """A batch of 512 cuts attention into thousands of tiles: walking through them took minutes for one variant."""
    spec = preset(name, depth=2, attention=attention)
    counts = {}
    for batch in (2, 512):
        with Operations() as seen:
            counts[batch] = step_cost(spec, Training(batch=batch, seq=512))
        counts[batch, "operations"] = seen.number
    assert counts[512].flops == 256 * counts[2].flops
    assert counts[512, "operations"] == counts[2, "operations"]


def test_the_speed_is_measured_on_a_step_that_does_not_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    monkeypatch.setattr(
        cost_estimate, "step_cost", lambda model, training: counted.append(step_cost(model, training)) or counted[-1]
    )
    monkeypatch.setattr(cost_estimate, "_MEASURED_FLOPS", 1e7)
    spec, training = preset("base", vocab=64, width=32, depth=2, hidden=64), Training(batch=64, seq=256)
    whole = step_cost(spec, training).flops
    assert cost_estimate.measured_speed(spec, training, whole) > 0
    assert whole > 1e9
    assert counted[-1].flops < 1e7
    assert len(counted) <= 3


@pytest.mark.parametrize("kind", ROOMS["optimizer"].kinds())
@pytest.mark.parametrize("name", ["base", "gpt2"])
def test_the_optimizers_state_is_counted_to_the_byte(kind: str, name: str) -> None:
    """A state may have a size of its own: AdamW counts steps in four bytes for each parameter, however small."""
    optimizer = ROOMS["optimizer"].make(kind)
    spec = preset(name, vocab=32, width=16, depth=2, heads=2, kv_heads=2, hidden=32, max_seq=16)
    real = spec.build()
    with torch.device("meta"):
        shapes = spec.build()
    counted = []
    for model in (real, shapes):
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        counted.append(state_bytes(optimizer, model))
    trained = optimizer.build(optimizer.groups(real))
    trained.step()
    values = [value for state in trained.state.values() for value in state.values()]
    held = sum(value.nbytes for value in values if isinstance(value, torch.Tensor))
    assert counted == [held, held]
    assert held > sum(parameter.nbytes for parameter in real.parameters()) * (2 if kind == "adamw" else 0)


@pytest.mark.parametrize(("platform", "unit"), [("linux", 1024), ("darwin", 1)])
def test_peak_memory_is_in_bytes_on_every_platform(monkeypatch: pytest.MonkeyPatch, platform: str, unit: int) -> None:
    class Usage:
        ru_maxrss = 12_345

    monkeypatch.setattr(peak.sys, "platform", platform)
    monkeypatch.setattr(peak.resource, "getrusage", lambda who: Usage)
    assert peak.peak_bytes() == 12_345 * unit


def test_peak_memory_is_read_in_one_place() -> None:
    root = Path(__file__).parents[2]
    files = [path for folder in ("src", "benchmarks") for path in (root / folder).rglob("*.py")]
    reading = [path.relative_to(root).as_posix() for path in files if "ru_maxrss" in path.read_text(encoding="utf-8")]
    assert reading == ["src/addnorm/training/use.py"]


def test_a_step_counts_the_same_where_numbers_are_needed() -> None:
    """Fused attention of the CPU counts, and one sequence stands for all."""
    model = preset("base", vocab=64, width=32, depth=2, heads=2, kv_heads=2, hidden=64, max_seq=32)
    training = Training(steps=1, batch=2, seq=32)
    assert _count_on("cpu", model, training).flops == _count_on("meta", model, training).flops


def test_a_mechanism_that_asks_its_data_is_counted() -> None:
    room, kind = add_plugin(Path(__file__).parents[1] / "contracts" / "broken" / "asks_the_data.py")
    sizes = {"vocab": 64, "width": 32, "depth": 2, "heads": 2, "kv_heads": 2, "hidden": 64, "max_seq": 32}
    training = Training(steps=1, batch=2, seq=32)
    try:
        asking = step_cost(preset("base", **sizes, residual=room.make(kind)), training)
    finally:
        remove_plugin(kind)
    assert asking.flops == step_cost(preset("base", **sizes), training).flops
