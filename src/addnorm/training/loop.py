"""The training loop's steps and evaluations, in plain PyTorch.

A step is a function of the state, the seed and the step number: they determine the batch, and the random number generator is
reseeded from them before each step, and with several shards before each shard. A run resumed from any checkpoint therefore
repeats its steps exactly, whatever the number of its ranks.
"""

import hashlib
from collections.abc import Mapping
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
from addnorm.training.objective import Scored, measure, report, score
from addnorm.training.ranks import Alone, Ranks
from addnorm.training.scalars import ScalarRecorder
from addnorm.training.tree_sum import Terms, TreeSum


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
        ranks: the processes that train the run together; this one alone if not given.
    """

    def __init__(self, spec: RunSpec, dataset: Dataset, device: torch.device, ranks: Ranks | None = None) -> None:
        self.spec, self.dataset, self.device = spec, dataset, device
        self.training, self.ranks = spec.training, Alone() if ranks is None else ranks
        self.shards = spec.training.shards or 1
        if self.ranks.size > self.shards:
            raise InputError(
                f"run of variant '{spec.variant}': expected at most as many ranks as shards, {self.shards}, got "
                f"{self.ranks.size}. Start fewer, or train another run with more training.shards."
            )
        self.model = initial_model(spec).to(device)
        self.model.recompute = self.training.recompute
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
        self.model.train()
        self.model.residual.advance(step)
        windows = train_batch(self.dataset, self.spec.seed, step, training.batch, training.seq)
        loss = self._gradients(self._score(windows, seed=self.spec.seed, step=step))
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

    def _gradients(self, batch: Scored) -> torch.Tensor:
        """Set the gradients of a batch, the sum over its shards. Returns the loss."""
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        rows, own = self.training.batch // self.shards, self.shards // self.ranks.size
        sums, count = TreeSum(), batch.count
        for shard in range(self.ranks.rank * own, (self.ranks.rank + 1) * own):
            self._reseed(f"step:{self.step}" + (f":shard:{shard}" if self.shards > 1 else ""))
            with self._precision():
                loss = measure(self.model, batch.rows(shard * rows, (shard + 1) * rows, self.device)).nats / count
            loss.backward()
            terms: Terms = [loss.detach(), *(parameter.grad for parameter in parameters)]
            sums.add(terms)
            self.optimizer.zero_grad(set_to_none=True)
        total, *gradients = self.ranks.sum(sums.total(), [loss.detach(), *parameters])
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        return loss if total is None else total

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Measure loss, accuracy, perplexity and bits per byte on the held-out windows."""
        training = self.training
        self.model.eval()
        batches = list(held_batches(self.dataset, training.batch, training.seq, training.eval_sequences))
        table = torch.zeros(len(batches), 3, dtype=torch.float64)  # nats, hits, count of each batch
        with self.averaged():
            for index in range(self.ranks.rank, len(batches), self.ranks.size):
                # Masked models predict the same tokens at every evaluation and for every seed.
                batch = self._score(batches[index], seed=0, step=index)
                with self._precision():
                    measured = measure(self.model, batch.rows(0, len(batch.inputs), self.device))
                sums = [measured.nats.item(), measured.hits.item(), measured.count]
                table[index] = torch.tensor(sums, dtype=torch.float64)
        nats, hits, count = (sum(column) for column in self.ranks.gather_rows(table).T.tolist())
        return report(nats, int(hits), int(count), self.dataset.held_bytes_per_token)

    def averaged(self) -> AbstractContextManager[None]:
        """Give the model, during a block, the weights that are evaluated and kept at the end."""
        return self.training.optimizer.averaged(self.optimizer)

    def require_equal_ranks(self) -> None:
        """Make sure that all ranks of the run have the same weights.

        Raises:
            JobError: they differ.
        """
        if self.ranks.size > 1:
            self.ranks.require_equal("The weights", bytes.fromhex(content_hash(self.model.state_dict())))

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

    def _score(self, windows: np.ndarray, *, seed: int, step: int) -> Scored:
        # On the CPU, because each shard takes its own rows to the device.
        objective, cpu = self.spec.model.objective, torch.device("cpu")
        return score(objective, windows, self.dataset, seed=seed, step=step, device=cpu)

    def _precision(self) -> AbstractContextManager[Any]:
        if self.training.precision == "bfloat16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return nullcontext()

    def _reseed(self, purpose: str) -> None:
        torch.manual_seed(generator_for(self.spec.seed, purpose).initial_seed())


def content_hash(state: Mapping[str, Any]) -> str:
    """SHA-256 of every tensor's name, dtype, shape and bytes; equal for two runs only if their weights are equal."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
