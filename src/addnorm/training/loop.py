"""The training loop's steps and evaluations, in plain PyTorch.

A step is a function of the state, the seed and the step number: they determine the batch, and the random number generator is
reseeded from them before each step. A run resumed from any checkpoint therefore repeats its steps exactly.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from addnorm.data import Dataset, held_batches, train_batch
from addnorm.errors import InputError
from addnorm.model.initialisation import generator_for
from addnorm.study.definition import RunSpec
from addnorm.study.initial_weights import initial_model
from addnorm.training.objective import measure, report, score
from addnorm.training.scalars import ScalarRecorder


@dataclass(frozen=True)
class Step:
    """Loss and gradient of one optimizer step."""

    loss: float
    """Nats per scored token of the batch, before the update."""
    grad_norm: float
    """Norm of the whole gradient, before clipping."""


class Trainer:
    """A model, its optimizer and the number of steps done.

    Args:
        spec: the run's spec.
        dataset: the data set with the spec's hash.
        device: the device to train on.
    """

    def __init__(self, spec: RunSpec, dataset: Dataset, device: torch.device) -> None:
        self.spec, self.dataset, self.device = spec, dataset, device
        self.training = spec.training
        self.model = initial_model(spec).to(device)
        self.optimizer = self.training.optimizer.build(self.training.optimizer.groups(self.model))
        self.scalars = ScalarRecorder(self.model.mechanisms(), self.training.optimizer, self.optimizer)
        self.step = 0

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next step."""
        schedule = self.training.schedule
        return self.training.optimizer.learning_rate * schedule.factor(self.step, self.training.steps)

    def train_step(self) -> Step:
        """Perform one optimizer step."""
        training, step = self.training, self.step
        self._reseed("step", step)
        self.model.train()
        self.model.residual.advance(step)
        windows = train_batch(self.dataset, self.spec.seed, step, training.batch, training.seq)
        with self._precision():
            loss = measure(self.model, self._score(windows, step)).loss
        loss.backward()
        limit = float("inf") if training.clip is None else training.clip
        grad_norm = nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate
        self.scalars.before_step()
        self.optimizer.step()
        self.scalars.after_step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return Step(loss=loss.item(), grad_norm=grad_norm.item())

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Measure loss, accuracy, perplexity and bits per byte on the held-out windows."""
        training = self.training
        self.model.eval()
        nats, hits, count = 0.0, 0, 0
        batches = held_batches(self.dataset, training.batch, training.seq, training.eval_sequences)
        for index, windows in enumerate(batches):
            with self._precision():
                # Masked models predict the same tokens at every evaluation and for every seed.
                batch = score(self.spec.model.objective, windows, self.dataset, seed=0, step=index, device=self.device)
                measured = measure(self.model, batch)
            nats += measured.nats.item()
            hits += int(measured.hits.item())
            count += measured.count
        return report(nats, hits, count, self.dataset.held_bytes_per_token)

    def state(self) -> dict[str, Any]:
        """The content of a checkpoint: tensors and plain numbers."""
        return {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scalars": self.scalars.state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from the content of a checkpoint.

        Raises:
            InputError: the checkpoint was made by a version with other weight decay groups.
        """
        self._require_same_groups(state["optimizer"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scalars.load_state(state["scalars"])
        self.step = state["step"]

    def _require_same_groups(self, saved: dict[str, Any]) -> None:
        began, now = (
            [len(group["params"]) for group in groups]
            for groups in (saved["param_groups"], self.optimizer.param_groups)
        )
        if began != now:
            raise InputError(
                f"run of variant '{self.spec.variant}': expected optimizer groups of {now} parameters, got {began}. The "
                "run was started by a version that applied weight decay to other parameters. Finish it with that "
                "version, or start "
                "it in a new folder."
            )

    def _score(self, windows: np.ndarray, step: int) -> Any:
        return score(
            self.spec.model.objective, windows, self.dataset, seed=self.spec.seed, step=step, device=self.device
        )

    def _precision(self) -> AbstractContextManager[Any]:
        if self.training.precision == "bfloat16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return nullcontext()

    def _reseed(self, purpose: str, step: int) -> None:
        torch.manual_seed(generator_for(self.spec.seed, f"{purpose}:{step}").initial_seed())
