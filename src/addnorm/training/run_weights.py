"""The newest weights of a run, and the model that has them."""

import textwrap
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from addnorm.data import Dataset
from addnorm.data.tokenizers import Tokenizer
from addnorm.errors import InputError
from addnorm.model.transformer import Transformer
from addnorm.store import Damaged, RunFolder
from addnorm.study.definition import RunSpec
from addnorm.study.foreign import ForeignModel, require_rooms
from addnorm.study.initial_weights import initial_model
from addnorm.training.checkpoint import latest
from addnorm.training.run_spec import run_spec


@dataclass(frozen=True, kw_only=True)
class RunWeights:
    """Weights of a run after some number of steps."""

    spec: RunSpec
    file: str
    """Name of the weights' file in the run's folder."""
    step: int
    """Optimizer steps done."""
    weights: dict[str, Tensor]
    data: Path
    """Folder of the data set that the run was trained on, whose tokenizer its model takes for texts."""

    def model(self) -> Transformer:
        """The model with these weights, in evaluation mode.

        Raises:
            InputError: it is a model that others wrote.
            Damaged: the weights do not fit the run's spec.
        """
        require_rooms(self.spec.model, "This measure")
        model = cast(Transformer, self.any_model())
        model.read_tokenizer = partial(_tokenizer, self.data)
        return model

    def initial_model(self) -> Transformer:
        """The model before the first step, rebuilt from the spec and the seed, in evaluation mode.

        Raises:
            InputError: it is a model that others wrote.
        """
        require_rooms(self.spec.model, "This measure")
        return cast(Transformer, self.any_initial_model())

    def any_model(self) -> Transformer | ForeignModel:
        """The model with these weights, in evaluation mode, also one that others wrote.

        Raises:
            InputError: its files have changed.
            Damaged: the weights do not fit the run's spec.
        """
        model = self.any_initial_model()
        try:
            model.load_state_dict(self.weights)
        except RuntimeError as error:
            # torch lists every parameter on a line of its own
            reason = textwrap.shorten(str(error), 300, placeholder=" …")
            raise Damaged(
                f"{self.file}: expected weights of the run's spec, got others: {reason}. Restore them from a copy."
            ) from error
        return model

    def any_initial_model(self) -> Transformer | ForeignModel:
        """The model before the first step, in evaluation mode, also one that others wrote.

        Raises:
            InputError: its files have changed.
        """
        return initial_model(self.spec).eval()


def _tokenizer(data: Path) -> Tokenizer:
    return Dataset.load(data).tokenizer()


def newest_weights(run: RunFolder) -> RunWeights:
    """Read the final weights of a finished run, else those of its newest intact checkpoint.

    Raises:
        InputError: the folder is not a run, has no weights yet, or needs a plugin that is not loaded.
        Damaged: the spec or the final weights are damaged.
        JobError: a file cannot be read.
    """
    spec, data = run_spec(run), run.path.parent / "data"
    # Final weights win over a newer checkpoint: they may be an average (`OptimizerSpec.averaged`), which checkpoints do
    # not hold.
    if run.final_path.exists():
        try:
            weights = load_file(run.final_path)
        except (OSError, SafetensorError) as error:
            raise Damaged(
                f"{run.final_path} is damaged: {error}. Restore it from a copy, or train the run again."
            ) from error
        return RunWeights(spec=spec, file=run.final_path.name, step=spec.training.steps, weights=weights, data=data)
    newest = latest(run.checkpoints_path).checkpoint
    if newest is None:
        raise InputError(
            f"{run.path}: expected a run with weights, got one that is {run.status().state} and has no checkpoint yet."
        )
    state: dict[str, Any] = newest.state["model"]
    return RunWeights(spec=spec, file=f"checkpoints/{newest.path.name}", step=newest.step, weights=state, data=data)
