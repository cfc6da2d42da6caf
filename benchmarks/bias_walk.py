"""Distances that biases move in training, for effective and for redundant biases.

The gradient of a strictly redundant bias is zero up to rounding. AdamW divides every gradient by its own size, so rounding
errors act as a gradient once they exceed `eps`. The distance that a redundant bias moves therefore depends on the precision
and on `eps`, not on the loss.
"""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.errors import InputError
from addnorm.model.initialisation import generator_for
from addnorm.model.spec import ModelSpec
from addnorm.optimization.optimizers import OptimizerSpec

Precision = Literal["float64", "float32", "bfloat16 autocast", "bfloat16"]
"""Precision of a whole training step; under autocast parameters and their updates stay float32."""

PARAMETER_DTYPE: Mapping[Precision, torch.dtype] = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16 autocast": torch.float32,
    "bfloat16": torch.bfloat16,
}

_SWITCHES = {
    "qk_bias.q": "q",
    "qk_bias.k": "k",
    "value.bias": "v",
    "output.bias": "o",
    "gate.bias": "up",
    "up.bias": "up",
    "down.bias": "down",
    "head.bias": "head",
}


@dataclass(frozen=True, kw_only=True)
class Walk:
    """Distance of the biases of one switch from zero, their initial value; over all layers together."""

    bias: str
    """Field of `Biases`: q, k, v, o, up, down, head, norm."""
    num_entries: int
    rms: float
    """Root mean square of the entries."""
    largest: float
    """Largest absolute entry."""


def walks(parameters: Mapping[str, Tensor]) -> tuple[Walk, ...]:
    """Measure the walks of all biases of a model, in the order of `parameters`.

    Args:
        parameters: by full name, as in a model's `state_dict` or in a run's `final.safetensors`.

    Raises:
        InputError: there is no bias among them.

    Example::

        for walk in walks(model.state_dict()):
            print(walk.bias, walk.rms)
    """
    biases: dict[str, list[Tensor]] = defaultdict(list)
    for name, value in parameters.items():
        switch = _switch(name)
        if switch is not None:
            biases[switch].append(value.detach().double().flatten())
    if not biases:
        raise InputError("walks: expected a model with a bias, got one without. Switch one on, as in bias={'k': True}.")
    joined = {switch: torch.cat(values) for switch, values in biases.items()}
    return tuple(
        Walk(
            bias=switch,
            num_entries=entries.numel(),
            rms=entries.square().mean().sqrt().item(),
            largest=entries.abs().max().item(),
        )
        for switch, entries in joined.items()
    )


def walk_on_noise(
    model: ModelSpec, *, optimizer: OptimizerSpec, precision: Precision, steps: int, batch: int, seq: int, seed: int = 0
) -> tuple[Walk, ...]:
    """Train on uniformly random tokens, from which nothing can be learned, and measure the walk of every bias.

    All gradients are then noise, for effective and for redundant biases; the learning rate is constant and the gradient is
    clipped at norm 1.

    Args:
        model: the spec of a model with at least one bias.
        optimizer: builds the optimizer, decay included.
        precision: precision of model, loss and gradients.
        steps, batch, seq: optimizer steps, sequences per step, tokens per sequence.
        seed: seed of the parameters and of the tokens.

    Raises:
        InputError: the model has no bias, or its position encoding covers less than `seq` positions.
    """
    built: nn.Module = model.build(seed).to(PARAMETER_DTYPE[precision])
    built.train()
    made = optimizer.build(optimizer.groups(built))
    tokens_from = generator_for(seed, "noise")
    # Targets are uniformly random, so that no bias has anything to learn and the walks of effective ones are noise. That
    # of a redundant one is noise of another size: its gradient has rounding errors alone.
    for _ in range(steps):
        windows = torch.randint(model.vocab, (batch, seq + 1), generator=tokens_from)
        with torch.autocast("cpu", torch.bfloat16) if precision == "bfloat16 autocast" else nullcontext():
            logits = built(windows[:, :-1])
        if logits.dtype == torch.bfloat16:
            logits = logits.float()  # as in training: a loss in bfloat16 would add noise
        F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(built.parameters(), 1.0)
        made.step()
        made.zero_grad(set_to_none=True)
    return walks(dict(built.named_parameters()))


def _switch(name: str) -> str | None:
    """Return the switch of a parameter; None if it is not a bias."""
    for ending, switch in _SWITCHES.items():
        if name.endswith(f"body.{ending}") or name == ending:
            return switch
    module, _, last = name.rpartition(".")
    return "norm" if last == "bias" and module.endswith("_norm") else None
