r"""An endless stream of proposals against a baseline that improves: keep or discard each, with one error rate for ever.

**Evidence.** Runs are y = mean of their variant + sigma epsilon, with one sigma. A proposal with n runs is compared with the
baseline's n_b runs; s^2 on nu degrees of freedom is the variance within all variants so far, the proposal included:

    t = (mean of the baseline - mean of the proposal) / (s sqrt(1/n + 1/n_b)),      k = 1 / (1/n + 1/n_b).

With f_nu(t; l) the density of noncentral t, the e-value is the likelihood ratio of an improvement against none, averaged over
improvements of delta standard deviations of one run (`EFFECTS`):

    E = mean over delta of  f_nu(t; delta sqrt(k)) / f_nu(t; 0),
    f_nu(t; l) / f_nu(t; 0) = exp(-l^2 nu / (2 (nu + t^2))) I(l t / sqrt(nu + t^2)) / I(0),
    I(m) = integral of y^nu exp(-(y - m)^2 / 2) over y > 0.

If the proposal is no better than the baseline, E has a mean of at most 1 whenever the runs stop, whatever the reason: it is the
likelihood ratio of what does not depend on location and scale, a martingale at no difference, and smaller if the proposal is
worse. So runs may be added one by one, and stopped when the answer is known.

**Error rate.** Proposal number j is kept once it has three runs and E >= 1 / a_j with e-LOND,

    a_j = alpha gamma_j (1 + keeps so far),     gamma_j = j^-1.1 / zeta(1.1),     sum of gamma = 1.

Among all keeps of the stream, however long, the expected share of false ones is at most alpha: for a false keep,
1[E_j >= 1/a_j] / keeps <= a_j E_j / keeps <= alpha gamma_j E_j, and the sum over j is at most alpha. This holds for any
dependence, such as a baseline that all proposals share. In a stream without any improvement it is the probability of a keep.

Why three runs: with heavy tails one run alone can be as far away as the bar asks for.

**Stopping.** After each run, a proposal is discarded if log E < `FUTILE`, or with `most_runs` runs. The rule is not needed for
the error rate; it makes proposals without effect cost less than two runs on average.

**Baseline.** It has a number of runs that is fixed beforehand: `baseline_runs`, and one more after every ten proposals up to
forty. After a keep, the kept variant is the baseline, and is run anew as often: the runs that it was kept for are those of a
winner, whose mean is too good. A baseline whose runs could be added at will would be run until it looks bad.

Source: e-LOND: Xu & Ramdas 2024, "Online multiple testing with e-values", AISTATS, arXiv:2311.06412; e-values of t tests:
Pérez-Ortiz, Lardy, de Heide & Grünwald, arXiv:2208.07610; the likelihood ratio of t: Rushton 1950, Biometrika 37.
Differs from the source: the average over two improvements; keeps are counted when a proposal is decided, as the proof allows.
Runs of unequal noise or with heavy tails are outside the theory: `python benchmarks/judge_stream.py` simulates them.
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import gammaln, logsumexp, zeta

from addnorm.errors import InputError
from addnorm.statistics.result import FEWEST_SEEDS

EFFECTS = (1.5, 3.0)
"""Improvements that the e-value looks for, in standard deviations of one run."""
FUTILE = -0.9
"""log E below which a proposal is discarded."""
_DECAY = 1.1
"""Of gamma_j: a faster one would favour early proposals at the cost of late ones."""
_MOST_BASELINE = 40
"""Runs up to which a baseline grows."""
_REACH, _NODES = 9.0, 48
"""The integrand of I is narrower than a normal density: 9 standard deviations on both sides of its mode hold it."""
Decision = Literal["keep", "discard", "open"]


@dataclass(frozen=True, kw_only=True)
class StreamRule:
    """Rule by which a stream is judged, fixed at its beginning."""

    alpha: float = 0.05
    """Expected share of false keeps among all keeps."""
    baseline_runs: int = 12
    """Runs of a baseline before the first proposal against it."""
    most_runs: int = 20
    """Runs after which an open proposal is discarded."""

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            InputError: a number is out of its range.
        """
        if not 0 < self.alpha < 0.5:
            raise InputError(f"alpha: expected a number between 0 and 0.5, got {self.alpha}. For 5 % give 0.05.")
        if self.baseline_runs < FEWEST_SEEDS:
            raise InputError(f"baseline_runs: expected at least {FEWEST_SEEDS}, got {self.baseline_runs}.")
        if self.most_runs < FEWEST_SEEDS:
            raise InputError(f"most_runs: expected at least {FEWEST_SEEDS}, got {self.most_runs}.")

    def baseline_target(self, proposals: int) -> int:
        """Runs that a baseline has after so many decided proposals against it."""
        return max(self.baseline_runs, min(self.baseline_runs + proposals // 10, _MOST_BASELINE))

    def log_bar(self, number: int, keeps: Int[np.ndarray, "*batch"] | int) -> Float[np.ndarray, "*batch"]:
        """log(1 / a_j): the evidence at which proposal `number`, counted from 1, is kept."""
        return np.asarray(_DECAY * np.log(number) + np.log(zeta(_DECAY)) - np.log(self.alpha) - np.log1p(keeps))

    def decide(
        self, log_e: Float[np.ndarray, "*batch"], runs: int, number: int, keeps: Int[np.ndarray, "*batch"] | int
    ) -> tuple[Bool[np.ndarray, "*batch"], Bool[np.ndarray, "*batch"]]:
        """Decide a proposal after one of its runs.

        Args:
            log_e: its evidence.
            runs: its runs so far.
            number: its place in the stream, from 1.
            keeps: proposals kept before.

        Returns:
            Where it is kept, and where it is discarded. It is open where it is neither.
        """
        kept = (log_e >= self.log_bar(number, keeps)) & (runs >= FEWEST_SEEDS)
        return kept, ~kept & ((log_e < FUTILE) | (runs >= self.most_runs))


def log_e_value(
    gain: Float[np.ndarray, "*batch"],
    runs: int,
    baseline_runs: Int[np.ndarray, "*batch"] | int,
    variance: Float[np.ndarray, "*batch"],
    df: Int[np.ndarray, "*batch"] | int,
) -> Float[np.ndarray, "*batch"]:
    """log E of a proposal.

    Args:
        gain: mean of the baseline minus mean of the proposal.
        runs: of the proposal.
        baseline_runs: runs of the baseline.
        variance: within variants, pooled.
        df: its degrees of freedom.

    Example:
        >>> float(log_e_value(np.array(0.03), 3, 8, np.array(0.01**2), 9).round(2))
        4.97
    """
    k = 1 / (1 / runs + 1 / np.asarray(baseline_runs, dtype=float))
    t = gain / np.sqrt(variance / k)
    each = np.stack([log_ratio(t, np.asarray(df, dtype=float), effect * np.sqrt(k)) for effect in EFFECTS])
    return np.asarray(logsumexp(each, axis=0) - np.log(len(EFFECTS)))


def log_ratio(
    t: Float[np.ndarray, "*batch"], df: Float[np.ndarray, "*batch"], noncentrality: Float[np.ndarray, "*batch"]
) -> Float[np.ndarray, "*batch"]:
    """log of the density of noncentral t over that of t."""
    spread = df + t**2
    middle = noncentrality * t / np.sqrt(spread)
    # log I(m) by quadrature around the mode of y^nu exp(-(y - m)^2 / 2). The second derivative of the log is at most -1, so the
    # integrand falls faster than a standard normal density on both sides; everything stays a logarithm, since y^nu overflows.
    mode = (middle + np.sqrt(middle**2 + 4 * df)) / 2
    low, high = np.maximum(mode - _REACH, 0.0), mode + _REACH
    node, weight = _quadrature()
    y = low[..., None] + (high - low)[..., None] * node
    with np.errstate(divide="ignore"):
        log_integrand = df[..., None] * np.log(y) - (y - middle[..., None]) ** 2 / 2
    integral = logsumexp(log_integrand, b=weight, axis=-1) + np.log(high - low)
    at_zero = gammaln((df + 1) / 2) + (df - 1) / 2 * np.log(2)
    return np.asarray(integral - at_zero - noncentrality**2 * df / (2 * spread))


@cache
def _quadrature() -> tuple[Float[np.ndarray, " node"], Float[np.ndarray, " node"]]:
    node, weight = np.polynomial.legendre.leggauss(_NODES)
    return (node + 1) / 2, weight / 2
