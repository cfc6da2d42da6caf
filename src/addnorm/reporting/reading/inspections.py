"""Measurements of `addnorm inspect`: `insight.json` in a run's folder."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from addnorm.errors import AddnormError
from addnorm.reporting.reading.study_files import content_of
from addnorm.reporting.snapshot import Snapshot
from addnorm.store import RunFolder, read_json
from addnorm.store.measured import SKIPPED
from addnorm.version import __version__
from addnorm.words import Phrases, translated

NAME = "insight.json"
FORMAT = 5
"""Newest version of the layout, as `addnorm.insight` writes it."""
FORMATS = (1, 2, 3, 4, FORMAT)
"""Versions that can be shown: version 1 has no depth matrices, version 2 no size of what layers add;
in version 3 shares of summed scores count hidden positions and constants along a row."""


def insights(snapshot: Snapshot, models: Iterable[str] | None = None) -> dict[str, Mapping[str, Any]]:
    """Measurements by the name of a run or a checkpoint; those without, or of another format, are left out.

    Args:
        snapshot: the folder.
        models: variants and checkpoints; all if not given.
    """
    by_folder: dict[str, Mapping[str, Any]] = {}
    for place in (place for model in models or snapshot.models for place in snapshot.measured_in(model)):
        path = f"{place.folder}/{NAME}"
        if path not in snapshot.derived:  # figures, tables and methods of a report all ask for it
            snapshot.derived[path] = content_of(snapshot, path)
        content = snapshot.derived[path]
        if content.get("format") in FORMATS:
            by_folder[place.name] = content
    return by_folder


def not_inspected(snapshot: Snapshot, t: Phrases, variants: Sequence[str]) -> dict[str, str]:
    """Variants without measures per layer, each with the reason that its runs or `addnorm.inspect` give; "" without one."""
    known, reasons = insights(snapshot, variants), content_of(snapshot, SKIPPED)
    missing = {}
    for model in variants:
        runs = snapshot.of(model)
        if any(run.run in known for run in runs):
            continue
        reason = next((str(reasons[run.run]) for run in runs if run.run in reasons), "")
        is_finished = any(run.state == "finished" for run in runs)
        missing[model] = translated(reason, t) if is_finished else t("absent.unfinished")
    return missing


def is_inspected(run: RunFolder) -> bool:
    """True if a finished run's measurements are those of its final weights, by this version of addnorm.

    `addnorm.inspect` would leave them as they are. To ask it takes torch, and most of a report's time.
    """
    path, done = run.path / NAME, run.path / "DONE"
    try:
        if not done.is_file() or path.stat().st_mtime < done.stat().st_mtime:
            return False
        content = read_json(path)
    except (AddnormError, OSError):
        return False
    steps = run.spec.get("steps")
    return (
        isinstance(content, dict)
        and (content.get("format"), content.get("addnorm")) == (FORMAT, __version__)
        and content.get("weights") == {"file": "final.safetensors", "step": steps, "steps": steps}
    )
