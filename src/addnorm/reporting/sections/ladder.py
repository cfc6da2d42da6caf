"""The tier ladder: reference lines, and where each variant may stand between them.

Best on the left. The lines cut the width into gaps; a variant's bar covers every gap that its verdicts leave open. A
line that stands for several references is dashed: they cannot be distinguished, so nothing can lie between them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.formats.listing import MOST_CARDS
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import View
from addnorm.statistics import Ranking, Tier

_FIRST = 12
"""Best models of a large study, which are shown with its references before all others."""
_MOST_WIDE = 2
"""Lines whose wide labels do not meet: neighbours stand at different heights."""


@dataclass(frozen=True, kw_only=True)
class ReferenceLine:
    """One reference, or several that cannot be distinguished."""

    names: tuple[str, ...]
    label: str
    wide: str
    """The label where there is more room."""
    at: float
    """Per cent of the width."""
    dashed: bool


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One variant."""

    variant: str
    name: str
    """Shortened to fit."""
    wide: str
    """The name where there is more room."""
    is_reference: bool
    tier: Tier
    left: float
    """Of the bar, per cent."""
    width: float
    firm: bool
    ranks: tuple[int, int] | None
    rank_left: float
    rank_width: float


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """The whole chart."""

    lines: tuple[ReferenceLine, ...]
    rungs: tuple[Rung, ...]
    places: int
    """Number of ranks."""
    paired: bool
    """True if each variant is compared with references of its own, so that a line stands for different ones."""

    @property
    def first(self) -> tuple[Rung, ...]:
        """The best and the references, for a study with too many models to show at once."""
        return tuple(rung for at, rung in enumerate(self.rungs) if at < _FIRST or rung.is_reference)


class LadderSection(Section):
    """The tier ladder."""

    order = 30
    pages = ("overview", "ranking")
    sources = frozenset({"study", "table"})
    in_report = None
    follows = frozenset({"ranking"})
    shows_results = True

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        ranked = snapshot.ranking is not None and any(row.rank_interval for row in snapshot.ranking.variants)
        return {
            "ladder": ladder(snapshot.ranking, snapshot.short_names, snapshot.wide_names)
            if snapshot.ranking and ranked
            else None,
            "no_ranking": snapshot.no_ranking,
            "is_folded": ranked and len(snapshot.variants) > MOST_CARDS,
        }


def ladder(ranking: Ranking, short: Mapping[str, str], wide: Mapping[str, str]) -> Ladder:
    """The ladder of a ranking, in its order.

    Args:
        ranking: what is drawn.
        short: names that fit next to the bars on a phone.
        wide: on a desktop.
    """
    # n lines cut the width into n + 1 gaps of equal width. Gaps are equal on purpose: the ladder shows order alone,
    # what verdicts allow, and a width in nats would suggest distances that intervals do not support. Gap 0 is left of
    # (better than) every line.
    #
    # Three cases for a bar. A reference stands on its line: no width. A variant with gaps left covers them; they are
    # neighbours, since `above` one line and `below` another leave no hole (statistics/tiers.py). A variant that is
    # level with a line of several references has no gap left, and only its label says on which line it is.
    gap = 100 / (len(ranking.lines) + 1)
    places = max((row.rank_interval[1] for row in ranking.variants if row.rank_interval), default=0)
    line_of = {name: at for at, line in enumerate(ranking.lines) for name in line}
    rungs = []
    for row in ranking.variants:
        left = width = 0.0
        if row.variant in line_of:
            left = gap * (line_of[row.variant] + 1)
        elif row.tier.gaps:
            left, width = gap * row.tier.gaps[0], gap * len(row.tier.gaps)
        elif row.tier.kind == "among":  # on a line of several, with no gap left
            at = next((at for at, line in enumerate(ranking.lines) if row.tier.names == (" / ".join(line),)), -1)
            left = gap * (at + 1)
        best = row.rank_interval
        rungs.append(
            Rung(
                variant=row.variant,
                name=short[row.variant],
                wide=wide[row.variant],
                is_reference=row.variant in ranking.references,
                tier=row.tier,
                left=left,
                width=width,
                firm=row.tier.firm,
                ranks=best,
                rank_left=100 * (best[0] - 1) / places if best else 0.0,
                rank_width=100 * (best[1] - best[0] + 1) / places if best else 0.0,
            )
        )
    lines = tuple(
        ReferenceLine(
            names=tuple(line),
            label=" / ".join(short[name] for name in line),
            wide=" / ".join((wide if len(ranking.lines) <= _MOST_WIDE else short)[name] for name in line),
            at=gap * (at + 1),
            dashed=len(line) > 1,
        )
        for at, line in enumerate(ranking.lines)
    )
    return Ladder(lines=lines, rungs=tuple(rungs), places=places, paired=ranking.pairs is not None)
