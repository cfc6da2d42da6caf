"""The sampling error of the held-out text: how far a difference of two models would move on other text of the same kind.

A run's loss is a mean over tokens of C consecutive parts of the held-out text. Of two models, with d_c their difference on
part c, averaged over their shared seeds, and w_c the part's share of the tokens,

    D = sum_c w_c d_c,        SE^2 = C / (C - 1) * sum_c w_c^2 (d_c - D)^2

Why pairs: both models read the same text, and most of what makes a part hard makes it hard for both. Why parts and not tokens:
neighbouring tokens, and neighbouring windows of one document, are alike; the error of independent tokens would be too small.

Source: the linearised variance of a ratio of sums over sampled clusters, Cochran 1977, "Sampling Techniques", eq. 6.13, here
without a correction for a finite population: the text stands for more of its kind than there is. Miller 2024, "Adding Error
Bars to Evals", arXiv:2411.00640 §2.2 and §4.2 (clusters, pairs).
Differs from the source: the models are taken as given. The error over seeds is another one, which verdicts rest on.
"""

import math
from collections.abc import Sequence

import numpy as np

from addnorm.statistics.result import Result

FEWEST_PARTS = 8
"""Parts of the text below which its error is not estimated."""


def text_error(one: Sequence[Result], other: Sequence[Result]) -> float | None:
    """Standard error of a difference in loss over other text of the same kind and size, in nats per token.

    Args:
        one: finished runs of a variant.
        other: those of another one. Seeds that both have count.

    Returns:
        None without a shared seed, or where the losses by part are not known of every shared run, or not of the same parts.

    Example:
        >>> parts = {"part_tokens": (10,) * 8}
        >>> one = Result(variant="a", seed=0, loss=2.0, part_losses=(2.0,) * 8, **parts)
        >>> two = Result(variant="b", seed=0, loss=2.5, part_losses=(2.4, 2.6) * 4, **parts)
        >>> round(text_error([two], [one]), 4)
        0.0378
    """
    by_seed = {run.seed: run for run in other}
    pairs = [(run, by_seed[run.seed]) for run in one if run.seed in by_seed]
    tokens = {run.part_tokens for pair in pairs for run in pair}
    if len(tokens) != 1 or len(next(iter(tokens))) < FEWEST_PARTS:
        return None
    shares = np.array(next(iter(tokens)), float)
    shares /= shares.sum()
    differences = np.mean([np.subtract(first.part_losses, second.part_losses) for first, second in pairs], axis=0)
    residuals = shares * (differences - shares @ differences)
    return math.sqrt(len(shares) / (len(shares) - 1) * float(residuals @ residuals))
