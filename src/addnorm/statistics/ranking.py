"""The ranking as frozen dataclasses and as JSON, and the tiers that its verdicts allow.

**Tiers.** The references, best first, are lines. Neighbouring references without a claimed difference share a line, because
nothing can lie between two levels that may be the same. k lines leave k + 1 gaps. A verdict of better than a reference excludes
the gaps below its line, worse excludes those above it, and undecided excludes nothing. A variant that is equivalent to a
reference lies at that line: the gaps on both sides remain, and the label says "level with".
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from addnorm.fields import JsonFields
from addnorm.statistics.measure import LOSS, Metric
from addnorm.statistics.pairs.comparison import Interval, VariantComparison, ends, negated, swapped
from addnorm.statistics.seeds_in_stages import Stages
from addnorm.statistics.stuck_runs import StuckRuns
from addnorm.statistics.tuning import TuningOutcome
from addnorm.words import Sentence

RESOLVABLE_SEEDS = 100
"""Seeds per variant beyond which texts call a comparison not resolvable."""


TierKind = Literal["above", "between", "below", "level", "among", "open", "reference", "failed"]
_LABELS = {
    "above": "above {}",
    "between": "between {} and {}",
    "below": "below {}",
    "level": "level with {}",
    "among": "among {}",
}


@dataclass(frozen=True, kw_only=True)
class Tier:
    """The gaps between the references that a variant's verdicts allow."""

    kind: TierKind
    gaps: tuple[int, ...]
    """Allowed gaps: 0 is better than every line, k lies between line k-1 and line k, the last is worse than all."""
    firm: bool
    """True if exactly one gap remains."""
    names: tuple[str, ...] = ()
    """The line, or the two, that the kind speaks of; of several references joined by a slash."""

    @property
    def label(self) -> str:
        """Text: "between v2m3 and base", "level with base", "open", "reference", "failed"."""
        return _LABELS.get(self.kind, self.kind).format(*self.names)

    @property
    def is_bounded(self) -> bool:
        """True if the tier excludes some gap."""
        return self.kind in ("above", "between", "below")

    def to_json(self) -> dict[str, Any]:
        """The tier as plain JSON values."""
        return {"label": self.label, "gaps": list(self.gaps), "firm": self.firm}


@dataclass(frozen=True, kw_only=True)
class RunValue(JsonFields):
    """One run of a variant in the ranking."""

    run: str
    seed: int
    state: str
    loss: float | None
    accuracy: float | None
    counted: bool
    """False for a run that has not finished, or that repeats another."""
    reason: str | None
    planned: bool = True
    """False for a run that was added to the first plan."""
    after_look: bool = False
    """True for a run that was added after results had been seen."""


@dataclass(frozen=True, kw_only=True)
class VariantRank:
    """One row of the ranking."""

    variant: str
    seeds: int
    """Number of runs that count."""
    mean: float | None
    """Mean loss over the counted runs, in nats per token."""
    adjusted_mean: float | None
    """Mean adjusted to the average seed; equal to `mean` if no run is missing, or if too few seeds are shared to adjust.
    Rows are in this order."""
    interval: Interval | None
    """Interval of the mean of this variant alone, including the seed effect. For comparisons use `versus`."""
    sd: float | None
    """Standard deviation over seeds, including the seed effect."""
    residual_sd: float | None
    """Standard deviation over seeds without the seed effect that all variants share."""
    accuracy: float | None
    """Mean accuracy; None if a counted run has none."""
    perplexity: float | None
    """exp(mean)."""
    tier: Tier
    rank_interval: tuple[int, int] | None
    """Best and worst rank that the comparisons of all pairs leave open, 1 the best; None without a counted run."""
    versus: Mapping[str, VariantComparison]
    values: tuple[RunValue, ...]
    same_as: str | None = None
    """The variant that this one repeats bit for bit."""
    constant: bool = False
    """True for a model that was evaluated without training: one value, which no seed changes."""

    def __repr__(self) -> str:
        """One line; all numbers are in `to_json`."""
        mean = "no result" if self.mean is None else f"mean {self.mean:.6g}"
        against = "".join(f", {each.verdict or 'no verdict'} against {name}" for name, each in self.versus.items())
        return f"<{self.variant}: {mean} of {self.seeds} seeds{against}>"

    def mirrored(self) -> "VariantRank":
        """The row with every number of the measure negated."""
        return replace(
            self,
            mean=negated(self.mean),
            adjusted_mean=negated(self.adjusted_mean),
            interval=swapped(self.interval),
            versus={name: comparison.mirrored() for name, comparison in self.versus.items()},
            values=tuple(replace(value, loss=negated(value.loss)) for value in self.values),
        )

    def to_json(self) -> dict[str, Any]:
        """The row as plain JSON values."""
        return {
            "variant": self.variant,
            "seeds": self.seeds,
            "mean": self.mean,
            "interval": ends(self.interval),
            "accuracy": self.accuracy,
            "tier": self.tier.to_json(),
            "rank_interval": None if self.rank_interval is None else list(self.rank_interval),
            "versus": {name: comparison.to_json() for name, comparison in self.versus.items()},
            "adjusted_mean": self.adjusted_mean,
            "sd": self.sd,
            "residual_sd": self.residual_sd,
            "perplexity": self.perplexity,
            "same_as": self.same_as,
            "values": [value.to_json() for value in self.values],
        }


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Variants from lowest to highest loss, with the verdicts that the runs support."""

    metric: str
    """Name of what is compared, such as `loss`. Its unit is `measure.unit`, nats per token of a loss."""
    margin: float
    """Largest difference that counts as none."""
    confidence: float
    provisional: bool
    """True while a run, of the plan or added to it, has not ended."""
    references: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    """References from best to worst; those without a claimed difference share a line."""
    variants: tuple[VariantRank, ...]
    warnings: tuple[Sentence, ...]
    family: int
    """Number of comparisons that share the error rate."""
    noise_sd: float | None
    """Pooled residual standard deviation of one run of the variants that are not `set_apart`, in nats; None without a residual
    degree of freedom."""
    noise_df: int
    """Its degrees of freedom."""
    noise_even: bool
    """True if Bartlett's test does not reject equal variances."""
    noisy_references: tuple[str, ...]
    """References that are significantly noisier than the other variants; comparisons with them use their own noise."""
    set_apart: tuple[str, ...]
    """Variants whose noise is far above the rest. Comparisons with them use their own noise, and no other does."""
    assumed_sd: float | None
    """Standard deviation of one run from another source; used for `seeds_needed` alone, never for a verdict."""
    added_after_look: tuple[int, ...]
    """Seeds that were added after results had been seen."""
    stages: Stages | None = None
    """Progress of a study that adds seeds in stages; None if all seeds were fixed beforehand."""
    tuning: TuningOutcome | None = None
    """Choice of the points at which variants are compared; None for a study without `tune`."""
    measure: Metric = LOSS
    """Unit of all numbers here, and whether lower or higher is better."""
    seeds_differ: tuple[str, ...] = ()
    """References on which seeds act in another way than on the other variants; comparisons with them rest on that."""
    pairs: tuple[tuple[str, str], ...] | None = None
    """The (variant, reference) that are compared; None for every variant with every reference."""
    second: tuple[int, ...] = ()
    """Seeds of the second batch, on which found comparisons are tested again; empty if none is planned."""
    unplanned: tuple[str, ...] = ()
    """Ways in which the comparisons are not those that were planned: `left_out`, `references`, `margin`, `added_after_look`,
    `plan` where `study.json` was edited, and `unfinished` while runs have not ended."""
    stuck: tuple[StuckRuns, ...] = ()
    """Variants some of whose runs ended far above their others."""
    unpaired: bool = False
    """True if the variants share no seeds: groups of runs are compared, and the seeds' effects are part of the noise."""

    others: tuple["Ranking", ...] = ()
    """Rankings by the other metrics of the same runs, in the order in which they were named."""
    together: bool = False
    """True if all metrics share one error rate; else each has its own, and this one decides."""

    def __getitem__(self, variant: str) -> VariantRank:
        """The row of that variant.

        Raises:
            KeyError: no such variant.
        """
        return {row.variant: row for row in self.variants}[variant]

    def __repr__(self) -> str:
        """One line; `print` of what `addnorm.rank` returns shows the tables, and `to_json` has all numbers."""
        rows = [(row, each) for row in self.variants for each in row.versus.values()]
        counts = Counter(each.verdict or "no verdict" for row, each in rows if row.variant not in self.references)
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()) or "nothing to compare"
        others = "".join(f", {of.measure.name}" for of in self.others)
        against = f" against {', '.join(self.references)}" if self.references else ""
        state = "; provisional" if self.provisional else ""
        return f"<Ranking of {len(self.variants)} variants{against} by {self.measure.name}{others}: {verdicts}{state}>"

    @cached_property
    def comparisons(self) -> tuple[tuple[str, str, VariantComparison], ...]:
        """Every comparison once, as variant, reference and comparison; of two references, from the side of the better one."""
        seen: dict[frozenset[str], tuple[str, str, VariantComparison]] = {}
        for row in self.variants:
            for other, comparison in row.versus.items():
                seen.setdefault(frozenset((row.variant, other)), (row.variant, other, comparison))
        return tuple(seen.values())

    @property
    def family_changed(self) -> bool:
        """True if the verdicts are those of another family than the planned one; the stated error rates need not hold then."""
        return any(code != "unfinished" for code in self.unplanned)

    def mirrored(self) -> "Ranking":
        """The ranking of negated numbers, back in the numbers as they were: every level, difference and interval negated."""
        stuck = tuple(of.mirrored() for of in self.stuck)
        return replace(self, variants=tuple(row.mirrored() for row in self.variants), stuck=stuck)

    def to_json(self) -> dict[str, Any]:
        """The ranking as plain JSON values; every number is finite. Without `unit` and `better`, it is a loss in nats."""
        return {
            "metric": self.metric,
            "margin": self.margin,
            "provisional": self.provisional,
            "references": list(self.references),
            "variants": [row.to_json() for row in self.variants],
            "warnings": [str(warning) for warning in self.warnings],
            "notes": [warning.note for warning in self.warnings],
            "confidence": self.confidence,
            "lines": [list(line) for line in self.lines],
            "family": self.family,
            "noise": {
                "sd": self.noise_sd,
                "df": self.noise_df,
                "even": self.noise_even,
                "noisy_references": list(self.noisy_references),
                "set_apart": list(self.set_apart),
                **({"seeds_differ": list(self.seeds_differ)} if self.seeds_differ else {}),
                "assumed_sd": self.assumed_sd,
            },
            "added_after_look": list(self.added_after_look),
            "stages": None if self.stages is None else self.stages.to_json(),
            "tuning": None if self.tuning is None else self.tuning.to_json(),
            "unplanned": list(self.unplanned),
            **({} if self.pairs is None else {"pairs": [list(pair) for pair in self.pairs]}),
            **({"second": list(self.second)} if self.second else {}),
            **({"stuck": [of.to_json() for of in self.stuck]} if self.stuck else {}),
            **({"unpaired": True} if self.unpaired else {}),
            **({"others": [of.to_json() for of in self.others], "together": self.together} if self.others else {}),
            **({} if self.measure == LOSS else {"unit": self.measure.unit, "better": self.measure.better}),
        }


def reference_lines(ordered: Sequence[str], differ: Callable[[str, str], bool]) -> tuple[tuple[str, ...], ...]:
    """Divide the references, best first, wherever every one above differs from every one below.

    Args:
        ordered: references from lowest to highest loss.
        differ: tells if the difference of two references is claimed.

    Example:
        >>> reference_lines(["a", "b", "c"], lambda one, two: two == "c")
        (('a', 'b'), ('c',))
    """
    lines: list[list[str]] = []
    for position, name in enumerate(ordered):
        divided = all(differ(upper, lower) for upper in ordered[:position] for lower in ordered[position:])
        if position == 0 or divided:
            lines.append([])
        lines[-1].append(name)
    return tuple(tuple(line) for line in lines)


def tier_of(versus: Mapping[str, VariantComparison], lines: Sequence[Sequence[str]]) -> Tier:
    """The gaps that the verdicts allow.

    Args:
        versus: verdicts against each reference.
        lines: references from best to worst, as `reference_lines` returns them.
    """
    verdicts = {name: comparison.verdict for name, comparison in versus.items()}
    if verdicts and all(verdict == "failed" for verdict in verdicts.values()):
        return Tier(kind="failed", gaps=(), firm=False)
    if not lines:
        return Tier(kind="open", gaps=(0,), firm=False)
    first, last = 0, len(lines)
    level: list[str] = []
    for index, line in enumerate(lines):
        at_line = {verdicts.get(name) for name in line}
        if "worse" in at_line:
            first = max(first, index + 1)
        if "better" in at_line:
            last = min(last, index)
        if "equivalent" in at_line:
            first, last = max(first, index), min(last, index + 1)
            level += [name for name in line if verdicts.get(name) == "equivalent"]
    gaps = tuple(range(first, last + 1))
    kind, names = _about(lines, level, first, last, verdicts)
    return Tier(kind=kind, names=names, gaps=gaps, firm=len(gaps) == 1 and not level)


def _about(
    lines: Sequence[Sequence[str]], level: Sequence[str], first: int, last: int, compared: Collection[str]
) -> tuple[TierKind, tuple[str, ...]]:
    # References that share a line although the variant was compared with some of them alone: those are named.
    names = [" / ".join([name for name in line if name in compared] or line) for line in lines]
    if level:
        return "level", (" / ".join(level),)
    if first > last:  # better than a reference of this line and worse than another
        return "among", (names[last],)
    if (first, last) == (0, len(lines)):
        return "open", ()
    if first == 0:
        return "above", (names[last],)
    if last == len(lines):
        return "below", (names[first - 1],)
    return "between", (names[first - 1], names[last])
