"""The comparison of one variant with one reference: its verdict, the numbers behind it, and what other seeds say of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from addnorm.words import Sentence, say

Verdict = Literal["better", "worse", "equivalent", "undecided", "failed"]
Interval = tuple[float, float]
_OPPOSITE = {"certainly_lower": "certainly_higher", "certainly_higher": "certainly_lower"}


@dataclass(frozen=True, kw_only=True)
class Again:
    """Result of a found comparison on the second batch of seeds."""

    state: Literal["found", "found again", "not found again"]
    """`found` while the second batch has not ended."""
    seeds: tuple[int, ...]
    """Seeds of the second batch."""
    difference: float | None
    """Mean difference over its shared seeds; None before it has ended."""
    p: float | None
    """P value of the found verdict on it, Holm-adjusted over the found comparisons."""
    by_seed: Mapping[int, float]

    @property
    def seeds_lower(self) -> int:
        """Number of its shared seeds at which the variant has the lower loss."""
        return sum(difference < 0 for difference in self.by_seed.values())

    def mirrored(self) -> "Again":
        """The same with every difference negated."""
        by_seed = {seed: 0.0 - difference for seed, difference in self.by_seed.items()}
        return replace(self, difference=negated(self.difference), by_seed=by_seed)

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return {
            "state": self.state,
            "seeds": list(self.seeds),
            "difference": self.difference,
            "p": self.p,
            "by_seed": _seeds_json(self.by_seed),
            "seeds_lower": self.seeds_lower,
        }


@dataclass(frozen=True, kw_only=True)
class VariantComparison:
    """One variant against one reference."""

    verdict: Verdict | None
    """None with too few seeds, or without noise to test against: `reason` says which."""
    difference: float | None
    """Mean loss of the variant minus that of the reference over shared seeds, in nats per token. Negative is better."""
    interval: Interval | None
    """Simultaneous interval of the difference; None without a test."""
    seeds_needed: int | None
    """Seeds per variant that would decide with probability 0.8; None where decided or where the noise is unknown."""
    seeds_needed_for: Literal["difference", "equivalence"] | None = None
    """The more probable decision with that many seeds."""
    seeds: int = 0
    """Number of seeds that both have; of an unpaired comparison, runs of the variant that has fewer."""
    standard_error: float | None = None
    half_width: float | None = None
    """Half of the simultaneous interval before it is cut at zero or at the margin."""
    p: float | None = None
    """P value of the paired test, Holm-adjusted over the family."""
    p_equivalent: float | None = None
    """P value of the two one-sided tests, Bonferroni-adjusted over the family; twice that where a difference is claimed."""
    accuracy_difference: float | None = None
    """Mean accuracy of the variant minus the reference's over the same seeds. Positive is better."""
    accuracy_agrees: bool | None = None
    """True if accuracy and loss favour the same of the two; None if either is equal or unknown."""
    reason: Sentence | None = None
    by_seed: Mapping[int, float] = field(default_factory=dict)
    """Difference at each shared seed, in nats per token."""
    again: Again | None = None
    """Result on a second batch of seeds; None where nothing was found, or where none is planned."""
    tuning: Mapping[int, float] = field(default_factory=dict)
    """Difference at each tuning seed, of the two chosen points. These seeds chose, and take no part in the verdict."""
    quiet: bool = False
    """True if the two differ by significantly less noise than other pairs, so that the pair's own noise is the only one."""

    @property
    def seeds_lower(self) -> int:
        """Number of shared seeds at which the variant has the lower loss."""
        return sum(difference < 0 for difference in self.by_seed.values())

    def mirrored(self) -> "VariantComparison":
        """The comparison with every difference negated."""
        reason = self.reason
        if reason is not None and reason.note["code"] in _OPPOSITE:
            reason = say(_OPPOSITE[reason.note["code"]])
        return replace(
            self,
            difference=negated(self.difference),
            interval=swapped(self.interval),
            by_seed={seed: 0.0 - difference for seed, difference in self.by_seed.items()},
            tuning={seed: 0.0 - difference for seed, difference in self.tuning.items()},
            again=None if self.again is None else self.again.mirrored(),
            reason=reason,
        )

    def __repr__(self) -> str:
        """One line; all numbers are in `to_json`."""
        size = "" if self.difference is None else f" {self.difference:+.4g}"
        reach = "" if self.interval is None else f" ({self.interval[0]:+.4g} to {self.interval[1]:+.4g})"
        why = f": {self.reason}" if self.verdict is None and self.reason is not None else ""
        return f"<{self.verdict or 'no verdict'}{size}{reach}, {self.seeds} seeds{why}>"

    @property
    def reason_code(self) -> str | None:
        """Code of the reason, such as `nothing_shared`; None without a reason."""
        return None if self.reason is None else str(self.reason.note["code"])

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain JSON values, with the code of the reason where there is no verdict."""
        return {
            "verdict": self.verdict,
            "difference": self.difference,
            "interval": ends(self.interval),
            "seeds_needed": self.seeds_needed,
            "seeds_needed_for": self.seeds_needed_for,
            "seeds": self.seeds,
            "standard_error": self.standard_error,
            "p": self.p,
            "p_equivalent": self.p_equivalent,
            "accuracy_difference": self.accuracy_difference,
            "accuracy_agrees": self.accuracy_agrees,
            "reason": None if self.reason is None else str(self.reason),
            "by_seed": _seeds_json(self.by_seed),
            "seeds_lower": self.seeds_lower,
            **({"again": self.again.to_json()} if self.again is not None else {}),
            **({"tuning": _seeds_json(self.tuning)} if self.tuning else {}),
            **({"quiet": True} if self.quiet else {}),
            **({"reason_code": self.reason_code} if self.verdict is None else {}),
        }


def negated(value: float | None) -> float | None:
    """The negated number; 0.0 stays as it is, and is not written as -0.0."""
    return None if value is None else 0.0 - value


def swapped(interval: Interval | None) -> Interval | None:
    """The interval of the negated difference."""
    return None if interval is None else (0.0 - interval[1], 0.0 - interval[0])


def ends(interval: Interval | None) -> list[float] | None:
    """An interval as plain JSON."""
    return None if interval is None else list(interval)


def _seeds_json(by_seed: Mapping[int, float]) -> list[dict[str, int | float]]:
    return [{"seed": seed, "difference": value} for seed, value in by_seed.items()]
