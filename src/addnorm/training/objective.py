"""Training objectives: prediction of the next token, or of masked tokens. Loss and accuracy over the scored positions."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor
from torch.nn import functional as F

from addnorm.data import Dataset, mask_tokens
from addnorm.statistics.measure import perplexity

TokenWindows = Int64[np.ndarray, "batch seq_plus_one"]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Inputs and targets of one batch."""

    inputs: Int64[Tensor, "batch seq"]
    targets: Int64[Tensor, "batch seq"]
    mask: Bool[Tensor, "batch seq"] | None
    """Scored positions; None for all."""
    scored: Int64[Tensor, " scored"] | None = None
    """Scored positions as indices into all, counted before the batch went to its device, which need not be asked; None if not
    known, or for all."""

    @property
    def count(self) -> int:
        """Number of scored positions."""
        return self.targets.numel() if self.mask is None else int(self.mask.sum())

    def rows(self, first: int, end: int, device: torch.device) -> "Batch":
        """The sequences from `first` to before `end`, on a device."""
        # Indices are found on the CPU. Indexing with the mask on a device would have to ask it for the number of rows,
        # and the step would wait (see `Trainer.train_step`).
        mask = None if self.mask is None else self.mask[first:end]
        own = Batch(
            inputs=self.inputs[first:end],
            targets=self.targets[first:end],
            mask=mask,
            scored=None if mask is None else _ready_for(device, mask.flatten().nonzero().squeeze(1)),
        )
        return own.mapped(lambda tensor: tensor.to(device, non_blocking=True))

    def mapped(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        """The batch with a function of each of its tensors."""
        tensors: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        mapped: dict[str, Any] = {name: value if value is None else function(value) for name, value in tensors.items()}
        return Batch(**mapped)


def _ready_for(device: torch.device, made: Tensor) -> Tensor:
    """Copy what was made here into memory from which a GPU reads by itself, as the batch's other tensors lie already."""
    return made.pin_memory() if device.type == "cuda" else made


def make_batch(
    objective: str, windows: TokenWindows, dataset: Dataset, *, seed: int, step: int, device: torch.device
) -> Batch:
    """Inputs and targets of a batch of windows.

    Args:
        objective: `causal` (each token of a window predicts the next one) or `masked`.
        windows: token ids, one more than the sequence.
        dataset: its vocabulary and mask id are used by `masked`.
        seed, step: determine the masked tokens.
        device: the device of the result.
    """
    if objective == "causal":
        tokens = torch.from_numpy(windows).to(device)
        inputs, targets, mask = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), None
        if dataset.episodes is not None:
            mask = torch.from_numpy(dataset.episodes.scored(inputs.shape[1])).to(device).expand_as(inputs)
        return Batch(inputs=inputs, targets=targets, mask=mask)
    masked = mask_tokens(windows[:, :-1], vocab=dataset.vocab, mask_id=dataset.mask_id, seed=seed, step=step)
    inputs, targets, mask = (torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in masked)
    return Batch(inputs=inputs, targets=targets, mask=mask)


@dataclass(frozen=True, kw_only=True)
class LossSums:
    """Sums over the scored positions of a batch."""

    nats: Tensor
    """Summed cross-entropy, scalar; differentiable."""
    hits: Tensor
    """Number of positions whose most probable token is the target, scalar."""
    count: int

    @property
    def loss(self) -> Tensor:
        """Nats per scored token."""
        return self.nats / self.count


def loss_sums(logits: Float[Tensor, "batch seq vocab"], batch: Batch) -> LossSums:
    """Compare logits with the targets of a batch, in float32 or float64."""
    targets = batch.targets
    logits, targets = logits.flatten(0, 1), targets.flatten()
    if batch.mask is not None:
        scored = batch.mask.flatten() if batch.scored is None else batch.scored
        logits, targets = logits[scored], targets[scored]
    # A sum over thousands of tokens in a narrow type would lose the differences that verdicts are about.
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    with torch.no_grad():
        hits = (logits.argmax(dim=-1) == targets).sum()
    return LossSums(nats=F.cross_entropy(logits, targets, reduction="sum"), hits=hits, count=targets.numel())


def exit_divergence(
    exits: Sequence[Float[Tensor, "batch seq vocab"]], logits: Float[Tensor, "batch seq vocab"], batch: Batch
) -> Float[Tensor, ""]:
    """Divergence of the early exits from the model's own answer, in nats: sum over the scored positions, mean over the exits.

    KL(answer || exit) with the answer held fixed, so that exits are drawn to the answer and not the answer to them.

    Source: Liu et al. 2020, FastBERT, arXiv:2004.02178, section 3.3 (self-distillation).
    Differs from the source: the exits share the final norm and the head, and the layers below are trained with them, where
    FastBERT gives each exit a classifier of its own and trains it on frozen layers; the divergence is that from the answer to
    the exit, whose gradient is the one of a cross-entropy, as exits are judged by a cross-entropy.
    """

    def scored(of: Tensor) -> Tensor:
        of = of.flatten(0, 1)
        if batch.mask is not None:
            of = of[batch.mask.flatten() if batch.scored is None else batch.scored]
        of = of.float() if of.dtype in (torch.bfloat16, torch.float16) else of
        return F.log_softmax(of, dim=-1)

    answer = scored(logits.detach())
    parts = [F.kl_div(scored(each), answer, reduction="sum", log_target=True) for each in exits]
    return torch.stack(parts).mean()


def row_sums(logits: Float[Tensor, "batch seq vocab"], batch: Batch) -> Float64[Tensor, "batch 2"]:
    """Summed cross-entropy and number of scored positions of every sequence, without gradients, on the CPU."""
    with torch.no_grad():
        logits = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
        nats = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), reduction="none")
        nats = nats.view_as(batch.targets).double()
        scored = torch.ones_like(nats) if batch.mask is None else batch.mask.double()
        return torch.stack([(nats * scored).sum(1), scored.sum(1)], dim=1).cpu()


def text_bytes(batch: Batch, lengths: Int64[Tensor, " vocab"]) -> int:
    """UTF-8 bytes of the text of the scored targets of a batch on the CPU.

    Args:
        batch: the batch.
        lengths: bytes of every id's text, see `Dataset.byte_lengths`.
    """
    targets = batch.targets if batch.mask is None else batch.targets[batch.mask]
    return int(lengths[targets].sum())


def metrics(nats: float, hits: int, count: int, num_bytes: int) -> dict[str, float]:
    """Loss (nats per token), accuracy, perplexity and bits per byte of summed measurements.

    Args:
        nats, hits, count: sums of `LossSums`.
        num_bytes: bytes of the text of the same targets; 0 if they are not known, and bits per byte are left out.
    """
    loss = nats / count
    values = {"loss": loss, "accuracy": hits / count, "perplexity": perplexity(loss)}
    return {**values, "bits_per_byte": nats / (math.log(2) * num_bytes)} if num_bytes else values
