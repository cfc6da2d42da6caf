"""Estimate the cost of a study before training: runs, tokens, FLOPs, memory, time; count redundant biases; check starts.

What `addnorm run` would refuse is refused: a warm-up that is not shorter than the run, missing or too little text. Fields
that are replaced, coefficients that no gradient reaches, and norms whose eps is not small at the start, are named. A corpus of
more than 32 MB or of the hub is not read, nor is any with --cluster.

For example:
    addnorm plan residual-scores
    addnorm plan mine.yaml --set training.steps=500 --workers 2
    addnorm plan mine.yaml --profile paper --audit
    addnorm plan mine.yaml --profile paper --cluster gpus=64,tflops=400,memory=80
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from addnorm.cli._text import StudyOptions, duration, on_screen, paragraph, print_json, quantity, refuse
from addnorm.reporting.formats.table import Column, ResultTable
from addnorm.words import phrases, point_name, spoken

if TYPE_CHECKING:
    from addnorm.study.definition import Study
    from addnorm.supervision.cluster_estimate import Cluster
    from addnorm.supervision.cost_estimate import CostEstimate, VariantCost
    from addnorm.supervision.start_check import StartCheck

MOST_PARAMETERS = 10_000_000
"""Largest number of parameters of variants that are audited without --audit: one or two seconds each."""


@dataclass(frozen=True)
class Options(StudyOptions):
    workers: int | None = None
    """Runs at the same time; one per GPU or per CPU core if not given."""
    cluster: str | None = None
    """Devices to estimate for in place of this machine: `gpus=64,tflops=400,memory=80` (each sustains 400 TFLOP/s and has
    80 GB), and `link=50` for GB/s between two."""
    audit: bool = False
    """Count redundant bias scalars in large models too: up to a minute and 26 bytes per parameter for each."""
    numbers: bool = False
    """Count how many of the learned numbers of joints can matter: seconds for each variant that has some."""


def command(options: Options) -> int:
    from addnorm.cli._plan_tables import in_bytes, learned_numbers, redundant_biases
    from addnorm.study.expansion import fit_models
    from addnorm.study.loading import load_study
    from addnorm.study.points import points
    from addnorm.supervision.cluster_estimate import Cluster
    from addnorm.supervision.cost_estimate import estimate_cost, with_comparison
    from addnorm.supervision.data_check import check_data
    from addnorm.supervision.executors.local import LocalExecutor
    from addnorm.supervision.prepared import fitted_study
    from addnorm.supervision.run import executor_spec, require_precision_here
    from addnorm.supervision.study_notes import seeds_note, study_notes

    study = load_study(options.study, profile=options.profile, settings=options.set)
    tuned = None if study.tune is None else points(study)
    whole = fitted_study(study if tuned is None else tuned.study, study.tokenizer.size)
    fitted, given = whole.study, whole.budgets
    training = study.training
    cluster = Cluster.parse(options.cluster) if options.cluster is not None else None
    if cluster is not None:
        refuse(options, "--cluster", "workers", "audit", "numbers")
        return _on_cluster(fitted, cluster, study, None if tuned is None else tuned.values, as_json=options.json)
    require_precision_here(fitted, executor_spec(study, None, None))
    notes = [*study_notes(whole), *seeds_note(study), *check_data(fitted)]
    workers = options.workers if study.executor is None else options.workers or study.executor.at_once
    slots = LocalExecutor.create(training.threads, slots=workers, devices=training.devices).slots
    first = estimate_cost(fitted, workers=slots)
    estimate = first if tuned is None else with_comparison(first, study, tuned.values)
    compared = fitted if tuned is None else fit_models(study, study.tokenizer.size)
    large = (
        () if options.audit else tuple(cost.variant for cost in estimate.variants if cost.parameters > MOST_PARAMETERS)
    )
    if options.json:
        without_audit = phrases("en")("estimate.too_many_parameters", count=quantity(MOST_PARAMETERS))
        print_json(
            estimate.to_json()
            | ({"budgets": given} if given else {})
            | {"audit": _audits(compared, but=large) | {name: {"reason": without_audit} for name in large}}
            | ({"learned": _learned(compared, large)} if options.numbers else {})
            | {"start": {name: check.to_json() for name, check in _starts(compared, but=large).items()}}
            | {"notes": notes}
            | ({"pairs": [list(pair) for pair in study.pairs]} if study.pairs else {})
        )
        return 0
    t = spoken()
    title = t(
        "estimate.title", study=estimate.study, runs=estimate.runs, factors=_counted(estimate), length=_length(first)
    )
    print(title, end="\n\n")
    variant = Column("variant", t("head.variant"), point_name, side="l")
    costs = (
        Column("flops_per_token", t("head.flops_per_token"), quantity),
        Column("peak_bytes", t("head.peak_memory"), in_bytes),
        Column("seconds", t("head.time_per_run"), duration),
    )
    shape = (
        Column("parameters", t("head.parameters"), quantity),
        costs[0],
        Column("relative", t("head.relative"), "{:.2f}".format),
    )
    print(on_screen(ResultTable([variant, *shape, *costs[1:]], estimate.variants)))
    if estimate.tuning is not None:
        print(t("estimate.tuned"))
    if study.titles:
        print()
        titles = [{"variant": name, "title": title} for name, title in study.titles.items()]
        print(on_screen(ResultTable([variant, Column("title", t("head.title"), side="l")], titles)))
    if study.pairs:
        compare = study.compare if isinstance(study.compare, str) else t("estimate.listed")
        print(f"\n{paragraph(t('estimate.pairs', pairs=len(study.pairs), compare=compare))}")
    if given:
        print(f"\n{t('estimate.budgets')}\n")
        print(on_screen(_budgets(first, given)))
    if own := _own_training(fitted):
        print(f"\n{t('estimate.own_training')}\n")
        settings = (Column(path, side="l", value=of.__getitem__) for path, of in own.items())
        print(on_screen(ResultTable([replace(variant, value=str), *settings], list(fitted.variants))))
    ways = [
        {
            **vars(way),
            "variant": cost.variant,
            "attention": t("estimate.taken", way=way.attention) if way.taken else way.attention,
        }
        for cost in estimate.variants
        if len(cost.ways) > 1
        for way in cost.ways
    ]
    if ways:
        print(f"\n{t('estimate.ways')}\n")
        print(on_screen(ResultTable([variant, Column("attention", t("head.attention"), side="l"), *costs], ways)))
    altogether = t(
        "estimate.altogether",
        tokens=quantity(estimate.tokens),
        flops=quantity(estimate.flops),
        time=duration(estimate.seconds),
        workers=estimate.workers,
        threads=estimate.threads,
        speed=quantity(estimate.flops_per_second),
    )
    print(f"\n{altogether}")
    print(t("estimate.method"))
    if study.replicate:
        print(_second_batch(study, [cost.seconds for cost in estimate.variants], estimate.workers))
    if audits := _audits(compared, but=large):
        print(f"\n{redundant_biases(audits)}")
    if options.numbers and (gauges := learned_numbers(_learned(compared, large))):
        print(f"\n{paragraph(gauges)}")
    warned = {
        name: sentences for name, check in _starts(compared, but=large).items() if (sentences := check.warnings())
    }
    for name, sentences in warned.items():
        print("\n" + "\n".join(paragraph(f"! {name}: {sentence}") for sentence in sentences))
    if notes:
        print("\n" + "\n".join(paragraph(f"! {sentence}") for sentence in notes))
    if large:
        reason = t("estimate.too_many_parameters", count=quantity(MOST_PARAMETERS))
        print("\n" + t("estimate.not_looked_at", count=len(large), reason=reason))
    return 0


def _on_cluster(
    fitted: "Study",
    cluster: "Cluster",
    study: "Study",
    points: Mapping[str, Collection[str]] | None,
    *,
    as_json: bool,
) -> int:
    from addnorm.cli._plan_tables import cluster_table
    from addnorm.supervision.cluster_estimate import estimate_on_cluster, with_comparison_on_cluster

    estimate = estimate_on_cluster(fitted, cluster)
    if points is not None:
        estimate = with_comparison_on_cluster(estimate, study, points)
    if as_json:
        print_json(estimate.to_json())
        return 0
    print(cluster_table(estimate, cluster))
    if study.replicate:
        seconds = {each.variant: each.seconds for each in estimate.variants}
        compared = [max(seconds[point] for point in of) for of in points.values()] if points else [*seconds.values()]
        print(_second_batch(study, compared, estimate.at_once))
    return 0


def _second_batch(study: "Study", seconds: Sequence[float], at_once: int) -> str:
    """The runs of a second batch of seeds, and their time, from the times of a run of each variant."""
    from addnorm.supervision.cost_estimate import makespan

    second = len(study.replicate)
    return paragraph(
        spoken()(
            "estimate.replicate",
            seeds=len(study.seeds),
            second=second,
            names=", ".join(map(str, study.replicate)),
            runs=second * len(seconds),
            time=duration(makespan([*seconds] * second, at_once)),
        )
    )


def _budgets(estimate: "CostEstimate", given: Mapping[str, Mapping[str, int | float]]) -> ResultTable:
    def budget(cost: "VariantCost") -> str:
        return ", ".join(f"{name} {value:g}" for name, value in given[cost.variant].items())

    t = spoken()
    columns = (
        Column("variant", t("head.variant"), point_name, side="l"),
        Column("budget", t("head.budget"), side="l", value=budget),
        Column("steps", t("head.steps")),
        Column("tokens", t("head.tokens"), quantity),
        Column("flops", "FLOPs", quantity),
    )
    return ResultTable(columns, [cost for cost in estimate.variants if cost.variant in given])


def _counted(estimate: "CostEstimate") -> str:
    """Factors of the number of runs."""
    t = spoken()
    compared = t("estimate.factors", variants=len(estimate.variants), seeds=estimate.seeds)
    tuning = estimate.tuning
    if tuning is None:
        return compared
    points = sum(map(len, tuning.points.values()))
    return t("estimate.tuned_factors", points=points, tuning_seeds=tuning.seeds, compared=compared)


def _length(estimate: "CostEstimate") -> str:
    """Steps and tokens of the runs."""
    steps = sorted({cost.steps for cost in estimate.variants})
    tokens = sorted({cost.tokens for cost in estimate.variants})
    if len(steps) == len(tokens) == 1 and steps[0]:
        return spoken()("estimate.steps_of", steps=steps[0], tokens=quantity(tokens[0] / steps[0]))
    return spoken()("estimate.steps_and", steps=_range(steps, str), tokens=_range(tokens, quantity))


def _range(values: Sequence[int], written: Callable[[int], str]) -> str:
    if len(values) == 1:
        return written(values[0])
    return spoken()("estimate.range", least=written(values[0]), most=written(values[-1]))


def _own_training(study: "Study") -> dict[str, dict[str, str]]:
    """Settings of the training that differ between variants: path, variant, value."""
    from addnorm.reporting.formats.spec import differing
    from addnorm.study.encoding import encode

    return differing({name: encode(study.training_of(name)) for name in study.variants})


def _audits(study: "Study", *, but: Collection[str]) -> dict[str, dict[str, Any]]:
    from addnorm.outside.targets.study import audit_or_reason
    from addnorm.study.expansion import once_for_equal

    return once_for_equal({name: model for name, model in study.variants.items() if name not in but}, audit_or_reason)


def _learned(study: "Study", large: Collection[str]) -> dict[str, dict[str, Any]]:
    from addnorm.insight.identifiable import counts_by_variant

    return counts_by_variant({name: model for name, model in study.variants.items() if name not in large})


def _starts(study: "Study", *, but: Collection[str]) -> dict[str, "StartCheck"]:
    from addnorm.model.spec import ModelSpec
    from addnorm.study.expansion import once_for_equal
    from addnorm.supervision.start_check import check_start

    return once_for_equal(
        {name: model for name, model in study.variants.items() if isinstance(model, ModelSpec) and name not in but},
        check_start,
    )
