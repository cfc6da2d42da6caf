"""`rank`: from results to the ranking. The formulas are in `noise`, `multiple_testing` and `power`."""

import math
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from addnorm.errors import InputError, UnknownName
from addnorm.statistics.measure import LOSS, Metric
from addnorm.statistics.multiple_testing import Look, holm
from addnorm.statistics.noise import fit_levels
from addnorm.statistics.notes import notes
from addnorm.statistics.over_seeds import half_interval
from addnorm.statistics.pairs.comparison import VariantComparison
from addnorm.statistics.pairs.paired_tests import paired_tests
from addnorm.statistics.pairs.text_error import text_error
from addnorm.statistics.pairs.unpaired import unpaired_tests
from addnorm.statistics.ranking import Ranking, RunValue, Tier, VariantRank, reference_lines, tier_of
from addnorm.statistics.replication import found_again, require_unseen, with_tuning
from addnorm.statistics.result import FEWEST_SEEDS, Result
from addnorm.statistics.seeds_in_stages import SeedsInStages, Stages, needed, prospects
from addnorm.statistics.stuck_runs import stuck_runs
from addnorm.statistics.table import LossTable, tabulate
from addnorm.statistics.tuning import TuningOutcome
from addnorm.statistics.verdicts import ComparisonFamily
from addnorm.words import listed, say

_LARGEST_LOG = math.log(sys.float_info.max)


def rank(
    results: Sequence[Result],
    *,
    references: Sequence[str] = (),
    margin: float = 0.005,
    confidence: float = 0.95,
    assumed_sd: float | None = None,
    added_after_look: Collection[int] = (),
    left_out: Collection[str] = (),
    design: SeedsInStages | None = None,
    tuning: TuningOutcome | None = None,
    second: Sequence[int] = (),
    unplanned: Collection[str] = (),
    measure: Metric = LOSS,
    pairs: Sequence[tuple[str, str]] | None = None,
) -> Ranking:
    """Rank variants by held-out loss, and decide which differences exceed the noise.

    Args:
        results: every run of the study, including unfinished, failed and diverged ones.
        references: variants that all others are compared with.
        margin: largest difference, in nats per token, that counts as none.
        confidence: of all verdicts together, and of all intervals together.
        assumed_sd: standard deviation of one run, in nats, known from elsewhere. It is used only to estimate the number of
            seeds needed where the runs themselves allow no verdict, and without the benefit of paired seeds.
        added_after_look: seeds that were added after results had been seen.
        left_out: variants whose runs take no part; a warning names them.
        design: that of a study which adds seeds in stages. Verdicts are those of the completed stages, and all looks together
            have the stated confidence.
        tuning: the choice of the points at which variants are compared; shown with the ranking.
        second: seeds of a second batch, planned before the first was seen. All numbers are those of the other seeds, and every
            found verdict is tested again on these.
        unplanned: further codes of `Ranking.unplanned`, such as `references` and `margin` in place of the plan's own.
        measure: what `loss` holds, if it is not a loss in nats per token. Margin and `assumed_sd` are in its unit.
        pairs: the (variant, reference) that are compared, chosen before the results were seen; None for every variant with
            every reference. The error rate is shared by these alone.

    Raises:
        InputError: no runs, runs on different data, two runs of one variant and seed, or a number out of its range.
        UnknownName: a reference, or a variant to be left out, that no run belongs to.

    Example:
        >>> losses = {"base": (2.50, 2.52, 2.51), "rezero": (2.41, 2.44, 2.42)}
        >>> results = [Result(variant=v, seed=s, loss=x) for v, row in losses.items() for s, x in enumerate(row)]
        >>> rank(results, references=["base"])["rezero"].versus["base"].verdict
        'better'
    """
    _check_numbers(margin, confidence, assumed_sd)
    known = tuple(dict.fromkeys(result.variant for result in results))
    for name in left_out:
        if name not in known:
            raise UnknownName("variant to be left out", name, known)
    results = [result for result in results if result.variant not in left_out]
    # All code below this line knows one direction: lower is better. A measure of which higher is better is negated here, and
    # the finished ranking is negated back (`mirrored`). Two directions inside the tests would double every comparison of signs.
    # `0.0 - x` and not `-x`: a score of 0 would become -0.0 and be printed as such.
    if measure.better == "higher":
        results = [replace(each, loss=None if each.loss is None else 0.0 - each.loss) for each in results]
    later = [result for result in results if result.seed in second]
    results = [result for result in results if result.seed not in second]
    if second:
        require_unseen(second, [result.seed for result in results])
    table = tabulate(results, references)
    # A study in stages is decided by its complete stages alone. Runs of the stage in progress are shown, but a verdict on them
    # would be a look that the design has not planned, and its part of the error rate is not reserved.
    complete = 0 if design is None else design.complete(results)
    looks = () if design is None else design.looks_at(table.seeds, complete)
    if pairs is not None:
        _check_pairs(pairs, known, references)
        pairs = [pair for pair in pairs if not set(pair) & set(left_out)]
    family = ComparisonFamily.of(table, references, margin, confidence, assumed_sd, looks, pairs)
    asked = None if pairs is None else frozenset(map(frozenset, pairs))
    levels = _levels(table)
    comparisons = {
        name: {
            other: family.compare(name, other)
            for other in references
            if other != name and (asked is None or {name, other} in asked)
        }
        for name in table.names
    }
    finished_runs = {name: [run for run in table.runs[name] if run.state == "finished"] for name in table.names}
    comparisons = {
        name: {
            other: replace(comparison, text_error=text_error(finished_runs[name], finished_runs[other]))
            for other, comparison in versus.items()
        }
        for name, versus in comparisons.items()
    }
    if tuning is not None:
        comparisons = with_tuning(comparisons, tuning)
    if second and all(result.ended for result in results):
        comparisons = found_again(comparisons, later, second, margin=margin, confidence=confidence)
    # A reference without a finished run has no level: it takes no place among the lines, and comparisons with it say why they
    # have no verdict. Its comparisons still count in the family, so that a reference that finishes late changes no threshold.
    finished = [name for name in references if not math.isnan(levels[table.row(name)])]
    by_level = sorted(finished, key=lambda name: float(levels[table.row(name)]))
    lines = reference_lines(
        by_level, lambda a, b: b in comparisons[a] and comparisons[a][b].verdict in ("better", "worse")
    )
    rows = _Rows(
        table=table,
        family=family,
        references=references,
        lines=lines,
        levels=levels,
        rank_intervals=_rank_intervals(family, looks),
        added_after_look=frozenset(added_after_look),
        in_nats=measure.in_nats,
    )
    variants = [rows.row(name, comparisons[name]) for name in table.names]
    variants.sort(key=lambda row: (row.adjusted_mean is None, row.adjusted_mean or 0.0))
    ranking = Ranking(
        metric=measure.name,
        margin=margin,
        confidence=confidence,
        provisional=any(not result.ended for result in (*results, *later)),
        references=tuple(references),
        lines=lines,
        variants=tuple(variants),
        warnings=(),
        family=family.size,
        noise_sd=family.noise_sd,
        noise_df=family.noise_df,
        noise_even=math.isinf(family.prior_df),
        noisy_references=tuple(name for name in references if family.is_noisy(name)),
        set_apart=family.set_apart,
        seeds_differ=family.seeds_differ,
        assumed_sd=assumed_sd,
        added_after_look=tuple(sorted(added_after_look)),
        stages=None if design is None else _stages(design, complete, family),
        tuning=tuning,
        measure=measure,
        unpaired=family.unpaired,
        second=tuple(second),
        pairs=None if pairs is None else tuple((name, other) for name, other in pairs),
        unplanned=(
            *(["left_out"] if left_out else []),
            *unplanned,
            *(["added_after_look"] if added_after_look else []),
            *(["unfinished"] if any(not result.ended for result in (*results, *later)) else []),
        ),
        stuck=() if family.unpaired else stuck_runs(table, tuple(references), margin),
    )
    chosen = [say("left_out", variants=listed("comma", sorted(left_out)))] if left_out else []
    chosen += [say(f"unplanned_{code}") for code in unplanned]
    # Notes quote numbers of the ranking, and so come after they are back in the measure's own direction.
    ranking = ranking.mirrored() if measure.better == "higher" else ranking
    return replace(ranking, warnings=(*table.warnings, *chosen, *notes(ranking, table)))


def compare_pairs(
    results: Sequence[Result],
    pairs: Sequence[tuple[str, str]],
    *,
    margin: float = 0.005,
    confidence: float = 0.95,
) -> dict[tuple[str, str], VariantComparison]:
    """Decide some (variant, reference) alone, as where each variant has a reference of its own.

    The pairs are one family. They have to be chosen without knowledge of the results: choosing the pairs that look different
    makes false claims. All runs tell how noisy a run is, also those of variants in no pair.

    Args:
        results: every run of the study, as for `rank`.
        pairs: the variant and what it is compared with.
        margin: largest difference, in nats per token, that counts as none.
        confidence: of all verdicts together, and of all intervals together.

    Raises:
        InputError: no pairs, a variant paired with itself, or what `rank` refuses.
        UnknownName: a variant that no run belongs to.

    Example:
        >>> losses = {"base": (2.50, 2.52, 2.51), "rezero": (2.41, 2.44, 2.42), "wide": (2.47, 2.48, 2.49)}
        >>> results = [Result(variant=v, seed=s, loss=x) for v, row in losses.items() for s, x in enumerate(row)]
        >>> compare_pairs(results, [("rezero", "wide")])["rezero", "wide"].verdict
        'better'
    """
    _check_numbers(margin, confidence, None)
    known = tuple(dict.fromkeys(result.variant for result in results))
    for name in dict.fromkeys(name for pair in pairs for name in pair):
        if name not in known:
            raise UnknownName("variant to be compared", name, known)
    if not pairs:
        raise InputError("pairs: expected at least one pair of variants, got none.")
    for name, other in pairs:
        if name == other:
            raise InputError(f"pairs: expected two variants in each pair, got {name!r} with itself.")
    references = tuple(dict.fromkeys(other for _, other in pairs))
    family = ComparisonFamily.of(tabulate(results, references), references, margin, confidence, None, chosen=pairs)
    return {(name, other): family.compare(name, other) for name, other in pairs}


def _check_pairs(pairs: Sequence[tuple[str, str]], known: Sequence[str], references: Sequence[str]) -> None:
    for name, other in pairs:
        if name not in known:
            raise UnknownName("variant to be compared", name, known)
        if other not in references:
            raise InputError(f"pairs: expected a reference as the second of each pair, got {other!r}.")


def require_margin(margin: float) -> None:
    """Check a margin.

    Raises:
        InputError: the margin is not a positive finite number.
    """
    if not (math.isfinite(margin) and margin > 0):
        raise InputError(f"margin: expected a positive number of nats per token, got {margin}.")


def _check_numbers(margin: float, confidence: float, assumed_sd: float | None) -> None:
    require_margin(margin)
    if not 0.5 < confidence < 1:
        raise InputError(f"confidence: expected a number between 0.5 and 1, got {confidence}. For 95 % give 0.95.")
    if assumed_sd is not None and not (math.isfinite(assumed_sd) and assumed_sd > 0):
        raise InputError(f"assumed_sd: expected a positive number of nats per token, got {assumed_sd}.")


def _stages(design: SeedsInStages, complete: int, family: ComparisonFamily) -> Stages:
    """Progress of a study with a design, and the variants of its next stage."""
    undecided: list[tuple[str, str]] = []
    hopeless: list[tuple[str, str]] = []
    continuing: tuple[str, ...] = ()
    if family.decisions is not None and complete:
        names = family.table.distinct
        outlook = prospects(family.decisions, design, family.rule)
        # Predictive power knows means and noise only. It would ask for seeds that cannot lead to a verdict:
        # A variant that diverged at a seed can be worse, which its first stage shows, but neither better nor equivalent.
        diverged = np.array([any(family.table.diverged(names[row]) for row in pair) for pair in family.pairs], bool)
        outlook = replace(outlook, hopeless=outlook.hopeless | (outlook.undecided & diverged))
        undecided, hopeless = (
            [(names[family.pairs[place][0]], names[family.pairs[place][1]]) for place in np.flatnonzero(which)]
            for which in (outlook.undecided, outlook.hopeless)
        )
        if complete < len(design.looks):
            rows = needed(outlook, np.array(family.pairs, int).reshape(-1, 2))
            # A variant that repeats another stays a repeat only with the same seeds.
            continuing = tuple(name for name in family.table.names if family.table.row(name) in rows)
    return Stages(
        design=design, complete=complete, undecided=tuple(undecided), hopeless=tuple(hopeless), continuing=continuing
    )


def _levels(table: LossTable) -> Float[np.ndarray, " variant"]:
    """Level of each row at the average seed; a constant one belongs to no seed, and its level is its value."""
    # A constant variant has its one value in a single cell, of whatever seed came first. In the additive fit that cell would
    # give the seed an effect that the variant does not feel, and shift all other levels.
    constant = table.constant[:, None]
    levels = fit_levels(table.losses, table.present & ~constant)
    return np.where(constant[:, 0] & table.present.any(axis=1), np.nansum(table.losses, axis=1), levels)


def _rank_intervals(family: ComparisonFamily, looks: Sequence[Look]) -> dict[int, tuple[int, int]]:
    """Best and worst rank of each row that Holm's test over all pairs leaves open, at all looks together."""
    table = family.table
    rows = [row for row in range(len(table.distinct)) if table.present[row].any()]
    # A family of its own at the full level: rank intervals answer another question (where is each variant among all?) than the
    # verdicts (which differ from the references?). Sharing one family would take power from the verdicts by (V - 1) / 2 per
    # reference. So the two statements hold with 95 % each, not together, and the guide says that.
    one, other = np.triu_indices(len(rows), 1)
    pairs = np.stack([np.array(rows, int)[one], np.array(rows, int)[other]], axis=-1)
    if not pairs.size:
        return dict.fromkeys(rows, (1, 1))
    if family.unpaired:
        tests = unpaired_tests(table.losses, table.present, pairs)
        p, difference = tests.p_value, tests.difference
    else:
        # As for verdicts: the smallest p of the procedure over all looks, and the difference of the look that has it. No
        # interval is asked for: of all pairs of hundreds of variants, intervals take most of the time.
        made = looks or (Look.only(len(table.seeds)),)
        at = [
            paired_tests(table.losses, table.present & look.seeds, pairs, np.array(rows), constant=table.constant)
            for look in made
        ]
        each = np.stack([look.p_of_procedure(tests.p_value) for look, tests in zip(made, at, strict=True)])
        first, columns = np.where(np.isnan(each), np.inf, each).argmin(axis=0), np.arange(len(pairs))
        p, difference = each[first, columns], np.stack([tests.difference for tests in at])[first, columns]
    claimed = holm(p, len(pairs)) <= 1 - family.confidence
    lower = difference[claimed] < 0
    winner, loser = (np.where(which, *pairs[claimed].T) for which in (lower, ~lower))
    # Both exceptions leave the ranks of the pair open, although Holm's test claims a difference. What must hold: a rank
    # interval is narrowed only where both variants show their whole spread.
    diverged = np.array([bool(table.diverged(name)) for name in table.distinct])  # only its better seeds were observed
    flat = np.array([table.shows_no_spread(name) for name in table.distinct])
    narrows = ~(diverged[winner] | flat[winner] | flat[loser])
    wins, losses = (np.bincount(side[narrows], minlength=len(table.distinct)) for side in (winner, loser))
    return {row: (1 + int(losses[row]), len(rows) - int(wins[row])) for row in rows}


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """Everything that a row of the ranking is made from."""

    table: LossTable
    family: ComparisonFamily
    references: Sequence[str]
    lines: Sequence[Sequence[str]]
    levels: Float[np.ndarray, " variant"]
    rank_intervals: dict[int, tuple[int, int]]
    added_after_look: frozenset[int]
    in_nats: bool

    def row(self, name: str, versus: dict[str, VariantComparison]) -> VariantRank:
        """Level, spread, rank interval and tier of one variant."""
        table, row = self.table, self.table.row(name)
        present = table.present[row]
        losses, accuracies = table.losses[row][present], table.accuracies[row][present]
        count = losses.size
        mean = float(losses.mean()) if count else None
        sd = float(losses.std(ddof=1)) if count > 1 else None
        interval = None
        if mean is not None and sd is not None and count >= FEWEST_SEEDS:
            half = half_interval(losses, self.family.confidence)
            interval = (mean - half, mean + half)
        reference_tier = Tier(kind="reference", gaps=(), firm=False)
        return VariantRank(
            variant=name,
            seeds=count,
            mean=mean,
            adjusted_mean=float(self.levels[row]) if count else None,
            interval=interval,
            sd=sd,
            residual_sd=self.family.variant_sd(name),
            accuracy=None if not count or np.isnan(accuracies).any() else float(accuracies.mean()),
            perplexity=math.exp(mean) if mean is not None and self.in_nats and mean < _LARGEST_LOG else None,
            tier=reference_tier if name in self.references else tier_of(versus, self.lines),
            rank_interval=self.rank_intervals.get(row),
            versus=versus,
            values=tuple(self._value(run) for run in table.runs[name]),
            same_as=table.same_as.get(name),
            constant=table.is_constant(name),
        )

    def _value(self, run: Result) -> RunValue:
        return RunValue(
            run=run.name,
            seed=run.seed,
            state=run.state,
            loss=run.loss,
            accuracy=run.accuracy,
            counted=(run.variant, run.seed) in self.table.counted,
            reason=run.reason,
            planned=run.planned,
            after_look=run.seed in self.added_after_look,
        )
