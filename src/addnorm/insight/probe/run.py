"""Probe of a run whose model others wrote: measures before and after training, on held-out text of its own data."""

from collections.abc import Callable
from typing import Any

from addnorm.insight.flow.measure import Windows
from addnorm.insight.flow.runs import FORMAT, INSIGHT, Settings, dataset_of, head_of, held_windows, known_content
from addnorm.insight.probe import probe
from addnorm.store import RunFolder
from addnorm.store.files import write_json
from addnorm.study.foreign import ForeignModel, logits_of
from addnorm.training.numerics import device_here
from addnorm.training.run_weights import newest_weights


def probe_run(run: RunFolder, settings: Settings, *, say: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Probe a run and write its insight.json, unless the file already holds these measures.

    Returns:
        The content of the file: as of a run of ours, with `missing` and its notes, the parts that were not found in the model.

    Raises:
        InputError: no weights yet, user code that is not given, files that have changed, or a model without a list of layers.
        Damaged, JobError: the run's files are damaged, or cannot be written.
    """
    found = newest_weights(run)
    head = {"format": FORMAT} | head_of(run, found, settings)
    known = known_content(run.path / INSIGHT, head)
    if known is not None:
        return known
    say(f"Inspecting {run.name}.")
    device = device_here()
    windows: Windows = held_windows(found, dataset_of(run, found), settings, device)
    measured = {
        moment: probe(model.module.to(device), windows.batches, windows.maps, logits_of)
        for moment, model in (("start", found.any_initial_model()), ("end", found.any_model()))
        if isinstance(model, ForeignModel)
    }
    missing = measured["start"].pop("missing")
    measured["end"].pop("missing")
    notes = [sentence.note for sentence in missing]
    content = {**head, "missing": [*map(str, missing)], "missing_notes": notes, **measured}
    write_json(run.path / INSIGHT, content)
    return content
