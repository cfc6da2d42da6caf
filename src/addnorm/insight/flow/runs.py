"""Flow of a run, measured on held-out windows of its own data and stored as RUN/insight.json."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from addnorm.data import Dataset, held_batches
from addnorm.errors import AddnormError, InputError
from addnorm.insight.flow.measure import Windows, flow
from addnorm.store import RunFolder, StudyFolder
from addnorm.store.files import Damaged, read_json, write_json
from addnorm.training.numerics import device_here
from addnorm.training.objective import make_batch
from addnorm.training.run_weights import RunWeights, newest_weights
from addnorm.version import __version__

INSIGHT = "insight.json"
"""Name of the file in the run's folder."""
FORMAT = 5
"""Version of the layout of the file. Files of version 1 have no depth matrices and no directions, files of version 2 no size of
what layers add, version 3 counts constants in the shares of summed scores, and version 4 the column of a sink as a position in
models of others; all are measured again."""

Measure = Callable[[RunWeights, Windows], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Amount of held-out text.

    Raises:
        InputError: a count below one.

    Example::

        Settings(sequences=32, map_sequences=8)
    """

    sequences: int = 16
    """Number of held-out sequences for gradients, the stream and read-outs."""
    map_sequences: int = 4
    """Number of held-out sequences for attention and scores."""

    def __post_init__(self) -> None:
        for name in ("sequences", "map_sequences"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}.")


def over_runs(
    target: Path, measure: Callable[[RunFolder], dict[str, Any]], *, reasons: Path | None = None
) -> dict[str, Any]:
    """Measure a run, or every run of a study that can be measured.

    Returns:
        `runs`, what the measurement returns, and `skipped` runs with the reason.

    Args:
        target: a run's or a study's folder.
        measure: measures one run.
        reasons: file of a study that keeps why runs were skipped, for its page and report.

    Raises:
        InputError: the folder holds neither a study nor a run, or none of its runs can be measured.
        Damaged, JobError: the files of a single run are damaged, or cannot be written.
    """
    if (target / "spec.json").is_file():
        return {"runs": [measure(RunFolder(target))], "skipped": {}}
    if not (target / "study.json").is_file():
        raise InputError(
            f"{target}: expected the folder of a study or a run, got one without study.json and spec.json. Give a folder made "
            "by `addnorm run`."
        )
    measured_runs, skipped = [], {}
    for run in StudyFolder(target).runs():
        try:
            measured_runs.append(measure(run))
        except AddnormError as error:
            skipped[run.name] = str(error)
    if reasons is not None and (skipped or reasons.exists()):
        write_json(reasons, skipped)
    if not measured_runs:
        raise InputError(f"nothing in {target} can be inspected: {next(iter(skipped.values()))}")
    return {"runs": measured_runs, "skipped": skipped}


def inspect_run(
    run: RunFolder,
    settings: Settings,
    *,
    say: Callable[[str], None] = lambda text: None,
    measure: Measure | None = None,
) -> dict[str, Any]:
    """Measure a run and write its insight.json, unless the file already holds these measures.

    Args:
        run: the run.
        settings: amount of held-out text.
        say: receives a line of text before the run is measured.
        measure: returns `start`, `end` and what else belongs into the file; None for that of a model of this library.

    Returns:
        The content of the file.

    Raises:
        InputError: no weights yet, a plug-in that is not loaded, or other data than in training.
        Damaged, JobError: the run's files are damaged, or cannot be written.
    """

    def measured(weights: RunWeights, windows: Windows) -> dict[str, Any]:
        say(f"Inspecting {run.name}.")
        return (measure or _flow_of)(weights, windows)

    return measured_once(run, settings, INSIGHT, FORMAT, measured)


def measured_once(run: RunFolder, settings: Settings, file: str, version: int, measure: Measure) -> dict[str, Any]:
    """Measure the newest weights of a run and write a file in its folder, unless it already holds measures of these.

    Raises:
        InputError, Damaged, JobError: as `inspect_run`.
    """
    weights = newest_weights(run)
    dataset = dataset_of(run, weights)
    head = {"format": version} | head_of(run, weights, settings)
    # The head names weights, data and amount: if it is the same, so are the numbers, and a page that asks again costs
    # nothing.
    known = known_content(run.path / file, head)
    if known is not None:
        return known
    content = head | measure(weights, held_windows(weights, dataset, settings, device_here()))
    write_json(run.path / file, content)
    return content


def _flow_of(weights: RunWeights, windows: Windows) -> dict[str, Any]:
    start, end = (model.to(device_here()) for model in (weights.initial_model(), weights.model()))
    with _threads(weights.spec.training.threads):
        return {"start": flow(start, windows), "end": flow(end, windows)}


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Compute with as many threads as in training: further ones wait for each other longer than small models take."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def dataset_of(run: RunFolder, weights: RunWeights) -> Dataset:
    """Load the data set of a run.

    Raises:
        InputError: the folder holds another one.
    """
    dataset = Dataset.load(run.path.parent / "data")
    if dataset.hash != weights.spec.data_hash:
        raise InputError(
            f"{dataset.folder} holds a data set with hash {dataset.hash[:12]}, the run was trained on "
            f"{weights.spec.data_hash[:12]}. Put the old data set back."
        )
    return dataset


def held_windows(weights: RunWeights, dataset: Dataset, settings: Settings, device: torch.device) -> Windows:
    """Return the first batches of a held-out evaluation of this size, the same for every run of a study."""
    training, objective = weights.spec.training, weights.spec.model.objective

    def batches(size: int, sequences: int) -> tuple[Any, ...]:
        windows = held_batches(dataset, size, training.seq, sequences)
        return tuple(
            make_batch(objective, window, dataset, seed=0, step=step, device=device)
            for step, window in enumerate(windows)
        )

    return Windows(batches=batches(training.batch, settings.sequences), maps=batches(1, settings.map_sequences))


def head_of(run: RunFolder, weights: RunWeights, settings: Settings) -> dict[str, Any]:
    """Say which weights are measured on which data: measures with the same head are the same."""
    training = weights.spec.training
    return {
        "run": run.name,
        "variant": weights.spec.variant,
        "seed": weights.spec.seed,
        "addnorm": __version__,
        "weights": {"file": weights.file, "step": weights.step, "steps": training.steps},
        "data": {
            "hash": weights.spec.data_hash,
            "seq": training.seq,
            "sequences": settings.sequences,
            "map_sequences": settings.map_sequences,
        },
    }


def known_content(path: Path, head: Mapping[str, Any]) -> dict[str, Any] | None:
    """Read measures with this head from a file; None if there are none."""
    if not path.exists():
        return None
    try:
        content = read_json(path)
    except Damaged:
        return None  # measured again from the weights
    if not isinstance(content, dict) or {name: content.get(name) for name in head} != head:
        return None
    return content
