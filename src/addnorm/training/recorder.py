"""Recorder of an attempt: writes the events, checkpoints and learned scalars of a run while it trains.

The training loop decides when something is written; the recorder writes it. With several ranks per run, rank 0 has the
recorder, and the others have a `Follower` in its place.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save

from addnorm.store.events import EventWriter, read_events
from addnorm.store.files import write_atomic
from addnorm.store.run import Ending, RunFolder
from addnorm.training.checkpoint import latest, save_final, save_step
from addnorm.training.coefficients import coefficients_of
from addnorm.training.loop import Step, Trainer, content_hash
from addnorm.training.peak_memory import peak_bytes
from addnorm.training.use import Use

Measured = tuple[float, float]
"""Loss and gradient norm of one step."""


class Recorder:
    """Writes into the folder of one run.

    Args:
        run: the run's folder.
        events: the writer of this attempt's events.
        tokens_per_step: training tokens of one step, for the speed.
        use: of processors and memory by this process.
    """

    def __init__(self, run: RunFolder, events: EventWriter, tokens_per_step: int, use: Use) -> None:
        self.run, self.events, self.use = run, events, use
        self.earlier: dict[int, Measured] = dict(_recorded_steps(run.events_path))
        """Loss and gradient norm of every step that an earlier attempt recorded."""
        self._tokens_per_step = tokens_per_step
        self._window = _StepWindow(0)

    def resume(self, trainer: Trainer) -> None:
        """Load the newest intact checkpoint, if there is one, and record the start of the attempt."""
        newest = latest(self.run.checkpoints_path)
        for rejected in newest.rejected:
            self.events.write("rejected", step=0, checkpoint=rejected.path.name, reason=rejected.reason)
        if newest.found is not None:
            trainer.load_state(newest.found.state)
        repeated = sum(step > trainer.step for step in self.earlier)
        self.events.write("start", step=trainer.step, resumed_from=trainer.step, replays=repeated)
        self._window = _StepWindow(trainer.step)

    def add_step(self, step: Step) -> None:
        """Add a step to the next training event."""
        self._window.add(step.loss, step.grad_norm)

    def write_steps(self, step: int, learning_rate: float) -> None:
        """Write the steps since the last training event as one event, up to `step`."""
        window = self._window
        if not window.losses:
            return
        self.events.write(
            "train",
            step=step,
            loss=sum(window.losses) / len(window.losses),
            grad_norm=sum(window.grad_norms) / len(window.grad_norms),
            learning_rate=learning_rate,
            tokens_per_s=len(window.losses) * self._tokens_per_step / window.elapsed_s,
            first=window.first + 1,
            losses=window.losses,
            grad_norms=window.grad_norms,
            uses=self.use.read(),
        )
        repeated = [number for number in range(window.first + 1, step + 1) if number in self.earlier]
        if repeated:
            self.events.write("replayed", step=step, first=repeated[0], last=repeated[-1], equal=True)
        window.restart(step)

    def write_evaluation(self, step: int, measured: Mapping[str, float], *, final: bool) -> None:
        """Write an evaluation, whose time does not count as training time."""
        self.events.write("eval", step=step, final=final, **measured)
        self._window.restart_clock()

    def write_ending(self, state: Ending, step: int, reason: str) -> None:
        """Write why the run cannot continue."""
        self.events.write(state, step=step, reason=reason)

    def write_stop(self, step: int) -> None:
        """Write that the attempt ends on request."""
        self.events.write("end", step=step, reason="stopped on request")

    def save_checkpoint(self, trainer: Trainer) -> None:
        """Save a checkpoint and the learned scalars, after making the events durable."""
        self.events.sync()
        save_step(self.run.checkpoints_path, trainer.step, trainer.state())
        self._save_scalars(trainer)
        self.events.write("checkpoint", step=trainer.step)
        self._window.restart_clock()

    def finish(self, trainer: Trainer) -> None:
        """Save the result and mark the run as finished."""
        self._save_scalars(trainer)
        with trainer.averaged():
            state = trainer.model.state_dict()
            save_final(self.run.final_path, state)
            digest = content_hash(state)
        self.events.write("end", step=trainer.step, reason="finished")
        self.run.mark("finished", step=trainer.step, content_hash=digest, peak_bytes=peak_bytes())

    def _save_scalars(self, trainer: Trainer) -> None:
        names = trainer.scalars.names()
        metadata = {
            "names": names,
            "step": trainer.step,
            "effective": coefficients_of(trainer.model.mechanisms(), names),
        }
        content = save(
            trainer.scalars.summary(), metadata={name: json.dumps(value) for name, value in metadata.items()}
        )
        write_atomic(self.run.path / "scalars.safetensors", content)


class Follower:
    """In place of a recorder in the ranks that do not record: loads what rank 0 loads, and writes nothing.

    Args:
        run: the run's folder.
    """

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.earlier: dict[int, Measured] = {}
        """Empty: rank 0 compares the repeated steps."""

    def resume(self, trainer: Trainer) -> None:
        """Load the newest intact checkpoint, if there is one."""
        newest = latest(self.run.checkpoints_path)
        if newest.found is not None:
            trainer.load_state(newest.found.state)

    def add_step(self, step: Step) -> None: ...

    def write_steps(self, step: int, learning_rate: float) -> None: ...

    def write_evaluation(self, step: int, measured: Mapping[str, float], *, final: bool) -> None: ...

    def write_ending(self, state: Ending, step: int, reason: str) -> None: ...

    def write_stop(self, step: int) -> None: ...

    def save_checkpoint(self, trainer: Trainer) -> None: ...

    def finish(self, trainer: Trainer) -> None: ...


class _StepWindow:
    """Steps since the last training event. Its clock excludes evaluations and checkpoints."""

    def __init__(self, step: int) -> None:
        self.restart(step)

    def restart(self, step: int) -> None:
        """Begin a new window after `step`."""
        self.first = step
        self.losses: list[float] = []
        self.grad_norms: list[float] = []
        self._elapsed_s = 0.0
        self._since = time.monotonic()

    def restart_clock(self) -> None:
        """Exclude the time since the last step."""
        self._since = time.monotonic()

    def add(self, loss: float, grad_norm: float) -> None:
        """Add a step."""
        now = time.monotonic()
        self._elapsed_s += now - self._since
        self._since = now
        self.losses.append(loss)
        self.grad_norms.append(grad_norm)

    @property
    def elapsed_s(self) -> float:
        """Seconds spent in the window's steps."""
        return max(self._elapsed_s, 1e-9)


def _recorded_steps(events: Path) -> Iterator[tuple[int, Measured]]:
    """Loss and gradient norm of every recorded step, from the first attempt that recorded it."""
    seen: set[int] = set()
    for event in read_events(events)[0]:
        if event["type"] == "train":
            pairs: Sequence[Any] = list(zip(event["losses"], event["grad_norms"], strict=True))
            for step, pair in enumerate(pairs, start=event["first"]):
                if step not in seen:
                    seen.add(step)
                    yield step, pair
