"""The probabilities that a variant is better, equivalent, or worse, where that was asked for."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import View
from addnorm.statistics.effects.posterior import posteriors


class PosteriorSection(Section):
    """Probabilities beside the verdicts, of a table that was read with `--posterior`."""

    order = 47
    pages = ("ranking",)
    sources = frozenset({"table"})
    follows = frozenset({"ranking"})
    shows_results = True

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        rankings = () if snapshot.ranking is None else (snapshot.ranking, *snapshot.ranking.others)
        return {
            "is_asked": self.is_measured(snapshot, None),
            "rows": [
                (each.measure.name if len(rankings) > 1 else "", name, other, posterior)
                for each in rankings
                for (name, other), posterior in posteriors(each).items()
            ],
        }

    def is_measured(self, snapshot: Snapshot, variant: str | None) -> bool:
        return snapshot.table is not None and snapshot.table.posterior
