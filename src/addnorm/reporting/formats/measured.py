"""Forms of a ranking's numbers and tiers: a loss in nats by thousandths, every other measure in its own unit."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from addnorm.reporting.formats.numbers import fixed, signed
from addnorm.statistics.measure import NATS, Metric
from addnorm.statistics.ranking import Tier
from addnorm.words import Phrases, phrases, point_name, translated

_MILLI = 1000.0
_MOST_NAMED = 4
"""Comparisons of one reason that are named; the others are counted."""
_NO_VERDICT = ("no_verdict", "no_verdict_repeated")
"""Codes of the warning that no comparison has enough seeds."""
_FEW_SEEDS = ("one_shared", "several_shared", "no_spread")
"""Codes of the reasons that this warning has."""
_LABELS = (
    ("level", re.compile(r"level with (?P<a>.*)")),
    ("among", re.compile(r"among (?P<a>.*)")),
    ("above", re.compile(r"above (?P<a>.*)")),
    ("below", re.compile(r"below (?P<a>.*)")),
    ("between", re.compile(r"between (?P<a>.*) and (?P<b>.*)")),
)


def levels(*, in_nats: bool) -> Callable[[float | None], str]:
    """Form of a level on pages: four decimals of nats, and six significant digits where nobody knows the scale."""
    return lambda value: fixed(value, 4) if in_nats or value is None else f"{value:.6g}".replace("-", "−")


@dataclass(frozen=True)
class RankingFormats:
    """Names and forms of numbers of one ranking."""

    name: str
    named_unit: str
    """The name with its unit."""
    title: str
    """The same, with the better direction."""
    small_unit: str
    """Unit of differences."""
    better: str
    """`lower` or `higher`."""
    in_nats: bool
    unit: str
    """The unit in words; empty if nobody gave it."""

    @staticmethod
    def of(ranking: Mapping[str, Any], t: Phrases | None = None) -> "RankingFormats":
        """The forms for the JSON of a ranking, in English unless phrases of another language are given."""
        t = phrases("en") if t is None else t
        unit = ranking.get("unit", NATS)
        return RankingFormats.of_measure(
            Metric(name=ranking["metric"], unit=unit, better=ranking.get("better", "lower")), t
        )

    @staticmethod
    def of_measure(measure: Metric, t: Phrases) -> "RankingFormats":
        """The forms for a measure."""
        metric, unit, better, in_nats = measure.name, measure.unit, measure.better, measure.in_nats
        name = t("text.loss") if metric == "loss" else metric
        in_words = "" if not unit else t("text.nats") if in_nats else translated(unit, t)
        title = t("text.name_in_unit", name=name, unit=in_words) if unit else name
        return RankingFormats(
            name=name,
            named_unit=title,
            title=t(f"text.better_{better}", title=title),
            small_unit=t("text.thousandths") if in_nats else in_words or metric,
            better=better,
            in_nats=in_nats,
            unit=in_words,
        )

    @property
    def factor(self) -> float:
        """Factor of differences in `small_unit`."""
        return _MILLI if self.in_nats else 1.0

    def shown(self, value: float | None) -> str:
        """A level on a page: a real minus sign, a dash for None."""
        return levels(in_nats=self.in_nats)(value)

    def shown_reach(self, value: float) -> str:
        """Half of a mean's interval on a page."""
        return fixed(value, 4) if self.in_nats else f"{value:.3g}"

    def shown_difference(self, value: float | None, digits: int = 1) -> str:
        """A difference on a page that is in `small_unit` already."""
        return signed(value, digits) if self.in_nats or value is None else f"{value:+.4g}".replace("-", "−")

    def shown_size(self, value: float, digits: int = 1) -> str:
        """A margin or a standard deviation, in `small_unit` already."""
        return fixed(value, digits) if self.in_nats else f"{value:.3g}"

    def level(self, value: float) -> str:
        """A mean or a single value."""
        return f"{value:.4f}" if self.in_nats else f"{value:.6g}"

    def difference(self, value: float) -> str:
        """A difference with its sign, in `small_unit`."""
        return thousandths(value) if self.in_nats else f"{value:+.4g}"

    def seeds_better(self, comparison: Mapping[str, Any]) -> int:
        """Number of shared seeds at which the variant is better."""
        if self.better == "lower":
            return int(comparison["seeds_lower"])
        return sum(entry["difference"] > 0 for entry in comparison["by_seed"])


def comparison_text(
    comparison: Mapping[str, Any],
    write: Callable[[float], str],
    *,
    word: str | None = None,
    counted: Callable[[Mapping[str, Any]], int] | None = None,
    t: Phrases | None = None,
) -> str:
    """`better 5/5 -9.5 [-15.0, -4.0] (again 5/5 -8.1)`: verdict, seeds at which it is better, difference and interval, and the
    second batch of seeds, as far as there are any.

    Args:
        comparison: `verdict`, `difference`, `interval`; with `better` also `by_seed`.
        write: a difference as text.
        word: stands for the verdict.
        counted: number of a comparison's seeds at which it is better; not given: lower ones, of the second batch alone.
        t: phrases of the language; English if not given.
    """
    t = phrases("en") if t is None else t
    parts = [word or comparison["verdict"] or "no verdict"]
    # Pairs without any shared seed have no list of seeds to count in.
    if counted is not None and comparison["interval"] is not None and comparison.get("by_seed"):
        parts.append(f"{counted(comparison)}/{len(comparison['by_seed'])}")
    if comparison["difference"] is not None:
        parts.append(write(comparison["difference"]))
    if comparison["interval"] is not None:
        parts.append(f"[{', '.join(map(write, comparison['interval']))}]")
    if (again := comparison.get("again")) is not None:
        parts.append(f"({t(_AGAIN[again['state']])}{_beside(again, write, counted or itemgetter('seeds_lower'))})")
    if (tuning := comparison.get("tuning")) and comparison["verdict"] in ("better", "worse"):
        lower = sum(entry["difference"] < 0 for entry in tuning)
        mean = sum(entry["difference"] for entry in tuning) / len(tuning)
        parts.append(f"({t('text.tuning_seeds')} {lower}/{len(tuning)} {write(mean)})")
    return " ".join(parts)


_AGAIN = {"found": "text.found_once", "found again": "text.again", "not found again": "text.not_again"}


def _beside(
    again: Mapping[str, Any], write: Callable[[float], str], counted: Callable[[Mapping[str, Any]], int]
) -> str:
    """Seeds of the second batch at which it is better, and its difference; nothing before it has ended."""
    if again["difference"] is None:
        return ""
    return f" {counted(again)}/{len(again['by_seed'])} {write(again['difference'])}"


def is_unplanned(ranking: Mapping[str, Any]) -> bool:
    """True if the JSON of a ranking is that of another family of comparisons than the planned one."""
    return any(code != "unfinished" for code in ranking.get("unplanned", ()))


def thousandths(difference: float) -> str:
    """A difference of losses with its sign, in thousandths of a nat."""
    return f"{_MILLI * difference:+.1f}"


def in_small_unit(comparison: Mapping[str, Any], factor: float = _MILLI) -> dict[str, Any]:
    """A comparison with its losses in thousandths of a nat, or another part of their unit, and `none` for no verdict."""
    difference, ends = comparison["difference"], comparison["interval"]
    return {
        **comparison,
        "verdict": comparison["verdict"] or "none",
        "difference": None if difference is None else factor * float(difference),
        "interval": None if ends is None else tuple(factor * float(ends[place]) for place in (0, 1)),
    }


def missing_verdicts(ranking: Mapping[str, Any], t: Phrases | None = None) -> list[str]:
    """A sentence for each reason of comparisons without a verdict, unless a warning of the ranking has it.

    Args:
        ranking: the JSON of a ranking.
        t: phrases of the language; English if not given.
    """
    t = phrases("en") if t is None else t
    too_few = any(note.get("code") in _NO_VERDICT for note in ranking.get("notes", ()))
    pairs: dict[str, list[str]] = {}
    seen: set[frozenset[str]] = set()
    for entry in ranking["variants"]:
        for reference, comparison in entry["versus"].items():
            pair = frozenset((entry["variant"], reference))
            if comparison["verdict"] is not None or comparison.get("reason") is None or pair in seen:
                continue
            seen.add(pair)
            if not (too_few and comparison.get("reason_code") in _FEW_SEEDS):
                pair_text = t("text.pair", variant=point_name(entry["variant"]), other=point_name(reference))
                pairs.setdefault(comparison["reason"], []).append(pair_text)
    sentences = []
    for reason, named in pairs.items():
        which = t("joint.comma").join(named[:_MOST_NAMED])
        if len(named) > _MOST_NAMED:
            which = t("note.open_and_more", named=which, more=len(named) - _MOST_NAMED)
        sentences.append(t("text.no_verdict_on", which=which, reason=translated(reason, t)))
    return sentences


def label_text(label: str, t: Phrases) -> str:
    """The label of a tier's JSON in a language; the label as it is where it is none of the known ones."""
    for key, pattern in _LABELS:
        if (matched := pattern.fullmatch(label)) is not None:
            return t(f"tier.{key}", **{place: point_name(name) for place, name in matched.groupdict().items()})
    return t(f"tier.{label}") if label in ("open", "reference", "failed") else label


def tier_name(tier: Tier, t: Phrases) -> str:
    """The tier in a language."""
    return t(f"tier.{tier.kind}", **{place: point_name(name) for place, name in zip("ab", tier.names, strict=False)})


def tier_text(tier: Tier, t: Phrases) -> str:
    """The same, and whether more than one is left."""
    return f"{tier_name(tier, t)} {t('tier.not_firm')}" if tier.is_bounded and not tier.firm else tier_name(tier, t)
