"""Cost of one training step, counted without computing it: on the meta device, or for one sequence of a model of others."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.kernels.grouped_attention import counting_at_once
from addnorm.model.transformer import Transformer
from addnorm.optimization.optimizers import OptimizerSpec
from addnorm.optimization.schedules.cosine import Cosine
from addnorm.study.definition import BUDGETS, AnyModel, Training
from addnorm.study.foreign import ForeignSpec
from addnorm.study.plugins import plugins_in
from addnorm.supervision.live_bytes import LiveBytes, flop_counter
from addnorm.supervision.trial_step import call_plugin


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """Cost of one training step, counted on the meta device. Plans, budgets, time limits and records derive theirs from it."""

    parameters: int
    tokens: int
    """Training tokens of the step."""
    flops: int
    peak_bytes: int
    """The buffers of a running sum or of stored products included."""
    kept_scores: Literal["running", "stored"] | None
    """Implementation of attention that keeps one layer's scores for the next; None without one."""
    weight_bytes: int
    """Of the weights, and of their gradients."""
    state_bytes: int
    """Of the optimizer's state."""

    @property
    def flops_per_token(self) -> float:
        """Forward and backward."""
        return self.flops / self.tokens

    def run_flops(self, training: Training) -> float:
        """FLOPs of a run with so many steps."""
        return float(self.flops * training.steps)

    def run_seconds(self, training: Training, flops_per_second: float) -> float:
        """Time of a run's steps on its devices, each at that speed."""
        return self.flops * training.steps / flops_per_second / training.devices


def step_cost(model: AnyModel, training: Training) -> StepCost:
    """Count the parameters, FLOPs and peak memory of one training step without computing it; of a model that others wrote, one
    sequence is computed.

    The memory is that of one device, which computes one shard after the other. With weights that are shared out it is an upper
    bound that is not measured: all matrices are taken to be shared, and the next branch to be gathered ahead.

    Budgets, time limits, plans and the record of costs ask for the same step; it is counted once per process.
    """
    # What does not change a step must not miss the cache: a budget is counted before the steps are known.
    # So must all that a study tries at equal models, such as learning rates.
    budgets: dict[str, Any] = dict.fromkeys(BUDGETS)
    often = dict.fromkeys(("steps", "log_every", "eval_every", "eval_sequences", "checkpoint_every"), 1)
    same = {"schedule": Cosine(), "clip": None, "final_sequences": None, "init_from": None, **budgets, **often}
    step = replace(training, optimizer=replace(training.optimizer, learning_rate=1e-3), **same)
    try:
        hash((model, step))
    except TypeError:  # a plugin's specification has a field such as a list
        return _count_step(model, step, torch.get_default_dtype())
    return _cached_step_cost(model, step, torch.get_default_dtype())


def _count_step(model: AnyModel, training: Training, dtype: torch.dtype) -> StepCost:
    """See `step_cost`. `dtype` is torch's default, in which the model is built: here it only tells cached costs apart."""
    # Models of others, and plug-ins that ask their data (`.item()`, `if`), need numbers, which meta tensors do not have: one
    # sequence is computed, and stands for all.
    if not isinstance(model, ForeignSpec):
        try:
            return _count_on("meta", model, training)
        except (NotImplementedError, RuntimeError) as error:
            if "meta" not in str(error) or not any(plugins_in(model)):
                raise
    return _count_on("cpu", model, training)


def _count_on(device: Literal["cpu", "meta"], model: AnyModel, training: Training) -> StepCost:
    shards = training.shards or 1
    rows = training.batch // shards if device == "cpu" else 1
    with torch.device(device):
        built = model.build()
        tokens = torch.zeros(training.batch // shards // rows, training.seq, dtype=torch.int64)
    built.train()
    built.recompute = training.recompute
    parameters = {id(p): p for p in built.parameters()}.values()
    weight_bytes = sum(p.numel() * p.element_size() for p in parameters)
    live = LiveBytes([*parameters, *built.buffers(), tokens])
    # Three observers of one pass. FLOPs are those of the operations that really run, so a kernel that computes scores
    # twice counts twice; `counting_at_once` makes one product of a loop over tiles, whose FLOPs are the same and whose
    # iterations are not needed.
    with flop_counter() as flops, live, counting_at_once():
        exits: list[torch.Tensor] = []
        logits = built(tokens, exits=exits) if training.exits else built(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        for each in exits:
            loss = loss + F.cross_entropy(each.flatten(0, 1), tokens.flatten())
        exits.clear()
        del logits
        loss.backward()
    kept_scores: Literal["running", "stored"] | None = None
    if isinstance(built, Transformer):
        kept_scores = "running" if built.score_buffers.nbytes else "stored" if built.product_buffers.nbytes else None
    # The peak lies in the backward pass, where some activations are freed already and some gradients are not there yet,
    # so it is followed through the pass and not added up. Without gradients it is asked for again, because several
    # shards keep sums of them, as many as the levels of a binary tree.
    step_bytes, without_gradients = live.peak(), live.peak(without=[p.grad for p in parameters])
    optimizer_bytes = state_bytes(training.optimizer, built.to("meta"))
    gradients = (shards // training.devices).bit_length()  # partial sums of a binary tree, and the newest shard's
    if training.parallel == "sharded" and training.devices > 1 and isinstance(built, Transformer):
        held_bytes = ((1 + gradients) * weight_bytes + optimizer_bytes) // training.devices
        peak_bytes = without_gradients + held_bytes + _gathered_bytes(built, weight_bytes)
    elif rows > 1:  # activations grow with the sequences, gradients do not
        peak_bytes = without_gradients * rows + (1 + gradients) * weight_bytes + optimizer_bytes
    else:
        peak_bytes = step_bytes + gradients * weight_bytes + optimizer_bytes  # the newest gradients are in the step
    return StepCost(
        parameters=sum(p.numel() for p in parameters),
        tokens=training.tokens_per_step,
        flops=flops.get_total_flops() * rows * shards,
        peak_bytes=peak_bytes,
        kept_scores=kept_scores,
        weight_bytes=weight_bytes,
        state_bytes=optimizer_bytes,
    )


_cached_step_cost = lru_cache(maxsize=512)(_count_step)


def _gathered_bytes(model: Transformer, weight_bytes: int) -> int:
    """Whole weights and gradients that a device has at once when the weights are shared out: those outside of branches, those
    of the branch that is computed, and the weights of the next one."""
    bodies = [sum(p.numel() * p.element_size() for p in branch.body.parameters()) for branch in model.branches()]
    return 2 * (weight_bytes - sum(bodies)) + 3 * max(bodies, default=0)


def state_bytes(optimizer: OptimizerSpec, model: nn.Module) -> int:
    """Bytes of the optimizer's state, from one step of the optimizer on a model that has gradients.

    Raises:
        InputError: the optimizer is a plugin that fails on the meta device.
    """

    def stepped() -> torch.optim.Optimizer:
        built = optimizer.build(optimizer.groups(model))
        built.step()
        return built

    built: torch.optim.Optimizer = call_plugin(optimizer, stepped)
    tensors = [value for state in built.state.values() for value in state.values() if isinstance(value, Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
