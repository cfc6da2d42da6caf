"""The runs of a study as a list that a notebook shows as a table, and pandas takes as a data frame."""

from dataclasses import fields
from typing import Any

from addnorm.notebook.table import Table
from addnorm.store import RunFolder, RunStatus

COLUMNS = tuple(field.name for field in fields(RunStatus))
"""Columns of a table of runs."""


class RunList(list[RunFolder]):
    """Runs in the order of the plan: `run.path`, `run.spec`, `run.status()` of each.

    Example:
        >>> runs = addnorm.open_runs("runs/first").runs()
        >>> runs[0].status().state, runs.table().column("state")[1]
        ('finished', 'finished')
    """

    def table(self) -> Table:
        """The runs with their newest numbers, a row per run: the fields of `RunStatus`.

        Raises:
            InputError, Damaged: the spec of a run is missing or damaged.
        """
        return Table((run.status().to_json() for run in self), columns=COLUMNS)

    def to_pandas(self) -> Any:
        """The table of the runs as a `pandas.DataFrame`.

        Raises:
            InputError: pandas is not installed.
            Damaged: as `table`.
        """
        return self.table().to_pandas()

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()
