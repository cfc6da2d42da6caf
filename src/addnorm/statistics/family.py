r"""Many comparisons, one error rate: Holm's verdicts, the intervals that go with them, and equivalence.

With m comparisons and alpha = 1 - confidence:

- a difference is claimed when Holm's adjusted p is at most alpha. The chance of any false claim is at most alpha;
- the interval is difference ± t(1 - alpha / 2m) · se (Bonferroni), so all m hold together with the stated confidence;
- equivalence is claimed when that interval lies inside ±margin. This is the two one-sided tests procedure, each side
  at alpha / 2m.

The three never contradict each other. A Bonferroni interval clear of zero means that Holm's first and strictest step
rejects, so the verdict follows. Holm's later steps can claim a direction while the Bonferroni interval still crosses
zero by a little; the interval then ends at zero, on the claimed side, which is what the step-down procedure's own
confidence bound says. Equivalence uses the interval itself.

Source: Holm 1979, Scand. J. Statist. 6, 65-70; Schuirmann 1987, J. Pharmacokin. Biopharm. 15, 657-680;
bounds that end at zero: Strassburger & Bretz 2008, Stat. Med. 27, 4914-4927; Guilbaud 2008, Biometrical J. 50, 678-692.
Differs from the source: Strassburger & Bretz and Guilbaud prove one-sided bounds that give up the far end for those
that stop at zero. Here both ends are shown, and that all intervals hold together is checked by simulation.
"""

import numpy as np
from jaxtyping import Float
from scipy.special import stdtr, stdtrit


def holm(p_values: Float[np.ndarray, "*batch pair"], family: int) -> Float[np.ndarray, "*batch pair"]:
    """Holm's adjusted p values.

    Args:
        p_values: uncorrected; not a number where no test was possible, which counts as 1.
        family: number of comparisons that could be made, at least as many as are given. The rest count as p = 1.
    """
    known = np.where(np.isnan(p_values), 1.0, p_values)
    order = np.argsort(known, axis=-1, kind="stable")
    steps = family - np.arange(known.shape[-1])
    stepped = np.maximum.accumulate(np.take_along_axis(known, order, axis=-1) * steps, axis=-1)
    adjusted = np.empty_like(known)
    np.put_along_axis(adjusted, order, np.minimum(stepped, 1.0), axis=-1)
    return adjusted


def critical_value(confidence: float, family: int, df: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """How many standard errors a simultaneous interval reaches to either side."""
    return np.asarray(stdtrit(df, 1 - (1 - confidence) / (2 * family)))


def intervals(
    difference: Float[np.ndarray, "*batch pair"],
    standard_error: Float[np.ndarray, "*batch pair"],
    *,
    confidence: float,
    family: int,
    df: Float[np.ndarray, "*batch pair"],
) -> Float[np.ndarray, "*batch pair 2"]:
    """Bonferroni intervals: all hold together with at least the stated confidence."""
    reach = critical_value(confidence, family, df) * standard_error
    return np.stack([difference - reach, difference + reach], axis=-1)


def end_at_zero(
    interval: Float[np.ndarray, "*batch pair 2"], claimed: Float[np.ndarray, "*batch pair"]
) -> Float[np.ndarray, "*batch pair 2"]:
    """Let the intervals of claimed directions (-1 lower, +1 higher, 0 none) end at zero where they would cross it."""
    low = np.where(claimed > 0, np.maximum(interval[..., 0], 0.0), interval[..., 0])
    high = np.where(claimed < 0, np.minimum(interval[..., 1], 0.0), interval[..., 1])
    return np.stack([low, high], axis=-1)


def equivalence_p(
    difference: Float[np.ndarray, "*batch pair"],
    standard_error: Float[np.ndarray, "*batch pair"],
    *,
    margin: float,
    df: Float[np.ndarray, "*batch pair"],
) -> Float[np.ndarray, "*batch pair"]:
    """Uncorrected p of the two one-sided tests: the larger of the two sides.

    The interval above lies inside ±margin exactly when 2 · family · p < 1 - confidence.
    """
    above = stdtr(df, -(difference + margin) / standard_error)
    below = stdtr(df, (difference - margin) / standard_error)
    return np.asarray(np.maximum(above, below))
