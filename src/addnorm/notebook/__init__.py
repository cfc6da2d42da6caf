"""Results of a study for notebooks and scripts: tables that become data frames, and a ranking that draws itself.

`open_runs` returns a `StudyRuns`, whose methods return a `Table` or a `StudyRanking`. No torch is imported.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from addnorm.notebook.ranking import StudyRanking as StudyRanking
    from addnorm.notebook.runs import RunList as RunList
    from addnorm.notebook.study import METRICS as METRICS
    from addnorm.notebook.study import StudyRuns as StudyRuns
    from addnorm.notebook.study import open_runs as open_runs
    from addnorm.notebook.table import Table as Table

__all__ = ["METRICS", "RunList", "StudyRanking", "StudyRuns", "Table", "open_runs"]

# Imported when first used: `addnorm.rank` is in this package and needs neither the readers of studies nor their pages.
_HOMES = {"RunList": "runs", "StudyRanking": "ranking", "Table": "table"}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module(f"addnorm.notebook.{_HOMES.get(name, 'study')}"), name)
    raise AttributeError(f"module 'addnorm.notebook' has no attribute {name!r}")
