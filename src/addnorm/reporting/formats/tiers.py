"""A tier's label in any language."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from addnorm.statistics import Ranking, Tier
from addnorm.words import Phrases, point_name

_LABELS = (
    ("level", re.compile(r"level with (?P<a>.*)")),
    ("among", re.compile(r"among (?P<a>.*)")),
    ("above", re.compile(r"above (?P<a>.*)")),
    ("below", re.compile(r"below (?P<a>.*)")),
)
_BETWEEN = re.compile(r"between (?P<a>.*) and (?P<b>.*)")


@dataclass(frozen=True, kw_only=True)
class TierWords:
    """A tier's label as the key of a phrase and the names in it."""

    key: str
    names: dict[str, str]
    firm: bool
    bounded: bool
    """True if the tier excludes some gap."""


def tier_words(tier: Tier, ranking: Ranking) -> TierWords:
    """The tier's label as a phrase's key and the names to fill in."""
    bounded = tier.label.startswith(("above", "between", "below"))
    for key, pattern in _LABELS:
        if (matched := pattern.fullmatch(tier.label)) is not None:
            return TierWords(key=key, names=_shown(matched.groupdict()), firm=tier.firm, bounded=bounded)
    if tier.label.startswith("between ") and tier.gaps:
        lines = [" / ".join(line) for line in ranking.lines]
        names = {"a": lines[tier.gaps[0] - 1], "b": lines[tier.gaps[-1]]}
        return TierWords(key="between", names=_shown(names), firm=tier.firm, bounded=True)
    return TierWords(key=tier.label, names={}, firm=tier.firm, bounded=bounded)


def _shown(names: Mapping[str, str]) -> dict[str, str]:
    return {place: point_name(name) for place, name in names.items()}


def label_text(label: str, t: Phrases) -> str:
    """A tier's label in a language; the label as it is where it is none of the known ones."""
    for key, pattern in (*_LABELS, ("between", _BETWEEN)):
        if (matched := pattern.fullmatch(label)) is not None:
            return t(f"tier.{key}", **_shown(matched.groupdict()))
    return t(f"tier.{label}") if label in ("open", "reference", "failed") else label


def tier_text(tier: TierWords, t: Phrases) -> str:
    """The tier as one text."""
    label = t(f"tier.{tier.key}", **tier.names)
    return f"{label} {t('tier.not_firm')}" if tier.bounded and not tier.firm else label
