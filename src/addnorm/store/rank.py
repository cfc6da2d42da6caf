"""`addnorm.rank`: the ranking of a study's folder, of published results, or of runs that other code trained."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from addnorm.errors import InputError, JobError, UnknownName, warn
from addnorm.references import names_printed_results
from addnorm.statistics import Ranking, Result, kuang_2025, ranking_of_published, read_published
from addnorm.statistics import rank as rank_results
from addnorm.statistics.measure import Direction, Metric, measure_of
from addnorm.statistics.run_tables import Source, is_run_table, read_run_table
from addnorm.store.questions.source import columns_of_no_table
from addnorm.store.results import ranking
from addnorm.store.study import StudyFolder
from addnorm.words import Sentence
from addnorm.words import say as sentence


def rank(
    path: Source,
    *,
    references: Sequence[str] | None = None,
    margin: float | None = None,
    variants: Sequence[str] = (),
    exclude: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    direction: Direction | None = None,
    unit: str | None = None,
    say: Callable[[str], None] = warn,
) -> Ranking:
    """Rank a study's variants, with simultaneous verdicts against each reference.

    A ranking of a study is recorded in `looks.jsonl` in its folder, so that seeds which are added later are marked as added
    after it. The command is `addnorm rank`.

    Args:
        path: folder of a study; a JSON file of published results; `kuang-2025` for the table that Kuang (2025) prints; or runs
            that other code trained: a CSV file, JSON lines, a JSON list, a folder of TensorBoard events, a data frame of pandas
            or polars, or a list of rows.
        references: variants to compare with, in place of the study's own. Of runs that other code trained, the first variant of
            the file unless given.
        margin: nats per token below which a difference counts as none, in place of the study's own.
        variants: the only variants to rank, besides the references; all if empty.
        exclude: variants to leave out.
        columns: names of the columns `variant`, `seed` and `loss` in a file of runs that other code trained, also of `state`
            and `step`; for a folder of TensorBoard events, `run` is the form of the runs' names, such as `{variant}_{seed}`.
        direction: of the numbers in the column `loss` of such a file: `lower` or `higher` is better. By default that of the
            column's name; a name such as accuracy needs it.
        unit: of these numbers, for what is shown. A loss is in nats per token unless given.
        say: receives a message if the ranking cannot be recorded; by default a Python warning.

    Raises:
        InputError: the path is not a study or a table of runs, a variant is unknown, or the results cannot be compared.
        Damaged: a file of the study is damaged.

    Example:
        >>> ranking = addnorm.rank("runs/first")
        >>> ranking["summed"].versus["base"].verdict
        'equivalent'
        >>> losses = {"base": (2.50, 2.52, 2.51), "rezero": (2.41, 2.44, 2.42)}
        >>> rows = [{"variant": v, "seed": s, "loss": x} for v, row in losses.items() for s, x in enumerate(row)]
        >>> addnorm.rank(rows)["rezero"].versus["base"].verdict
        'better'
    """
    own: tuple[str, ...]
    table = read_run_table(path, columns) if is_run_table(path) else None
    path = Path() if table is not None else Path(path)  # type: ignore[arg-type]
    if table is not None:
        known, own = variant_names(table.runs), (table.runs[0].variant,)
    elif columns or direction or unit:
        raise columns_of_no_table(path, "columns are given" if columns else "a direction or unit is given")
    elif names_printed_results(path) or path.suffix == ".json":
        published = kuang_2025() if names_printed_results(path) else read_published(path)
        known, own = variant_names(published.results), published.references
    else:
        folder = StudyFolder(path)
        known, own = (
            tuple(dict.fromkeys(run.spec["variant"] for run in folder.runs())),
            folder.references,
        )
    overrides = _chosen(known, own, references, variants, exclude)
    if margin is not None:
        overrides["margin"] = margin
    if table is not None:
        measure = measure_of(table.metric, direction, unit)
        result = rank_results(table.runs, **{"references": own, **overrides}, measure=measure)
        return replace(result, warnings=(*table.warnings, *_about(measure, result.margin, margin), *result.warnings))
    if names_printed_results(path) or path.suffix == ".json":
        return ranking_of_published(path, overrides)
    current = ranking(folder, overrides)
    record_peek(folder, say)
    return current


def _about(measure: Metric, applied: float, given: float | None) -> list[Sentence]:
    """Assumptions about a measure that is not a loss in nats."""
    assumed = [sentence("direction_assumed", metric=measure.name)] if measure.assumed else []
    if given is None and not measure.in_nats:
        assumed.append(sentence("margin_of_nats", metric=measure.name, margin=applied))
    return assumed


def variant_names(results: Sequence[Result]) -> tuple[str, ...]:
    """Every variant once, in order of first appearance."""
    return tuple(dict.fromkeys(result.variant for result in results))


def _chosen(
    known: Sequence[str],
    own: Sequence[str],
    references: Sequence[str] | None,
    variants: Sequence[str],
    exclude: Sequence[str],
) -> dict[str, Any]:
    """Settings that differ from the ranking of everything against the study's own references."""
    variants, exclude = (_points(names, known) for names in (variants, exclude))
    references = None if references is None else _points(references, known)
    for name in (*variants, *exclude):
        if name not in known:
            raise UnknownName("variant", name, known)
    for name in references or ():
        if name in exclude:
            raise InputError(f"reference {name!r}: expected a variant that is ranked, got one that is excluded.")
    compared = own if references is None else references
    left_out = [
        name for name in known if name in exclude or (variants and name not in variants and name not in compared)
    ]
    overrides: dict[str, Any] = {}
    if left_out:
        overrides["left_out"] = tuple(left_out)
    kept = tuple(name for name in compared if name not in left_out)
    if compared and not kept:
        raise InputError(
            f"references: expected one that is left, got all of {', '.join(compared)} excluded. Name another."
        )
    if references is not None or kept != tuple(own):
        overrides["references"] = kept
    return overrides


def _points(names: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Variants by their names, also as tables write them (`base · depth 2`), or by the variant whose points they are."""
    found: list[str] = []
    for name in names:
        plain = name if name in known else name.replace(" · ", ", ")
        found += [plain] if plain in known else [each for each in known if each.startswith(f"{plain}, ")] or [name]
    return tuple(dict.fromkeys(found))


def record_peek(folder: StudyFolder, say: Callable[[str], None] = warn) -> None:
    """Record that results were shown; a folder that cannot be written is reported and may be shown all the same."""
    try:
        folder.record_peek()
    except JobError as error:
        say(f"this look is not recorded, so seeds added later will not be marked as added after it: {error}")
