r"""Tuning: the value at which each variant is compared, chosen on runs that take no part in the comparison.

Every **point** (a variant with one value on each axis) has one run for each tuning seed. The chosen point of a variant has the
lowest mean loss among its points with the most finished runs; of equals the first. What follows from the choice does not enter
the verdicts: these rest on fresh seeds alone, for which the choice is a constant.

Two descriptions say what the choice rests on. They are no verdicts.

- The optimum is **at the edge** of an axis of numbers if the chosen value is its smallest or largest.
- A point is **as good** as the chosen one within noise unless its mean loss is higher by more than

      c max( sigma sqrt(2 / n),  sd(differences) / sqrt(n) ),       c = t(1 - alpha / (points - 1)),

  over n tuning seeds, with alpha = 5 % and sigma the residual standard deviation of all points of all variants around point and
  seed effects (`noise`). A point whose noise is far above the rest (`noisy_variants`), or that lost a run, is not as good. The
  optimum is **flat** if every point is as good as the chosen one. With one tuning seed nothing is known of either.

Between the points: where one axis of positive numbers was tuned and the chosen value is not at its end, a parabola in
log2(value) through the mean losses of the chosen point and its two neighbours has its minimum at -b / 2c. The interval is
Fieller's, the set of theta at which b + 2 c theta is not told from zero, with sigma and its degrees of freedom as above. Where
the curvature is not told from zero, the set is unbounded and there is none. Higher terms of the true curve are in no interval.
Source: Fieller 1954, "Some problems in interval estimation", https://en.wikipedia.org/wiki/Fieller%27s_theorem (the set).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import stdtrit

from addnorm.fields import JsonFields
from addnorm.statistics.noise import fit_noise
from addnorm.statistics.noisy_variants import set_apart
from addnorm.statistics.result import Result
from addnorm.words import Sentence, listed, say

ALPHA = 0.05
"""Probability that a point as good as the chosen one is called worse, per variant."""

Values = Mapping[str, Any]
"""Values of a point by the path of the field."""


@dataclass(frozen=True, kw_only=True)
class TunedPoint:
    """One point of a variant."""

    name: str
    values: Values
    runs: tuple[Result, ...]
    """Its tuning runs, by seed."""
    as_good: bool | None = None
    """True if it is as good as the chosen point within noise; None if nothing is known of the noise, or before the choice."""

    @property
    def losses(self) -> tuple[float, ...]:
        """Losses of the finished runs, in nats per token."""
        return tuple(run.loss for run in self.runs if run.loss is not None)

    @property
    def mean(self) -> float | None:
        """Mean loss of the finished runs; None without one."""
        return sum(self.losses) / len(self.losses) if self.losses else None

    def to_json(self) -> dict[str, Any]:
        """The point as plain JSON values."""
        return {
            "point": self.name,
            "values": dict(self.values),
            "mean": self.mean,
            "as_good": self.as_good,
            "runs": [
                {"run": run.run, "seed": run.seed, "state": run.state, "loss": run.loss, "reason": run.reason}
                for run in self.runs
            ],
        }


@dataclass(frozen=True, kw_only=True)
class Edge:
    """An axis at whose end the chosen value is."""

    path: str
    value: float
    end: Literal["lowest", "highest"]


@dataclass(frozen=True, kw_only=True)
class FittedOptimum(JsonFields):
    """Minimum of the parabola through a chosen value and its neighbours."""

    path: str
    best: float
    interval: tuple[float, float] | None
    """95 % interval; None where the curvature is not told from zero, or the noise is not known."""


@dataclass(frozen=True, kw_only=True)
class TunedVariant:
    """The points of one variant, and the choice among them."""

    variant: str
    points: tuple[TunedPoint, ...]
    chosen: str | None
    """Name of the chosen point; None until every tuning run of the variant has ended."""
    curve: FittedOptimum | None = None
    """Best value between the points; None at the end of an axis, with several axes, or with others than positive numbers."""

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The axes at whose ends the chosen values are."""
        edges = []
        for path, value in self._values(self.chosen).items():
            numbers = [point.values[path] for point in self.points]
            if any(isinstance(number, bool) or not isinstance(number, int | float) for number in numbers):
                continue
            if value in (min(numbers), max(numbers)) and min(numbers) < max(numbers):
                edges.append(Edge(path=path, value=value, end="lowest" if value == min(numbers) else "highest"))
        return tuple(edges)

    @property
    def flat(self) -> bool | None:
        """True if every point is as good as the chosen one within noise; None if that is not known."""
        known = [point.as_good for point in self.points if point.name != self.chosen]
        if self.chosen is None or None in known:
            return None
        return all(known)

    def short(self, point: str) -> str:
        """A point's name without the variant's: `learning_rate 3e-3`."""
        return point.removeprefix(f"{self.variant}, ")

    def _values(self, name: str | None) -> Values:
        return next((point.values for point in self.points if point.name == name), {})

    def to_json(self) -> dict[str, Any]:
        """The variant as plain JSON values."""
        return {
            "variant": self.variant,
            "chosen": self.chosen,
            "values": dict(self._values(self.chosen)),
            "edges": [vars(edge) for edge in self.edges],
            "flat": self.flat,
            "points": [point.to_json() for point in self.points],
            "notes": [str(note) for note in self.notes],
            **({"curve": self.curve.to_json()} if self.curve is not None else {}),
        }

    @property
    def notes(self) -> tuple[Sentence, ...]:
        """Limits of the choice, one sentence each."""
        sentences = [
            say(f"tuning_{edge.end}", variant=self.variant, field=edge.path, value=f"{edge.value:g}")
            for edge in self.edges
        ]
        if self.flat:
            sentences.append(say("tuning_flat", variant=self.variant, points=len(self.points)))
        lost = [
            self.short(point.name) for point in self.points if any(run.ended and run.loss is None for run in point.runs)
        ]
        if lost:
            sentences.append(say("tuning_lost", variant=self.variant, points=listed("semicolon", lost)))
        return tuple(sentences)


@dataclass(frozen=True, kw_only=True)
class TuningOutcome:
    """Tuning of a study's variants."""

    seeds: tuple[int, ...]
    """Tuning seeds, which take no part in the comparison."""
    variants: tuple[TunedVariant, ...]
    noise_sd: float | None
    """Residual standard deviation of one tuning run, in nats; None with one tuning seed."""

    @property
    def runs(self) -> tuple[Result, ...]:
        """Every tuning run."""
        return tuple(run for variant in self.variants for point in variant.points for run in point.runs)

    @property
    def is_complete(self) -> bool:
        """True once every tuning run has ended."""
        return all(run.ended for run in self.runs)

    @property
    def notes(self) -> tuple[Sentence, ...]:
        """Limits of the choices, one sentence each."""
        return tuple(note for variant in self.variants for note in variant.notes)

    def to_json(self) -> dict[str, Any]:
        """The tuning as plain JSON values."""
        return {
            "seeds": list(self.seeds),
            "complete": self.is_complete,
            "noise_sd": self.noise_sd,
            "variants": [variant.to_json() for variant in self.variants],
        }


def tuning_outcome(
    results: Sequence[Result],
    points: Mapping[str, Mapping[str, Values]],
    seeds: Sequence[int],
    chosen: Mapping[str, str] | None = None,
) -> TuningOutcome:
    """Choose a point for every variant whose tuning runs have ended.

    Args:
        results: the tuning runs; their variants are the points.
        points: the values of every point, by variant and name of the point.
        seeds: the tuning seeds.
        chosen: choices that were made before, by variant; they stand.

    Example:
        >>> losses = {"base, rate 1": 2.5, "base, rate 2": 2.4, "base, rate 3": 2.6}
        >>> results = [Result(variant=name, seed=100, loss=loss) for name, loss in losses.items()]
        >>> points = {"base": {name: {"rate": float(name[-1])} for name in losses}}
        >>> base, = tuning_outcome(results, points, [100]).variants
        >>> base.chosen, base.edges
        ('base, rate 2', ())
    """
    by_point = {name: [result for result in results if result.variant == name] for of in points.values() for name in of}
    noise = _Noise.of(by_point, tuple(seeds))
    variants = []
    for variant, of in points.items():
        judged = [
            TunedPoint(name=name, values=values, runs=tuple(sorted(by_point[name], key=lambda run: run.seed)))
            for name, values in of.items()
        ]
        best = (chosen or {}).get(variant) or _best(judged)
        if best is not None:
            judged = [noise.judged(point, best, len(judged)) for point in judged]
        curve = None if best is None else noise.curve(judged, best)
        variants.append(TunedVariant(variant=variant, points=tuple(judged), chosen=best, curve=curve))
    return TuningOutcome(seeds=tuple(seeds), variants=tuple(variants), noise_sd=noise.known_sd)


def _best(points: Sequence[TunedPoint]) -> str | None:
    if not all(run.ended for point in points for run in point.runs):
        return None
    return min(points, key=lambda point: (-len(point.losses), math.inf if point.mean is None else point.mean)).name


@dataclass(frozen=True, kw_only=True)
class _Noise:
    """Noise of the points that finished on every tuning seed."""

    rows: tuple[str, ...]
    losses: np.ndarray
    apart: np.ndarray
    sd: float
    df: int

    @classmethod
    def of(cls, by_point: Mapping[str, Sequence[Result]], seeds: tuple[int, ...]) -> "_Noise":
        table = {name: {run.seed: run.loss for run in runs if run.loss is not None} for name, runs in by_point.items()}
        rows = tuple(name for name, losses in table.items() if losses.keys() == set(seeds))
        losses = np.array([[table[name][seed] for seed in seeds] for name in rows]).reshape(len(rows), len(seeds))
        if not rows:
            return cls(rows=(), losses=losses, apart=np.zeros(0, bool), sd=math.nan, df=0)
        present = np.ones(losses.shape, bool)
        apart = set_apart(losses, present)
        noise = fit_noise(losses, present & ~apart[:, None])
        return cls(rows=rows, losses=losses, apart=apart, sd=float(noise.sd), df=int(noise.df))

    @property
    def known_sd(self) -> float | None:
        return self.sd if self.df > 0 else None

    def judged(self, point: TunedPoint, best: str, points: int) -> TunedPoint:
        """The point with `as_good`, among so many of its variant."""
        if best not in self.rows or self.df == 0:
            good: bool | None = True if point.name == best else None
        elif point.name not in self.rows:
            good = False
        else:
            row, other = self.rows.index(point.name), self.rows.index(best)
            difference = self.losses[row] - self.losses[other]
            count = difference.size
            error = max(self.sd * math.sqrt(2 / count), float(difference.std(ddof=1)) / math.sqrt(count))
            # One-sided, over all other points of the variant. The chosen point is the lowest of all by construction, which
            # makes it look better than it is: a point that is "not as good" may still be the true optimum. It is a description,
            # no verdict.
            critical = float(stdtrit(self.df, 1 - ALPHA / max(points - 1, 1)))
            good = row == other or (not self.apart[row] and float(difference.mean()) <= critical * error)
        return TunedPoint(name=point.name, values=point.values, runs=point.runs, as_good=good)

    def curve(self, points: Sequence[TunedPoint], best: str) -> FittedOptimum | None:
        """Minimum of the parabola through the chosen point and its neighbours on the only axis."""
        axes = {path for point in points for path in point.values}
        path = next(iter(axes), "")
        values = {point.name: point.values.get(path) for point in points}
        numbers = {name: float(value) for name, value in values.items() if isinstance(value, int | float) and value > 0}
        if len(axes) != 1 or len(numbers) != len(points):
            return None
        names = sorted(numbers, key=lambda name: numbers[name])
        place = names.index(best)
        near = names[max(place - 1, 0) : place + 2]
        if len(near) < 3 or not set(near) <= set(self.rows):
            return None  # at the end of the axis, or a neighbour lost a run
        rows = [self.rows.index(name) for name in near]
        x = np.log2([numbers[name] for name in near]) - math.log2(numbers[best])
        to_coefficients = np.linalg.inv(np.stack([np.ones(3), x, x * x], axis=1))[1:]
        b, c = to_coefficients @ self.losses[rows].mean(axis=1)
        if not c > 0:  # equal losses
            return None

        def value(theta: float) -> float:
            return float(numbers[best] * 2.0**theta)

        interval = None
        if self.df > 0 and not self.apart[rows].any():
            # Seeds' effects, which all points share, are in no contrast of points: only sigma remains.
            (bb, bc), (_, cc) = to_coefficients @ to_coefficients.T * self.sd**2 / self.losses.shape[1]
            t = float(stdtrit(self.df, 1 - ALPHA / 2)) ** 2
            square, linear, constant = 4 * (c * c - t * cc), 4 * (b * c - t * bc), b * b - t * bb
            if square > 0:
                root = math.sqrt(max(linear * linear - 4 * square * constant, 0.0))
                interval = (value((-linear - root) / (2 * square)), value((-linear + root) / (2 * square)))
        return FittedOptimum(path=path, best=value(-b / (2 * c)), interval=interval)
