r"""Keys as a cache stores them: their size per channel, and their error in 8 and 4 bits, with a model's own biases and in
canonical form.

A redundant key bias moves all keys of a channel by one number, which no score depends on. A quantised cache stores each
token's keys in blocks with one scale, the block's largest entry, so that a channel far from zero costs all others digits:

    q(k) = scale * round(k / scale),      scale = max |k| in the block / (2^(bits - 1) - 1)
    error = rms(q(k) - k) / rms(k - mean of k over the tokens)

The mean over tokens carries no information for a softmax over keys, so that the error is relative to the rest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from addnorm.errors import InputError
from addnorm.redundancy.execution.copies import call, copy_of
from addnorm.redundancy.execution.fresh_inputs import cast
from addnorm.redundancy.execution.inputs import bind
from addnorm.redundancy.verdict.finding import InJson

BLOCK = 32
"""Channels of one token that share a scale, as in llama.cpp's q8_0 and q4_0; all of them if a head has fewer."""


@dataclass(frozen=True, kw_only=True)
class KeySizes(InJson):
    """Keys of one attention call."""

    largest: float
    """Largest entry in magnitude."""
    center: float
    """Largest distance of a channel's mean over the tokens from zero."""
    spread: float
    """Root mean square of the entries' distances from their channel's mean: what the scores depend on."""
    int8: float
    """Relative error in 8 bits."""
    int4: float
    """Relative error in 4 bits."""


@dataclass(frozen=True, kw_only=True)
class CachedKeys(InJson):
    """One attention call, in the order of the calls, before and after."""

    before: KeySizes
    after: KeySizes


class _KeyRecorder(TorchFunctionMode):
    """Records the keys of every call of torch's attention."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[Tensor] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is scaled_dot_product_attention:
            self.keys.append((kwargs["key"] if "key" in kwargs else args[1]).detach().double())
        return func(*args, **kwargs)


def cached_keys(model: nn.Module, canonical: nn.Module, inputs: object) -> tuple[CachedKeys, ...]:
    """Compare the keys of a model with those of its canonical form.

    Args:
        model: the model.
        canonical: its canonical form (`Audit.canonicalize`).
        inputs: as for `audit`. At least two tokens.

    Raises:
        InputError: no attention runs through torch's `scaled_dot_product_attention`, or all tokens have the same key.
    """
    before, after = _keys(model, inputs), _keys(canonical, inputs)
    if not before:
        raise InputError(
            "expected a model whose attention calls torch's scaled_dot_product_attention, got none that does, so that no keys "
            'are seen. For a model of Transformers set attn_implementation to "sdpa".'
        )
    return tuple(CachedKeys(before=_sizes(one), after=_sizes(other)) for one, other in zip(before, after, strict=True))


def _keys(model: nn.Module, inputs: object) -> list[Tensor]:
    recorder = _KeyRecorder()
    copied = copy_of(model, torch.float32).eval()
    for parameter in copied.parameters():
        parameter.requires_grad_(parameter.is_floating_point())  # frozen attention takes a fused path
    with torch.enable_grad(), recorder:
        call(copied, cast(bind(inputs), torch.float32))
    return recorder.keys


def _sizes(keys: Tensor) -> KeySizes:
    tokens = keys.movedim(-2, 0).flatten(1, -2) if keys.dim() > 3 else keys.movedim(-2, 0)
    per_channel = tokens.movedim(1, 0)  # [heads and batch, tokens, channel]
    mean = per_channel.mean(dim=1, keepdim=True)
    spread = float((per_channel - mean).square().mean().sqrt())
    # The error is relative to what tells tokens apart. Without any difference there is nothing to lose.
    if not spread:
        raise InputError("expected keys that differ between tokens, got equal ones. Give inputs with different tokens.")
    return KeySizes(
        largest=float(keys.abs().max()),
        center=float(mean.abs().max()),
        spread=spread,
        int8=_error(keys, 8) / spread,
        int4=_error(keys, 4) / spread,
    )


def _error(keys: Tensor, bits: int) -> float:
    """Root mean square of the rounding errors of keys in blocks of a token's channels."""
    blocks = keys.reshape(-1, keys.shape[-1])
    size = BLOCK if keys.shape[-1] % BLOCK == 0 else keys.shape[-1]
    blocks = blocks.reshape(-1, size)
    scale = blocks.abs().amax(dim=1, keepdim=True).clamp_min(1e-300) / (2 ** (bits - 1) - 1)
    return float((scale * torch.round(blocks / scale) - blocks).square().mean().sqrt())
