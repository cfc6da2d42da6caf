"""Ranking of variants: which differences exceed the noise, and how many seeds would decide the others.

`rank` takes one `Result` per run and returns a `Ranking`; it needs numpy and scipy only. The method and its limits are in
docs/guide/ranking.md; the tests simulate its error rates.
"""

from addnorm.statistics.pairs.comparison import VariantComparison, Verdict
from addnorm.statistics.procedure import compare_pairs, rank, require_margin
from addnorm.statistics.published import Published, kuang_2025, ranking_of_published, read_published
from addnorm.statistics.ranking import Ranking, RunValue, Tier, VariantRank
from addnorm.statistics.result import ENDED, FEWEST_SEEDS, STATES, Result

__all__ = [
    "ENDED",
    "FEWEST_SEEDS",
    "STATES",
    "Published",
    "Ranking",
    "Result",
    "RunValue",
    "Tier",
    "VariantComparison",
    "VariantRank",
    "Verdict",
    "compare_pairs",
    "kuang_2025",
    "rank",
    "ranking_of_published",
    "read_published",
    "require_margin",
]
