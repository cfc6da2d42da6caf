"""`addnorm extrapolate`: every finished run of a study at every length, and what that allows to say."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from addnorm.data import Dataset
from addnorm.errors import InputError, UnknownName
from addnorm.insight.extrapolation.lengths import DEFAULT, Lengths, parse_lengths
from addnorm.insight.extrapolation.recorded import NAME, Request, settings_of
from addnorm.insight.extrapolation.summary import Line, Scoring, summarise
from addnorm.insight.extrapolation.switches import Combination, name_of, require_all
from addnorm.insight.extrapolation.windows import num_stretches
from addnorm.insight.extrapolation.workers import Outcome, default_workers, evaluate_runs
from addnorm.statistics import require_margin
from addnorm.store import RunFolder, StudyFolder, write_json
from addnorm.study.definition import RunSpec
from addnorm.study.plugins import load_plugins
from addnorm.training.export import run_spec
from addnorm.words import Sentence, listed, say

WINDOWS = 24
"""Windows of the longest length that are evaluated unless asked otherwise."""


def extrapolate(
    folder: str | Path,
    *,
    lengths: str = DEFAULT,
    windows: int = WINDOWS,
    switches: Sequence[Combination] = (),
    scoring: Scoring = "window",
    references: Sequence[str] | None = None,
    margin: float | None = None,
    variants: Sequence[str] = (),
    workers: int | None = None,
    plugins: Sequence[str] = (),
    on_done: Callable[[RunFolder, Outcome, int, int], None] = lambda run, outcome, done, total: None,
) -> dict[str, Any]:
    """Evaluate a study's finished runs on longer texts. What is known already is not computed again.

    Everything that could be wrong is looked for before the first run is evaluated. Each run's numbers are written into its
    folder as soon as they are known (`RUN/extrapolation.json`), the result into the study's (`DIR/extrapolation.json`).

    Args:
        folder: of a study's runs.
        lengths: multiples of the train length, increasing.
        windows: windows of the longest length, the same ones for every run.
        switches: combinations of switches to evaluate beside the models as they are; see `parse_switches`.
        scoring: which losses are ranked: `window` (every position) or `ending` (the same last targets at every length).
        references: variants to compare with, in place of the study's own.
        margin: nats per token below which a difference counts as none, in place of the study's own.
        variants: those to evaluate; all if empty.
        workers: processes; one per core if not given.
        plugins: files of the user's own mechanisms.
        on_done: called after each run with what came of it, and how many of how many are done.

    Returns:
        What `addnorm extrapolate --json` prints; see `summarise`.

    Raises:
        InputError: no study, no finished run, lengths that do not increase, text too short for the longest window, a length
            beyond what a variant's position knows, a switch that does not apply, a margin that is not positive.
        UnknownName: no such variant.
        JobError: a worker process died, or the disk refuses; what was evaluated is kept.
    """
    study = StudyFolder(folder)
    load_plugins(plugins, Path.cwd())
    chosen = _chosen(study, variants)
    runs = [run for run in study.runs() if run.spec["variant"] in chosen]
    specs = {variant: run_spec(next(run for run in runs if run.spec["variant"] == variant)) for variant in chosen}
    asked = Lengths(trained=specs[chosen[0]].training.seq, multiples=parse_lengths(lengths))
    combinations: tuple[Combination, ...] = tuple(dict.fromkeys(((), *switches)))
    request = Request(lengths=asked, windows=windows, switches=combinations)
    allowed = study.plan["margin"] if margin is None else margin
    require_margin(allowed)
    _require_positions(specs, asked)
    for variant, spec in specs.items():
        with _about(variant):
            for combination in combinations:
                require_all(combination, spec.model)
    num_stretches(len(Dataset.load(study.path / "data").held), asked, windows)
    finished = [run for run in runs if run.final_path.exists()]
    if not finished:
        of = f" of {', '.join(chosen)}" if variants else ""
        raise InputError(
            f"{study.path} has no finished run{of} to evaluate. Train it: addnorm run … --out {study.path}."
        )
    for name in references or ():
        if name not in chosen:
            raise UnknownName("variant to be the reference", name, chosen)
    wanted = tuple(references) if references is not None else tuple(study.plan.get("references", ()))
    known = wanted if references is not None else tuple(name for name in wanted if name in chosen)
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
        Line(variant=variant, switch=name_of(combination), settings=tuple(settings_of(combination)))
        for variant in chosen
        for combination in combinations
    ]
    found = summarise(
        study,
        lines,
        asked.tokens,
        trained=asked.trained,
        scoring=scoring,
        references=known,
        margin=allowed,
        problems=problems,
    )
    objectives = {spec.model.objective for spec in specs.values()}
    own = _notes(found, request, wanted, known, objectives)
    found["warnings"] = [*map(str, own), *found["warnings"]]
    found["notes"] = [*(sentence.note for sentence in own), *found["notes"]]
    write_json(study.path / NAME, found)
    return found


def _chosen(study: StudyFolder, variants: Sequence[str]) -> list[str]:
    known = list(dict.fromkeys(run.spec["variant"] for run in study.runs()))
    for variant in variants:
        if variant not in known:
            raise UnknownName("variant", variant, known)
    return [variant for variant in known if variant in variants] if variants else known


def _require_positions(specs: dict[str, RunSpec], lengths: Lengths) -> None:
    """Raises:
    InputError: a variant's position does not know the longest length.
    """
    for variant, spec in specs.items():
        with _about(variant):
            _require_position(spec, lengths)


def _require_position(spec: RunSpec, lengths: Lengths) -> None:
    with torch.device("meta"):
        position = spec.model.position.build(spec.model.attention_shape)
        for multiple, length in zip(lengths.multiples, lengths.tokens, strict=True):
            try:
                embedded = position.embed(torch.empty(1, length, spec.model.width, dtype=torch.float32), 0)
                position.prepare(0, length, embedded)
            except InputError as error:
                shorter = ",".join(f"{m}x" for m in lengths.multiples if m < multiple)
                advice = f"give --lengths {shorter}, or " if shorter else ""
                raise InputError(
                    f"{error} At {multiple}x the train length it cannot be evaluated: {advice}choose other variants with "
                    "--variant."
                ) from error


@contextmanager
def _about(variant: str) -> Iterator[None]:
    """Let complaints name the variant."""
    try:
        yield
    except InputError as error:
        raise InputError(f"variant {variant!r}: {error}") from error


def _notes(
    found: dict[str, Any],
    request: Request,
    wanted: Sequence[str],
    known: Sequence[str],
    objectives: Collection[str],
) -> list[Sentence]:
    notes = [say("not_evaluated", run=run, reason=reason) for run, reason in found["problems"].items()]
    windows = found["stretches"] * found["stretch"] // request.lengths.longest
    if windows < request.windows:
        notes.append(say("fewer_windows", windows=windows, asked=request.windows))
    if windows < 2:
        notes.append(say("one_window"))
    if len(objectives) > 1:
        notes.append(say("two_objectives"))
    left_out = [name for name in wanted if name not in known]
    if left_out:
        notes.append(say("references_left_out", names=listed("comma", left_out)))
    return notes
