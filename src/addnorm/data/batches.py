"""Batches: which tokens a step trains on, and which windows everyone is evaluated on.

Every variant of a study sees the same batches, because nothing but (seed, step) decides them; a resumed run goes on at
any step without replaying the ones before. Windows run across document ends, where the separator stands.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Int64

from addnorm.data.dataset import Dataset
from addnorm.data.draws import POSITIONS, below, words
from addnorm.errors import InputError


def train_batch(dataset: Dataset, seed: int, step: int, batch: int, seq: int) -> Int64[np.ndarray, "{batch} {seq}+1"]:
    """Windows of the training side at independent positions, each as likely as any other.

    A window's first `seq` tokens are inputs, its last `seq` the targets.

    Raises:
        InputError: the data set holds no window that long, or seed or step is negative.
    """
    dataset.require(seq)
    starts = below(words(seed, step, POSITIONS, batch), len(dataset.train) - seq)
    return _windows(dataset.train, starts, seq)


def held_batches(
    dataset: Dataset, batch: int, seq: int, limit: int | None = None
) -> Iterator[Int64[np.ndarray, "windows {seq}+1"]]:
    """The evaluation windows, the same for every variant, seed and batch size; the last batch may be smaller.

    Windows start every `seq` tokens, so each held-out token is the target of at most one position.

    Args:
        limit: most windows to take, evenly spread over the held-out side; None takes all.

    Raises:
        InputError: the data set holds no window that long, or the limit is below one.
    """
    dataset.require(seq)
    total = (len(dataset.held) - 1) // seq
    count = total if limit is None else min(limit, total)
    if count < 1:
        raise InputError(f"limit must be at least one held-out window, got {limit}.")
    starts = np.arange(count, dtype=np.int64) * total // count * seq
    return (_windows(dataset.held, starts[first : first + batch], seq) for first in range(0, count, batch))


def _windows(
    tokens: np.ndarray, starts: Int64[np.ndarray, " windows"], seq: int
) -> Int64[np.ndarray, "windows {seq}+1"]:
    return np.asarray(tokens[starts[:, None] + np.arange(seq + 1)]).astype(np.int64)
