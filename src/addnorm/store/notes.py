"""Notes and tags that people write of a study: `notes.jsonl` in its folder.

Every change is a line that is added while a lock is held, and nothing is ever taken away: a removed note is a further line. Two
people who write at once therefore lose nothing, and what was removed by mistake is still in the file.

    {"time": …, "note": ID, "text": …, "variant": NAME or null}      {"time": …, "remove": ID}
    {"time": …, "tag": …, "variant": …}                              {"time": …, "untag": …, "variant": …}
"""

import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from addnorm.errors import InputError
from addnorm.store.lines import append_locked, read_lines

NAME, LOCK = "notes.jsonl", "notes.lock"
MOST_LETTERS, MOST_TAG_LETTERS = 20_000, 40
"""Of a note, and of a tag."""


@dataclass(frozen=True, kw_only=True)
class Note:
    """One note."""

    id: str
    time: float
    """When it was written, in seconds since 1970."""
    text: str
    variant: str | None
    """The variant that it is about; None for the whole study."""


@dataclass(frozen=True, kw_only=True)
class StudyNotes:
    """Notes and tags of a study as they stand."""

    notes: tuple[Note, ...] = ()
    """Newest first."""
    tags: tuple[tuple[str | None, str], ...] = ()
    """Pairs of variant (None for the whole study) and tag, in the order in which they were given."""

    def of(self, variant: str | None) -> "StudyNotes":
        """Those about one variant, or, with None, about the whole study."""
        return StudyNotes(
            notes=tuple(note for note in self.notes if note.variant == variant),
            tags=tuple(tag for tag in self.tags if tag[0] == variant),
        )


def notes(out: Path) -> StudyNotes:
    """Read a study's notes and tags.

    Raises:
        Damaged, JobError: the file is damaged or cannot be read.
    """
    by_id: dict[str, Note] = {}
    tags: dict[tuple[str | None, str], None] = {}
    # A log of additions and removals, not a state that is rewritten: two pages may write at once, and neither loses the
    # other's.
    for line in read_lines(out / NAME)[0]:
        variant = line.get("variant")
        if "note" in line:
            by_id[line["note"]] = Note(
                id=line["note"], time=line["time"], text=str(line.get("text", "")), variant=variant
            )
        elif "remove" in line:
            by_id.pop(line["remove"], None)
        elif "tag" in line:
            tags[variant, line["tag"]] = None
        elif "untag" in line:
            tags.pop((variant, line["untag"]), None)
    return StudyNotes(notes=tuple(reversed(by_id.values())), tags=tuple(tags))


def add_note(out: Path, text: str, *, variant: str | None = None) -> str:
    """Add a note.

    Returns:
        Its id.

    Raises:
        InputError: the text is empty or too long.
        DiskFull, JobError: it cannot be written.
    """
    content, note = _of_length("note", text.replace("\r\n", "\n").strip(), MOST_LETTERS), secrets.token_hex(6)
    _append(out, {"time": time.time(), "note": note, "text": content, "variant": variant})
    return note


def remove_note(out: Path, note: str) -> None:
    """Remove a note; nothing if it has been removed.

    Raises:
        DiskFull, JobError: it cannot be written.
    """
    if any(each.id == note for each in notes(out).notes):
        _append(out, {"time": time.time(), "remove": note})


def add_tag(out: Path, tag: str, *, variant: str | None = None) -> None:
    """Add a tag; nothing if it is there.

    Raises:
        InputError: the tag is empty or too long.
        DiskFull, JobError: it cannot be written.
    """
    short = _of_length("tag", " ".join(tag.split()), MOST_TAG_LETTERS)
    if (variant, short) not in notes(out).tags:
        _append(out, {"time": time.time(), "tag": short, "variant": variant})


def remove_tag(out: Path, tag: str, *, variant: str | None = None) -> None:
    """Remove a tag; nothing if it is not there.

    Raises:
        DiskFull, JobError: it cannot be written.
    """
    if (variant, tag) in notes(out).tags:
        _append(out, {"time": time.time(), "untag": tag, "variant": variant})


def _append(out: Path, record: dict[str, object]) -> None:
    append_locked(out / NAME, out / LOCK, record)


def _of_length(what: str, text: str, most: int) -> str:
    if not 0 < len(text) <= most:
        raise InputError(f"a {what}: expected 1 to {most} characters, got {len(text)}. Nothing was written.")
    return text
