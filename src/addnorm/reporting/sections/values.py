"""The loss of every run, by model and seed."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.formats.measured import RankingFormats
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import View
from addnorm.statistics import Ranking, RunValue
from addnorm.words import phrases


class ValuesSection(Section):
    """The final losses that means are taken over."""

    order = 50
    pages = ("ranking",)
    sources = frozenset({"study", "table"})
    follows = frozenset({"ranking", "states"})
    shows_results = True

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        t, ranking = phrases(view.language), snapshot.ranking
        rankings = () if ranking is None else (ranking, *ranking.others)
        return {
            "tables": [(each, RankingFormats.of_measure(each.measure, t), *_by_seed(each)) for each in rankings],
            "no_ranking": snapshot.no_ranking,
            # A study has pages of failures; of a table this is the one place of its report that has every run.
            "uncounted": [] if snapshot.is_study else [run for run in snapshot.runs if run.reason],
            # The ranking is computed when runs end; the states of runs that have not ended are known sooner.
            "states": {run.run: run.state for run in snapshot.runs},
        }


def _by_seed(ranking: Ranking) -> tuple[list[int], list[tuple[str, list[RunValue | None]]]]:
    """Every seed, and the run of each variant at each of them; without shared seeds, the runs of each in their order."""
    if ranking.unpaired:
        # A column per seed would be as long as all runs together, with one number in each.
        most = max((len(row.values) for row in ranking.variants), default=0)
        return [], [(row.variant, [*row.values, *[None] * (most - len(row.values))]) for row in ranking.variants]
    seeds = sorted({value.seed for row in ranking.variants for value in row.values})
    by_seed = [(row.variant, {value.seed: value for value in row.values}) for row in ranking.variants]
    return seeds, [(variant, [values.get(seed) for seed in seeds]) for variant, values in by_seed]
