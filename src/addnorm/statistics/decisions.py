"""All comparisons of one family decided together: tests, Holm, intervals, equivalence, in that order.

Works on one table or on a batch of tables with the same missing cells, so that the simulation in the tests runs the
very code that ranks.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from addnorm.statistics.family import end_at_zero, equivalence_p, holm, intervals
from addnorm.statistics.pairs import PairedTests, paired_tests


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """One decision per pair. Where there is no test, p is 1, the interval is not a number and nothing is claimed."""

    tests: PairedTests
    p: Float[np.ndarray, "*batch pair"]
    """Holm-adjusted."""
    p_equivalent: Float[np.ndarray, "*batch pair"]
    """Two one-sided tests, Bonferroni-adjusted over the family and both directions; not a number without a test."""
    interval: Float[np.ndarray, "*batch pair 2"]
    """Simultaneous; ends at zero where Holm claims a direction that the Bonferroni interval would cross."""
    claimed: Float[np.ndarray, "*batch pair"]
    """-1 where the first of the pair is certainly lower, +1 higher, 0 neither."""
    equivalent: Bool[np.ndarray, "*batch pair"]


def decide(
    values: Float[np.ndarray, "*batch variant seed"],
    present: Bool[np.ndarray, "variant seed"],
    pairs: Int[np.ndarray, "pair 2"],
    references: Int[np.ndarray, " reference"],
    *,
    family: int,
    confidence: float,
    margin: float,
) -> Decisions:
    """Decide every pair of a family.

    Args:
        values: losses; entries outside `present` are ignored.
        present: which variant has a counted run at which seed.
        pairs: indices of the two variants of each pair.
        references: indices of the variants that the others are compared with.
        family: comparisons that share the error rate, at least as many as there are pairs.
        confidence: of all claims together, and of all intervals together.
        margin: differences inside ±margin count as none.

    Raises:
        InputError: no cell is present.
    """
    tests = paired_tests(values, present, pairs, references)
    p = holm(tests.p_value, family)
    wide = intervals(tests.difference, tests.standard_error, confidence=confidence, family=family, df=tests.df)
    claimed = np.where(p <= 1 - confidence, np.sign(tests.difference), 0.0)
    one_sided = equivalence_p(tests.difference, tests.standard_error, margin=margin, df=tests.df)
    return Decisions(
        tests=tests,
        p=p,
        p_equivalent=np.minimum(2 * family * one_sided, 1.0),
        interval=end_at_zero(wide, claimed),
        claimed=claimed,
        equivalent=np.max(np.abs(wide), axis=-1) < margin,
    )
