"""The ways of attention are known before training, and a device that cannot train a model is refused in a sentence."""

import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from addnorm.errors import InputError
from addnorm.kernels.grouped_attention import api, attend, choose, problem_of
from addnorm.model.presets import preset
from addnorm.study.definition import Training
from addnorm.training.attention_ways import ROUNDING, attention_ways, measure_ways, require_device, slow_way

SIZES = {"vocab": 32, "width": 64, "depth": 5, "heads": 4, "kv_heads": 2, "hidden": 64, "max_seq": 32}
TRAINING = Training(steps=1, batch=2, seq=32)
CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A GPU that can be asked what it is, on a machine without one."""
    card = SimpleNamespace(total_memory=80 * 2**30, capability=(9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: card.capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Card")
    return card


@pytest.mark.parametrize(
    ("kind", "on_cpu", "on_gpu"),
    [
        ("base", {"sdpa"}, {"sdpa"}),
        ("gpt2", {"streaming"}, {"triton"}),
        ("v4m1", {"running"}, {"running"}),
        ("v4m5", {"stored"}, {"sdpa"}),
        ("gemma2", {"streaming"}, {"triton"}),
    ],
)
def test_the_ways_follow_from_shapes_and_the_device(card, kind: str, on_cpu: set[str], on_gpu: set[str]) -> None:
    model = preset(kind, **SIZES)
    assert set(attention_ways(model, TRAINING, CPU)) == on_cpu
    pytest.importorskip("triton")
    assert set(attention_ways(model, TRAINING, GPU)) == on_gpu
    assert all(attention_ways(model, TRAINING, GPU).values())


def test_the_way_of_a_problem_on_the_cpu_is_the_one_that_is_taken() -> None:
    q = torch.randn(1, 2, 8, 16)
    assert choose(problem_of([q], [q], q, [1.0], causal=True)) in attention_ways(preset("base", **SIZES), TRAINING, CPU)


def test_a_pass_without_numbers_that_asks_nothing_is_as_before() -> None:
    q = torch.empty(1, 2, 8, 16, device="meta")
    assert choose(problem_of([q], [q], q, [1.0], causal=True)) == "streaming"
    assert attend(q, q, q, impl="triton").shape == q.shape


def test_an_old_card_is_refused(card) -> None:
    card.capability = (7, 5)
    with pytest.raises(
        InputError, match=r"^Card: expected a GPU of compute capability 8.0 or later, got 7.5. Set CUDA_V"
    ):
        require_device(preset("base", **SIZES), TRAINING, GPU)


def test_kernels_without_a_compiler_are_refused(card, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    require_device(preset("base", **SIZES), TRAINING, GPU)  # torch's own kernel
    with pytest.raises(
        InputError, match=r"^attention takes 'triton', which Triton compiles: expected a C compiler, got none"
    ):
        require_device(preset("gpt2", **SIZES), TRAINING, GPU)
    with pytest.raises(InputError, match=r"^training.compile is set, .* or set training.compile: false\.$"):
        require_device(preset("base", **SIZES), replace(TRAINING, compile=True), GPU)


def test_a_kernel_is_refused_where_there_is_no_gpu() -> None:
    with pytest.raises(InputError, match=r"^attention: triton: expected a GPU, got cpu\. Set attention to 'auto'"):
        require_device(replace(preset("base", **SIZES), attention="triton"), TRAINING, CPU)


def test_a_width_that_no_kernel_has_is_said(card) -> None:
    pytest.importorskip("triton")
    wide = preset("base", **SIZES | {"width": 640, "heads": 2, "kv_heads": 2}, position="alibi")
    why = slow_way(wide, TRAINING, GPU)
    assert why is not None
    assert "head_dim and value_dim up to 256, got 320" in why
    assert slow_way(preset("gpt2", **SIZES), TRAINING, GPU) is None
    assert slow_way(wide, TRAINING, CPU) is None


@pytest.mark.thorough
def test_ways_are_compared_in_values_and_times() -> None:
    # Without a GPU the kernels are interpreted where Triton is installed.
    measured = measure_ways(CPU, heads=2, seq=32)
    assert {"own scores", "with dropout", "a window", "scores of 8 layers"} == {way.case for way in measured}
    assert all(way.error < ROUNDING and way.milliseconds > 0 for way in measured)
    assert any(way.error > 0 for way in measured)
    for case in {way.case for way in measured}:
        assert sum(way.is_taken for way in measured if way.case == case) == 1
    assert not any(way.impl == "sdpa" and way.case == "with dropout" for way in measured)


@pytest.mark.thorough  # measures all ways once more
def test_a_wrong_way_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    streaming = api.IMPLEMENTATIONS["streaming"]
    monkeypatch.setitem(api.IMPLEMENTATIONS, "streaming", lambda problem: 1.05 * streaming(problem))
    assert {way.impl for way in measure_ways(CPU, heads=2, seq=32) if way.error > ROUNDING} == {"streaming"}
