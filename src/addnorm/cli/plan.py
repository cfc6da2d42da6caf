"""Estimate the cost of a study before training: runs, tokens, FLOPs, memory, time; count redundant biases; check starts.

Coefficients that no gradient reaches, and norms whose eps is not small at the start, are named. The corpus is not read;
`addnorm run` checks before the first step that it exists and is long enough.

For example:
    addnorm plan residual-scores
    addnorm plan mine.yaml --set training.steps=500 --workers 2
    addnorm plan mine.yaml --profile paper --audit
"""

import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from addnorm.cli._text import aligned, duration, page_width, print_json, quantity

if TYPE_CHECKING:
    from addnorm.study.definition import Study
    from addnorm.supervision.cost_estimate import CostEstimate
    from addnorm.supervision.start_check import StartCheck

MOST_PARAMETERS = 10_000_000
"""Largest number of parameters of variants that are audited without --audit: one or two seconds each."""


@dataclass(frozen=True)
class Options:
    study: Annotated[str, tyro.conf.Positional]
    """Name of a built-in study, or a study file (.yaml, .py)."""
    profile: str | None = None
    """Profile of the study, such as `quick` or `paper`; its default if not given."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Change a field: `--set training.steps=500`. May be given more than once."""
    workers: int | None = None
    """Runs at the same time; one per GPU or per CPU core if not given."""
    audit: bool = False
    """Count redundant bias scalars in large models too: up to a minute and 26 bytes per parameter for each."""
    json: bool = False
    """Print JSON."""


def command(options: Options) -> int:
    from addnorm.study.expansion import fit_models, validate
    from addnorm.study.loading import load_study
    from addnorm.supervision.budget import budgets, resolve_budgets
    from addnorm.supervision.cost_estimate import estimate_cost
    from addnorm.supervision.executors.local import LocalExecutor

    study = load_study(options.study, profile=options.profile, settings=options.set)
    fitted = fit_models(study, study.tokenizer.size)
    validate(fitted)
    given = budgets(fitted)
    fitted = resolve_budgets(fitted)
    if given:
        validate(fitted)
    slots = LocalExecutor.create(study.training.threads, slots=options.workers).slots
    estimate = estimate_cost(fitted, workers=slots)
    large = (
        () if options.audit else tuple(cost.variant for cost in estimate.variants if cost.parameters > MOST_PARAMETERS)
    )
    without_audit = f"more than {quantity(MOST_PARAMETERS)} parameters: add --audit"
    if options.json:
        print_json(
            estimate.to_json()
            | ({"budgets": given} if given else {})
            | {"audit": _audits(fitted, but=large) | {name: {"reason": without_audit} for name in large}}
            | {"start": {name: check.to_json() for name, check in _starts(fitted, but=large).items()}}
        )
        return 0
    print(
        f"{estimate.study}: {estimate.runs} runs ({len(estimate.variants)} variants x {estimate.seeds} seeds), ", end=""
    )
    print(_length(estimate), end="\n\n")
    rows = [("variant", "parameters", "FLOPs/token", "relative", "peak memory", "time per run")]
    rows += [
        (
            cost.variant,
            quantity(cost.parameters),
            quantity(cost.flops_per_token),
            f"{cost.relative:.2f}",
            f"{quantity(cost.peak_bytes)}B",
            duration(cost.seconds),
        )
        for cost in estimate.variants
    ]
    print(aligned(rows, right="lrrrrr"))
    if fitted.titles:
        print()
        print(aligned([("variant", "title"), *fitted.titles.items()]))
    if given:
        print("\nEvery run takes the largest number of steps within its budget\n")
        print(aligned(_budget_rows(estimate, given), right="llrrr"))
    if own := _own_training(fitted):
        print("\nTraining settings that differ between variants; all others are shared\n")
        print(aligned([("variant", *own), *((name, *(of[name] for of in own.values())) for name in fitted.variants)]))
    ways = [
        (
            cost.variant,
            way.attention + (" (taken)" if way.taken else ""),
            quantity(way.flops_per_token),
            f"{quantity(way.peak_bytes)}B",
            duration(way.seconds),
        )
        for cost in estimate.variants
        if len(cost.ways) > 1
        for way in cost.ways
    ]
    if ways:
        print("\nTwo ways to sum scores: one running sum, or summed again in every layer (`attention` of a model)\n")
        print(aligned([("variant", "attention", "FLOPs/token", "peak memory", "time per run"), *ways], right="llrrr"))
    print(
        f"\nAltogether {quantity(estimate.tokens)} training tokens and {quantity(estimate.flops)}FLOP; about "
        f"{duration(estimate.seconds)} with {estimate.workers} worker(s) of {estimate.threads} thread(s) at the "
        f"{quantity(estimate.flops_per_second)}FLOP/s measured just now."
    )
    print("FLOPs and memory are counted from the shapes; time is an estimate without evaluations and start-up.")
    from addnorm.cli._redundant_biases import redundant_biases

    if audits := _audits(fitted, but=large):
        print(f"\n{redundant_biases(audits)}")
    warned = {name: found for name, check in _starts(fitted, but=large).items() if (found := check.warnings())}
    for name, sentences in warned.items():
        print("\n" + "\n".join(textwrap.fill(f"! {name}: {sentence}", page_width()) for sentence in sentences))
    if large:
        print(f"\nBiases and starts of {len(large)} variant(s) were not looked at: {without_audit}.")
    return 0


def _budget_rows(estimate: "CostEstimate", given: Mapping[str, Mapping[str, int | float]]) -> list[tuple[str, ...]]:
    rows = [
        (
            cost.variant,
            ", ".join(f"{name} {value:g}" for name, value in given[cost.variant].items()),
            str(cost.steps),
            quantity(cost.tokens),
            quantity(cost.flops),
        )
        for cost in estimate.variants
        if cost.variant in given
    ]
    return [("variant", "budget", "steps", "tokens", "FLOPs"), *rows]


def _length(estimate: "CostEstimate") -> str:
    """Steps and tokens of the runs."""
    steps = sorted({cost.steps for cost in estimate.variants})
    tokens = sorted({cost.tokens for cost in estimate.variants})
    if len(steps) == len(tokens) == 1:
        return f"{steps[0]} steps of {quantity(tokens[0] / steps[0])} tokens each"
    return f"{_range(steps, str)} steps and {_range(tokens, quantity)} tokens each"


def _range(values: Sequence[int], written: Callable[[int], str]) -> str:
    return written(values[0]) if len(values) == 1 else f"{written(values[0])} to {written(values[-1])}"


def _own_training(study: "Study") -> dict[str, dict[str, str]]:
    """Settings of the training that differ between variants: path, variant, value."""
    from addnorm.reporting.formats.spec import differing
    from addnorm.study.encoding import encode

    return differing({name: encode(study.training_of(name)) for name in study.variants})


def _audits(study: "Study", *, but: Collection[str]) -> dict[str, dict[str, Any]]:
    from addnorm.targets.study import audit_or_reason

    return {name: audit_or_reason(model) for name, model in study.variants.items() if name not in but}


def _starts(study: "Study", *, but: Collection[str]) -> dict[str, "StartCheck"]:
    from addnorm.supervision.start_check import check_start

    return {name: check_start(model) for name, model in study.variants.items() if name not in but}
