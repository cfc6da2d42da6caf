"""One attempt at a run: from its newest whole checkpoint to the end, writing down what happens."""

import hashlib
import json
import math
import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from safetensors.torch import save

import addnorm
from addnorm.data import Dataset
from addnorm.errors import AddnormError, InputError
from addnorm.store.events import EventWriter
from addnorm.store.files import write_atomic
from addnorm.store.follower import EventFollower
from addnorm.store.run import Ending, RunFolder
from addnorm.study.decoding import decode
from addnorm.study.definition import RunSpec
from addnorm.study.expansion import run_name
from addnorm.study.plugins import load_plugins
from addnorm.training.checkpoint import latest, save_final, save_step
from addnorm.training.effective import effective
from addnorm.training.exit_code import ExitCode
from addnorm.training.loop import Trainer
from addnorm.training.peak_memory import peak_bytes


class CannotGoOn(AddnormError):
    """The run has come to an end that it was not meant to have: `state` is failed or diverged."""

    def __init__(self, state: Ending, reason: str) -> None:
        super().__init__(reason)
        self.state = state


class Attempt:
    """One attempt at a run, from its newest whole checkpoint to the end."""

    def __init__(self, run: RunFolder, events: EventWriter, stop: Callable[[], bool], plugins: Sequence[str]) -> None:
        self.run, self.events, self.stop = run, events, stop
        load_plugins(plugins, Path())
        self.spec: RunSpec = decode(RunSpec, run.spec["spec"])
        if run_name(self.spec) != run.name:
            raise InputError(
                f"{run.path / 'spec.json'} is not the spec that this folder was named after ({run_name(self.spec)}), or a "
                "plugin has changed since. Start the study in another folder."
            )
        torch.set_num_threads(self.spec.training.threads)
        dataset = Dataset.load(run.path.parent / "data")
        if dataset.hash != self.spec.data_hash:
            raise InputError(
                f"{dataset.folder} holds a data set with hash {dataset.hash[:12]}, the run was planned for "
                f"{self.spec.data_hash[:12]}. Put the old data set back, or start the study in another folder."
            )
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.trainer = Trainer(self.spec, dataset, device)
        self.known = _first_losses(run.events_path)
        run.write_env(_environment(device, self.spec.training.threads))

    def work(self) -> int:
        """Train to the end, or until asked to stop.

        Raises:
            CannotGoOn: a loss or gradient that is not finite, or a replayed step that came out otherwise than before.
            DiskFull: no room left for what must be kept.
        """
        self._resume()
        trainer, training = self.trainer, self.spec.training
        window = Window(trainer.step)
        while trainer.step < training.steps:
            rate = trainer.learning_rate
            stepped = trainer.train_step()
            window.add(stepped.loss, stepped.grad_norm)
            step = trainer.step
            problem = self._problem(step, stepped.loss, stepped.grad_norm)
            if problem is not None:
                self._log(window, rate)
                state, reason = problem
                self.events.write(state, step=step, reason=reason)
                raise CannotGoOn(state, reason)
            last = step == training.steps
            asked = self.stop()  # once per step, or a signal between two looks would leave half of an orderly end
            checkpoint = not last and (step % training.checkpoint_every == 0 or asked)
            if step % training.log_every == 0 or last or checkpoint:
                # What a checkpoint stands for is written down before it: no later attempt does those steps again.
                self._log(window, rate)
            if step % training.eval_every == 0 or last:
                self.events.write("eval", step=step, final=last, **trainer.evaluate())
                window.restart_clock()
            if checkpoint:
                self._checkpoint(window)
            if asked and not last:
                self.events.write("end", step=step, reason="stopped on request")
                return ExitCode.STOPPED
        return self._finish()

    def _resume(self) -> None:
        newest = latest(self.run.checkpoints_path)
        for rejected in newest.rejected:
            self.events.write("rejected", step=0, checkpoint=rejected.path.name, reason=rejected.reason)
        if newest.found is not None:
            self.trainer.load_state(newest.found.state)
        self.events.write("start", step=self.trainer.step, resumed_from=self.trainer.step, replays=len(self._ahead()))

    def _ahead(self) -> list[int]:
        return [step for step in self.known if step > self.trainer.step]

    def _problem(self, step: int, loss: float, grad_norm: float) -> tuple[Ending, str] | None:
        """Why the run must end after this step, if it must."""
        before = self.known.get(step)
        if before is not None and not _same(before, (loss, grad_norm)):
            return "diverged", (
                f"diverged on resume: step {step} first gave loss {before[0]!r} and gradient norm {before[1]!r}, now "
                f"{loss!r} and {grad_norm!r}. Versions, threads or hardware may differ: see env.json."
            )
        if not math.isfinite(loss):
            return "failed", f"the loss became {loss} at step {step}"
        if not math.isfinite(grad_norm):
            return "failed", f"the gradient's norm became {grad_norm} at step {step}"
        return None

    def _log(self, window: "Window", rate: float) -> None:
        if not window.losses:
            return
        tokens = len(window.losses) * self.spec.training.batch * self.spec.training.seq
        self.events.write(
            "train",
            step=self.trainer.step,
            loss=sum(window.losses) / len(window.losses),
            grad_norm=sum(window.grad_norms) / len(window.grad_norms),
            learning_rate=rate,
            tokens_per_s=tokens / window.elapsed_s,
            first=window.first + 1,
            losses=window.losses,
            grad_norms=window.grad_norms,
        )
        replayed = [step for step in range(window.first + 1, self.trainer.step + 1) if step in self.known]
        if replayed:
            self.events.write("replayed", step=self.trainer.step, first=replayed[0], last=replayed[-1], equal=True)
        window.restart(self.trainer.step)

    def _checkpoint(self, window: "Window") -> None:
        self.events.sync()
        save_step(self.run.checkpoints_path, self.trainer.step, self.trainer.state())
        self._keep_scalars()
        self.events.write("checkpoint", step=self.trainer.step)
        window.restart_clock()

    def _keep_scalars(self) -> None:
        scalars = self.trainer.scalars
        names = scalars.names()
        said = {
            "names": names,
            "step": self.trainer.step,
            "effective": effective(self.trainer.model.mechanisms(), names),
        }
        content = save(scalars.summary(), metadata={name: json.dumps(value) for name, value in said.items()})
        write_atomic(self.run.path / "scalars.safetensors", content)

    def _finish(self) -> int:
        self._keep_scalars()
        state = self.trainer.model.state_dict()
        save_final(self.run.final_path, state)
        self.events.write("end", step=self.trainer.step, reason="finished")
        self.run.mark("finished", step=self.trainer.step, content_hash=_content_hash(state), peak_bytes=peak_bytes())
        return ExitCode.DONE


class Window:
    """Steps since the last training event. The clock leaves out evaluations and checkpoints."""

    def __init__(self, step: int) -> None:
        self.restart(step)

    def restart(self, step: int) -> None:
        """Begin a new window after `step`."""
        self.first = step
        self.losses: list[float] = []
        self.grad_norms: list[float] = []
        self._passed_s = 0.0
        self._since = time.monotonic()

    def restart_clock(self) -> None:
        """Leave out the time since the last step."""
        self._since = time.monotonic()

    def add(self, loss: float, grad_norm: float) -> None:
        """One step more."""
        now = time.monotonic()
        self._passed_s += now - self._since
        self._since = now
        self.losses.append(loss)
        self.grad_norms.append(grad_norm)

    @property
    def elapsed_s(self) -> float:
        """Seconds spent in the window's steps."""
        return max(self._passed_s, 1e-9)


def _first_losses(events: Path) -> dict[int, tuple[float, float]]:
    """Loss and gradient norm of every step that an earlier attempt recorded; for a repeated step the first attempt's."""
    first: dict[int, tuple[float, float]] = {}
    for event in EventFollower(events).read():
        if event["type"] == "train":
            pairs = zip(event["losses"], event["grad_norms"], strict=True)
            for step, pair in enumerate(pairs, start=event["first"]):
                first.setdefault(step, pair)
    return first


def _same(before: tuple[float, float], now: tuple[float, float]) -> bool:
    return all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(before, now, strict=True))


def _environment(device: Any, threads: int) -> dict[str, Any]:
    return {
        "addnorm": addnorm.__version__,
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


def _content_hash(state: dict[str, Any]) -> str:
    """SHA-256 of every tensor's name, dtype, shape and bytes: equal for two runs only if they learned the same."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
