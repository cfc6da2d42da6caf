"""A rule evaluated for a table, and how often it is satisfied by chance: simulated with the table's numbers of runs and noise.

Every simulated loss is normal around its variant's level with the standard deviation of one run. The reference's runs are drawn
too: a rule that takes a record's printed mean for a known number passes more often than its p value says, because that mean has
noise of its own. Beside the table as it is, runs are added one at a time until the rule is satisfied, which is what people do
who may hand in when it is.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.special import chdtri

from addnorm.errors import InputError
from addnorm.fields import JsonFields
from addnorm.statistics.rules.conditions import SizeLosses, Threshold
from addnorm.statistics.rules.written import WrittenRule

_TABLES = 20_000
_NUMBERS = 4_000_000
"""Simulated losses at a time, which bounds memory to some 100 MB."""
_ADDED_UP_TO = 40
_UNKNOWN_SD = 1e-4
"""Without a noise estimate: rules that only ask which of two numbers is lower answer the same at any small noise."""
POWER = 0.8


@dataclass(frozen=True, kw_only=True)
class Design(JsonFields):
    """Numbers of runs that are simulated."""

    runs: tuple[int, ...]
    """Of the variant, at each size."""
    reference_runs: tuple[int, ...]
    added_up_to: int | None
    """Most runs where they are added one at a time; None for a rule on several sizes."""


@dataclass(frozen=True, kw_only=True)
class PassRate(JsonFields):
    """Share of tables that satisfy the rule if the variant is better by `effect`."""

    about: Literal["no improvement", "just not enough", "as observed", "power"]
    effect: float | None
    """Over the reference, or below the target. None for several sizes, as observed at each."""
    rate: float
    rate_when_added: float | None
    """With runs added one at a time until the rule is satisfied; None for a rule on several sizes."""


@dataclass(frozen=True, kw_only=True)
class ConditionOutcome(JsonFields):
    """One condition at the table's numbers."""

    kind: str
    statistic: float | None
    """None where it cannot be computed."""
    name: str
    needed: float
    passed: bool


@dataclass(frozen=True, kw_only=True)
class RuleCheck(JsonFields):
    """One variant under a rule."""

    variant: str
    reference: str | None
    verdict: Literal["passes", "fails", "too few runs", "too few sizes"]
    conditions: tuple[ConditionOutcome, ...]
    runs: tuple[int, ...]
    mean: tuple[float | None, ...]
    """At each size; None where a run diverged."""
    reference_mean: tuple[float, ...]
    noise_sd: float | None
    """Of one run, within variants and sizes, or as it was given."""
    noise_interval: tuple[float, float] | None
    """With 95 % confidence; None if the noise was given or is unknown."""
    design: Design
    rates: tuple[PassRate, ...]
    tables: int
    """Simulated tables."""


def check_rule(
    rule: WrittenRule,
    sizes: Sequence[SizeLosses],
    *,
    variant: str = "variant",
    reference: str | None = None,
    noise: float | None = None,
    tables: int = _TABLES,
) -> RuleCheck:
    """Evaluate a rule for one variant, and simulate it.

    Args:
        rule: all conditions have to hold.
        sizes: losses at each size, lower is better; infinite for a run that diverged.
        variant: its name.
        reference: its name.
        noise: standard deviation of one run; estimated from the losses unless given.
        tables: number of simulated tables.

    Raises:
        InputError: a reference, or the compute of runs, is needed and missing; or several sizes where the rule knows one.

    Example:
        >>> from addnorm.statistics.rules import read_rule
        >>> losses = np.array([3.27676, 3.27770, 3.27869, 3.27831, 3.27789, 3.27830, 3.27757, 3.27857])
        >>> checked = check_rule(read_rule("modded-nanogpt-optimization"), [SizeLosses(size="", variant=losses)])
        >>> checked.verdict, round(checked.conditions[0].statistic, 6)
        ('passes', 0.005731)
    """
    if len(sizes) > 1 and not rule.conditions[0].several_sizes:
        raise InputError(
            f"rule {rule.name}: expected runs of one size, got {', '.join(each.size for each in sizes)}. Give each size alone."
        )
    if rule.compares and any(each.reference is None or not each.reference.size for each in sizes):
        raise InputError(
            f"rule {rule.name}: expected runs of a reference at every size, got none. Add them to the table."
        )
    if rule.compares and not all(np.isfinite(each.reference).all() for each in sizes if each.reference is not None):
        raise InputError(
            f"rule {rule.name}: expected a reference whose runs all have a finite loss, got one that diverged: a target "
            "relative to it has no value, and everything would pass. Without that run, the target is stricter than its mean."
        )
    if noise is not None and not (math.isfinite(noise) and noise > 0):
        raise InputError(f"noise: expected a positive standard deviation of one run, got {noise}.")
    fewest = min(each.variant.shape[-1] for each in sizes)
    verdict: Literal["passes", "fails", "too few runs", "too few sizes"]
    outcomes: tuple[ConditionOutcome, ...] = ()
    if len(sizes) < rule.sizes:
        verdict = "too few sizes"
    elif fewest < rule.runs:
        verdict = "too few runs"
    else:
        outcomes = _outcomes(rule, sizes)
        verdict = "passes" if all(each.passed for each in outcomes) else "fails"
    sd, interval = (noise, None) if noise is not None else _noise(sizes)
    simulated = _Simulation(rule, sizes, sd if sd is not None else _UNKNOWN_SD, tables)
    return RuleCheck(
        variant=variant,
        reference=reference,
        verdict=verdict,
        conditions=outcomes,
        runs=tuple(each.variant.shape[-1] for each in sizes),
        mean=tuple(mean if math.isfinite(mean := float(each.variant.mean())) else None for each in sizes),
        reference_mean=tuple(float(each.reference.mean()) for each in sizes if each.reference is not None),
        noise_sd=sd,
        noise_interval=interval,
        design=simulated.design,
        rates=simulated.rates(known=sd is not None) if verdict != "too few sizes" else (),
        tables=simulated.tables,
    )


def _outcomes(rule: WrittenRule, sizes: Sequence[SizeLosses]) -> tuple[ConditionOutcome, ...]:
    made = []
    for condition in rule.conditions:
        outcome = condition.evaluate(sizes)
        statistic = float(outcome.statistic)
        made.append(
            ConditionOutcome(
                kind=type(condition).__name__,
                statistic=statistic if math.isfinite(statistic) else None,
                name=outcome.name,
                needed=outcome.needed,
                passed=bool(outcome.passed),
            )
        )
    return tuple(made)


def _noise(sizes: Sequence[SizeLosses]) -> tuple[float | None, tuple[float, float] | None]:
    groups = [each for at in sizes for each in (at.variant, at.reference) if each is not None]
    finite = [group[np.isfinite(group)] for group in groups]
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in finite if group.size)
    df = sum(group.size - 1 for group in finite if group.size)
    if not df or squares <= 0:
        return None, None
    low, high = (math.sqrt(squares / float(chdtri(df, tail))) for tail in (0.025, 0.975))
    return math.sqrt(squares / df), (low, high)


class _Simulation:
    """Noise drawn once, so that the rate rises with the effect and the same question has the same answer."""

    def __init__(self, rule: WrittenRule, sizes: Sequence[SizeLosses], sd: float, tables: int) -> None:
        self.rule, self.sizes, self.sd = rule, sizes, sd
        runs = tuple(max(each.variant.shape[-1], rule.runs) for each in sizes)
        others = tuple(0 if each.reference is None else each.reference.shape[-1] for each in sizes)
        most = None
        if not rule.conditions[0].several_sizes:
            most = max(runs[0], min(2 * runs[0], _ADDED_UP_TO))
        self.design = Design(runs=runs, reference_runs=others, added_up_to=most)
        drawn = max(runs) if most is None else most
        self.tables = max(min(tables, _NUMBERS // (drawn + sum(others))), 1000)
        rng = np.random.default_rng([2026, *runs])
        self.own = [sd * rng.normal(size=(self.tables, most or number)) for number in runs]
        self.other = [sd * rng.normal(size=(self.tables, number)) for number in others]

    def rates(self, *, known: bool) -> tuple[PassRate, ...]:
        rule, boundary = self.rule, self.rule.boundary
        about: list[tuple[Literal["no improvement", "just not enough", "as observed", "power"], float | None]] = []
        if rule.compares:
            about.append(("no improvement", 0.0))
        if boundary or not rule.compares:
            about.append(("just not enough", boundary))
        free_of_noise = all(getattr(each, "test", "mean") == "mean" for each in rule.conditions) and not boundary
        if not known:
            about = about if free_of_noise and rule.compares else []
        else:
            about.append(("as observed", self._observed()))
        made = [
            PassRate(about=each, effect=effect, rate=self._rate(effect), rate_when_added=self._added(effect))
            for each, effect in about
        ]
        if known:
            needed = self._detected_effect()
            made.append(PassRate(about="power", effect=needed, rate=POWER, rate_when_added=None))
        return tuple(made)

    def _target(self) -> float:
        return min(each.target for each in self.rule.conditions if isinstance(each, Threshold))

    def _observed(self) -> float | None:
        at = self.sizes[0]
        if len(self.sizes) > 1:
            return None
        level = self._target() if at.reference is None or not self.rule.compares else float(at.reference.mean())
        return level - float(at.variant[np.isfinite(at.variant)].mean())

    def _tables(self, effect: float | None) -> list[SizeLosses]:
        made = []
        for at, own, other in zip(self.sizes, self.own, self.other, strict=True):
            level = self._target() if not self.rule.compares else float(np.mean(at.reference))  # type: ignore[arg-type]
            # Without an improvement the variant costs what the reference does: a change that does nothing is no slower.
            even: dict[str, Any] = (
                {} if effect is None else {"variant_compute": at.reference_compute, "relative_throughput": 1.0}
            )
            mean = float(at.variant.mean()) if effect is None else level - effect
            reference = level + other if self.rule.compares else None
            made.append(replace(at, variant=mean + own, reference=reference, **even))
        return made

    def _passes(self, tables: Sequence[SizeLosses]) -> np.ndarray:
        return np.logical_and.reduce([condition.evaluate(tables).passed for condition in self.rule.conditions])

    def _rate(self, effect: float | None) -> float:
        tables = self._tables(effect)
        cut = [replace(at, variant=at.variant[:, :runs]) for at, runs in zip(tables, self.design.runs, strict=True)]
        return float(self._passes(cut).mean())

    def _added(self, effect: float | None) -> float | None:
        if self.design.added_up_to is None:
            return None
        (at,) = self._tables(effect)
        most = max(_NUMBERS // 10 // self.design.added_up_to, 1000)  # every prefix is evaluated anew
        at = replace(at, variant=at.variant[:most], reference=None if at.reference is None else at.reference[:most])
        passed = np.zeros(len(at.variant), bool)
        for runs in range(self.rule.runs, self.design.added_up_to + 1):
            passed |= self._passes([replace(at, variant=at.variant[:, :runs])])
        return float(passed.mean())

    def _detected_effect(self) -> float | None:
        low, high = self.rule.boundary, self.rule.boundary + self.sd
        for _ in range(40):
            if self._rate(high) >= POWER:
                break
            low, high = high, high + 2 * (high - low)
        else:
            return None
        return _bisected(lambda effect: self._rate(effect) >= POWER, low, high)


def _bisected(reached: Callable[[float], bool], low: float, high: float) -> float:
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high
