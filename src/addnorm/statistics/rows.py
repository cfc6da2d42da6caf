"""One row of the ranking: level, spread, rank interval and tier of a variant."""

import math
from collections.abc import Collection, Sequence
from itertools import combinations

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from addnorm.statistics.family import holm
from addnorm.statistics.pairs import FEWEST_SEEDS, paired_tests
from addnorm.statistics.ranking import Comparison, Tier, Value, VariantRank
from addnorm.statistics.result import Result
from addnorm.statistics.table import Table
from addnorm.statistics.tiers import tier_of


def rank_intervals(table: Table, confidence: float) -> dict[int, tuple[int, int]]:
    """Ranks that Holm's test over all pairs leaves open: one more than the certainly better, and so on."""
    rows = [row for row in range(len(table.distinct)) if table.present[row].any()]
    open_ranks = {row: (1, len(rows)) for row in rows}
    pairs = np.array(list(combinations(rows, 2)), dtype=int).reshape(-1, 2)
    if not pairs.size:
        return open_ranks
    tests = paired_tests(table.losses, table.present, pairs, np.array(rows))
    certain = holm(tests.p_value, len(pairs)) <= 1 - confidence
    for (a, b), difference in zip(pairs[certain], tests.difference[certain], strict=True):
        winner, loser = (int(a), int(b)) if difference < 0 else (int(b), int(a))
        if table.diverged(table.distinct[winner]):
            continue
        open_ranks[winner] = (open_ranks[winner][0], open_ranks[winner][1] - 1)
        open_ranks[loser] = (open_ranks[loser][0] + 1, open_ranks[loser][1])
    return open_ranks


def row_of(
    table: Table,
    name: str,
    references: Sequence[str],
    versus: dict[str, Comparison],
    lines: Sequence[Sequence[str]],
    means: Float[np.ndarray, " variant"],
    ranks: dict[int, tuple[int, int]],
    confidence: float,
    residual_sd: float | None,
    later: Collection[int],
) -> VariantRank:
    row = table.row(name)
    here = table.present[row]
    losses, accuracies = table.losses[row][here], table.accuracies[row][here]
    count = losses.size
    mean = float(losses.mean()) if count else None
    sd = float(losses.std(ddof=1)) if count > 1 else None
    interval = None
    if mean is not None and sd is not None and count >= FEWEST_SEEDS:
        reach = float(stdtrit(count - 1, (1 + confidence) / 2)) * sd / math.sqrt(count)
        interval = (mean - reach, mean + reach)
    reference_tier = Tier(label="reference", gaps=(), firm=False)
    return VariantRank(
        variant=name,
        seeds=count,
        mean=mean,
        adjusted_mean=float(means[row]) if count else None,
        interval=interval,
        sd=sd,
        residual_sd=residual_sd,
        accuracy=None if not count or np.isnan(accuracies).any() else float(accuracies.mean()),
        perplexity=None if mean is None else math.exp(mean),
        tier=reference_tier if name in references else tier_of(versus, lines),
        rank_interval=ranks.get(row),
        versus=versus,
        values=tuple(_value(table, run, later) for run in table.runs[name]),
        same_as=table.same_as.get(name),
    )


def _value(table: Table, run: Result, later: Collection[int]) -> Value:
    return Value(
        run=run.name,
        seed=run.seed,
        state=run.state,
        loss=run.loss,
        accuracy=run.accuracy,
        counted=(run.variant, run.seed) in table.counted,
        reason=run.reason,
        planned=run.planned,
        after_look=run.seed in later,
    )
