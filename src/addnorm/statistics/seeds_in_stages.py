r"""Seeds in stages: a study that adds seeds only where a comparison is open, planned before its first step.

The **design** fixes the seeds at every look, n_1 < … < n_K, before the first step. After each stage, all comparisons are tested
at the level that this look may spend (`alpha_spending`), so that the probability of any false claim at any look is at most
alpha. The next stage trains the variants of the comparisons that are still open, and no others.

A comparison is **open** unless it is decided or hopeless. With the present mean difference d over n shared seeds, s the
standard deviation of a paired difference, and the unknown true difference taken as normal around d (flat prior), the mean over
n_K seeds is predicted to be normal around d with variance s^2 (1/n - 1/n_K). With e = s / sqrt(n_K) and c, c' the critical
values of the last look at alpha / (comparisons not claimed) and alpha / (all comparisons),

    P(decided) = P( |d_K| > c e ) + P( |d_K| < margin - c' e ),          hopeless if P(decided) < 10 %.

Why a rule for hopeless ones: it is not needed for the error rate, which stopping can only lower, and it saves the seeds of
differences that n_K seeds would leave undecided too. A comparison may still be decided after it was hopeless, if other
comparisons need its two variants.

Why the seeds grow by about two fifths: claims wait for the next look, and each look costs level. benchmarks/seeds_in_stages.py
compares designs; docs/decisions/0039-seeds-in-stages.md has its table.

Source: predictive power: Spiegelhalter et al. 1986, Control. Clin. Trials 7, 8-17.
Differs from the source: both decisions count, a difference and equivalence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import ndtr, stdtrit

from addnorm.errors import InputError
from addnorm.fields import JsonFields
from addnorm.statistics.alpha_spending import nominal_level
from addnorm.statistics.multiple_testing import Decisions, Look, Rule
from addnorm.statistics.result import FEWEST_SEEDS, Result

HOPELESS = 0.10
"""Predicted probability of a decision below which no seed is added for a comparison."""
GROWTH = 0.4
"""Seeds of the next stage as a share of those so far."""
_LAST_STEP = 1.15
"""A look that would have nearly all seeds is the last one."""


@dataclass(frozen=True, kw_only=True)
class SeedsInStages(JsonFields):
    """Design of a study that adds seeds in stages until its comparisons are decided.

    Raises:
        InputError: looks that do not ascend from at least three seeds to all of them.
    """

    seeds: tuple[int, ...]
    """Every seed that may be used, in order."""
    looks: tuple[int, ...]
    """Number of seeds at each look; the last is all of them."""
    hopeless: float = HOPELESS
    """Predicted probability of a decision below which no seed is added for a comparison."""

    def __post_init__(self) -> None:
        ascending = all(one < other for one, other in zip(self.looks, self.looks[1:], strict=False))
        if not self.looks or not ascending or self.looks[0] < FEWEST_SEEDS or self.looks[-1] != len(self.seeds):
            raise InputError(
                f"looks: expected ascending numbers of seeds from at least {FEWEST_SEEDS} to {len(self.seeds)}, "
                f"got {list(self.looks)}."
            )
        if len(set(self.seeds)) != len(self.seeds):
            raise InputError(f"seeds: expected distinct seeds, got {list(self.seeds)}.")

    @classmethod
    def planned(cls, first: Sequence[int], most: int) -> "SeedsInStages":
        """The design that begins with given seeds and ends with `most`.

        Args:
            first: seeds of the first stage; completed to three.
            most: largest number of seeds per variant.

        Raises:
            InputError: fewer seeds at most than at first.

        Example:
            >>> SeedsInStages.planned((0, 1, 2), 20).looks
            (3, 4, 6, 8, 11, 15, 20)
        """
        begin = max(len(first), FEWEST_SEEDS)
        if most < begin:
            raise InputError(f"most: expected at least the {begin} seeds of the first stage, got {most}.")
        seeds = list(first)
        following = max((*seeds, -1)) + 1
        seeds += range(following, following + max(most, begin) - len(seeds))
        looks = [begin]
        while looks[-1] < most:
            following_look = looks[-1] + max(1, round(GROWTH * looks[-1]))
            looks.append(following_look if following_look * _LAST_STEP < most else most)
        return cls(seeds=tuple(seeds), looks=tuple(looks), hopeless=HOPELESS)

    @property
    def most(self) -> int:
        """Largest number of seeds per variant."""
        return self.looks[-1]

    def stage(self, look: int) -> tuple[int, ...]:
        """Seeds that the stage before a look adds."""
        return self.seeds[self.looks[look - 1] if look else 0 : self.looks[look]]

    def look(self, place: int, seeds: Sequence[int]) -> Look:
        """A look at a table.

        Args:
            place: which look, from 0.
            seeds: the columns of the table.
        """
        counted = set(self.seeds[: self.looks[place]])
        return Look(seeds=np.array([seed in counted for seed in seeds]), planned=self.looks, place=place)

    def complete(self, results: Sequence[Result]) -> int:
        """Number of stages whose runs have all ended."""
        at = {seed: [result.ended for result in results if result.seed == seed] for seed in self.seeds}
        done = 0
        for place in range(len(self.looks)):
            if not all(at[seed] and all(at[seed]) for seed in self.stage(place)):
                break
            done += 1
        return done

    def looks_at(self, seeds: Sequence[int], complete: int) -> tuple[Look, ...]:
        """The looks of the complete stages, or the first one at what there is; none without any run.

        Args:
            seeds: the columns of the table.
            complete: number of complete stages.
        """
        return tuple(self.look(place, seeds) for place in range(max(complete, 1))) if seeds else ()

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "SeedsInStages":
        """The design of a plan.

        Raises:
            InputError: a field is missing or of another type.
        """
        try:
            seeds, looks = (tuple(int(number) for number in content[name]) for name in ("seeds", "looks"))
            return cls(seeds=seeds, looks=looks, hopeless=float(content["hopeless"]))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"design: expected seeds, looks and hopeless, got {content!r}.") from error


@dataclass(frozen=True, kw_only=True)
class Stages(JsonFields):
    """Progress of a study that adds seeds in stages."""

    design: SeedsInStages
    complete: int
    """Number of stages whose runs have all ended."""
    undecided: tuple[tuple[str, str], ...]
    """Comparisons that the complete stages leave undecided."""
    hopeless: tuple[tuple[str, str], ...]
    """Those among them that the last look would leave undecided too."""
    continuing: tuple[str, ...]
    """Variants that the stage after the complete ones trains; empty if none follows."""


@dataclass(frozen=True, kw_only=True)
class Prospects:
    """Undecided comparisons of a family, and those among them that further seeds would not decide."""

    undecided: Bool[np.ndarray, "*batch pair"]
    hopeless: Bool[np.ndarray, "*batch pair"]
    """Undecided ones that the last look is predicted to leave undecided too."""

    @property
    def open(self) -> Bool[np.ndarray, "*batch pair"]:
        """Comparisons for which seeds are added."""
        return self.undecided & ~self.hopeless


def prospects(decisions: Decisions, design: SeedsInStages, rule: Rule) -> Prospects:
    """Predict which undecided comparisons the last look would decide.

    Args:
        decisions: those of the newest look.
        design: the study's design.
        rule: the rule by which they were made.
    """
    tests, most = decisions.tests, design.most
    undecided = (decisions.claimed == 0) & ~decisions.equivalent
    claimed = int((decisions.claimed != 0).sum())
    count = np.maximum(tests.count, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        paired_sd = tests.standard_error * np.sqrt(count)
        error = paired_sd / np.sqrt(most)
        spread = paired_sd * np.sqrt(np.maximum(1 / count - 1 / most, 0.0))
        df = tests.df * (most - 1) / np.maximum(count - 1, 1)
        last = len(design.looks) - 1
        differs, equal = (
            _critical(nominal_level(design.looks, last, (1 - rule.confidence) / number), df) * error
            for number in (max(rule.family - claimed, 1), rule.family)
        )
        size = np.abs(tests.difference)
        claim = ndtr((size - differs) / spread) + ndtr((-size - differs) / spread)
        room = np.maximum(rule.margin - equal, 0.0)
        equivalence = ndtr((room - size) / spread) - ndtr((-room - size) / spread)
    # Without a test yet, nothing can be predicted; the comparison stays open.
    hopeless = undecided & (claim + equivalence < design.hopeless)
    return Prospects(undecided=undecided, hopeless=hopeless)


def _critical(level: float, df: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    return np.asarray(stdtrit(df, 1 - level / 2))


def needed(prospects_of: Prospects, pairs: Int[np.ndarray, "pair 2"]) -> tuple[int, ...]:
    """Rows of the variants that the next stage trains: those of the open comparisons."""
    return tuple(int(row) for row in np.unique(pairs[prospects_of.open]))
