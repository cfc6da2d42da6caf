"""Results of a study for notebooks and scripts: tables that become data frames, and a ranking that draws itself.

`open_runs` returns a `StudyRuns`, whose methods return a `Table` or a `StudyRanking`. No torch is imported.
"""

from addnorm.notebook.ranking import StudyRanking
from addnorm.notebook.runs import RunList
from addnorm.notebook.study import METRICS, StudyRuns, open_runs
from addnorm.notebook.table import Table

__all__ = ["METRICS", "RunList", "StudyRanking", "StudyRuns", "Table", "open_runs"]
