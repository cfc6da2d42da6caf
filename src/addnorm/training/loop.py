"""The training loop's steps and evaluations, in plain PyTorch.

A step is a function of the state, the seed and the step number: they determine the batch, and the random number generator is
reseeded from them before each step, and with several shards before each shard. A run resumed from any checkpoint therefore
repeats its steps exactly, whatever the number of its ranks.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor, nn

from addnorm.data import Dataset, held_batches, train_batch
from addnorm.errors import AddnormError, InputError
from addnorm.model.forward_context import ACROSS_LAYERS
from addnorm.model.initialisation import generator_for
from addnorm.model.scaling import rate_factors
from addnorm.model.spec import ModelSpec
from addnorm.model.transformer import Transformer
from addnorm.optimization.optimizers import with_rates
from addnorm.study.definition import RunSpec
from addnorm.study.foreign import ForeignModel
from addnorm.study.initial_weights import initial_model
from addnorm.training.objective import Batch, exit_divergence, loss_sums, make_batch, metrics, row_sums, text_bytes
from addnorm.training.parallel import Parallelism, Replicated
from addnorm.training.ranks import Alone, RankGroup, Ranks
from addnorm.training.scalars import ScalarRecorder
from addnorm.training.step_window import Step
from addnorm.training.tree_sum import TreeSum

PARTS = 64
"""Parts of the held-out text whose losses are recorded after the last step: enough for a standard error to within a tenth, and
long enough that neighbours, often of one document, are nearly independent."""


class Batches:
    """The batches of a training, as a function of the step.

    Args:
        make: the batch of a step, on the CPU.
        pin: None to make a batch when it is asked for. Otherwise a thread makes the next batch meanwhile, and `pin` copies each
            tensor into memory from which a device reads without the CPU (`Tensor.pin_memory`).
    """

    def __init__(self, make: Callable[[int], Batch], pin: Callable[[Tensor], Tensor] | None) -> None:
        self._make, self._pin = make, pin
        self._thread = None if pin is None else ThreadPoolExecutor(1, "batches")
        self._next: tuple[int, Future[Batch]] | None = None

    def take(self, step: int) -> Batch:
        """The batch of a step; begins the next one."""
        if self._thread is None:
            return self._make(step)
        # A batch is a function of its step (`addnorm.data.batches`), so it does not matter when, or on which thread, it
        # is made. What the thread made for another step is dropped; its errors are raised here.
        begun = self._next is not None and self._next[0] == step  # all but the first of an attempt
        batch = self._next[1].result() if self._next is not None and begun else self._pinned(step)
        self._next = (step + 1, self._thread.submit(self._pinned, step + 1))
        return batch

    def _pinned(self, step: int) -> Batch:
        assert self._pin is not None
        return self._make(step).mapped(self._pin)


class Trainer:
    """A model, its optimizer and the number of steps done.

    Args:
        spec: the run's spec.
        dataset: the data set with the spec's hash.
        device: the device to train on.
        ranks: the processes that train the run together; this one alone if not given.
        sharded: True for a share of the weights on each rank; all of them if there is one rank.
    """

    def __init__(
        self,
        spec: RunSpec,
        dataset: Dataset,
        device: torch.device,
        ranks: Ranks | None = None,
        *,
        sharded: bool = False,
    ) -> None:
        self.spec, self.dataset, self.device = spec, dataset, device
        self.training, self.ranks = spec.training, Alone() if ranks is None else ranks
        self.shards = spec.training.shards or 1
        self.num_exits = 0 if spec.training.exits is None else cast(ModelSpec, spec.model).depth - 1
        if self.ranks.size > self.shards:
            raise InputError(
                f"run of variant '{spec.variant}': expected at most as many ranks as shards, {self.shards}, got "
                f"{self.ranks.size}. Start fewer, or train another run with more training.shards."
            )
        self.model = initial_model(spec)
        self.model.recompute = self.training.recompute
        groups = self.training.optimizer.groups(self.model)  # by the roles of whole parameters
        if factors := rate_factors(self.model):
            groups = with_rates(groups, factors)
        self.parallel = _parallel(self.model, self.ranks, device, sharded)
        self.optimizer = self.training.optimizer.build(self.parallel.groups(groups))
        self._forward: nn.Module = self.model
        self._batches = Batches(partial(_batch_of, spec, dataset), Tensor.pin_memory if device.type == "cuda" else None)
        self.scalars = ScalarRecorder(self.model.mechanisms(), self.training.optimizer, self.optimizer)
        # Read before the first step: a missing tokenizer is not to end the run at its first evaluation.
        self._byte_lengths = None if dataset.byte_lengths is None else torch.from_numpy(dataset.byte_lengths)
        self.step = 0

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next step."""
        return self.learning_rate_at(self.step)

    def learning_rate_at(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        return self.training.optimizer.learning_rate * self.training.schedule.factor(step, self.training.steps)

    def compile(self) -> str | None:
        """Use a compiled form of the model in training steps. Returns None, or the reason why there is none."""
        if (kept := getattr(self.spec.model, "attention", None)) in ACROSS_LAYERS:
            return f"attention: {kept} keeps scores in buffers, which torch.compile cannot see. Set attention: auto to compile"
        batch = _batch_of(self.spec, self.dataset, self.step).rows(0, self.training.batch // self.shards, self.device)

        def trial(module: nn.Module) -> Tensor:
            with self._precision():
                return loss_sums(module(batch.inputs), batch).nats

        self._forward, reason = compiled(self.model, trial)
        return reason

    def train_step(self) -> Step:
        """Perform one optimizer step. Nothing in it waits for the device, and its result stays there."""
        # The host runs ahead of the device: it queues the next steps while the device computes. So no line of a step
        # may need a value from the device, neither `.item()` nor a condition on a tensor. Each would stop the host
        # until the device has caught up, and then the device until the host has queued new work. What a step measures
        # stays there until `StepWindow.read`; a step that failed is noticed then, before anything is written from its
        # weights (`Attempt.train`).
        training, step = self.training, self.step
        self.model.train()
        self.model.residual.advance(step)
        loss = self._gradients(self._batches.take(step))
        grad_norm = self.parallel.clip(float("inf") if training.clip is None else training.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate * group.get("rate", 1.0)
        # Both sides of the optimizer's step are seen, after clipping: a change is divided into decay and update only
        # where the value before, the value after and the rate of decay belong to one step.
        self.scalars.before_step()
        self.optimizer.step()
        self.scalars.after_step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return Step(loss, grad_norm)

    def _gradients(self, batch: Batch) -> Tensor:
        """Set the gradients of a batch, the sum over its shards. Returns the loss."""
        # The scored positions of the whole batch, counted on the CPU. Shards of a masked batch score different numbers
        # of positions; a mean of their means would weigh positions unequally.
        rows, sums, count = self.training.batch // self.shards, TreeSum(), batch.count
        for shard in self.parallel.shards(self.shards):
            # Each shard begins its own random numbers. Dropout then depends on (seed, step, shard) and not on how many
            # shards this rank has computed before, without which neither a resumed run nor another number of ranks
            # would repeat the step.
            self._reseed(f"step:{self.step}" + (f":shard:{shard}" if self.shards > 1 else ""))
            with self._precision():
                part = batch.rows(shard * rows, (shard + 1) * rows, self.device)
                if weight := self.training.exits:
                    exits: list[Tensor] = []
                    logits = self._forward(part.inputs, exits=exits)
                    loss = loss_sums(logits, part).nats / count
                    objective = loss + weight * exit_divergence(exits, logits, part) / count
                else:
                    objective = loss = loss_sums(self._forward(part.inputs), part).nats / count
            objective.backward()
            sums.add(self.parallel.take(loss.detach()))
        return self.parallel.set_gradients(sums.total())

    def evaluate(self) -> dict[str, float]:
        """Measure loss, accuracy, perplexity and bits per byte on the held-out windows, all over the same tokens; of a task
        also the excess, its loss above the optimum.

        Bits per byte are left out if the bytes of these tokens are not known (`Dataset.byte_lengths`).
        """
        return self._measure(self.training.eval_sequences)[0]

    def evaluate_at_end(self) -> dict[str, Any]:
        """The same on `Training.last_sequences`, with the losses on consecutive parts of the text, from which
        `addnorm.statistics.pairs.text_error` tells how far other text would move a difference."""
        measured, rows = self._measure(self.training.last_sequences, apart=True)
        parts = np.array([part.sum(axis=0) for part in np.array_split(rows, min(PARTS, len(rows)))])
        text: dict[str, Any] = {
            "part_losses": (parts[:, 0] / np.maximum(parts[:, 1], 1)).tolist(),
            "part_tokens": parts[:, 1].astype(int).tolist(),
            "sequences": len(rows),
            "held_sequences": (len(self.dataset.held) - 1) // self.training.seq,
        }
        # The curve's own windows are among these (`held_batches`), so that its last point is on the text of all others.
        curve = min(self.training.eval_sequences, text["held_sequences"])
        causal = self.spec.model.objective == "causal"  # other windows of a batch have other masks
        if causal and len(rows) != curve and (len(rows) == text["held_sequences"] or len(rows) % curve == 0):
            nats, scored = rows[np.arange(curve) * len(rows) // curve].sum(axis=0)
            text["curve_loss"] = float(nats / max(scored, 1))
        return {**measured, "text": text}

    @torch.no_grad()
    def _measure(
        self, limit: int | None, *, apart: bool = False
    ) -> tuple[dict[str, float], Float64[np.ndarray, "windows 2"]]:
        """Metrics over so many held-out windows, all if None; if `apart`, also nats and scored tokens of every window."""
        training, size, rank = self.training, self.ranks.size, self.ranks.rank
        self.model.eval()
        # Every batch has a row of its own, filled by one rank and zero on the others. The sum over ranks joins the rows
        # exactly, and the columns are added in the order of the batches, whatever the number of ranks. One batch is in
        # memory at a time: all held-out text may be large.
        batches: list[Tensor] = []  # nats, hits, count, bytes of each, and nats of every early exit
        rows: list[Tensor] = []  # nats and count of each window
        windows = None
        with self.averaged():
            for index, windows in enumerate(held_batches(self.dataset, training.batch, training.seq, limit)):
                batches.append(torch.zeros(4 + self.num_exits, dtype=torch.float64))
                rows.append(torch.zeros(len(windows) if apart else 0, 2, dtype=torch.float64))
                if index % size == rank:
                    batches[index], rows[index] = self._evaluated(windows, index, apart=apart)
            if self.parallel.together and windows is not None and 0 < len(batches) % size <= rank:
                self._evaluated(windows, len(batches), apart=False)  # the others need this rank's share of the weights
        sums = self.ranks.gather_rows(torch.stack(batches))
        nats, hits, count, num_bytes, *exit_nats = (sum(column) for column in sums.T.tolist())
        measured = metrics(nats, int(hits), int(count), int(num_bytes))
        if exit_nats:
            measured["exit_loss"] = sum(exit_nats) / count / len(exit_nats)
            measured |= {f"exit_loss_{layer}": each / count for layer, each in enumerate(exit_nats, start=1)}
        task = self.dataset.episodes
        if task is not None:
            measured["excess"] = measured["loss"] - task.optimum_loss
        by_window = torch.cat(rows)
        return measured, (self.ranks.gather_rows(by_window) if apart else by_window).numpy()

    def _evaluated(
        self, windows: np.ndarray, index: int, *, apart: bool
    ) -> tuple[Float64[Tensor, " sums"], Float64[Tensor, "windows 2"]]:
        """Nats, hits, count, bytes and exits' nats of an evaluation batch; if `apart`, nats and count of each window."""
        # Masked models predict the same tokens at every evaluation and for every seed.
        batch = _batch(self.spec, self.dataset, windows, seed=0, step=index)
        with self._precision():
            part = batch.rows(0, len(batch.inputs), self.device)
            exits: list[Tensor] = []
            logits = self.model(part.inputs, exits=exits) if self.num_exits else self.model(part.inputs)
            sums = loss_sums(logits, part)
            of_exits = [loss_sums(each, part).nats.item() for each in exits]
        num_bytes = 0 if self._byte_lengths is None else text_bytes(batch, self._byte_lengths)
        measured = [sums.nats.item(), sums.hits.item(), sums.count, num_bytes, *of_exits]
        total = torch.tensor(measured, dtype=torch.float64)
        # A second pass over the logits, which only the last evaluation needs.
        return total, row_sums(logits, part) if apart else total.new_zeros(0, 2)

    def averaged(self) -> AbstractContextManager[None]:
        """Give the model, during a block, the weights that are evaluated and kept at the end."""
        return self.training.optimizer.averaged(self.optimizer)

    def require_equal_ranks(self) -> None:
        """Make sure that all ranks of the run have the same weights, but for those of which each has a share.

        Raises:
            JobError: they differ.
        """
        if self.ranks.size > 1:
            self.ranks.require_equal("The weights", bytes.fromhex(content_hash(self.parallel.common_state())))

    @contextmanager
    def final_weights(self) -> Iterator[dict[str, Any]]:
        """The weights to keep at the end, during a block. All ranks call it; those of rank 0 are whole."""
        with self.averaged():
            yield self.parallel.model_state()

    def state(self) -> dict[str, Any]:
        """The content of a checkpoint: tensors and plain numbers. All ranks call it; that of rank 0 is whole."""
        return {
            "step": self.step,
            "model": self.parallel.model_state(),
            "optimizer": self.parallel.optimizer_state(self.optimizer),
            "scalars": self.scalars.state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from the content of a checkpoint.

        Raises:
            InputError: the checkpoint was made by a version with other weight decay groups.
        """
        self._require_same_groups(state["optimizer"])
        self.parallel.load_model_state(state["model"])
        self.parallel.load_optimizer_state(self.optimizer, state["optimizer"])
        self.scalars.load_state(state["scalars"])
        self.step = state["step"]

    def _require_same_groups(self, saved: dict[str, Any]) -> None:
        began, now = (
            [len(group["params"]) for group in groups]
            for groups in (saved["param_groups"], self.optimizer.param_groups)
        )
        # torch assigns an optimizer's state by position. Groups of other sizes would give one parameter the moments of
        # another, without an error if their shapes agree.
        if began != now:
            raise InputError(
                f"run of variant '{self.spec.variant}': expected optimizer groups of {now} parameters, got {began}. The "
                "run was started by a version that applied weight decay to other parameters. Finish it with that version, or "
                "start it in a new folder."
            )

    def _precision(self) -> AbstractContextManager[Any]:
        if self.training.precision == "bfloat16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return nullcontext()

    def _reseed(self, purpose: str) -> None:
        torch.manual_seed(generator_for(self.spec.seed, purpose).initial_seed())


def _batch_of(spec: RunSpec, dataset: Dataset, step: int) -> Batch:
    """The training batch of a step."""
    windows = train_batch(dataset, spec.seed, step, spec.training.batch, spec.training.seq)
    return _batch(spec, dataset, windows, seed=spec.seed, step=step)


def _batch(spec: RunSpec, dataset: Dataset, windows: np.ndarray, *, seed: int, step: int) -> Batch:
    # On the CPU, because each shard takes its own rows to the device.
    return make_batch(spec.model.objective, windows, dataset, seed=seed, step=step, device=torch.device("cpu"))


def _parallel(model: Transformer | ForeignModel, ranks: Ranks, device: torch.device, sharded: bool) -> Parallelism:
    if sharded and isinstance(ranks, RankGroup) and isinstance(model, Transformer):
        from addnorm.training.sharded import Sharded  # imports FSDP, which takes a second

        return Sharded(model, ranks, device)
    return Replicated(model, ranks, device)


def content_hash(state: Mapping[str, Any]) -> str:
    """SHA-256 of every tensor's name, dtype, shape and bytes; equal for two runs only if their weights are equal."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


# The compiled form is tried in one forward and backward pass before the first step, so that a missing compiler, or a
# mechanism that cannot be traced, is noticed there and not within a step. Evaluations use the model itself.
def compiled(model: nn.Module, trial: Callable[[nn.Module], Tensor]) -> tuple[nn.Module, str | None]:
    """Compile a model in training mode as one graph.

    Args:
        model: the model.
        trial: computes the loss of one batch with the module that it is given.

    Returns:
        The compiled module and None; or the model and the reason why it is not compiled, in one line.

    Raises:
        AddnormError, OutOfMemoryError: the batch itself cannot be computed.
    """
    module = cast(nn.Module, torch.compile(model, fullgraph=True, dynamic=False))
    model.train()
    try:
        # Backward too: it is compiled when it first runs, and may fail alone.
        trial(module).backward()
    except (AddnormError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # noqa: BLE001  torch's tracer, its compiler and the system's compiler raise what they like
        return model, f"{type(error).__name__}: {_in_one_line(error)}"
    finally:
        # The trial must leave no trace: the first step would add its gradients to these.
        model.zero_grad(set_to_none=True)
    return module, None


def _in_one_line(error: Exception) -> str:
    """The error and torch's explanation of it, without its hints."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = 2 if lines and lines[0].endswith(":") else 1  # "backend='inductor' raised:" tells nothing alone
    kept = [*lines[:first], *(line for line in lines[first:] if line.startswith("Explanation:"))]
    return " ".join(kept)[:300] or "no message"
