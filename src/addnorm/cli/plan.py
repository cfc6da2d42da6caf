"""Say what a study would cost before anything starts: runs, tokens, parameters, FLOPs, memory, time."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from addnorm.cli._output import aligned, duration, print_json, quantity


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
    vocab: int | None = None
    """Vocabulary to plan with where it is only known once a tokenizer has been trained."""
    json: bool = False
    """Print JSON."""


def command(options: Options) -> int:
    from addnorm.lab.executors import default_slots
    from addnorm.lab.load import load_study
    from addnorm.lab.plan import plan
    from addnorm.lab.study import fit_models

    study = load_study(options.study, profile=options.profile, settings=options.set)
    found = plan(
        fit_models(study, options.vocab or study.tokenizer.expected_vocab),
        workers=options.workers or default_slots(study.training.threads),
    )
    if options.json:
        print_json(found.to_json())
        return 0
    print(f"{found.study}: {found.runs} runs ({len(found.variants)} variants x {found.seeds} seeds), ", end="")
    print(f"{found.steps} steps of {quantity(found.tokens_per_run / found.steps)} tokens each\n")
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
        for cost in found.variants
    ]
    print(aligned(rows, right="lrrrrr"))
    print(
        f"\nAltogether {quantity(found.tokens)} training tokens and {quantity(found.flops)}FLOP; about "
        f"{duration(found.seconds)} with {found.workers} worker(s) of {found.threads} thread(s) at the "
        f"{quantity(found.flops_per_second)}FLOP/s measured just now."
    )
    print("FLOPs and memory are counted from the shapes; time is an estimate without evaluations and start-up.")
    return 0
