"""Measured checkpoints: `measured/NAME` in the folder, written by `addnorm inspect CHECKPOINT --text FILE --to DIR`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from addnorm.reporting.reading.inspections import FORMATS, NAME
from addnorm.reporting.reading.study_files import UNREADABLE, content_of
from addnorm.reporting.snapshot import Snapshot
from addnorm.store.extension import plugins_of
from addnorm.store.measured import CHECKPOINT
from addnorm.store.remembered import to_give
from addnorm.words import command_line, plugin_options


@dataclass(frozen=True, kw_only=True)
class MeasuredText:
    """The text that a checkpoint was measured on."""

    file: str
    hash: str
    seq: int
    """Tokens of a sequence."""
    sequences: int
    map_sequences: int
    """Of them for attention."""


@dataclass(frozen=True, kw_only=True)
class MeasuredCheckpoint:
    """A checkpoint, and what its layer measures are of."""

    name: str
    folder: str
    """Path where it was."""
    loss: float | None
    layers: int
    text: MeasuredText | None
    """None without layer measures."""
    missing: tuple[tuple[str, Any], ...]
    """Parts that were not found in it: the text and its note."""
    end: Mapping[str, Any]
    """Its measures; empty without."""


def measured_checkpoints(snapshot: Snapshot) -> tuple[MeasuredCheckpoint, ...]:
    """Every checkpoint of a folder, by name. One whose files are of another version has no measures."""
    return tuple(_read(snapshot, name) for name in snapshot.checkpoints)


def study_command(name: str, snapshot: Snapshot, place: str = "") -> str:
    """The command that analyses a study's runs, with the user's own code that they use.

    Args:
        name: of the command.
        snapshot: the study.
        place: of a part within its folder.
    """
    return command_line(
        "addnorm", name, snapshot.path / place, *plugin_options(to_give(snapshot.path, plugins_of(snapshot.plan)))
    )


def inspect_command(snapshot: Snapshot, model: str) -> str:
    """The command that measures a model, for pages that lack its measures."""
    places = snapshot.measured_in(model)
    if model in snapshot.variants or not places:
        return study_command("inspect", snapshot, places[0].folder if places else "")
    folder = content_of(snapshot, f"{places[0].folder}/{CHECKPOINT}").get("folder", "CHECKPOINT")
    return command_line("addnorm", "inspect", Path(folder), "--text", "FILE", "--to", snapshot.path, "--name", model)


def missing_in(content: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Parts that a probe did not find in a model: sentences and their notes, None where the file has none."""
    sentences = list(content.get("missing", ()))
    notes = [*content.get("missing_notes", ()), *[None] * len(sentences)]
    return tuple((str(text), note) for text, note in zip(sentences, notes, strict=False))


def _read(snapshot: Snapshot, name: str) -> MeasuredCheckpoint:
    (place,) = snapshot.measured_in(name)
    inside = place.folder
    folder = str(content_of(snapshot, f"{inside}/{CHECKPOINT}").get("folder", ""))
    nothing = MeasuredCheckpoint(name=name, folder=folder, loss=None, layers=0, text=None, missing=(), end={})
    content = content_of(snapshot, f"{inside}/{NAME}")
    if content.get("format") not in FORMATS:
        return nothing
    try:
        data, end = content["data"], content["end"]
        return MeasuredCheckpoint(
            name=name,
            folder=folder,
            loss=None if end["loss"] is None else float(end["loss"]),
            layers=len(end["layers"]),
            text=MeasuredText(
                file=str(data["text"]),
                hash=str(data["hash"]),
                seq=int(data["seq"]),
                sequences=int(data["sequences"]),
                map_sequences=int(data["map_sequences"]),
            ),
            missing=missing_in(content),
            end=end,
        )
    except UNREADABLE:
        return nothing
