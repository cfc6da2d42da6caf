"""Nothing waits for the device between log steps: a training step runs on a device that has no numbers to wait for."""

import math
from dataclasses import replace
from pathlib import Path
from threading import current_thread
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from addnorm import preset
from addnorm.catalogue import ROOMS
from addnorm.data import Dataset, prepare
from addnorm.data.corpora.synthetic import Synthetic
from addnorm.data.tokenizers.bytes import Bytes
from addnorm.study.definition import Study, Training
from addnorm.training.loop import Batches, Trainer
from addnorm.training.objective import Batch, make_batch
from addnorm.training.step_window import StepWindow
from synthetic_run import synthetic_run
from train_here import train_here

SIZES: dict[str, Any] = {"vocab": 258, "width": 16, "depth": 2, "heads": 2, "kv_heads": 1, "hidden": 16, "max_seq": 16}
WAITS = ("aten._local_scalar_dense", "aten.nonzero", "aten.equal", "aten.is_nonzero")
"""Operations that hand numbers of a device to the CPU."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return prepare(Synthetic(), Bytes(), tmp_path_factory.mktemp("data") / "data")


def trainer(dataset: Dataset, device: str, optimizer: str = "adamw", training: Any = None, **changes: Any) -> Trainer:
    settings = {"steps": 8, "batch": 4, "seq": 16, "shards": 2, **(training or {})}
    spec = synthetic_run(
        dataset, preset("llama", **SIZES, **changes), Training(optimizer=ROOMS["optimizer"].make(optimizer), **settings)
    )
    return Trainer(spec, dataset, torch.device(device))


class Waits(TorchDispatchMode):
    """How often the CPU asked for numbers of tensors that are no counters of an optimizer."""

    number = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.number += str(function).startswith(WAITS)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"objective": "masked"},
        {"scores": "weighted", "residual": "streams"},
        {"residual": "schedule"},
        {"optimizer": "tiger", "residual": "rezero"},
        {"optimizer": "muon"},
        {"optimizer": "schedule_free"},
        {"training": {"clip": None, "recompute": True}, "scores": "weighted"},
    ],
    ids=str,
)
def test_a_step_asks_the_device_for_no_number(dataset: Dataset, changes: dict[str, Any]) -> None:
    """The meta device has none: `.item()`, `.cpu()` and an index whose size depends on numbers are errors there."""
    if changes.get("residual") == "schedule":
        changes = {**changes, "residual": ROOMS["residual"].make("schedule", steps=4)}
    without = trainer(dataset, "meta", **changes)
    for _ in range(2):
        step = without.train_step()
    assert (step.loss.device.type, step.grad_norm.shape) == ("meta", ())
    with pytest.raises((RuntimeError, NotImplementedError)):
        step.loss.item()


def test_the_steps_of_a_window_are_read_at_once(dataset: Dataset) -> None:
    run, window = trainer(dataset, "cpu"), StepWindow(0)
    with Waits() as waits:  # type: ignore[no-untyped-call]
        for _ in range(4):
            window.add(run.train_step())
        assert waits.number == 0
        _ = window.measured or run.train_step().loss.item()
        assert waits.number == 1, "it would have been seen"
    window.read()
    assert len(window.measured) == 4
    assert all(math.isfinite(value) for pair in window.measured for value in pair)


def test_a_loss_that_is_not_finite_is_found_at_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train_step = Trainer.train_step

    def troubled(self: Trainer) -> Any:
        step = train_step(self)
        return replace(step, loss=step.loss * math.nan) if self.step in (5, 6) else step

    monkeypatch.setattr(Trainer, "train_step", troubled)
    training = Training(steps=10, batch=2, seq=16, log_every=8, eval_every=10, eval_sequences=2, checkpoint_every=10)
    study = Study(
        name="nan", seeds=(0,), variants={"base": preset("llama", **SIZES)}, corpus=Synthetic(), training=training
    )
    (run,) = train_here(study, tmp_path / "nan").runs()
    ending = run.ending()
    assert ending is not None
    assert ending["state"] == "failed"
    assert "the loss became nan at step 5" in ending["reason"]
    assert (ending["step"], run.status().step) == (5, 5)
    assert not list(run.checkpoints_path.glob("*.pt"))


def batch_of(dataset: Dataset, step: int) -> Batch:
    windows = torch.full((2, 5), step).numpy()
    return make_batch("masked", windows, dataset, seed=0, step=step, device=torch.device("cpu"))


def test_the_next_batch_is_made_and_pinned_meanwhile(dataset: Dataset) -> None:
    made: list[tuple[int, str]] = []

    def make(step: int) -> Batch:
        made.append((step, current_thread().name.partition("_")[0]))
        return batch_of(dataset, step)

    pinned: list[torch.Tensor] = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        pinned.append(tensor.clone())
        return pinned[-1]

    ahead, plain = Batches(make, pin), Batches(lambda step: batch_of(dataset, step), None)
    for step in (3, 4, 5, 9, 10):
        found, expected = ahead.take(step), plain.take(step)
        assert all(torch.equal(getattr(found, name), getattr(expected, name)) for name in ("inputs", "targets"))
        assert found.mask is not None
        assert any(found.inputs is tensor for tensor in pinned)
        # Going to the device, a part of it is the same part.
        part = found.rows(1, 2, torch.device("cpu"))
        assert part.scored is not None
        assert torch.equal(part.targets.flatten()[part.scored], part.targets[found.mask[1:2]])
    ahead.take(11)  # waits for its thread
    by_thread = [step for step, thread in made if thread == "batches"]
    assert by_thread[:5] == [4, 5, 6, 10, 11]
    assert [step for step, thread in made if thread != "batches"] == [3, 9]


def test_a_batch_that_cannot_be_made_is_an_error_at_its_step(dataset: Dataset) -> None:
    def make(step: int) -> Batch:
        if step == 2:
            raise OSError("the file is gone")
        return batch_of(dataset, step)

    batches = Batches(make, torch.Tensor.clone)
    batches.take(1)
    with pytest.raises(OSError, match="gone"):
        batches.take(2)
