r"""Runs that got stuck: a variant whose losses fall into two groups far apart, such as runs that never leave a plateau.

Every t test fails there. With one model that gets stuck in a tenth of its runs, five seeds of it show none in 59 % of the
studies: its mean is then too good by a tenth of the gap, its spread says nothing of it, and 36 to 49 % of studies make a false
claim. No number of the study can correct what it has not seen. Where a stuck run is seen, it is said.

**Groups.** For variant v, let b_s be the median over the other variants u of y(u, s) - median over seeds of y(u, .), the
seed's effect as the others feel it, and r_s = y(v, s) - b_s. The sorted r_s are divided at their largest gap g. With w the
standard deviation within the two groups (n - 2 degrees of freedom) and sigma_o^2 the median of the other variants' variances,
over that of chi^2 per degree of freedom,

    g > 6 max(w, sigma_o)      and, with w > 2 sigma_o, also      g > t(0.9995; n - 2) w

and g > margin calls the upper group stuck. The most significant variant goes first; its upper group is then left out of
everybody's b_s, since its gap is in the seed effects of the others. Of two variants, a gap in their difference belongs to the
one whose own losses have it.

**Groups that several variants have.** Where most variants solve a task in some of their runs, sigma_o is as large as the gap,
and nothing is found so. A variant that the first rule did not name is therefore divided by its own losses y(v, .) alone:

    g > k_n w        k_n: 6 from 12 runs on, up to 128 for 4, which 0.05 % of normal samples exceed

unless the others' b_s differ between its two groups by half as much as its own losses: such seeds are hard for everybody, and
the paired differences do not feel them.

Why medians: one stuck run must not move the seed's effect, or shift every other variant at that seed. Why a second condition: a
noisy variant with few seeds has large gaps by chance, and its own spread has n - 2 degrees of freedom. With three runs, a noisy
variant and a stuck run cannot be told apart, and nothing is said.

Source: none; the rule is this project's. `benchmarks/instrument.py stuck` simulates how often it warns.
Differs from the source: nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import betaincinv, chdtri, stdtrit

from addnorm.statistics.table import LossTable

TIMES = 6.0
"""Gap between the groups, in standard deviations, that is called two groups."""
_FEWEST = 4
"""Runs of a variant below which a noisy one cannot be told from one that got stuck."""
_UNEVEN = 2.0
_TAIL = 0.9995
_OWN_TIMES = {4: 128.0, 5: 40.0, 6: 21.0, 7: 14.3, 8: 10.8, 9: 8.9, 10: 7.6, 11: 6.8}
"""By the number of runs, what the ratio of g and w exceeds in 0.05 % of two million normal samples; `TIMES` from 12 runs on."""


@dataclass(frozen=True, kw_only=True)
class StuckRuns:
    """The runs of one variant that ended far above its others."""

    variant: str
    seeds: tuple[int, ...]
    """Seeds at which it got stuck."""
    runs: int
    """Runs of the variant that count."""
    gap: float
    """Distance between the lowest stuck run and the highest other one, in nats per token."""
    unstuck: Mapping[str, float] = field(default_factory=dict)
    """Mean difference from each reference over the seeds at which neither got stuck."""

    @property
    def share(self) -> tuple[float, float, float]:
        """Share of stuck runs, and the ends of its 95 % Clopper-Pearson interval."""
        stuck, runs = len(self.seeds), self.runs
        low = float(betaincinv(stuck, runs - stuck + 1, 0.025))
        high = float(betaincinv(stuck + 1, runs - stuck, 0.975)) if stuck < runs else 1.0
        return stuck / runs, low, high

    def mirrored(self) -> "StuckRuns":
        """The same with every difference negated."""
        return replace(self, unstuck={name: 0.0 - difference for name, difference in self.unstuck.items()})

    def to_json(self) -> dict[str, Any]:
        """The runs as plain JSON values."""
        share, low, high = self.share
        return {
            "variant": self.variant,
            "seeds": list(self.seeds),
            "runs": self.runs,
            "gap": self.gap,
            "share": share,
            "share_interval": [low, high],
            "unstuck": dict(self.unstuck),
        }


def stuck_cells(
    values: Float[np.ndarray, "variant seed"], present: Bool[np.ndarray, "variant seed"], least: float = 0.0
) -> tuple[Bool[np.ndarray, "variant seed"], Float[np.ndarray, " variant"]]:
    """Find the runs of each variant that lie far above its others.

    Args:
        values: losses; entries outside `present` are ignored.
        present: which trained variant has a counted run at which seed.
        least: smallest gap that counts: among near-copies, six standard deviations may be nothing.

    Returns:
        The stuck runs, and the gap of each variant that has some; 0 elsewhere.
    """
    stuck, gaps = np.zeros(present.shape, bool), np.zeros(len(present))
    tested = np.flatnonzero(present.sum(axis=-1) >= _FEWEST)
    if tested.size < 2:
        return stuck, gaps
    # At most as many steps as there are variants: each step takes one out.
    while True:
        known = np.where(present & ~stuck, values, np.nan)[tested]
        centred = known - np.nanmedian(known, axis=-1, keepdims=True)
        effects, shared = _effects_without_each(centred)
        best, members, gap = 1.0, np.zeros(0, int), 0.0
        chosen = -1
        for place in np.flatnonzero(gaps[tested] == 0).tolist():
            columns = np.flatnonzero(~np.isnan(known[place]) & shared[place])
            excess, upper, distance = _division(
                centred, place, known[place] - effects[place], effects[place], columns, best
            )
            if excess > best and distance > least:
                best, members, gap, chosen = excess, upper, distance, int(tested[place])
        if chosen < 0:
            break
        stuck[chosen, members] = True
        gaps[chosen] = gap
    # Not in the loop: what leaves no trace in the others' spread has no part in their seed effects either.
    groups, distances = _groups_of_own(np.where(present, values, np.nan)[tested])
    unnamed = (gaps[tested] == 0) & (distances > least)
    stuck[tested[unnamed]] = groups[unnamed]
    gaps[tested[unnamed]] = distances[unnamed]
    return stuck, gaps


def _groups_of_own(
    losses: Float[np.ndarray, "variant seed"],
) -> tuple[Bool[np.ndarray, "variant seed"], Float[np.ndarray, " variant"]]:
    """The upper group of each variant whose own losses fall into two, and the gap; none and 0 elsewhere. NaN: no run."""
    runs = (~np.isnan(losses)).sum(axis=-1)
    ordered = np.sort(losses, axis=-1)  # missing ones are last
    steps = np.nan_to_num(np.diff(ordered, axis=-1), nan=-1.0)
    last = steps.argmax(axis=-1)[:, None]  # of the lower group
    gaps = np.take_along_axis(steps, last, axis=-1)[:, 0]
    upper = losses > np.take_along_axis(ordered, last, axis=-1)
    lower = ~upper & ~np.isnan(losses)
    squares = np.zeros(len(losses))
    for group in (lower, upper):
        mean = np.where(group, losses, 0).sum(axis=-1) / np.maximum(group.sum(axis=-1), 1)
        squares += np.where(group, (losses - mean[:, None]) ** 2, 0).sum(axis=-1)
    within = np.sqrt(squares / np.maximum(runs - 2, 1))
    needed = np.array([_OWN_TIMES.get(number, TIMES) for number in runs.tolist()]) * within
    effects, shared = _effects_without_each(losses - np.nanmedian(losses, axis=-1, keepdims=True))
    shared &= ~np.isnan(losses)

    def between(of: np.ndarray, counted: np.ndarray) -> np.ndarray:
        sides = [
            np.where(group & counted, of, 0).sum(-1) / np.maximum((group & counted).sum(-1), 1)
            for group in (upper, lower)
        ]
        return sides[0] - sides[1]

    alone = between(effects, shared) < between(losses, ~np.isnan(losses)) / 2
    two = (gaps > needed) & (within > 0) & alone & upper.any(axis=-1)  # losses of two decimals are often equal
    return upper & two[:, None], np.where(two, gaps, 0.0)


# The median without row v is read off the sorted column: one sort for all rows, where a median for each is quadratic.
def _effects_without_each(
    centred: Float[np.ndarray, "variant seed"],
) -> tuple[Float[np.ndarray, "variant seed"], Bool[np.ndarray, "variant seed"]]:
    """Median of each column over all other rows, 0 where they have none, and where they have one."""
    own = ~np.isnan(centred)
    others = own.sum(axis=0) - own
    order = np.argsort(centred, axis=0, kind="stable")
    rank = np.argsort(order, axis=0, kind="stable")  # a row without the cell is behind all that have it
    middle = [(np.maximum(others - 1, 0)) // 2, others // 2]
    values = np.take_along_axis(centred, order, axis=0)
    lower, upper = (np.take_along_axis(values, np.minimum(at + (at >= rank), len(values) - 1), axis=0) for at in middle)
    return np.where(others > 0, (lower + upper) / 2, 0.0), others > 0


def _division(
    centred: np.ndarray, place: int, own: np.ndarray, effect: np.ndarray, columns: np.ndarray, best: float
) -> tuple[float, np.ndarray, float]:
    """By how many times the largest gap exceeds what is allowed, the columns of the upper group, and the gap.

    0 where the first is at most `best`.
    """
    nothing = (0.0, np.zeros(0, int), 0.0)
    if columns.size < _FEWEST:
        return nothing
    columns = columns[np.argsort(own[columns], kind="stable")]
    residual = own[columns]
    steps = np.diff(residual)
    division = int(steps.argmax()) + 1
    lower, upper = residual[:division], residual[division:]
    if len(centred) == 2:
        # The difference of two is the same gap in both: it belongs to the one whose own losses have it.
        shift = effect[columns[division:]].mean() - effect[columns[:division]].mean()
        if abs(shift + upper.mean() - lower.mean()) <= abs(shift):
            return nothing
    within_df = residual.size - 2
    within = float(np.sqrt((lower.var() * lower.size + upper.var() * upper.size) / within_df))
    gap = float(steps[division - 1])
    if gap <= best * TIMES * within:  # whatever the others' spread, which takes the longest
        return nothing
    # Of one other variant nothing is left, and the groups' own spread is all there is.
    sigma = _typical_sd(np.delete(centred, place, axis=0) - effect) if len(centred) > 2 else 0.0
    needed = TIMES * max(within, sigma)
    if within > _UNEVEN * sigma:
        needed = max(needed, float(stdtrit(within_df, _TAIL)) * within)
    return (gap / needed if needed > 0 else 0.0), columns[division:], gap


def _typical_sd(residuals: np.ndarray) -> float:
    """Standard deviation of a typical variant, which neither a noisy nor a stuck one moves."""
    df = np.maximum((~np.isnan(residuals)).sum(axis=-1) - 1, 1)
    with np.errstate(invalid="ignore"):
        squares = np.nansum((residuals - np.nanmean(residuals, axis=-1, keepdims=True)) ** 2, axis=-1)
    return float(np.sqrt(np.median(squares / chdtri(df, 0.5))))


def stuck_runs(table: LossTable, references: tuple[str, ...], margin: float) -> tuple[StuckRuns, ...]:
    """The variants of a table some of whose runs got stuck, with their differences on the seeds that did not.

    Args:
        table: the losses.
        references: variants that the others are compared with.
        margin: largest difference that counts as none; a smaller gap is none either.
    """
    trained = table.present & ~table.constant[:, None]
    stuck, gaps = stuck_cells(table.losses, trained, margin)
    records = []
    for row in np.flatnonzero(gaps > 0):
        name = table.distinct[row]
        unstuck = {}
        for other in references:
            column = table.row(other)
            both = trained[row] & trained[column] & ~stuck[row] & ~stuck[column]
            if column != row and both.any():
                unstuck[other] = float((table.losses[row] - table.losses[column])[both].mean())
        records.append(
            StuckRuns(
                variant=name,
                seeds=tuple(table.seeds[place] for place in np.flatnonzero(stuck[row])),
                runs=int(trained[row].sum()),
                gap=float(gaps[row]),
                unstuck=unstuck,
            )
        )
    return tuple(records)
