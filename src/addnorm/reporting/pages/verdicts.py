"""The table of verdicts: every variant against every reference, and what would decide what is undecided."""

import re
from dataclasses import dataclass

from addnorm.statistics import Comparison, Ranking, Tier, Value
from addnorm.words import Sentence

_LABELS = (
    ("level", re.compile(r"level with (?P<a>.*)")),
    ("among", re.compile(r"among (?P<a>.*)")),
    ("above", re.compile(r"above (?P<a>.*)")),
    ("below", re.compile(r"below (?P<a>.*)")),
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One comparison, losses in thousandths of a nat."""

    reference: str
    verdict: str
    """A verdict, or `none`."""
    difference: float | None
    interval: tuple[float, float] | None
    seeds: int
    seeds_needed: int | None
    needed_for: str | None
    reason: Sentence | None
    accuracy_disagrees: bool
    box: tuple[float, float, float] | None
    """Where the interval and the difference lie on the shared scale, 0 to 100; None without an interval."""


@dataclass(frozen=True, kw_only=True)
class TierWords:
    """A tier's label, taken apart so that it can be said in any language."""

    key: str
    names: dict[str, str]
    firm: bool
    bounded: bool
    """Whether the tier rules out some gap."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One variant."""

    variant: str
    is_reference: bool
    same_as: str | None
    ranks: tuple[int, int] | None
    seeds: int
    mean: float | None
    reach: float | None
    accuracy: float | None
    tier: TierWords
    cells: tuple[Cell | None, ...]
    """One per reference; None against itself."""
    values: tuple[Value | None, ...]
    """One per seed of the table; None where the variant has no such run."""


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """The whole table."""

    rows: tuple[Row, ...]
    references: tuple[str, ...]
    scale: float
    """Largest end of an interval, in thousandths of a nat: what 0 and 100 of the boxes stand for, below and above zero."""
    margin: float
    """In thousandths of a nat."""
    seeds: tuple[int, ...]


def verdicts(ranking: Ranking) -> Verdicts:
    """The table of a ranking, in its order."""
    ends = [abs(e) for row in ranking.variants for c in row.versus.values() if c.interval for e in c.interval]
    # A diverging variant would squeeze all others onto the zero line, so the scale is that of the middle ones.
    scale = (
        max(1000 * sorted(ends)[int(0.9 * (len(ends) - 1))], 2000 * ranking.margin) if ends else 2000 * ranking.margin
    )
    seeds = tuple(sorted({value.seed for row in ranking.variants for value in row.values}))
    rows = tuple(
        Row(
            variant=row.variant,
            is_reference=row.variant in ranking.references,
            same_as=row.same_as,
            ranks=row.rank_interval,
            seeds=row.seeds,
            mean=row.mean,
            reach=(row.interval[1] - row.interval[0]) / 2 if row.interval else None,
            accuracy=row.accuracy,
            tier=tier_words(row.tier, ranking),
            cells=tuple(
                _cell(reference, row.versus[reference], scale) if reference in row.versus else None
                for reference in ranking.references
            ),
            values=tuple(by_seed.get(seed) for seed in seeds),
        )
        for row in ranking.variants
        for by_seed in [{value.seed: value for value in row.values}]
    )
    return Verdicts(
        rows=rows,
        references=ranking.references,
        scale=scale,
        margin=1000 * ranking.margin,
        seeds=seeds,
    )


def tier_words(tier: Tier, ranking: Ranking) -> TierWords:
    """The tier's label as a phrase's key and the names to fill in."""
    bounded = tier.label.startswith(("above", "between", "below"))
    for key, pattern in _LABELS:
        if (matched := pattern.fullmatch(tier.label)) is not None:
            return TierWords(key=key, names=matched.groupdict(), firm=tier.firm, bounded=bounded)
    if tier.label.startswith("between ") and tier.gaps:
        lines = [" / ".join(line) for line in ranking.lines]
        names = {"a": lines[tier.gaps[0] - 1], "b": lines[tier.gaps[-1]]}
        return TierWords(key="between", names=names, firm=tier.firm, bounded=True)
    return TierWords(key=tier.label, names={}, firm=tier.firm, bounded=bounded)


def _cell(reference: str, comparison: Comparison, scale: float) -> Cell:
    interval = comparison.interval
    thousandths = None if interval is None else (1000 * interval[0], 1000 * interval[1])
    difference = None if comparison.difference is None else 1000 * comparison.difference
    box = None
    if thousandths is not None and difference is not None:
        box = tuple(max(0.0, min(100.0, 50 + 50 * end / scale)) for end in (*thousandths, difference))
    return Cell(
        reference=reference,
        verdict=comparison.verdict or "none",
        difference=difference,
        interval=thousandths,
        seeds=comparison.seeds,
        seeds_needed=comparison.seeds_needed,
        needed_for=comparison.seeds_needed_for,
        reason=comparison.reason,
        accuracy_disagrees=comparison.accuracy_agrees is False and comparison.verdict in ("better", "worse"),
        box=box if box is None else (box[0], box[1], box[2]),
    )
