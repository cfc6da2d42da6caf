"""`addnorm.downstream`: scores of models on the same items, compared with what items, documents and seeds leave open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from addnorm.errors import InputError
from addnorm.fields import JsonFields
from addnorm.statistics.effects.downstream import ItemComparison, compare_items, verdict_of
from addnorm.statistics.measure import Direction, measure_of
from addnorm.statistics.run_tables import Source
from addnorm.statistics.run_tables.samples import ItemTable, Run, read_items
from addnorm.store.questions.source import compared_variants
from addnorm.words import Sentence, say


@dataclass(frozen=True, kw_only=True)
class DownstreamRow(JsonFields):
    """A variant against the reference on one metric of one task."""

    task: str
    metric: str
    better: Direction
    variant: str
    mean: float
    reference_mean: float
    verdict: Literal["better", "worse", "equivalent", "undecided"]
    about: Literal["ways to train", "checkpoints"]
    """Of what the answer speaks: with several seeds of both, of ways to train; otherwise, of these checkpoints."""
    comparison: ItemComparison


@dataclass(frozen=True, kw_only=True)
class Downstream(JsonFields):
    """Every variant against the reference on every task; all intervals together have the confidence."""

    reference: str
    confidence: float
    margin: float | None
    family: int
    rows: tuple[DownstreamRow, ...]
    warnings: tuple[Sentence, ...]

    def __getitem__(self, key: tuple[str, str]) -> DownstreamRow:
        """The row of a variant and task (its first metric).

        Raises:
            KeyError: no such row.
        """
        return {(row.variant, row.task): row for row in reversed(self.rows)}[key]


def downstream(
    source: Source,
    *,
    reference: str | None = None,
    variants: Sequence[str] = (),
    margin: float | None = None,
    confidence: float = 0.95,
    columns: Mapping[str, str] | None = None,
    direction: Direction | None = None,
) -> Downstream:
    """Compare the scores of models on the same items, with or without several seeds of each.

    The command is `addnorm rank --as downstream`.

    Args:
        source: a folder of sample files of lm-evaluation-harness (`--log_samples`) or of JSON logs of Inspect, one folder per
            run; or a table with the columns `variant`, `seed`, `item` and `loss` for the score, and `document` and `task` if
            there are any. `seed` may be left out (`columns={"seed": ""}`).
        reference: variant that all others are compared with; the first one unless given.
        variants: the only variants to compare; all others unless given.
        margin: largest difference that counts as none; without it, nothing is called equivalent.
        confidence: of all intervals together.
        columns: names of the columns; for folders, `loss` chooses a metric, `document` is a path into what describes an item,
            such as `doc.text_id`, and `run` is the form of the folders' names.
        direction: the better direction; higher unless the metric's name says otherwise.

    Raises:
        InputError: the samples cannot be read, or two models have no items in common.
        UnknownName: no such variant.

    Example:
        >>> right = {"base": "110100101101", "deep": "111110111101"}
        >>> rows = [{"variant": v, "item": i, "loss": int(x)} for v, of in right.items() for i, x in enumerate(of)]
        >>> compared = addnorm.downstream(rows, columns={"seed": ""})
        >>> row = compared["deep", ""]
        >>> row.verdict, row.comparison.method, row.comparison.only_first, row.comparison.only_second
        ('undecided', 'mcnemar', 3, 0)
    """
    if not 0.5 < confidence < 1:
        raise InputError(f"confidence: expected a number between 0.5 and 1, got {confidence}. For 95 % give 0.95.")
    if margin is not None and not margin > 0:
        raise InputError(f"margin: expected a positive difference of scores, got {margin}.")
    tables = read_items(source, columns)
    known = tuple(dict.fromkeys(run[0] for table in tables for run in table.scores))
    base, chosen = compared_variants(known, reference, variants)
    pairs = [(table, name) for table in tables for name in chosen if {name, base} <= {run[0] for run in table.scores}]
    if not pairs:
        raise InputError(
            f"downstream: expected a task that {base!r} and another variant were scored on, got none of "
            "them. Give the samples of both."
        )
    # Bonferroni over tasks, metrics and variants: each of them is another chance to look better.
    each = 1 - (1 - confidence) / len(pairs)
    warnings: list[Sentence] = []
    rows = [_row(table, name, base, each, margin, direction, warnings) for table, name in pairs]
    return Downstream(
        reference=base,
        confidence=confidence,
        margin=margin,
        family=len(pairs),
        rows=tuple(rows),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _row(
    table: ItemTable,
    name: str,
    base: str,
    confidence: float,
    margin: float | None,
    direction: Direction | None,
    warnings: list[Sentence],
) -> DownstreamRow:
    own, other = (_runs(table, each) for each in (name, base))
    items = [item for item in table.scores[own[0]] if all(item in table.scores[run] for run in (*own, *other))]
    lost = len({item for run in (*own, *other) for item in table.scores[run]}) - len(items)
    where = table.task or table.metric
    if lost:
        warnings.append(say("items_not_common", task=where, variant=name, reference=base, lost=lost, items=len(items)))
    if not items:
        raise InputError(f"{where}: expected items that {name!r} and {base!r} were both scored on, got none in common.")
    seeds = [{run[1] for run in runs} for runs in (own, other)]
    shared = len(own) > 1 and seeds[0] == seeds[1]
    documents = None
    if table.documents:
        missing = [item for item in items if item not in table.documents]
        if missing:
            raise InputError(f"{where}: expected a document for every item, got none for item {missing[0]}.")
        numbers = {each: place for place, each in enumerate(dict.fromkeys(table.documents.values()))}
        documents = [numbers[table.documents[item]] for item in items]
    first, second = table.matrix(own, items), table.matrix(other, items)
    compared = compare_items(
        first,
        second,
        None if documents is None else np.array(documents),
        shared_seeds=shared,
        confidence=confidence,
    )
    if min(len(own), len(other)) == 1 < max(len(own), len(other)):
        single = name if len(own) == 1 else base
        warnings.append(say("one_checkpoint", variant=single))
    better = direction or _better(table.metric)
    return DownstreamRow(
        task=table.task,
        metric=table.metric,
        better=better,
        variant=name,
        mean=float(first.mean()),
        reference_mean=float(second.mean()),
        verdict=verdict_of(compared, higher=better == "higher", margin=margin),
        about="ways to train" if min(len(own), len(other)) > 1 else "checkpoints",
        comparison=compared,
    )


def _runs(table: ItemTable, variant: str) -> list[Run]:
    runs = sorted((run for run in table.scores if run[0] == variant), key=lambda run: (run[1] is not None, run[1] or 0))
    if len(runs) > 1 and runs[0][1] is None:
        raise InputError(
            f"{table.task or table.metric}: expected a seed for every run of {variant!r}, got a run without one. Name the "
            "folders by variant and seed, or give their form as --columns 'run={variant}_{seed}'."
        )
    return runs


def _better(metric: str) -> Direction:
    """Of scores higher is better, unless the name says that lower is."""
    try:
        named = measure_of(metric)
    except InputError:
        return "higher"
    return "higher" if named.assumed else "lower"
