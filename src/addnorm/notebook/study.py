"""The folder of a study with its results as tables."""

from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from addnorm.errors import UnknownName
from addnorm.notebook.ranking import StudyRanking
from addnorm.notebook.runs import RunList
from addnorm.notebook.table import Table
from addnorm.reporting.reader import Reader
from addnorm.reporting.sections.insight.rows import insight_table
from addnorm.reporting.sections.scalars import long_scalars, scalar_rows
from addnorm.reporting.snapshot import Snapshot
from addnorm.store import Index, StudyFolder
from addnorm.store.rank import rank
from addnorm.store.study import Batch
from addnorm.words import phrases

METRICS = (
    "train.loss",
    "train.grad_norm",
    "train.learning_rate",
    "train.tokens_per_s",
    "eval.loss",
    "eval.accuracy",
    "eval.perplexity",
    "eval.bits_per_byte",
)
"""Metrics of curves: losses in nats per token, accuracy as a share of scored tokens.

Example:
    >>> "eval.loss" in METRICS
    True
"""


class StudyRuns(StudyFolder):
    """Folder of a study whose results are tables, for notebooks and scripts.

    Everything is read when a method is called, also while the study is trained.

    Args:
        out: the folder.

    Raises:
        InputError, Damaged: as `StudyFolder`.

    Example:
        >>> study = addnorm.open_runs("runs/first")
        >>> sorted({(row["variant"], row["state"]) for row in study.table()})[0]
        ('base', 'finished')
    """

    def runs(self, batch: Batch | None = None) -> RunList:
        """Runs that are compared, or those of one batch, in plan order: a list, with `.to_pandas()` for their states and
        newest numbers.

        Example:
            >>> study = addnorm.open_runs("runs/first")
            >>> [run.spec["variant"] for run in study.runs()][:1]
            ['base']
        """
        return RunList(super().runs(batch))

    def table(self) -> Table:
        """Runs with their newest numbers: a row per run, with the fields of `RunStatus`.

        Columns: run, variant, seed, state, step, steps, loss (nats per token), accuracy (0 to 1), perplexity, attempts,
        reason. A number that does not exist yet is None.

        Raises:
            InputError, Damaged: the spec of a run is missing or damaged.

        Example:
            >>> addnorm.open_runs("runs/first").table().column("state")[:2]
            ['finished', 'finished']
        """
        return RunList(self.all_runs()).table()

    def curves(self, metrics: Sequence[str] = METRICS) -> Table:
        """Metrics over training: a row per run, metric and step, with the columns run, variant, seed, metric, step, value.

        A value of `train.…` is the mean since the event before, one of `eval.…` a measurement on held-out text. Repeated steps
        of a resumed run have their newest value. A row takes about 0.3 kB of memory: select metrics of large studies.

        Args:
            metrics: names among `METRICS`.

        Raises:
            UnknownName: no such metric.
            Damaged: the events of a run are damaged.

        Example:
            >>> curves = addnorm.open_runs("runs/first").curves(["eval.loss"])
            >>> {row["metric"] for row in curves}
            {'eval.loss'}
        """
        for metric in metrics:
            if metric not in METRICS:
                raise UnknownName("metric", metric, METRICS)
        index = Index(self.path)
        rows = (
            {
                "run": run.name,
                "variant": run.spec["variant"],
                "seed": run.spec["seed"],
                "metric": metric,
                "step": step,
                "value": value,
            }
            for run in self.all_runs()
            for metric in metrics
            for step, value in index.curve(run.name, metric)
        )
        return Table(
            rows, columns=("run", "variant", "seed", "metric", "step", "value"), empty="no run has such an event yet"
        )

    def layers(self) -> Table:
        """Measures of `addnorm.inspect`: a row per inspected run, moment, layer and measure.

        Columns: variant, seed, step (0 before training), layer, measure, value. The measures are described by
        `addnorm inspect`; the gradient is a norm, the stream a root mean square, entropies are in nats.

        Raises:
            InputError, Damaged: the study is gone, or its `study.json` damaged.

        Example:
            >>> addnorm.open_runs("runs/first").layers().columns
            ('variant', 'seed', 'step', 'layer', 'measure', 'value')
        """
        return Table(
            insight_table(self._snapshot()),
            columns=("variant", "seed", "step", "layer", "measure", "value"),
            empty=f"no run is inspected; addnorm.inspect({str(self.path)!r}) does it",
        )

    def scalars(self) -> Table:
        """Learned scalars of the newest checkpoints: a row per scalar and seed.

        Columns: variant, parameter, layer, entry, init, decay_only (value that weight decay alone would have left), seed,
        final. For verdicts use `addnorm.explain`.

        Raises:
            InputError, Damaged: the study is gone, or its `study.json` damaged.

        Example:
            >>> scalars = addnorm.open_runs("runs/first").scalars()
            >>> sorted(set(scalars.column("seed")))
            [0, 1, 2]
        """
        return Table(
            long_scalars(scalar_rows(self._snapshot(), phrases("en"))),
            columns=("variant", "parameter", "layer", "entry", "init", "decay_only", "seed", "final"),
            empty="no checkpoint has learned scalars",
        )

    def rank(self, *, references: Sequence[str] | None = None, margin: float | None = None) -> StudyRanking:
        """Rank the variants, as `addnorm.rank` does; a notebook shows the result as a table, and `.plot()` draws it.

        Args:
            references: variants to compare with, in place of the study's own.
            margin: nats per token below which a difference counts as none, in place of the study's own.

        Raises:
            InputError, Damaged: as `addnorm.rank`.

        Example:
            >>> addnorm.open_runs("runs/first").rank()["summed"].versus["base"].verdict
            'equivalent'
        """
        return StudyRanking.of(rank(self.path, references=references, margin=margin))

    def __repr__(self) -> str:
        states = Counter(status.state for status in self.statuses())
        counts = ", ".join(f"{count} {state}" for state, count in states.most_common())
        variants = list(dict.fromkeys(run.spec["variant"] for run in self.runs() or self.all_runs()))
        return (
            f"Study '{self.name}' in {self.path}: {len(self.all_runs())} runs of {len(variants)} variants ({counts}).\n"
            f"Variants: {', '.join(variants)}.\n"
            "Results: .table(), .curves(), .layers(), .scalars(), .rank(); runs: .runs()."
        )

    def _repr_html_(self) -> str:
        first, *others = repr(self).splitlines()
        about: Any = "".join(f"<br>{escape(line)}" for line in others)
        return f"<p><b>{escape(first)}</b>{about}</p>{self.table()._repr_html_()}"

    def _snapshot(self) -> Snapshot:
        return Reader(self.path).look(rank=lambda reader: False)


def open_runs(folder: str | Path) -> StudyRuns:
    """Open the folder of a study, to read its runs and its results.

    Args:
        folder: a folder created by `addnorm run`.

    Returns:
        The study: `.runs()` are its runs; `.table()`, `.curves()`, `.layers()` and `.scalars()` are tables (lists of dicts),
        and `.rank()` is its ranking. `.to_pandas()` of the runs and of each table is a data frame. A notebook shows all of
        them.

    Raises:
        InputError: the folder contains no study, or one of another format.
        Damaged: `study.json` is damaged.

    Example:
        >>> study = addnorm.open_runs("runs/first")
        >>> len(study.runs()), study.runs()[0].status().state
        (9, 'finished')
        >>> study.curves(["eval.loss"]).columns
        ('run', 'variant', 'seed', 'metric', 'step', 'value')
    """
    return StudyRuns(folder)
