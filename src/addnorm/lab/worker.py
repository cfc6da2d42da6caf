"""The one worker command: `python -m addnorm.lab.worker [PLUGIN.py ...] RUN_DIR` trains a run from where it stands.

All state is in the run's folder. Exit codes are those of `executors.Exit`; any other is a crash, and the supervisor may
start the worker again.
"""

import hashlib
import json
import math
import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from addnorm.errors import AddnormError, InputError, JobError
from addnorm.lab.executors import Exit
from addnorm.store.events import EventWriter, read_events
from addnorm.store.files import DiskFull, write_atomic
from addnorm.store.run import NotClaimed, Run


class Stop:
    """Becomes true when somebody asks the worker to stop (SIGTERM or SIGINT)."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


def main(arguments: list[str] | None = None) -> int:
    """Train one run. Returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments:
        print("usage: python -m addnorm.lab.worker [PLUGIN.py ...] RUN_DIR", file=sys.stderr)  # noqa: T201  the run's log
        return 2
    *plugins, folder = arguments
    run, stop = Run(Path(folder)), Stop()
    try:
        with run.claim() as events:
            return _work(run, events, stop, plugins)
    except NotClaimed as error:
        _tell(str(error))
        return Exit.of(error.state)
    except DiskFull as error:
        return _give_up(run, "blocked", f"disk: {error}", Exit.BLOCKED, cause="disk")


def _work(run: Run, events: EventWriter, stop: Stop, plugins: Sequence[str]) -> int:
    try:
        return Attempt(run, events, stop, plugins).work()
    except DiskFull:
        raise
    except AddnormError as error:
        return _give_up(run, "failed", str(error), Exit.FAILED)
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        _tell(traceback.format_exc())
        said = str(error).partition("\n")[0]
        return _give_up(run, "failed", "out of memory" + (f": {said}" if said else ""), Exit.FAILED)


def _give_up(run: Run, state: Any, reason: str, code: int, **values: Any) -> int:
    _tell(f"{state}: {reason}")
    try:
        last = run.last_event() or {}
        run.mark(state, reason=reason, step=int(last.get("step", 0)), log=run.last_words(), **values)
    except JobError as error:  # a disk so full that not even the reason fits: the exit code alone says it
        _tell(str(error))
    return code


def _tell(text: str) -> None:
    with suppress(OSError):  # the log may lie on the full disk that is to be told of
        print(text, file=sys.stderr, flush=True)  # noqa: T201


def _is_out_of_memory(error: MemoryError | RuntimeError) -> bool:
    import torch

    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


class Attempt:
    """One attempt at a run, from its newest whole checkpoint to the end."""

    def __init__(self, run: Run, events: EventWriter, stop: Stop, plugins: Sequence[str]) -> None:
        import torch

        from addnorm.lab.codec import decode
        from addnorm.lab.data import Dataset
        from addnorm.lab.expand import run_name
        from addnorm.lab.plugins import load_plugins
        from addnorm.lab.study import RunSpec
        from addnorm.lab.train import Trainer

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
        self.known = dict(_losses(run.events_path))
        run.write_env(_environment(device, self.spec.training.threads))

    def work(self) -> int:
        """Train to the end, or until asked to stop."""
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
                return _give_up(self.run, state, reason, Exit.FAILED)
            last = step == training.steps
            asked = self.stop.asked  # once per step, or a signal between two looks would leave half of an orderly end
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
                return Exit.STOPPED
        return self._finish()

    def _resume(self) -> None:
        from addnorm.lab.checkpoint import latest

        newest = latest(self.run.checkpoints_path)
        for rejected in newest.rejected:
            self.events.write("rejected", step=0, checkpoint=rejected.path.name, reason=rejected.reason)
        if newest.found is not None:
            self.trainer.load_state(newest.found.state)
        self.events.write("start", step=self.trainer.step, resumed_from=self.trainer.step, replays=len(self._ahead()))

    def _ahead(self) -> list[int]:
        return [step for step in self.known if step > self.trainer.step]

    def _problem(self, step: int, loss: float, grad_norm: float) -> tuple[Any, str] | None:
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
        from addnorm.lab.checkpoint import save_step

        self.events.sync()
        save_step(self.run.checkpoints_path, self.trainer.step, self.trainer.state())
        self._keep_scalars()
        self.events.write("checkpoint", step=self.trainer.step)
        window.restart_clock()

    def _keep_scalars(self) -> None:
        from safetensors.torch import save

        scalars = self.trainer.scalars
        content = save(
            scalars.summary(), metadata={"names": json.dumps(scalars.names()), "step": str(self.trainer.step)}
        )
        write_atomic(self.run.path / "scalars.safetensors", content)

    def _finish(self) -> int:
        from addnorm.lab.checkpoint import save_final

        self._keep_scalars()
        state = self.trainer.model.state_dict()
        save_final(self.run.final_path, state)
        self.events.write("end", step=self.trainer.step, reason="finished")
        self.run.mark("finished", step=self.trainer.step, content_hash=_content_hash(state), peak_bytes=_peak_bytes())
        return Exit.DONE


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


def _losses(events: Path) -> Iterator[tuple[int, tuple[float, float]]]:
    """Loss and gradient norm of every step that an earlier attempt wrote down; the first attempt's are kept."""
    seen: set[int] = set()
    for event in read_events(events)[0]:
        if event["type"] == "train":
            pairs = zip(event["losses"], event["grad_norms"], strict=True)
            for step, pair in enumerate(pairs, start=event["first"]):
                if step not in seen:
                    seen.add(step)
                    yield step, pair


def _same(before: tuple[float, float], now: tuple[float, float]) -> bool:
    return all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(before, now, strict=True))


def _environment(device: Any, threads: int) -> dict[str, Any]:
    import numpy
    import torch

    import addnorm

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
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _peak_bytes() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    sys.exit(main())
