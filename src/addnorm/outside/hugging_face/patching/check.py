"""The measured start of a patch, in the ways in which a model is used: logits that change by no more than rounding explains.

Short passes stand for long ones: windows are shortened while they run, so that six tokens go beyond them.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.outside.hugging_face.patching.joints import some_tokens
from addnorm.study.foreign import logits_of

_WINDOW = 3
_PADDED = 2
_STEPS = 2
_MOVED = 0.1
"""Standard deviation of the random numbers that take a patch away from its start while caches are compared."""


@dataclass(frozen=True, kw_only=True)
class Mode:
    """A way to use a model."""

    name: str
    logits: Callable[[nn.Module], Tensor]
    """Logits of random tokens, those at real positions."""
    dtype: torch.dtype | None = None
    """Precision in which it computes; None for that of the logits."""


@dataclass(frozen=True, kw_only=True)
class StartLogits:
    """Logits of one mode before the patch."""

    mode: Mode
    logits: Tensor
    allowed: float


def _plain(model: nn.Module) -> Tensor:
    return logits_of(model, some_tokens(model))


def _padded(model: Any) -> Tensor:
    tokens, mask = _padded_tokens(model)
    logits: Tensor = model(tokens, attention_mask=mask).logits
    return logits[mask.bool()]


def _half(of: Callable[[nn.Module], Tensor]) -> Callable[[nn.Module], Tensor]:
    def logits(model: nn.Module) -> Tensor:
        with torch.autocast(next(model.parameters()).device.type, torch.bfloat16):
            return of(model)

    return logits


PLAIN = Mode(name="without padding", logits=_plain)


def start_of(model: nn.Module, mode: Mode = PLAIN) -> tuple[Tensor, float]:
    """Compute logits of random tokens, and the largest change of one that rounding explains.

    The embeddings are moved by one unit of rounding, at random up or down; the change of the logits shows how the model
    amplifies an error of this size. Sums of `width` numbers make errors that add up to about sqrt(width) of them.
    """
    with _evaluated(model):
        logits = mode.logits(model)
        embedding = next(module for module in model.modules() if isinstance(module, nn.Embedding))
        epsilon = torch.finfo(mode.dtype or logits.dtype).eps
        handle = embedding.register_forward_hook(_Moved(epsilon))
        try:
            moved = (mode.logits(model) - logits).abs().max().item()
        finally:
            handle.remove()
    return logits, embedding.embedding_dim**0.5 * (moved + epsilon * logits.abs().max().item())


def measure_start(model: nn.Module) -> list[StartLogits]:
    """Measure a model in every mode that it has: with left padding if it reads a mask, and under bfloat16's autocast."""
    known = _arguments(model)
    first = Mode(name="with left padding", logits=_padded) if "attention_mask" in known else PLAIN
    modes = [first]
    if next(model.parameters()).dtype == torch.float32:
        modes.append(Mode(name="in bfloat16", logits=_half(first.logits), dtype=torch.bfloat16))
    measured = []
    for mode in modes:
        logits, allowed = start_of(model, mode)
        measured.append(StartLogits(mode=mode, logits=logits, allowed=allowed))
    return measured


def require_start(model: nn.Module, before: Sequence[StartLogits], what: str) -> None:
    """Compare logits of the same tokens with those of an earlier model.

    Raises:
        InputError: they differ by more than rounding explains.
    """
    for measured in before:
        with _evaluated(model):
            gap = (measured.mode.logits(model) - measured.logits).abs().max().item()
        # Not `gap > allowed`: NaN must fail.
        if not gap <= measured.allowed:
            raise InputError(
                f"patch: expected {what} that leaves the logits as they are at the start, got a change of {gap:.1e} "
                f"{measured.mode.name}, where rounding explains {measured.allowed:.0e}. The model is as it was before."
            )


def cache_gap(model: Any) -> float | None:
    """The largest difference of logits with the model's cache, beyond windows and with left padding, to those without it.

    None if the model has no cache.
    """
    if not {"attention_mask", "past_key_values", "use_cache"} <= _arguments(model):
        return None
    with _evaluated(model):
        tokens, mask = _padded_tokens(model)
        cache, seq = None, tokens.shape[1]
        whole = model(tokens, attention_mask=mask).logits
        gaps = []
        for start, end in [(0, seq - _STEPS), *((at, at + 1) for at in range(seq - _STEPS, seq))]:
            output = model(tokens[:, start:end], attention_mask=mask[:, :end], past_key_values=cache, use_cache=True)
            cache = getattr(output, "past_key_values", None)
            if cache is None:
                return None
            gaps.append((output.logits[:, -1] - whole[:, end - 1]).abs().max().item())
    return max(gaps)


def require_cache(model: nn.Module, patch: nn.Module, before: float | None, what: str) -> None:
    """Compare logits with and without the model's cache, away from the start of a patch, where the patch acts.

    Args:
        model: patched.
        patch: its mechanisms, whose parameters are random meanwhile.
        before: `cache_gap` of the model without the patch.
        what: the mechanisms, in words.

    Raises:
        InputError: they differ by more than rounding explains.
    """
    if before is None:
        return
    # At its neutral start a patch adds nothing, and a cache that gives it the wrong positions would go unnoticed.
    start = {name: parameter.detach().clone() for name, parameter in patch.named_parameters()}
    random = torch.Generator().manual_seed(0)
    try:
        for parameter in patch.parameters():
            parameter.data += _MOVED * torch.randn(parameter.shape, generator=random).to(parameter)
        _, allowed = start_of(model, Mode(name="with left padding", logits=_padded))
        gap = cache_gap(model)
    except RuntimeError as error:  # of shapes that do not fit, for example
        raise InputError(
            f"patch: {what} cannot be computed with the cache of {type(model).__name__}: {error}"
        ) from error
    finally:
        for name, parameter in patch.named_parameters():
            parameter.data.copy_(start[name])
    if gap is None or not gap <= before + allowed:
        raise InputError(
            f"patch: expected {what} that generates with the cache of {type(model).__name__} as without it, got logits that "
            f"differ by {gap}, where rounding explains {before + allowed:.0e}. The model is as it was before."
        )


def _arguments(model: nn.Module) -> set[str]:
    """Arguments of a model of Transformers; none of any other module, whose arguments may mean something else."""
    return set(inspect.signature(model.forward).parameters) if hasattr(model, "config") else set()


def _padded_tokens(model: nn.Module) -> tuple[Tensor, Tensor]:
    tokens = some_tokens(model)
    mask = torch.ones_like(tokens)
    mask[0, :_PADDED] = 0
    return tokens, mask


@contextmanager
def _evaluated(model: Any) -> Iterator[None]:
    """Evaluation mode without gradients, and windows that a short text goes beyond."""
    training = model.training
    config: Any = getattr(model, "config", None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    window = getattr(text, "sliding_window", None)
    shortened = isinstance(window, int) and window > _WINDOW
    model.eval()
    try:
        if shortened:
            text.sliding_window = _WINDOW
        with torch.no_grad():
            yield
    finally:
        if shortened:
            text.sliding_window = window
        model.train(training)


class _Moved:
    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon

    def __call__(self, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        random = torch.Generator().manual_seed(1)
        sign = torch.empty(output.shape).uniform_(-1, 1, generator=random).sign().to(output)
        return output * (1 + self.epsilon * sign)
