"""Honest ranking: which differences between variants are more than noise, and what it would take to know the rest.

`rank` takes one `Result` per run and returns a `Ranking`. numpy and scipy only. The method and its limits are in
docs/guide/ranking.md; that its error rates hold is simulated in the tests.
"""

from addnorm.statistics.pairs import FEWEST_SEEDS
from addnorm.statistics.procedure import rank, require_margin
from addnorm.statistics.published import Published, kuang_2025, ranking_of_published, read_published
from addnorm.statistics.ranking import Comparison, Ranking, Tier, Value, VariantRank, Verdict
from addnorm.statistics.result import ENDED, STATES, Result
from addnorm.statistics.sentence import JOINTS, SENTENCES, Sentence, listed, say

__all__ = [
    "ENDED",
    "FEWEST_SEEDS",
    "JOINTS",
    "SENTENCES",
    "STATES",
    "Comparison",
    "Published",
    "Ranking",
    "Result",
    "Sentence",
    "Tier",
    "Value",
    "VariantRank",
    "Verdict",
    "kuang_2025",
    "listed",
    "rank",
    "ranking_of_published",
    "read_published",
    "require_margin",
    "say",
]
