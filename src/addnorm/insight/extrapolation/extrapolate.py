"""`addnorm.extrapolate`: the evaluation of a study's finished runs at several lengths, with verdicts per length."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from addnorm.data import Dataset
from addnorm.errors import InputError, UnknownName
from addnorm.insight.extrapolation.lengths import DEFAULT, Lengths, parse_lengths
from addnorm.insight.extrapolation.run_record import NAME, EvaluationRequest, settings_of
from addnorm.insight.extrapolation.segments import num_segments
from addnorm.insight.extrapolation.summary import Scoring, SwitchedVariant, summarise
from addnorm.insight.extrapolation.switches import Combination, name_of, parse_switches, require_all
from addnorm.insight.extrapolation.workers import Outcome, default_workers, evaluate_runs
from addnorm.model.architecture import Architecture
from addnorm.model.spec import ModelSpec
from addnorm.statistics import require_margin
from addnorm.store import RunFolder, StudyFolder, write_json
from addnorm.study.definition import RunSpec
from addnorm.study.foreign import require_rooms
from addnorm.study.plugins import load_plugins
from addnorm.training.run_spec import run_spec
from addnorm.words import Sentence, listed, say

WINDOWS = 24
"""Default number of windows of the longest length."""


def extrapolate(
    folder: str | Path,
    *,
    lengths: str = DEFAULT,
    windows: int = WINDOWS,
    switches: str | Sequence[Combination] = (),
    scoring: Scoring = "window",
    references: Sequence[str] | None = None,
    margin: float | None = None,
    variants: Sequence[str] = (),
    workers: int | None = None,
    plugins: Sequence[str] = (),
    on_done: Callable[[RunFolder, Outcome, int, int], None] = lambda run, outcome, done, total: None,
) -> dict[str, Any]:
    """Evaluate a study's finished runs on longer texts than they were trained on, with verdicts at each length.

    All input is checked before the first evaluation. Each run's numbers are written to `extrapolation.json` in its folder and
    are not computed again; the result is written to `extrapolation.json` in the study's folder. The command is `addnorm
    extrapolate`.

    Args:
        folder: of a study.
        lengths: multiples of the train length, increasing.
        windows: number of windows of the longest length, the same ones for every run.
        switches: changes at evaluation, without retraining, to be evaluated beside the unchanged models, such as
            `log_n,yarn+local_window`; or combinations of `SwitchSpec`.
        scoring: which losses are ranked: `window` (every position) or `ending` (the same last targets at every length).
        references: variants to compare with, in place of the study's own.
        margin: nats per token below which a difference counts as none, in place of the study's own.
        variants: to be evaluated; all if empty.
        workers: processes; one per core if not given.
        plugins: files with the user's own mechanisms that the runs use.
        on_done: called after each run with its outcome, the number of finished evaluations and their total.

    Returns:
        The result that `addnorm extrapolate --json` prints; see `summarise`.

    Raises:
        InputError: the folder is not a study or has no finished run, lengths do not increase, the text is too short for the
            longest window, a variant's position is limited to a shorter length, a switch does not apply, or the margin is
            not positive.
        UnknownName: an unknown variant or switch.
        JobError: a worker process died, or the disk refused a file; finished evaluations are kept.

    Example:
        >>> result = addnorm.extrapolate("runs/first", lengths="1x,2x", windows=2, switches="log_n", workers=1)
        >>> result["lengths"]
        [16, 32]
    """
    study = StudyFolder(folder)
    load_plugins(plugins, Path.cwd())
    selected = _selected(study, variants)
    runs = [run for run in study.runs() if run.spec["variant"] in selected]
    specs = {variant: run_spec(next(run for run in runs if run.spec["variant"] == variant)) for variant in selected}
    tested = Lengths(trained=specs[selected[0]].training.seq, multiples=parse_lengths(lengths))
    combinations = parsed_switches(switches)
    request = EvaluationRequest(lengths=tested, windows=windows, switches=combinations)
    margin = study.plan["margin"] if margin is None else margin
    require_margin(margin)
    models = _own_models(specs)
    _require_positions(models, tested)
    for variant, model in models.items():
        with _naming(variant):
            for combination in combinations:
                require_all(combination, model)
    num_segments(len(Dataset.load(study.path / "data").held), tested, windows)
    finished = [run for run in runs if run.final_path.exists()]
    if not finished:
        of_selected = f" of {', '.join(selected)}" if variants else ""
        raise InputError(
            f"{study.path} has no finished run{of_selected} to evaluate. Train it with addnorm run and --out {study.path}."
        )
    for name in references or ():
        if name not in selected:
            raise UnknownName("variant to be the reference", name, selected)
    requested = tuple(references) if references is not None else study.references
    available = requested if references is not None else tuple(name for name in requested if name in selected)
    problems = {
        run.name: "its final weights are missing"
        for run in runs
        if run not in finished and run.status().state == "finished"
    }
    outcomes = evaluate_runs(
        finished, request, workers=default_workers() if workers is None else workers, plugins=plugins
    )
    for done, (run, outcome) in enumerate(outcomes, start=1):
        if outcome.problem is not None:
            problems[run.name] = outcome.problem
        on_done(run, outcome, done, len(finished))
    if all(run.name in problems for run in finished):
        raise InputError(f"no run could be evaluated: {problems[finished[0].name]}")
    lines = [
        SwitchedVariant(variant=variant, switch=name_of(combination), settings=tuple(settings_of(combination)))
        for variant in selected
        for combination in combinations
    ]
    result = summarise(
        study,
        lines,
        tested.tokens,
        trained=tested.trained,
        scoring=scoring,
        references=available,
        margin=margin,
        problems=problems,
    )
    objectives = {spec.model.objective for spec in specs.values()}
    notes = _notes(result, request, requested, available, objectives)
    result["warnings"] = [*map(str, notes), *result["warnings"]]
    result["notes"] = [*(sentence.note for sentence in notes), *result["notes"]]
    write_json(study.path / NAME, result)
    return result


def _selected(study: StudyFolder, variants: Sequence[str]) -> list[str]:
    all_variants = list(dict.fromkeys(run.spec["variant"] for run in study.runs()))
    for variant in variants:
        if variant not in all_variants:
            raise UnknownName("variant", variant, all_variants)
    return [variant for variant in all_variants if variant in variants] if variants else all_variants


def _own_models(specs: dict[str, RunSpec]) -> dict[str, ModelSpec]:
    """The models, all of which are of this library.

    Raises:
        InputError: others wrote one; the message names the variants that are left.
    """
    ours = [variant for variant, spec in specs.items() if isinstance(spec.model, ModelSpec)]
    models = {}
    for variant, spec in specs.items():
        try:
            models[variant] = require_rooms(spec.model, "`extrapolate` of a run")
        except InputError as error:
            left = f" Leave it out: {' '.join(f'--variant {name}' for name in ours)}." if ours else ""
            raise InputError(f"variant {variant!r}: {error}{left}") from error
    return models


def _require_positions(models: dict[str, ModelSpec], lengths: Lengths) -> None:
    """Require that every variant's position reaches the longest length.

    Raises:
        InputError: one does not.
    """
    for variant, model in models.items():
        with _naming(variant):
            require_position(model, lengths)


def parsed_switches(switches: str | Sequence[Combination]) -> tuple[Combination, ...]:
    """The unchanged model and then the given combinations, each once.

    Raises:
        UnknownName, InputError: as `parse_switches`.
    """
    parsed = parse_switches(switches) if isinstance(switches, str) else switches
    return tuple(dict.fromkeys(((), *parsed)))


def require_position(model: Architecture, lengths: Lengths) -> None:
    """Require that a model's position reaches the longest length.

    Raises:
        InputError: it does not.
    """
    # On the meta device, where a position of any length costs nothing: a variant that does not reach is refused
    # before the others are evaluated for hours.
    with torch.device("meta"):
        position = model.position.build(model.attention_shape)
        for multiple, length in zip(lengths.multiples, lengths.tokens, strict=True):
            try:
                embedded = position.embed(torch.empty(1, length, model.width, dtype=torch.float32), 0)
                position.prepare(0, length, embedded)
            except InputError as error:
                shorter = ",".join(f"{m}x" for m in lengths.multiples if m < multiple)
                advice = f"give --lengths {shorter}, or " if shorter else ""
                raise InputError(
                    f"{error} At {multiple}x the train length it cannot be evaluated: {advice}choose other variants with "
                    "--variant."
                ) from error


@contextmanager
def _naming(variant: str) -> Iterator[None]:
    """Begin every InputError with the variant's name."""
    try:
        yield
    except InputError as error:
        raise InputError(f"variant {variant!r}: {error}") from error


def _notes(
    result: dict[str, Any],
    request: EvaluationRequest,
    requested: Sequence[str],
    available: Sequence[str],
    objectives: Collection[str],
) -> list[Sentence]:
    notes = [say("not_evaluated", run=run, reason=reason) for run, reason in result["problems"].items()]
    windows = result["stretches"] * result["stretch"] // request.lengths.longest
    if windows < request.windows:
        notes.append(say("fewer_windows", windows=windows, asked=request.windows))
    if windows < 2:
        notes.append(say("one_window"))
    if len(objectives) > 1:
        notes.append(say("two_objectives"))
    left_out = [name for name in requested if name not in available]
    if left_out:
        notes.append(say("references_left_out", names=listed("comma", left_out)))
    return notes
