"""A run's flow, measured on held-out windows of its own data and kept as RUN/insight.json."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import addnorm
from addnorm.data import Dataset, held_batches
from addnorm.errors import AddnormError, InputError
from addnorm.insight.flow.measure import Windows, flow
from addnorm.store import RunFolder, StudyFolder
from addnorm.store.files import Damaged, read_json, write_json
from addnorm.training.objective import score
from addnorm.training.run_weights import RunWeights, newest_weights

INSIGHT = "insight.json"
"""The file's name, in the run's folder."""
FORMAT = 1
"""Version of its layout."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How much is measured.

    Raises:
        InputError: a count below one.
    """

    sequences: int = 16
    """Held-out sequences for gradients, the stream and read-outs."""
    map_sequences: int = 4
    """Held-out sequences for attention and scores."""

    def __post_init__(self) -> None:
        for name in ("sequences", "map_sequences"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}.")


def inspect(
    target: Path, settings: Settings | None = None, *, say: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Inspect a run, or every run of a study that has weights.

    Args:
        target: a run's or a study's folder.
        settings: how much is measured.
        say: called with a line of text before each run that is measured.

    Returns:
        `runs`, as their insight.json hold them, and `skipped` runs with the reason.

    Raises:
        InputError: the folder holds neither a study nor a run, or nothing in it can be inspected.
        Damaged, JobError: a single run's files are damaged, or the disk refuses.
    """
    settings = settings or Settings()
    if (target / "spec.json").is_file():
        return {"runs": [inspect_run(RunFolder(target), settings, say=say)], "skipped": {}}
    if not (target / "study.json").is_file():
        raise InputError(f"{target} holds neither a study nor a run. Give a folder made by `addnorm run`.")
    found, skipped = [], {}
    for run in StudyFolder(target).runs():
        try:
            found.append(inspect_run(run, settings, say=say))
        except AddnormError as error:
            skipped[run.name] = str(error)
    if not found:
        raise InputError(f"nothing in {target} can be inspected: {next(iter(skipped.values()))}")
    return {"runs": found, "skipped": skipped}


def inspect_run(
    run: RunFolder, settings: Settings, *, say: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Measure a run and write its insight.json; what is there already is kept if it says the same.

    Returns:
        What the file holds.

    Raises:
        InputError: no weights yet, a plugin that is not loaded, or other data than the run was trained on.
        Damaged, JobError: the run's files are damaged, or the disk refuses.
    """
    found = newest_weights(run)
    dataset = Dataset.load(run.path.parent / "data")
    if dataset.hash != found.spec.data_hash:
        raise InputError(
            f"{dataset.folder} holds a data set with hash {dataset.hash[:12]}, the run was trained on "
            f"{found.spec.data_hash[:12]}. Put the old data set back."
        )
    head = _head(run, found, settings)
    known = _known(run.path / INSIGHT)
    if known is not None and {name: known.get(name) for name in head} == head:
        return known
    say(f"Inspecting {run.name}.")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    windows = held_windows(found, dataset, settings, device)
    start, end = found.initial_model().to(device), found.model().to(device)
    content = {**head, "start": flow(start, windows), "end": flow(end, windows)}
    write_json(run.path / INSIGHT, content)
    return content


def held_windows(found: RunWeights, dataset: Dataset, settings: Settings, device: torch.device) -> Windows:
    """The first batches of a held-out evaluation with as many sequences: the same for every run of a study."""
    training, objective = found.spec.training, found.spec.model.objective

    def batches(size: int, sequences: int) -> tuple[Any, ...]:
        windows = held_batches(dataset, size, training.seq, sequences)
        return tuple(
            score(objective, window, dataset, seed=0, step=step, device=device) for step, window in enumerate(windows)
        )

    return Windows(batches=batches(training.batch, settings.sequences), maps=batches(1, settings.map_sequences))


def _head(run: RunFolder, found: RunWeights, settings: Settings) -> dict[str, Any]:
    training = found.spec.training
    return {
        "format": FORMAT,
        "run": run.name,
        "variant": found.spec.variant,
        "seed": found.spec.seed,
        "addnorm": addnorm.__version__,
        "weights": {"file": found.file, "step": found.step, "steps": training.steps},
        "data": {
            "hash": found.spec.data_hash,
            "seq": training.seq,
            "sequences": settings.sequences,
            "map_sequences": settings.map_sequences,
        },
    }


def _known(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        content = read_json(path)
    except Damaged:
        return None  # made anew from the weights, which are the truth
    return content if isinstance(content, dict) else None
