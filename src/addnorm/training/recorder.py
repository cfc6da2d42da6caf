"""Recorder of an attempt: writes the events, checkpoints and learned scalars of a run while it trains.

The training loop decides when something is written; the recorder writes it. With several ranks per run, rank 0 has the
recorder, and the others have a `SilentRecorder` in its place.
"""

import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save

from addnorm.store.ending import Ending
from addnorm.store.events import EventWriter, read_events
from addnorm.store.files import Damaged, disk_error, write_atomic
from addnorm.store.run import RunFolder
from addnorm.training.checkpoint import latest, save_final, save_step
from addnorm.training.coefficients import coefficients_of
from addnorm.training.loop import Trainer, content_hash
from addnorm.training.step_window import LossAndNorm, StepWindow, equal
from addnorm.training.use import ResourceUse, peak_bytes


class Recorder:
    """Writes into the folder of one run.

    Args:
        run: the run's folder.
        events: the writer of this attempt's events.
        tokens_per_step: training tokens of one step, for the speed.
        use: of processors and memory by this process.
    """

    def __init__(self, run: RunFolder, events: EventWriter, tokens_per_step: int, use: ResourceUse) -> None:
        self.run, self.events, self.use = run, events, use
        self.earlier: dict[int, LossAndNorm] = recorded_steps(run.events_path)
        """Loss and gradient norm of every step that an earlier attempt recorded."""
        self._tokens_per_step = tokens_per_step
        self.window = StepWindow(0)

    def resume(self, trainer: Trainer) -> None:
        """Load the newest intact checkpoint whose steps are on record, if there is one, and record the start."""
        # The proof that a resumed run is the run that was begun. Events hold the loss and the gradient norm of every
        # step, exactly. Steps after the checkpoint that are on record are computed again and compared
        # (`Attempt._problem`). A checkpoint beyond a gap in the record is refused: no later attempt would repeat the
        # missing steps, and the run would end without them.
        newest = latest(self.run.checkpoints_path, without_gap(self.earlier))
        for rejected in newest.rejected:
            self.events.write("rejected", step=0, checkpoint=rejected.path.name, reason=rejected.reason)
        if newest.checkpoint is not None:
            trainer.load_state(newest.checkpoint.state)
        repeated = sum(step > trainer.step for step in self.earlier)
        self.events.write("start", step=trainer.step, resumed_from=trainer.step, replays=repeated)
        self.window = StepWindow(trainer.step)

    def write_steps(self, step: int, learning_rate: float) -> None:
        """Write the steps since the last training event, which have been read, as one event up to `step`."""
        window = self.window
        if not window.measured:
            return
        losses, grad_norms = (list(values) for values in zip(*window.measured, strict=True))
        self.events.write(
            "train",
            step=step,
            loss=sum(losses) / len(losses),
            grad_norm=sum(grad_norms) / len(grad_norms),
            learning_rate=learning_rate,
            tokens_per_s=window.steps_per_s * self._tokens_per_step,
            first=window.first + 1,
            losses=losses,
            grad_norms=grad_norms,
            uses=self.use.read(),
        )
        # A step that differed from its first record is the last one here, and not equal: `Attempt` then records why the
        # run ends.
        repeated = [
            number
            for number, measured in enumerate(window.measured, start=window.first + 1)
            if number in self.earlier and equal(self.earlier[number], measured)
        ]
        if repeated:
            self.events.write("replayed", step=step, first=repeated[0], last=repeated[-1], equal=True)
        window.restart(step)

    def write_evaluation(self, step: int, measured: Mapping[str, Any], *, final: bool) -> None:
        """Write an evaluation, whose time does not count as training time."""
        self.events.write("eval", step=step, final=final, **measured)
        self.window.restart_clock()

    def write_ending(self, state: Ending, step: int, reason: str) -> None:
        """Write why the run cannot continue."""
        self.events.write(state, step=step, reason=reason)

    def write_compiled(self, step: int, reason: str | None) -> None:
        """Write whether the model is compiled, or the reason why it is not."""
        self.events.write("compiled" if reason is None else "not_compiled", step=step, reason=reason)
        self.run.write_compiled(reason)
        self.window.restart_clock()

    def write_stop(self, step: int) -> None:
        """Write that the attempt ends on request."""
        self.events.write("end", step=step, reason="stopped on request")

    def save_checkpoint(self, trainer: Trainer) -> None:
        """Save a checkpoint and the learned scalars, after making the events durable."""
        # The order matters when power fails. First the steps, then the checkpoint after which nobody repeats them, then
        # the event that names it. In any other order a run could resume behind steps that no disk has.
        self.events.sync()
        save_step(self.run.checkpoints_path, trainer.step, trainer.state())
        self._save_scalars(trainer)
        self.events.write("checkpoint", step=trainer.step)
        self.window.restart_clock()

    def finish(self, trainer: Trainer) -> None:
        """Save the result and mark the run as finished."""
        self._save_scalars(trainer)
        with trainer.final_weights() as weights:
            save_final(self.run.final_path, weights)
            digest = content_hash(weights)
        self.events.write("end", step=trainer.step, reason="finished")
        try:
            size = self.run.final_path.stat().st_size
        except OSError as error:  # removed at once
            raise disk_error(error, self.run.final_path) from error
        # Last: whoever sees this mark relies on the weights, on their hash and on every event.
        self.run.mark("finished", step=trainer.step, content_hash=digest, weights_bytes=size, peak_bytes=peak_bytes())

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


class SilentRecorder:
    """In place of a recorder in the ranks that do not record: loads what rank 0 loads, and writes nothing.

    Args:
        run: the run's folder.
    """

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.earlier: dict[int, LossAndNorm] = {}
        """Empty: rank 0 compares the repeated steps."""
        self.window = StepWindow(0)

    def resume(self, trainer: Trainer) -> None:
        """Load the checkpoint that the recorder of rank 0 loads, if there is one."""
        newest = latest(self.run.checkpoints_path, without_gap(recorded_steps(self.run.events_path)))
        if newest.checkpoint is not None:
            trainer.load_state(newest.checkpoint.state)
        self.window = StepWindow(trainer.step)

    def write_steps(self, step: int, learning_rate: float) -> None:
        """Begin a new window."""
        self.window.restart(step)

    def write_evaluation(self, step: int, measured: Mapping[str, Any], *, final: bool) -> None: ...

    def write_ending(self, state: Ending, step: int, reason: str) -> None: ...

    def write_compiled(self, step: int, reason: str | None) -> None: ...

    def write_stop(self, step: int) -> None: ...

    def save_checkpoint(self, trainer: Trainer) -> None:
        """Hand this rank's part of the state to rank 0."""
        # Shares are gathered by all ranks together: rank 0 would wait for one that did not call this.
        trainer.state()

    def finish(self, trainer: Trainer) -> None:
        """Hand this rank's part of the weights to rank 0."""
        with trainer.final_weights():
            pass


def recorded_steps(events: Path) -> dict[int, LossAndNorm]:
    """Loss and gradient norm of every recorded step, from the first attempt that recorded it.

    Raises:
        Damaged, JobError: the events cannot be read.
    """
    steps: dict[int, LossAndNorm] = {}
    for event in read_events(events)[0]:
        try:
            if event["type"] == "train":
                pairs: Sequence[Any] = list(zip(event["losses"], event["grad_norms"], strict=True))
                for step, pair in enumerate(pairs, start=event["first"]):
                    # The first record counts; a later attempt at the step was compared with it.
                    steps.setdefault(step, pair)
        except (KeyError, TypeError, ValueError) as error:
            raise Damaged(
                f"{events} is damaged: expected losses and grad_norms of each step, got an event of step {event['step']} "
                "without them. Restore it from a copy, or delete the lines from there on and run again."
            ) from error
    return steps


def without_gap(steps: Collection[int]) -> int:
    """Number of the steps from 1 on that are all there."""
    return next(step for step in itertools.count() if step + 1 not in steps)
