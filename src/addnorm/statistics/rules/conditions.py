r"""Conditions of written rules, each evaluated for one table or for a batch of simulated ones by the same code.

With n runs of a variant, mean m and standard deviation s (smaller is better):

    threshold, test t      T = (target - m) sqrt(n) / s,  one-sided p of Student's t on n - 1 df,  passes if p < level
    threshold, test z      (target - m) sqrt(n) >= one_run
    threshold, test mean   m < target
    improvement            the same three with target = mean of the reference - by; and test welch: Welch's t of two samples
    speedup                (C_needed / C) (v / v_ref) > above at every size,
                           C_needed = C_ref ((L_ref - limit) / (L - limit))^(1 / exponent)
    projection             limit + A C^-alpha, fitted by least squares to log(L - limit) over all sizes, is lower than the
                           reference's at every given C

C is the compute of a run and v its throughput (1 where the table has none). `t` and `z` of an improvement take the mean of the
reference as a known number, as contests do with a record; `welch` counts its noise.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import stdtr

from addnorm.errors import InputError
from addnorm.fields import JsonFields, require, require_at_least

MeanTest = Literal["t", "z", "mean"]


@dataclass(frozen=True, kw_only=True)
class SizeLosses:
    """Losses of a variant and of its reference at one size of the models; lower is better."""

    size: str
    variant: Float[np.ndarray, "*batch run"]
    reference: Float[np.ndarray, "*batch other_run"] | None = None
    variant_compute: float | None = None
    reference_compute: float | None = None
    relative_throughput: float = 1.0
    """Throughput of the variant over that of the reference."""


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """A condition's answer."""

    passed: Bool[np.ndarray, "*batch"]
    statistic: Float[np.ndarray, "*batch"]
    needed: float
    name: str
    """Of the statistic, such as `p`."""


@dataclass(frozen=True, kw_only=True)
class Condition(JsonFields, ABC):
    """One requirement of a rule."""

    runs: int = 1
    """Fewest runs of the variant, at each size."""
    sizes: int = 1
    """Fewest sizes of the models."""
    compares: ClassVar[bool] = True
    """True if a reference is needed."""
    several_sizes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_at_least(self, 1, "runs", "sizes")
        require(self, "sizes", self.several_sizes or self.sizes == 1, "1 in a condition on one mean")
        if getattr(self, "test", None) in ("t", "welch"):
            require(self, "runs", self.runs > 1, "at least 2 in a test that estimates the noise")
        if hasattr(self, "p"):
            require(self, "p", 0 < self.p < 0.5, "a probability between 0 and 0.5")
        if getattr(self, "test", None) == "z":
            require(self, "one_run", getattr(self, "one_run", 0.0) > 0, "a positive number for test z")

    @property
    def boundary(self) -> float:
        """Improvement, over the target or over the reference, at which the claim is just untrue."""
        return 0.0

    @abstractmethod
    def evaluate(self, sizes: Sequence[SizeLosses]) -> Evaluated:
        """The answer for one table or a batch of them."""


def _of_mean(losses: np.ndarray, target: np.ndarray | float, test: MeanTest, p: float, one_run: float) -> Evaluated:
    number = losses.shape[-1]
    below = target - losses.mean(axis=-1)
    if test == "mean":
        return Evaluated(passed=below > 0, statistic=below, needed=0.0, name="below the target by")
    if test == "z":
        statistic = below * np.sqrt(number)
        # Printed numbers are decimal: 3.28 - 3.276 in floats is a little less than 0.004, which a rule of 0.004 accepts.
        passed = statistic >= one_run * (1 - 1e-9)
        return Evaluated(passed=passed, statistic=statistic, needed=one_run, name="(target - mean) sqrt(runs)")
    with np.errstate(invalid="ignore", divide="ignore"):  # one run, equal losses, or an infinite one: no p value
        spread = losses.std(axis=-1, ddof=1)
        value = stdtr(number - 1, -below * np.sqrt(number) / spread)
    # Equal losses have no spread, and a rule that divides by it has no answer: that is not a pass.
    value = np.where(spread > 0, value, np.nan)
    return Evaluated(passed=value < p, statistic=value, needed=p, name="p")


@dataclass(frozen=True, kw_only=True)
class Threshold(Condition):
    """The mean loss lies below a fixed number."""

    target: float
    test: MeanTest = "t"
    p: float = 0.01
    one_run: float = 0.0
    """Of test z: how far below the target a single run has to lie."""
    compares: ClassVar[bool] = False

    def evaluate(self, sizes: Sequence[SizeLosses]) -> Evaluated:
        """The answer for the only size."""
        return _of_mean(sizes[0].variant, self.target, self.test, self.p, self.one_run)


@dataclass(frozen=True, kw_only=True)
class Improvement(Condition):
    """The mean loss lies below the reference's by more than an amount."""

    by: float = 0.0
    test: Literal["t", "z", "mean", "welch"] = "welch"
    p: float = 0.01
    one_run: float = 0.0

    @property
    def boundary(self) -> float:
        """The amount."""
        return self.by

    def evaluate(self, sizes: Sequence[SizeLosses]) -> Evaluated:
        """The answer for the only size."""
        losses, other = sizes[0].variant, _reference(sizes[0])
        target = other.mean(axis=-1) - self.by
        if self.test != "welch":
            return _of_mean(losses, target, self.test, self.p, self.one_run)
        with np.errstate(invalid="ignore", divide="ignore"):
            one, two = (each.var(axis=-1, ddof=1) / each.shape[-1] for each in (losses, other))
            df = (one + two) ** 2 / (one**2 / (losses.shape[-1] - 1) + two**2 / (other.shape[-1] - 1))
            value = np.where(one + two > 0, stdtr(df, (losses.mean(axis=-1) - target) / np.sqrt(one + two)), np.nan)
        return Evaluated(passed=value < self.p, statistic=value, needed=self.p, name="p")


@dataclass(frozen=True, kw_only=True)
class EffectiveSpeedup(Condition):
    """The reference would need more time for the variant's loss, at every size."""

    limit: float
    exponent: float
    above: float = 1.0
    several_sizes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "exponent", self.exponent > 0, "a positive number")

    def evaluate(self, sizes: Sequence[SizeLosses]) -> Evaluated:
        """The smallest speedup over the sizes."""
        least = np.stack(np.broadcast_arrays(*(self.of(each) for each in sizes))).min(axis=0)
        return Evaluated(passed=least > self.above, statistic=least, needed=self.above, name="smallest speedup")

    def of(self, at: SizeLosses) -> Float[np.ndarray, "*batch"]:
        """Speedup at one size; NaN where a mean loss is not above the limit of the law."""
        own, other = (each.mean(axis=-1) - self.limit for each in (at.variant, _reference(at)))
        known = (own > 0) & (other > 0)
        ratio = np.where(known, other, np.nan) / np.where(known, own, np.nan)
        compute = (at.reference_compute or 1.0) / (at.variant_compute or at.reference_compute or 1.0)
        return np.asarray(ratio ** (1 / self.exponent) * compute * at.relative_throughput)


@dataclass(frozen=True, kw_only=True)
class Projection(Condition):
    """A law fitted to the variant's sizes predicts a lower loss than the one fitted to the reference's."""

    limit: float
    at: tuple[float, ...]
    """Compute, in the unit of the table."""
    several_sizes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "sizes", self.sizes > 1, "at least 2 for a fitted law")
        require(self, "at", bool(self.at) and min(self.at) > 0, "at least one positive number")

    def evaluate(self, sizes: Sequence[SizeLosses]) -> Evaluated:
        """The smallest distance between the two projections."""
        for each in sizes:
            if each.variant_compute is None or each.reference_compute is None:
                raise InputError(
                    "rule: a projection needs the compute of every run, got a table without. Name its column with "
                    "--columns compute=NAME."
                )
        own = self._projected([each.variant for each in sizes], [each.variant_compute or 1.0 for each in sizes])
        other = self._projected([_reference(each) for each in sizes], [each.reference_compute or 1.0 for each in sizes])
        least = (other - own).min(axis=-1)
        return Evaluated(passed=least > 0, statistic=least, needed=0.0, name="smallest lead of the projection")

    def _projected(self, losses: Sequence[np.ndarray], compute: Sequence[float]) -> Float[np.ndarray, "*batch at"]:
        excess = np.stack([each.mean(axis=-1) - self.limit for each in losses], axis=-1)
        logs = np.log(np.where(excess > 0, excess, np.nan))
        places = np.log(compute)
        centre = places.mean()
        slope = ((places - centre) * logs).sum(axis=-1) / ((places - centre) ** 2).sum()
        ahead = np.log(self.at) - centre
        return np.asarray(self.limit + np.exp(logs.mean(axis=-1)[..., None] + slope[..., None] * ahead))


def _reference(at: SizeLosses) -> np.ndarray:
    if at.reference is None:
        raise InputError("rule: expected runs of a reference, got a table of one variant. Add the reference's runs.")
    return at.reference
