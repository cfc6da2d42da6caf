"""A run's model with the weights that it has so far."""

import textwrap
from dataclasses import dataclass
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from addnorm.errors import InputError
from addnorm.model.transformer import Transformer
from addnorm.store import Damaged, RunFolder
from addnorm.study.definition import RunSpec
from addnorm.training.checkpoint import latest
from addnorm.training.export import run_spec


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Weights of a run after some step."""

    spec: RunSpec
    file: str
    """Name of the file that they come from."""
    step: int
    """Optimizer steps done."""
    weights: dict[str, Tensor]

    def model(self) -> Transformer:
        """The model with these weights, in evaluation mode.

        Raises:
            Damaged: the weights do not fit the run's spec.
        """
        model = self.start()
        try:
            model.load_state_dict(self.weights)
        except RuntimeError as error:
            # Torch names every parameter on lines of its own.
            told = textwrap.shorten(str(error), 300, placeholder=" …")
            raise Damaged(
                f"the weights in {self.file} do not fit the run's spec: {told}. Restore them from a copy."
            ) from error
        return model

    def start(self) -> Transformer:
        """The model as it was before the first step: spec and seed give it again. In evaluation mode."""
        return self.spec.model.build(self.spec.seed).eval()


def trained(run: RunFolder) -> Trained:
    """The final weights of a finished run, else those of its newest whole checkpoint.

    Raises:
        InputError: the folder is no run, or there are no weights yet, or a plugin is not loaded.
        Damaged: the spec or the final weights are damaged.
        JobError: the system does not let us read.
    """
    spec = run_spec(run)
    if run.final_path.exists():
        try:
            weights = load_file(run.final_path)
        except (OSError, SafetensorError) as error:
            raise Damaged(
                f"{run.final_path} is damaged: {error}. Restore it from a copy, or train the run anew."
            ) from error
        return Trained(spec=spec, file=run.final_path.name, step=spec.training.steps, weights=weights)
    newest = latest(run.checkpoints_path).found
    if newest is None:
        raise InputError(
            f"{run.path} has no weights yet: it is {run.status().state} and no checkpoint has been written."
        )
    state: dict[str, Any] = newest.state["model"]
    return Trained(spec=spec, file=f"checkpoints/{newest.path.name}", step=newest.step, weights=state)
