"""The loss of every run, by model and seed."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import View


class ValuesSection(Section):
    """The final losses that means are taken over."""

    order = 50
    pages = ("ranking",)
    follows = frozenset({"ranking", "states"})
    shows_results = True

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        ranking = snapshot.ranking
        rows = ranking.variants if ranking is not None else ()
        seeds = sorted({value.seed for row in rows for value in row.values})
        by_seed = [(row.variant, {value.seed: value for value in row.values}) for row in rows]
        return {
            "ranking": ranking,
            "no_ranking": snapshot.no_ranking,
            "seeds": seeds,
            "rows": [(variant, [values.get(seed) for seed in seeds]) for variant, values in by_seed],
            # The ranking is computed when runs end; the states of runs that have not ended are known sooner.
            "states": {run.run: run.state for run in snapshot.runs},
        }
