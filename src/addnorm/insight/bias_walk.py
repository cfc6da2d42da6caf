"""How far biases walk in training: those that the loss feels, and those that it cannot feel.

The gradient of a strictly redundant bias is zero but for rounding. AdamW divides every gradient by its own size, so what
rounding leaves is taken for a gradient like any other as soon as it is larger than `eps`. What a redundant bias walks is
therefore a question of precision and of `eps`, not of the loss.
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
"""Of a whole training step; under autocast parameters and their updates stay float32."""

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
    """How far the biases of one switch are from zero, where they began; over all layers together."""

    bias: str
    """Field of `Biases`: q, k, v, o, up, down, head, norm."""
    num_entries: int
    rms: float
    """Root mean square of the entries."""
    largest: float
    """Largest absolute entry."""


def walks(parameters: Mapping[str, Tensor]) -> tuple[Walk, ...]:
    """The walks of all biases of a model, in the order of `parameters`.

    Args:
        parameters: by full name, as in a model's `state_dict` or in a run's `final.safetensors`.

    Raises:
        InputError: there is no bias among them.
    """
    found: dict[str, list[Tensor]] = defaultdict(list)
    for name, value in parameters.items():
        switch = _switch(name)
        if switch is not None:
            found[switch].append(value.detach().double().flatten())
    if not found:
        raise InputError("a walk needs a bias, and the model has none. Switch one on, as in bias={'k': True}.")
    joined = {switch: torch.cat(values) for switch, values in found.items()}
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
    """Train on tokens drawn evenly at random, from which nothing can be learned, and see how far every bias walks.

    All gradients are noise then, that of a useful bias as well as that of a redundant one; the learning rate is constant
    and the gradient clipped at norm 1.

    Args:
        model: with a bias at least.
        optimizer: builds the optimizer, decay included.
        precision: of model, loss and gradients.
        steps, batch, seq: optimizer steps, sequences per step, tokens per sequence.
        seed: of the parameters and of the tokens.

    Raises:
        InputError: the model has no bias, or its positions end before `seq`.
    """
    built: nn.Module = model.build(seed).to(PARAMETER_DTYPE[precision])
    built.train()
    made = optimizer.build(optimizer.groups(built))
    tokens_from = generator_for(seed, "noise")
    for _ in range(steps):
        windows = torch.randint(model.vocab, (batch, seq + 1), generator=tokens_from)
        with torch.autocast("cpu", torch.bfloat16) if precision == "bfloat16 autocast" else nullcontext():
            logits = built(windows[:, :-1])
        if logits.dtype == torch.bfloat16:
            logits = logits.float()  # as in training: a loss in eight bits would be noise of its own
        F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(built.parameters(), 1.0)
        made.step()
        made.zero_grad(set_to_none=True)
    return walks(dict(built.named_parameters()))


def _switch(name: str) -> str | None:
    """The switch that turns a parameter on, or None for what is no bias."""
    for ending, switch in _SWITCHES.items():
        if name.endswith(f"body.{ending}") or name == ending:
            return switch
    module, _, last = name.rpartition(".")
    return "norm" if last == "bias" and module.endswith("_norm") else None
