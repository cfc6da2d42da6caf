r"""Noise of one run, and the differences that it lets a number of seeds decide.

**Sd of one run.** Within the variants, runs vary by SS_w, the sum of squared deviations from their variant's mean, on N - V
degrees of freedom. Where variants share seeds, the additive model (`noise`) divides it into the residual sum RSS on df_r
degrees of freedom and the seeds' part SS_b = SS_w - RSS on df_b = N - V - df_r. The variance of one run is estimated as
s^2 = SS_w / (N - V) = w_b MS_b + w_r MS_r, with w_i = df_i / (N - V) and MS_i = SS_i / df_i, in the interval of Graybill & Wang

    s^2 - sqrt( sum_i (w_i MS_i G_i)^2 ),      G_i = 1 - df_i / chi^2(0.975; df_i),
    s^2 + sqrt( sum_i (w_i MS_i H_i)^2 ),      H_i = df_i / chi^2(0.025; df_i) - 1,

which is the exact chi^2 interval if there is one part, as without shared seeds. Why two parts: runs of one seed are alike, so
that 20 variants on 3 seeds say as much about the seeds as 2 degrees of freedom do. Why not Satterthwaite's approximation: with
13 variants on 5 seeds its 95 % interval holds the truth in 90 % only.

**Sd of one run beside others of its seed.** sigma = sqrt(RSS / df_r), with the exact chi^2 interval on df_r degrees of freedom:
the noise that is left in a paired comparison. Both are pooled over studies by adding sums of squares and degrees of freedom.

The smallest difference that a number of seeds decides is proportional to the sd (`smallest_difference`), so the ends of the
sd's interval give those of the difference. The number of seeds for a wanted difference is the smallest n, at least three, whose
smallest difference is at most that.

Source: Graybill & Wang 1980, J. Am. Stat. Assoc. 75, 869-873; Scheffé 1959, chapter 7 (variance components).
Differs from the source: sums of squares of unbalanced tables are treated as those of balanced ones. The tests simulate the
coverage; `python benchmarks/noise_of_runs.py` has all of it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtri

from addnorm.errors import InputError
from addnorm.fields import JsonFields
from addnorm.statistics.measure import LOSS, Metric
from addnorm.statistics.noise import EQUAL_VARIANCE_LEVEL, bartlett_p, fit_noise
from addnorm.statistics.noisy_variants import set_apart
from addnorm.statistics.power import POWER, fewest_seeds
from addnorm.statistics.result import FEWEST_SEEDS, Result
from addnorm.statistics.smallest_difference import smallest_difference
from addnorm.statistics.table import LossTable, tabulate
from addnorm.words import Sentence, listed, say

_FAR_NOISIER = 0.002
"""Probability that any of many equally noisy variants is left out: small enough to leave the interval its coverage."""
SEEDS = (3, 4, 5, 6, 8, 10, 15, 20, 30)
"""Numbers of seeds that are shown unless others are asked for."""


@dataclass(frozen=True, kw_only=True)
class Sd:
    """A standard deviation with its interval, in the unit of the metric."""

    sd: float
    low: float
    high: float
    df: float
    """Degrees of freedom that it rests on, by Satterthwaite's formula; they need not be whole."""

    @staticmethod
    def of(parts: Sequence[tuple[float, int]], confidence: float) -> "Sd":
        """The standard deviation of independent sums of squares, each with its degrees of freedom, all added."""
        known = [(squares, df) for squares, df in parts if df]
        number = sum(df for _, df in known)
        variance = sum(squares for squares, _ in known) / number
        below = above = 0.0
        for squares, df in known:
            upper, lower = (float(chdtri(df, tail)) for tail in ((1 - confidence) / 2, (1 + confidence) / 2))
            below += (squares / number * (1 - df / upper)) ** 2
            above += (squares / number * (df / lower - 1)) ** 2
        satterthwaite = (variance * number) ** 2 / sum(squares**2 / df for squares, df in known)
        return Sd(
            sd=math.sqrt(variance),
            low=math.sqrt(variance - math.sqrt(below)),
            high=math.sqrt(variance + math.sqrt(above)),
            df=satterthwaite,
        )

    def to_json(self) -> dict[str, Any]:
        """The numbers as plain JSON values."""
        return {"sd": self.sd, "interval": [self.low, self.high], "df": self.df}


@dataclass(frozen=True, kw_only=True)
class VariantNoise(JsonFields):
    """Spread of one variant's runs."""

    variant: str
    runs: int
    mean: float
    sd: Sd | None
    """None with one run."""


@dataclass(frozen=True, kw_only=True)
class SmallestDifference:
    """Smallest difference that a number of seeds decides; low and high are those of the sd's interval."""

    difference: float
    low: float
    high: float

    def to_json(self) -> dict[str, Any]:
        """The numbers as plain JSON values."""
        return {"difference": self.difference, "interval": [self.low, self.high]}


@dataclass(frozen=True, kw_only=True)
class SeedsForDifference(JsonFields):
    """Seeds per variant that decide a wanted difference; None where a million would not."""

    difference: float
    paired: int | None
    paired_range: tuple[int | None, int | None] | None
    """At the ends of the sd's interval; None without shared seeds."""
    unpaired: int | None
    unpaired_range: tuple[int | None, int | None]


@dataclass(frozen=True, kw_only=True)
class RunNoise:
    """Noise of one run, and what it allows."""

    measure: Metric
    confidence: float
    comparisons: int
    """Variants that are to be compared with one reference."""
    one_run: Sd
    """Standard deviation of one run among runs of its variant, whatever their seeds."""
    paired: Sd | None
    """Standard deviation of one run beside runs of other variants at its seed; None without shared seeds."""
    variants: tuple[VariantNoise, ...]
    seeds: tuple[int, ...]
    warnings: tuple[Sentence, ...] = ()
    differences: tuple[float, ...] = ()

    def __repr__(self) -> str:
        sd = self.one_run
        return f"<Noise of {self.measure.name}: one run {sd.sd:.3g} ({sd.low:.3g} to {sd.high:.3g})>"

    def smallest(self, seeds: int, *, paired: bool) -> SmallestDifference | None:
        """The smallest difference that so many seeds per variant decide; None for pairs without shared seeds."""
        level = self.paired if paired else self.one_run
        if level is None:
            return None
        unit = smallest_difference(seeds, self.comparisons, self.confidence, paired=paired)
        return SmallestDifference(difference=unit * level.sd, low=unit * level.low, high=unit * level.high)

    def needed(self, difference: float) -> SeedsForDifference:
        """Seeds per variant that decide a difference of that size."""
        one, level = self.one_run, self.paired
        return SeedsForDifference(
            difference=difference,
            paired=None if level is None else self._seeds_for(difference / level.sd, paired=True),
            paired_range=None if level is None else self._range(difference, level, paired=True),
            unpaired=self._seeds_for(difference / one.sd, paired=False),
            unpaired_range=self._range(difference, one, paired=False),
        )

    def _range(self, difference: float, level: Sd, *, paired: bool) -> tuple[int | None, int | None]:
        low, high = (self._seeds_for(difference / sd, paired=paired) for sd in (level.low, level.high))
        return low, high

    def _seeds_for(self, difference: float, *, paired: bool) -> int | None:
        return fewest_seeds(
            lambda seeds: smallest_difference(seeds, self.comparisons, self.confidence, paired=paired) <= difference
        )

    def to_json(self) -> dict[str, Any]:
        """The noise as plain JSON values."""
        return {
            "metric": self.measure.name,
            "unit": self.measure.unit,
            "confidence": self.confidence,
            "power": POWER,
            "comparisons": self.comparisons,
            "one_run": self.one_run.to_json(),
            "paired": None if self.paired is None else self.paired.to_json(),
            "variants": [row.to_json() for row in self.variants],
            "smallest": [
                {
                    "seeds": seeds,
                    "paired": None if (size := self.smallest(seeds, paired=True)) is None else size.to_json(),
                    "unpaired": None if (size := self.smallest(seeds, paired=False)) is None else size.to_json(),
                }
                for seeds in self.seeds
            ],
            "needed": [self.needed(difference).to_json() for difference in self.differences],
            "warnings": [str(warning) for warning in self.warnings],
            "notes": [warning.note for warning in self.warnings],
        }


@dataclass(frozen=True)
class _Squares:
    """Sums of squares and degrees of freedom of one table or several."""

    seeds: float = 0.0
    seeds_df: int = 0
    residual: float = 0.0
    residual_df: int = 0

    def __add__(self, other: "_Squares") -> "_Squares":
        return _Squares(
            self.seeds + other.seeds,
            self.seeds_df + other.seeds_df,
            self.residual + other.residual,
            self.residual_df + other.residual_df,
        )

    @property
    def within(self) -> float:
        return self.seeds + self.residual

    @property
    def within_df(self) -> int:
        return self.seeds_df + self.residual_df

    @property
    def parts(self) -> tuple[tuple[float, int], tuple[float, int]]:
        return (self.seeds, self.seeds_df), (self.residual, self.residual_df)


def run_noise(
    studies: Sequence[tuple[str, Sequence[Result]]],
    *,
    measure: Metric = LOSS,
    seeds: Sequence[int] = SEEDS,
    differences: Sequence[float] = (),
    comparisons: int = 1,
    confidence: float = 0.95,
) -> RunNoise:
    """Estimate the noise of one run from finished runs, pooled over studies.

    Args:
        studies: name and runs of each.
        measure: what `loss` holds.
        seeds: numbers of seeds per variant whose smallest differences are wanted.
        differences: wanted differences, positive, in the unit of the metric.
        comparisons: variants that are to be compared with one reference.
        confidence: of every interval by itself, and of the planned comparisons together.

    Raises:
        InputError: no variant with two runs that differ, or a number out of its range.

    Example:
        >>> losses = {"base": (2.50, 2.52, 2.51), "rezero": (2.41, 2.44, 2.42)}
        >>> runs = [Result(variant=v, seed=s, loss=x) for v, row in losses.items() for s, x in enumerate(row)]
        >>> noise = run_noise([("study", runs)])
        >>> round(noise.one_run.sd, 4), round(noise.paired.sd, 4)
        (0.0129, 0.0041)
    """
    _check(seeds, differences, comparisons, confidence)
    tables = [(name, tabulate(results, ())) for name, results in studies]
    total = _Squares()
    rows: list[VariantNoise] = []
    warnings: list[Sentence] = []
    parts: list[tuple[str, _Squares]] = []
    for name, table in tables:
        prefix = f"{name}: " if len(tables) > 1 else ""
        apart = _apart(table)
        part = _squares(table, apart)
        parts.append((name, part))
        total += part
        rows += _variants(table, prefix, confidence)
        warnings += [*table.warnings, *_notes(table, apart)]
    if total.within_df < 1 or total.within <= 0:
        raise InputError(
            f"{', '.join(name for name, _ in studies)}: expected a variant with at least two finished runs that differ, got "
            "none. Run a variant at three seeds or more."
        )
    warnings += _uneven_studies(parts)
    paired = total.residual_df > 0 and total.residual > 0
    return RunNoise(
        measure=measure,
        confidence=confidence,
        comparisons=comparisons,
        one_run=Sd.of(total.parts, confidence),
        paired=Sd.of([(total.residual, total.residual_df)], confidence) if paired else None,
        variants=tuple(rows),
        seeds=tuple(seeds),
        warnings=tuple(dict.fromkeys(warnings)),
        differences=tuple(differences),
    )


def _check(seeds: Sequence[int], differences: Sequence[float], comparisons: int, confidence: float) -> None:
    for number in seeds:
        if number < FEWEST_SEEDS:
            raise InputError(f"seeds: expected at least {FEWEST_SEEDS}, got {number}. Fewer allow no verdict.")
    for difference in differences:
        if not (math.isfinite(difference) and difference > 0):
            raise InputError(f"difference: expected a positive number in the unit of the metric, got {difference}.")
    if comparisons < 1:
        raise InputError(f"comparisons: expected at least 1, got {comparisons}.")
    if not 0.5 < confidence < 1:
        raise InputError(f"confidence: expected a number between 0.5 and 1, got {confidence}. For 95 % give 0.95.")


def _apart(table: LossTable) -> np.ndarray:
    """Rows that take no part: far noisier than the rest, or a constant."""
    return (
        set_apart(table.losses, table.present, level=_FAR_NOISIER) if table.present.any() else np.zeros(0, bool)
    ) | table.constant


def _squares(table: LossTable, apart: np.ndarray) -> _Squares:
    present = table.present & ~apart[:, None]
    if not present.any():
        return _Squares()
    values = np.where(present, table.losses, 0.0)
    number = present.sum(axis=1)
    means = values.sum(axis=1) / np.maximum(number, 1)
    within = float((np.where(present, table.losses - means[:, None], 0.0) ** 2).sum())
    within_df = int((number - 1).clip(min=0).sum())
    if not (present.sum(axis=0) > 1).any():
        # Runs that share no seed hold the seeds' effects and the residual in one sum. As the seeds' part it keeps its degrees
        # of freedom in the interval of one run, and stays out of the noise of paired runs, of which it says nothing.
        return _Squares(within, within_df)
    noise = fit_noise(table.losses, present)
    residual_df = int(noise.df)
    residual = float(noise.sd) ** 2 * residual_df if residual_df else 0.0
    return _Squares(max(within - residual, 0.0), within_df - residual_df, residual, residual_df)


def _variants(table: LossTable, prefix: str, confidence: float) -> list[VariantNoise]:
    rows = []
    for name in table.distinct:
        losses = table.losses[table.row(name)][table.present[table.row(name)]]
        if not losses.size:
            continue
        squares = float(((losses - losses.mean()) ** 2).sum())
        df = losses.size - 1
        sd = Sd.of([(squares, df)], confidence) if df and squares > 0 else None
        rows.append(VariantNoise(variant=prefix + name, runs=losses.size, mean=float(losses.mean()), sd=sd))
    return rows


def _notes(table: LossTable, apart: np.ndarray) -> list[Sentence]:
    sentences = []
    noisy = [name for name, out in zip(table.distinct, apart & ~table.constant, strict=True) if out]
    if noisy:
        sentences.append(say("noise_without", variants=listed("and", noisy)))
    without = {
        "noise_of_survivors": [run for runs in table.runs.values() for run in runs if run.state == "diverged"],
        "noise_of_finished": [
            run for r in table.runs.values() for run in r if run.state not in ("finished", "diverged")
        ],
    }
    for code, runs in without.items():
        lost = [run.variant for run in runs]
        if lost:
            sentences.append(say(code, runs=len(lost), variants=listed("comma", dict.fromkeys(lost))))
    kept = table.present & ~apart[:, None]
    if kept.any():
        noise = fit_noise(table.losses, kept)
        # Residuals where seeds are shared: raw variances hold the same seed effects, and look more equal than they are.
        if np.isfinite(noise.prior_df):
            spread = [(sd, name) for sd, name in zip(noise.variant_sd, table.distinct, strict=True) if sd > 0]
            (least, quiet), (most, noisy_one) = min(spread), max(spread)
            sentences.append(say("noise_uneven", quiet=quiet, least=float(least), noisy=noisy_one, most=float(most)))
    return sentences


def _uneven_studies(parts: Sequence[tuple[str, _Squares]]) -> list[Sentence]:
    known = [(name, part) for name, part in parts if part.within > 0]
    variances = np.array([part.within / part.within_df for _, part in known])
    df = np.array([Sd.of(part.parts, 0.95).df for _, part in known])
    if len(known) < 2 or float(bartlett_p(variances, df)) >= EQUAL_VARIANCE_LEVEL:
        return []
    each = listed(
        "comma",
        (f"{name} {math.sqrt(variance):.2g}" for (name, _), variance in zip(known, variances, strict=True)),
    )
    return [say("noise_differs_between_studies", studies=each)]
