"""`addnorm.trend`: differences between variants against the size of the models, from several studies' folders."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from addnorm.errors import InputError, UnknownName, warn
from addnorm.statistics import read_published
from addnorm.statistics.run_tables import is_run_table
from addnorm.statistics.trend import Size, Trend
from addnorm.statistics.trend import trend as trend_of_sizes
from addnorm.store.questions.source import Runs, counted_costs, read_source, record_peek
from addnorm.store.rank import variant_names
from addnorm.store.study import StudyFolder
from addnorm.words import say as sentence


@dataclass(frozen=True, kw_only=True)
class _Source:
    """The runs of one path."""

    path: Path
    runs: Runs
    costs: Mapping[str, Any]
    """Counted numbers by variant, `parameters` among them; empty if nobody counted."""
    margin: float | None = None
    folder: StudyFolder | None = None

    def size(self, variant: str) -> float:
        """Parameters of the variant's model."""
        counted = self.costs.get(variant)
        number = counted.get("parameters") if isinstance(counted, Mapping) else None
        if not isinstance(number, int | float):
            raise InputError(
                f"{self.path}: expected a count of the parameters of {variant!r}, got none. Give the numbers for all paths: "
                "--parameters 54168,90656"
            )
        return float(number)


def _source(path: Path, columns: Mapping[str, str] | None) -> _Source:
    runs = read_source(path, columns, batch="first")
    folder = StudyFolder(path) if (path / "study.json").exists() else None
    costs: Any = {}
    if folder is not None:
        costs = counted_costs(folder)
    elif path.suffix == ".json" and not is_run_table(path):
        costs = read_published(path).notes.get("costs")
    return _Source(
        path=path,
        runs=runs,
        costs=costs if isinstance(costs, Mapping) else {},
        margin=None if folder is None else folder.plan.get("margin"),
        folder=folder,
    )


def trend(
    paths: Sequence[str | Path],
    *,
    references: Sequence[str] | None = None,
    parameters: Sequence[float] | None = None,
    margin: float | None = None,
    exclude: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    say: Callable[[str], None] = warn,
) -> Trend:
    r"""Compare how differences in loss change with the size of the models.

    The command is `addnorm trend`. Like a ranking, it is recorded as a look in the folder of every study.

    Args:
        paths: one per size: folder of a study, JSON file of results, or a table of runs that other code trained.
        references: variants that the others are compared with; those of the first path if not given.
        parameters: of a model of each size, in the order of the paths. Counted by `addnorm run` for a study's folder, and
            necessary for a table of runs.
        margin: largest change per doubling of the parameters that counts as none, in the unit of the loss. If not given, that
            of the first study, or 0.005.
        exclude: variants that take no part.
        columns: names of the columns `variant`, `seed` and `loss` in tables of runs.
        say: receives a message if the look cannot be recorded; by default a Python warning.

    Raises:
        InputError: fewer than two paths, sizes that cannot be compared, or a number of parameters that is unknown.
        Damaged: a file of a study is damaged.

    Example:
        >>> small = "variant,seed,loss\nbase,0,2.50\nbase,1,2.52\nbase,2,2.51\nrezero,0,2.41\nrezero,1,2.44\nrezero,2,2.42\n"
        >>> large = "variant,seed,loss\nbase,0,2.20\nbase,1,2.21\nbase,2,2.20\nrezero,0,2.01\nrezero,1,2.03\nrezero,2,2.02\n"
        >>> _ = Path("small.csv").write_text(small), Path("large.csv").write_text(large)
        >>> addnorm.trend(["small.csv", "large.csv"], parameters=[1e6, 4e6])["rezero"].direction("base")
        'falls'
    """
    sources = [_source(Path(path), columns) for path in paths]
    if not sources:
        raise InputError("a trend needs at least two sizes, got no path. Give a folder for each size.")
    if parameters is not None and len(parameters) != len(sources):
        raise InputError(
            f"parameters: expected one number for each of the {len(sources)} paths, got {len(parameters)}."
        )
    compared = tuple(references) if references is not None else sources[0].runs.references
    if not compared:
        raise InputError(f"{paths[0]}: names no reference. Name the variant to compare with.")
    for source in sources:
        known = variant_names(source.runs.results)
        for name in compared:
            if name not in known:
                raise UnknownName("variant to be the reference", name, known)
    margins = (margin, sources[0].margin, 0.005)
    sizes = [
        Size(
            name=str(path),
            parameters=source.size(compared[0]) if parameters is None else parameters[place],
            results=source.runs.results,
            measure=source.runs.measure,
        )
        for place, (path, source) in enumerate(zip(paths, sources, strict=True))
    ]
    result = trend_of_sizes(
        sizes,
        references=compared,
        margin=next(each for each in margins if each is not None),
        left_out=exclude,
    )
    for source in sources:
        if source.folder is not None:
            record_peek(source.folder, say)
    warnings = [(source.path, each) for source in sources for each in source.runs.warnings]
    notes = [f"{path}: {each}" for path, each in warnings if each.note["code"] != "direction_assumed"]
    measure = sources[0].runs.measure
    if margins[:2] == (None, None) and not measure.in_nats:
        notes.append(sentence("margin_of_nats", metric=measure.name, margin=result.margin))
    return replace(result, warnings=(*notes, *result.warnings))
