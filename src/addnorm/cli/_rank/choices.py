"""Options that choose what is compared in a table of runs: the same for `rank`, `report` and `watch`."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from addnorm.cli._text import JsonOption
from addnorm.reporting.reading.run_table import TableChoices
from addnorm.statistics.run_tables import columns_from


@dataclass(frozen=True, kw_only=True)
class ColumnOptions(JsonOption):
    """The columns of a table of runs."""

    columns: str = ""
    """Columns of runs that other code trained, such as `variant=model,loss=val_loss`."""
    direction: Literal["lower", "higher"] | None = None
    """The better direction in the column `loss` of such runs; needed for a column such as accuracy."""
    unit: str = ""
    """Unit of that column, for what is shown."""

    def of_runs(self) -> dict[str, Any]:
        """The options as functions that read a table take them.

        Raises:
            InputError: columns of another form.
        """
        columns = columns_from(self.columns) if self.columns else None
        return {"columns": columns, "direction": self.direction, "unit": self.unit or None}


@dataclass(frozen=True, kw_only=True)
class TableOptions(ColumnOptions):
    """Choices about a table of runs."""

    reference: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Variants to compare with, in place of the study's own. May be given more than once."""
    margin: float | None = None
    """Nats per token, or the unit of the column, below which a difference counts as none, in place of the study's own."""
    variant: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Rank only these variants and the references. May be given more than once. Counts as a look at results."""
    exclude: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Leave out this variant. May be given more than once. Counts as a look at results."""
    columns: str = ""
    """Columns of runs that other code trained, such as `variant=model,loss=val_loss`, also `state` and `step`; for a folder of
    TensorBoard events `run={variant}_{seed}`."""
    metric: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Column to rank such runs by, or number of the last evaluation of a study's runs, such as
    `accuracy,direction=higher,margin=0.2,unit=%`. May be given more than once: the first decides, each of the others is shown
    beside it with an error rate of its own."""
    together: bool = False
    """One error rate for all metrics together instead."""
    posterior: bool = False
    """Also show how probable it is that each variant is better, equivalent, or worse. Never in place of the verdict."""

    def choices(self) -> TableChoices:
        """The options as `addnorm.report` takes them.

        Raises:
            InputError: columns of another form.
        """
        return TableChoices(
            references=self.reference or None,
            margin=self.margin,
            variants=self.variant,
            exclude=self.exclude,
            **self.of_runs(),
            metric=self.metric,
            together=self.together,
            posterior=self.posterior,
        )
