"""Training batches and evaluation windows.

A training batch is a function of (seed, step), so every variant of a study sees the same batches, and a resumed run continues
at any step without drawing the earlier batches. Windows cross the ends of documents, which the separator marks.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Int64

from addnorm.data.dataset import Dataset
from addnorm.data.draws import POSITIONS, below, words
from addnorm.errors import InputError


def train_batch(dataset: Dataset, seed: int, step: int, batch: int, seq: int) -> Int64[np.ndarray, "{batch} {seq}+1"]:
    """Windows of the training tokens at independent, uniformly distributed positions; those of a task begin with an episode.

    The first `seq` tokens of a window are the inputs, the last `seq` the targets.

    Raises:
        InputError: the data set is shorter than a window, a window would cut a task's episode, or seed or step is negative.
    """
    dataset.require(seq)
    # No state is carried from step to step. A run therefore resumes at any step, a thread makes batches ahead, ranks
    # make the same batch without talking, and all variants of a study see the same text at the same step.
    stride = 1 if dataset.episodes is None else dataset.episodes.tokens
    starts = below(words(seed, step, POSITIONS, batch), (len(dataset.train) - seq - 1) // stride + 1) * stride
    return _windows(dataset.train, starts, seq)


def held_batches(
    dataset: Dataset, batch: int, seq: int, limit: int | None = None
) -> Iterator[Int64[np.ndarray, "windows {seq}+1"]]:
    """The evaluation windows, which do not depend on the variant, the seed or the batch size; the last batch may be smaller.

    Windows start every `seq` tokens, so each held-out token is the target of at most one position.

    Args:
        dataset: the data set.
        batch: windows per batch.
        seq: tokens per window, without the last target.
        limit: largest number of windows, evenly spread over the held-out tokens; None for all.

    Raises:
        InputError: the data set is shorter than a window, a window would cut a task's episode, or the limit is below one.
    """
    dataset.require(seq)
    total = (len(dataset.held) - 1) // seq
    count = total if limit is None else min(limit, total)
    if count < 1:
        raise InputError(f"limit: expected at least one held-out window, got {limit}.")
    # In whole numbers, so that the windows are the same on every machine; each begins at a multiple of seq, with a
    # limit as without one.
    starts = np.arange(count, dtype=np.int64) * total // count * seq
    return (_windows(dataset.held, starts[first : first + batch], seq) for first in range(0, count, batch))


def _windows(
    tokens: np.ndarray, starts: Int64[np.ndarray, " windows"], seq: int
) -> Int64[np.ndarray, "windows {seq}+1"]:
    return np.asarray(tokens[starts[:, None] + np.arange(seq + 1)]).astype(np.int64)
