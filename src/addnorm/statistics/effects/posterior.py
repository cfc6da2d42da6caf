r"""A Bayesian reading beside a verdict: how probable it is that a variant is better, equivalent, or worse.

Before the runs every difference is taken to be equally probable, and the noise is that of the verdict, pooled over the variants
with all its precautions. After them the difference has Student's t distribution around the observed one,

    (difference - observed) / se  ~  t(df),

with the standard error and the degrees of freedom of the verdict's interval. `better` is the probability of a difference beyond
the margin, `equivalent` of one within it. A verdict holds for all comparisons of a study together; these probabilities are of
one comparison each, and are no substitute for it: of many variants without an effect, some are probably better.

Source: a flat prior gives the t distribution: any text on Bayesian inference; Kruschke 2018, doi:10.1177/2515245918771304 (a
region of practical equivalence).
Differs from the source: the noise is estimated, not integrated over, where it is pooled.
"""

from dataclasses import dataclass

from scipy.special import ndtri, stdtr, stdtrit

from addnorm.fields import JsonFields
from addnorm.statistics.pairs.comparison import VariantComparison
from addnorm.statistics.ranking import Ranking

_LEAST_DF, _MOST_DF = 0.5, 1e7


@dataclass(frozen=True, kw_only=True)
class Posterior(JsonFields):
    """Probabilities that add up to 1."""

    better: float
    equivalent: float
    worse: float


def posteriors(ranking: Ranking) -> dict[tuple[str, str], Posterior]:
    """The probabilities of every comparison of a ranking that has an interval, by variant and reference.

    Example:
        >>> from addnorm.statistics import Result, rank
        >>> losses = {"base": (2.50, 2.52, 2.51), "rezero": (2.41, 2.44, 2.42)}
        >>> runs = [Result(variant=v, seed=s, loss=x) for v, row in losses.items() for s, x in enumerate(row)]
        >>> found = posteriors(rank(runs, references=["base"]))["rezero", "base"]
        >>> round(found.better, 3), round(found.equivalent, 3)
        (0.999, 0.0)
    """
    made = {}
    for row in ranking.variants:
        for reference, comparison in row.versus.items():
            posterior = _posterior(comparison, ranking)
            if posterior is not None:
                made[row.variant, reference] = posterior
    return made


def _posterior(comparison: VariantComparison, ranking: Ranking) -> Posterior | None:
    error, difference, half_width = comparison.standard_error, comparison.difference, comparison.half_width
    if error is None or difference is None or half_width is None or not error > 0:
        return None
    df = _df_of(half_width / error, 1 - (1 - ranking.confidence) / 2 / max(ranking.family, 1))
    below, above = (float(stdtr(df, (end - difference) / error)) for end in (-ranking.margin, ranking.margin))
    lower, higher = below, 1 - above
    lower_is_better = ranking.measure.better == "lower"
    return Posterior(
        better=lower if lower_is_better else higher,
        equivalent=above - below,
        worse=higher if lower_is_better else lower,
    )


def _df_of(critical: float, tail: float) -> float:
    """Degrees of freedom with that critical value; the comparison holds its interval, not their number."""
    # The critical value falls as the degrees of freedom grow, towards that of the normal distribution.
    if critical <= float(ndtri(tail)) * (1 + 1e-9):
        return _MOST_DF
    low, high = _LEAST_DF, _MOST_DF
    for _ in range(100):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if float(stdtrit(middle, tail)) > critical else (low, middle)
    return (low * high) ** 0.5
