"""`rank`: from runs to verdicts. The formulas live in `additive`, `pairs`, `family` and `power`."""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from addnorm.errors import InputError
from addnorm.statistics.additive import fit_levels
from addnorm.statistics.judge import Judge
from addnorm.statistics.notes import notes
from addnorm.statistics.ranking import Ranking
from addnorm.statistics.result import Result
from addnorm.statistics.rows import rank_intervals, row_of
from addnorm.statistics.table import tabulate
from addnorm.statistics.tiers import reference_lines


def rank(
    results: Sequence[Result],
    *,
    references: Sequence[str] = (),
    margin: float = 0.005,
    confidence: float = 0.95,
    assumed_sd: float | None = None,
    added_after_look: Collection[int] = (),
) -> Ranking:
    """Rank variants by held-out loss, and say how much of the order is more than noise.

    Args:
        results: every run of the study, unfinished, failed and diverged ones included.
        references: variants that all others are compared with.
        margin: differences inside ±margin, in nats per token, count as none.
        confidence: of all verdicts together, and of all intervals together.
        assumed_sd: standard deviation of one run, in nats, known from elsewhere. It only answers how many seeds would
            be needed where the runs themselves allow no verdict; the pairing of seeds is not counted on.
        added_after_look: seeds that were added after results had been seen.

    Raises:
        InputError: no runs, runs on different data, two runs of one variant and seed, or a number out of its range.
        UnknownName: a reference that no run belongs to.
    """
    _check_numbers(margin, confidence, assumed_sd)
    table = tabulate(results, references)
    judge = Judge.of(table, references, margin, confidence, assumed_sd)
    means = fit_levels(table.losses, table.present)

    comparisons = {
        name: {other: judge.compare(name, other) for other in references if other != name} for name in table.names
    }
    finished = [name for name in references if not math.isnan(means[table.row(name)])]
    by_mean = sorted(finished, key=lambda name: float(means[table.row(name)]))
    lines = reference_lines(by_mean, lambda a, b: comparisons[a][b].verdict in ("better", "worse"))
    ranks = rank_intervals(table, confidence)
    later = frozenset(added_after_look)
    rows = [
        row_of(
            table, name, references, comparisons[name], lines, means, ranks, confidence, judge.variant_sd(name), later
        )
        for name in table.names
    ]
    rows.sort(key=lambda row: (row.adjusted_mean is None, row.adjusted_mean or 0.0))
    ranking = Ranking(
        metric="loss",
        margin=margin,
        confidence=confidence,
        provisional=any(not result.ended for result in results),
        references=tuple(references),
        lines=lines,
        variants=tuple(rows),
        warnings=(),
        family=judge.family,
        noise_sd=judge.noise_sd,
        noise_df=judge.noise_df,
        noise_even=math.isinf(judge.trusted_df),
        noisy_references=tuple(name for name in references if judge.is_suspect(name)),
        assumed_sd=assumed_sd,
        added_after_look=tuple(sorted(added_after_look)),
    )
    return replace(ranking, warnings=(*table.warnings, *notes(ranking, table)))


def require_margin(margin: float) -> None:
    """Raises:
    InputError: no positive number.
    """
    if not (math.isfinite(margin) and margin > 0):
        raise InputError(f"the margin is a positive number of nats per token, got {margin}.")


def _check_numbers(margin: float, confidence: float, assumed_sd: float | None) -> None:
    require_margin(margin)
    if not 0.5 < confidence < 1:
        raise InputError(f"the confidence lies between 0.5 and 1, got {confidence}. For 95 % give 0.95.")
    if assumed_sd is not None and not (math.isfinite(assumed_sd) and assumed_sd > 0):
        raise InputError(f"assumed_sd is a positive number of nats per token, got {assumed_sd}.")
