"""`addnorm.rank`: the ranking of a study's folder, or of published results."""

from collections.abc import Callable, Sequence
from pathlib import Path

from addnorm.errors import JobError, warn
from addnorm.references import names_printed_results
from addnorm.statistics import Ranking, ranking_of_published
from addnorm.store.results import ranking
from addnorm.store.study import StudyFolder


def rank(
    path: str | Path,
    *,
    references: Sequence[str] | None = None,
    margin: float | None = None,
    say: Callable[[str], None] = warn,
) -> Ranking:
    """Rank a study's variants, with simultaneous verdicts against each reference.

    A ranking of a study is recorded in `looks.jsonl` in its folder, so that seeds which are added later are marked as added
    after it. The command is `addnorm rank`.

    Args:
        path: folder of a study; a JSON file of published results; or `kuang-2025` for the table that Kuang (2025) prints.
        references: variants to compare with, in place of the study's own.
        margin: nats per token below which a difference counts as none, in place of the study's own.
        say: receives a message if the ranking cannot be recorded; by default a Python warning.

    Raises:
        InputError: the path is not a study, a reference is unknown, or the results cannot be compared.
        Damaged: a file of the study is damaged.

    Example:
        >>> ranking = addnorm.rank("runs/first")
        >>> ranking["summed"].versus["base"].verdict
        'equivalent'
    """
    overrides: dict[str, object] = {}
    if references is not None:
        overrides["references"] = tuple(references)
    if margin is not None:
        overrides["margin"] = margin
    if names_printed_results(path) or Path(path).suffix == ".json":
        return ranking_of_published(Path(path), overrides)
    folder = StudyFolder(path)
    current = ranking(folder, overrides)
    record_peek(folder, say)
    return current


def record_peek(folder: StudyFolder, say: Callable[[str], None] = warn) -> None:
    """Record that results were shown; a folder that cannot be written is reported and may be shown all the same."""
    try:
        folder.record_peek()
    except JobError as error:
        say(f"this look is not recorded, so seeds added later will not be marked as added after it: {error}")
