"""Ranking of variants: which differences exceed the noise, and how many seeds would decide the others.

`rank` takes one `Result` per run and returns a `Ranking`; it needs numpy and scipy only. The method and its limits are in
docs/guide/ranking.md; the tests simulate its error rates.
"""

import importlib
from typing import TYPE_CHECKING, Any

# scipy takes a quarter of a second to import: a worker, and every command, knows of the statistics what a measure is, no more.
_HOMES = {
    "VariantComparison": "addnorm.statistics.pairs.comparison",
    "Verdict": "addnorm.statistics.pairs.comparison",
    "compare_pairs": "addnorm.statistics.procedure",
    "rank": "addnorm.statistics.procedure",
    "require_margin": "addnorm.statistics.procedure",
    "Published": "addnorm.statistics.published",
    "kuang_2025": "addnorm.statistics.published",
    "ranking_of_published": "addnorm.statistics.published",
    "read_published": "addnorm.statistics.published",
    "Ranking": "addnorm.statistics.ranking",
    "RunValue": "addnorm.statistics.ranking",
    "Tier": "addnorm.statistics.ranking",
    "VariantRank": "addnorm.statistics.ranking",
    "ENDED": "addnorm.statistics.result",
    "FEWEST_SEEDS": "addnorm.statistics.result",
    "STATES": "addnorm.statistics.result",
    "Result": "addnorm.statistics.result",
}

if TYPE_CHECKING:
    from addnorm.statistics.pairs.comparison import VariantComparison as VariantComparison
    from addnorm.statistics.pairs.comparison import Verdict as Verdict
    from addnorm.statistics.procedure import compare_pairs as compare_pairs
    from addnorm.statistics.procedure import rank as rank
    from addnorm.statistics.procedure import require_margin as require_margin
    from addnorm.statistics.published import Published as Published
    from addnorm.statistics.published import kuang_2025 as kuang_2025
    from addnorm.statistics.published import ranking_of_published as ranking_of_published
    from addnorm.statistics.published import read_published as read_published
    from addnorm.statistics.ranking import Ranking as Ranking
    from addnorm.statistics.ranking import RunValue as RunValue
    from addnorm.statistics.ranking import Tier as Tier
    from addnorm.statistics.ranking import VariantRank as VariantRank
    from addnorm.statistics.result import ENDED as ENDED
    from addnorm.statistics.result import FEWEST_SEEDS as FEWEST_SEEDS
    from addnorm.statistics.result import STATES as STATES
    from addnorm.statistics.result import Result as Result

__all__ = [*sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
