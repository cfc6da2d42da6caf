"""The held-out text that every model is evaluated on, at every length.

A stretch is a text that every length divides. At a length it is cut into pieces that are evaluated by themselves, so every
length scores the very same target tokens; only how much of the text before them is seen changes. All of a stretch's
longest windows, and the last piece of every length, end at the same token.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64

from addnorm.data import Dataset, held_batches, mask_tokens
from addnorm.errors import InputError
from addnorm.insight.extrapolation.lengths import Lengths


@dataclass(frozen=True, kw_only=True, eq=False)
class Stretches:
    """What a model reads and is asked for."""

    inputs: Int64[np.ndarray, "stretch token"]
    targets: Int64[np.ndarray, "stretch token"]
    scored: Bool[np.ndarray, "stretch token"]
    """Where a target counts: everywhere for causal models."""


def num_stretches(held_tokens: int, lengths: Lengths, windows: int) -> int:
    """How many stretches hold at least `windows` windows of the longest length, or as many as the text has.

    Args:
        held_tokens: of the held-out text.

    Raises:
        InputError: fewer than one window asked for, or the text is shorter than one stretch.
    """
    if windows < 1:
        raise InputError(f"windows must be a whole number of at least 1, got {windows}.")
    fit = (held_tokens - 1) // lengths.stretch
    if fit < 1:
        most = max(
            (m for m in range(1, 1 + held_tokens // lengths.trained) if m * lengths.trained < held_tokens), default=0
        )
        several = "" if lengths.stretch == lengths.longest else " (the least common multiple of the lengths)"
        advice = f"Take at most {most}x, or" if most else "Take"
        raise InputError(
            f"the longest window must fit into the held-out text: {lengths.multiples[-1]}x of {lengths.trained} tokens needs "
            f"{lengths.stretch} + 1 tokens{several}, the held-out text has {held_tokens}. {advice} a corpus with more text or "
            "a larger held_out share."
        )
    return min(fit, -(-windows * lengths.longest // lengths.stretch))


def stretches(dataset: Dataset, objective: str, lengths: Lengths, windows: int) -> Stretches:
    """The stretches, evenly spread over the held-out text: the same for every model of a study, whatever its seed.

    A masked model's tokens are hidden once per stretch, so that at every length it is asked for the same tokens.

    Raises:
        InputError: as `num_stretches`.
    """
    count = num_stretches(len(dataset.held), lengths, windows)
    (tokens,) = held_batches(dataset, count, lengths.stretch, count)
    if objective == "causal":
        return Stretches(inputs=tokens[:, :-1], targets=tokens[:, 1:], scored=np.ones(tokens[:, 1:].shape, dtype=bool))
    rows = [
        mask_tokens(row[None, :-1], vocab=dataset.vocab, mask_id=dataset.mask_id, seed=0, step=index)
        for index, row in enumerate(tokens)
    ]
    inputs, targets, scored = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    return Stretches(inputs=inputs, targets=targets, scored=scored)
