"""One attempt at a run: training from its newest intact checkpoint to the end."""

import math
import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch

from addnorm.data import Dataset
from addnorm.errors import AddnormError, InputError
from addnorm.store.ending import NOT_FINITE, Ending
from addnorm.store.events import EventWriter
from addnorm.store.run import RunFolder
from addnorm.study.decoding import decode
from addnorm.study.definition import RunSpec
from addnorm.study.expansion import run_name
from addnorm.study.plugins import load_plugins
from addnorm.training.attention_ways import attention_ways
from addnorm.training.exit_code import ExitCode
from addnorm.training.loop import Trainer
from addnorm.training.numerics import device_here, set_numerics
from addnorm.training.ranks import Alone, Ranks
from addnorm.training.recorder import Recorder, SilentRecorder
from addnorm.training.step_window import equal
from addnorm.training.use import ResourceUse
from addnorm.version import __version__


class CannotContinue(AddnormError):
    """The run cannot go on: `state` is failed, diverged or blocked, `cause` a word for the commands."""

    def __init__(self, state: Ending, reason: str, cause: str | None = None) -> None:
        super().__init__(reason)
        self.state, self.cause = state, cause


class Attempt:
    """One attempt at a run.

    Args:
        run: the run's folder, which this process has claimed.
        events: the writer of the attempt's events; None in ranks that do not record.
        stop: returns True once the worker has been asked to stop.
        plugins: files with the user's own siblings.
        ranks: the processes that train the run together; this one alone if not given.
        device: the device to train on; the first GPU, or the CPU, if not given.
        sharded: True for a share of the weights on each rank.

    Raises:
        InputError: the spec is not the one that the run was planned with.
        CannotContinue: the data set is not the one that the run was planned with, which can be mended outside the run.
    """

    def __init__(
        self,
        run: RunFolder,
        events: EventWriter | None,
        stop: Callable[[], bool],
        plugins: Sequence[str],
        *,
        ranks: Ranks | None = None,
        device: torch.device | None = None,
        sharded: bool = False,
    ) -> None:
        self.stop = stop
        self.ranks = Alone() if ranks is None else ranks
        # The study was planned with checked plugins; if one has changed since, the run has another name.
        load_plugins(plugins, Path(), is_checked=True)
        self.spec: RunSpec = decode(RunSpec, run.spec["spec"])
        if run_name(self.spec) != run.name:
            raise InputError(
                f"{run.path / 'spec.json'}: expected the spec of {run.name}, got that of {run_name(self.spec)}. The file or a "
                "plugin has changed. Start the study in another folder."
            )
        # Data before model: a missing data set is mended outside the run and must not cost the building of a large
        # model.
        dataset = _dataset(run.path.parent / "data", self.spec.data_hash)
        device = device or device_here()
        numerics = set_numerics(self.spec.training, device)
        self.trainer = Trainer(self.spec, dataset, device, self.ranks, sharded=sharded)
        self.recorder: Recorder | SilentRecorder = SilentRecorder(run)
        if events is not None:
            self.recorder = Recorder(
                run, events, self.spec.training.batch * self.spec.training.seq, ResourceUse(device)
            )
            place = {"ranks": self.ranks.size, "parallel": self.trainer.parallel.kind}
            # On a GPU alone: the pass without numbers imports torch's tracer, a second of every run, and there the choice
            # decides about hundreds of launches.
            ways = attention_ways(self.spec.model, self.spec.training, device) if device.type == "cuda" else {}
            attention = {"attention": "; ".join(f"{impl}: {why}" for impl, why in ways.items())} if ways else {}
            environment = _environment(device, self.spec.training.threads)
            run.write_env({**environment, **place, **numerics, **attention, "compile": "no"})

    def train(self) -> int:
        """Train to the end, or until asked to stop.

        Returns:
            The worker's exit code.

        Raises:
            CannotContinue: a loss or gradient is not finite, or a repeated step differs from its first attempt.
            DiskFull: no room for events or checkpoints.
            JobError: the ranks of the run have other checkpoints or weights than rank 0.
        """
        trainer, recorder, training = self.trainer, self.recorder, self.spec.training
        recorder.resume(trainer)
        # Every rank lists the folder itself, and a network file system may show one of them an older listing. Ranks
        # that began at different steps would add gradients of different batches.
        self.ranks.require_equal("The steps of the newest checkpoints", trainer.step.to_bytes(8))
        if training.steps == 0:
            recorder.write_evaluation(0, trainer.evaluate_at_end(), final=True)
        elif training.compile:
            recorder.write_compiled(trainer.step, trainer.compile())
        while trainer.step < training.steps:
            recorder.window.add(trainer.train_step())
            step = trainer.step
            last = step == training.steps
            # Read once per step, so that a signal within the step cannot split its decisions, nor those of the ranks.
            stopping = self.ranks.any(self.stop())
            checkpoint = not last and (step % training.checkpoint_every == 0 or stopping)
            evaluation = last or step % training.eval_every == 0
            record = last or checkpoint or step % training.log_every == 0
            if record or evaluation:
                # Only here the device is waited for. A step that failed is found before anything is made from its weights.
                self._read_steps()
            if record:
                # Steps are recorded before their checkpoint, because no later attempt repeats them.
                recorder.write_steps(step, trainer.learning_rate_at(step - 1))
            if evaluation:
                recorder.write_evaluation(step, trainer.evaluate_at_end() if last else trainer.evaluate(), final=last)
            if checkpoint or last:
                trainer.require_equal_ranks()
            if checkpoint:
                recorder.save_checkpoint(trainer)
            if stopping and not last:
                recorder.write_stop(step)
                return ExitCode.STOPPED
        recorder.finish(trainer)
        return ExitCode.DONE

    def _read_steps(self) -> None:
        """Read what the last steps measured.

        Raises:
            CannotContinue: after one of them the run cannot continue; the steps up to it are recorded.
        """
        recorder, window = self.recorder, self.recorder.window
        read = len(window.measured)
        window.read()
        for step, measured in enumerate(window.measured[read:], start=window.first + read + 1):
            problem = self._problem(step, *measured)
            if problem is not None:
                window.cut(step)
                recorder.write_steps(step, self.trainer.learning_rate_at(step - 1))
                recorder.write_ending(problem.state, step, str(problem))
                raise problem

    def _problem(self, step: int, loss: float, grad_norm: float) -> CannotContinue | None:
        """The reason why the run cannot continue after a step; None if it can."""
        # Equal bits, no tolerance. A step is a function of state, seed and number: if it differs at all, state, code or
        # arithmetic are not those of the run that was planned.
        first = self.recorder.earlier.get(step)
        if first is not None and not equal(first, (loss, grad_norm)):
            return CannotContinue(
                "diverged",
                f"diverged on resume: step {step} first gave loss {first[0]!r} and gradient norm {first[1]!r}, now "
                f"{loss!r} and {grad_norm!r}. Versions, threads or hardware may differ: see env.json.",
            )
        if not math.isfinite(loss):
            return CannotContinue("failed", f"the loss became {loss} at step {step}", NOT_FINITE)
        if not math.isfinite(grad_norm):
            return CannotContinue("failed", f"the gradient's norm became {grad_norm} at step {step}", NOT_FINITE)
        return None


def _dataset(folder: Path, planned: str) -> Dataset:
    """The study's data set, which `addnorm run` makes again if a file of it is missing."""
    try:
        dataset = Dataset.load(folder)
        _ = dataset.byte_lengths  # reads the tokenizer, whose file may be damaged as well
    except InputError as error:
        raise CannotContinue("blocked", f"{error} The same addnorm run command makes it again.", "data") from error
    if dataset.hash != planned:
        reason = (
            f"{folder}: expected the data set with hash {planned[:12]}, got {dataset.hash[:12]}. Restore the old data set, or "
            "start the study in another folder."
        )
        raise CannotContinue("blocked", reason, "data")
    return dataset


def _environment(device: Any, threads: int) -> dict[str, Any]:
    return {
        "addnorm": __version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": threads,
        "pid": os.getpid(),
    }
