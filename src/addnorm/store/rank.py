"""`addnorm.rank`: the ranking of a study's folder, of published results, or of runs that other code trained."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from addnorm.errors import InputError, UnknownName, warn
from addnorm.references import names_printed_results
from addnorm.statistics import Ranking, Result, kuang_2025, ranking_of_published, read_published
from addnorm.statistics import rank as rank_results
from addnorm.statistics.measure import Direction, Metric, MetricChoice, measure_of
from addnorm.statistics.run_tables import RunTable, Source, is_run_table, read_run_table
from addnorm.store.questions.source import columns_of_no_table, is_published, record_peek
from addnorm.store.results import ranking
from addnorm.store.study import StudyFolder
from addnorm.words import Sentence, listed
from addnorm.words import say as sentence

_ALPHA = 0.05
"""Error rate of all verdicts of a metric, or of all metrics together."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """Choices about a ranking; `rank` says what each is."""

    references: Sequence[str] | None = None
    margin: float | None = None
    variants: Sequence[str] = ()
    exclude: Sequence[str] = ()
    columns: Mapping[str, str] | None = None
    direction: Direction | None = None
    unit: str | None = None
    metric: str | Sequence[str | Mapping[str, Any]] = ()
    together: bool = False

    def metrics(self) -> tuple[MetricChoice, ...]:
        """The columns to rank by; what is said apart from them is of the first.

        Raises:
            InputError: a metric of another form, one twice, or one beside the column `loss`.
        """
        given = [self.metric] if isinstance(self.metric, str | Mapping) else list(self.metric)
        named = (self.columns or {}).get("loss")
        if given and named not in (None, "loss"):
            raise InputError(f"metric: expected no column loss={named} beside it, got both. Leave one out.")
        choices = [MetricChoice.of(each) for each in given] or [MetricChoice(name=named or "loss")]
        names = [choice.name for choice in choices]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"metric: expected each column once, got {name} twice. Leave one out.")
        first = choices[0]
        choices[0] = replace(
            first,
            direction=first.direction or self.direction,
            unit=first.unit or self.unit,
            margin=self.margin if first.margin is None else first.margin,
        )
        return tuple(choices)

    def overrides(self, known: Sequence[str], own: Sequence[str]) -> dict[str, Any]:
        """Settings that differ from the ranking of everything against the study's own references."""
        variants, exclude = (_points(names, known) for names in (self.variants, self.exclude))
        references = None if self.references is None else _points(self.references, known)
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
    metric: str | Sequence[str | Mapping[str, Any]] = (),
    together: bool = False,
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
        metric: columns of such a file, or numbers of the last evaluation of a study's runs, in place of `loss`: by name,
            as `accuracy,direction=higher,margin=0.2,unit=%`, or as a mapping of these fields. The first decides; the others
            are `others` of the result, each with an error rate of its own.
        together: one error rate for the verdicts of all metrics instead.
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
    choices = Choices(
        references=references,
        margin=margin,
        variants=variants,
        exclude=exclude,
        columns=columns,
        direction=direction,
        unit=unit,
        metric=metric,
        together=together,
    )
    if is_run_table(path):
        return rank_table(path, choices).ranking
    path = Path(path)  # type: ignore[arg-type]
    if columns or ((direction or unit) and not metric) or (metric and is_published(path)):
        given = "columns are given" if columns or metric else "a direction or unit is given"
        raise columns_of_no_table(path, given)
    own: tuple[str, ...]
    if is_published(path):
        published = kuang_2025() if names_printed_results(path) else read_published(path)
        known, own = variant_names(published.results), published.references
    else:
        folder = StudyFolder(path)
        known, own = tuple(dict.fromkeys(run.spec["variant"] for run in folder.runs())), folder.references
    overrides = choices.overrides(known, own)
    if is_published(path):
        return ranking_of_published(path, overrides | ({} if margin is None else {"margin": margin}))
    metrics = choices.metrics()
    made = []
    for choice in metrics:
        measure = measure_of(choice.name, choice.direction, choice.unit) if metric else None
        chosen = overrides | ({} if choice.margin is None else {"margin": choice.margin})
        ranked = ranking(folder, chosen, measure=measure, confidence=_confidence(metrics, together))
        notes = () if measure is None else _about(measure, ranked.margin, choice.margin)
        made.append(replace(ranked, warnings=(*notes, *ranked.warnings)))
    record_peek(folder, say)
    return _with_others(made, together)


@dataclass(frozen=True, kw_only=True)
class RankedTable:
    """The ranking of a table, and the runs that it is of."""

    ranking: Ranking
    runs: tuple[Result, ...]


# Every metric adds a family of comparisons. By default each family keeps its own error rate, and the first metric decides: a
# claim about one metric does not become harder because another is shown beside it. With `together`, the error rate is divided
# evenly over the metrics (Bonferroni), and Holm's procedure works within each: the chance of any false claim is then at most
# the sum of the parts, however the metrics depend on each other.
def rank_table(source: Source, choices: Choices, *, fewest_seeds: int = 2) -> RankedTable:
    """Rank the runs of a table by one column or several.

    Args:
        source, choices: as for `rank`.
        fewest_seeds: 2, or 1 where a table is shown while it grows.

    Raises:
        InputError: as `rank`.
    """
    metrics = choices.metrics()
    confidence = _confidence(metrics, choices.together)
    made: list[Ranking] = []
    first: RunTable | None = None
    for choice in metrics:
        table = read_run_table(source, {**(choices.columns or {}), "loss": choice.name}, fewest_seeds=fewest_seeds)
        first = first or table
        own = (table.runs[0].variant,)
        overrides = choices.overrides(variant_names(table.runs), own)
        if choice.margin is not None:
            overrides["margin"] = choice.margin
        measure = measure_of(table.metric, choice.direction, choice.unit)
        result = rank_results(table.runs, **{"references": own, **overrides}, measure=measure, confidence=confidence)
        notes = [*table.warnings, *_about(measure, result.margin, choice.margin)]
        if choices.references is None and own[0] in (*result.set_apart, *result.noisy_references):
            notes.append(sentence("first_is_noisy", name=own[0]))
        made.append(replace(result, warnings=(*notes, *result.warnings)))
    assert first is not None
    return RankedTable(ranking=_with_others(made, choices.together), runs=first.runs)


def _confidence(choices: Sequence[MetricChoice], together: bool) -> float:
    if together and len(choices) < 2:
        raise InputError("together: expected several metrics, got one. Name them with metric, or leave it out.")
    return 1 - _ALPHA / (len(choices) if together else 1)


def _with_others(made: Sequence[Ranking], together: bool) -> Ranking:
    """The first ranking, with those by further metrics and a sentence on how they share error rates."""
    if len(made) == 1:
        return made[0]
    ranked = replace(made[0], others=tuple(made[1:]), together=together)
    return replace(ranked, warnings=(_share(ranked), *ranked.warnings))


def _share(ranking: Ranking) -> Sentence:
    """The sentence on how the metrics of a table share error rates."""
    others = listed("comma", (of.measure.name for of in ranking.others))
    if ranking.together:
        count = 1 + len(ranking.others)
        return sentence("metrics_together", first=ranking.measure.name, others=others, count=count, rate=100 * _ALPHA)
    return sentence("metrics_apart", first=ranking.measure.name, others=others, rate=100 * _ALPHA)


def _about(measure: Metric, applied: float, given: float | None) -> list[Sentence]:
    """Assumptions about a measure that is not a loss in nats."""
    assumed = [sentence("direction_assumed", metric=measure.name)] if measure.assumed else []
    if given is None and not measure.in_nats:
        assumed.append(sentence("margin_of_nats", metric=measure.name, margin=applied))
    return assumed


def variant_names(results: Sequence[Result]) -> tuple[str, ...]:
    """Every variant once, in order of first appearance."""
    return tuple(dict.fromkeys(result.variant for result in results))


def _points(names: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Variants by their names, also as tables write them (`base · depth 2`), or by the variant whose points they are."""
    points: list[str] = []
    for name in names:
        plain = name if name in known else name.replace(" · ", ", ")
        points += [plain] if plain in known else [each for each in known if each.startswith(f"{plain}, ")] or [name]
    return tuple(dict.fromkeys(points))
