"""Notes and tags that people have written of the study, or of one model, with the forms to write further ones."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import MODEL_PAGE, View
from addnorm.store import Damaged
from addnorm.store.notes import MOST_LETTERS, MOST_TAG_LETTERS, NAME, StudyNotes, notes


class NotesSection(Section):
    """Notes and tags."""

    order = 8
    pages = ("overview", MODEL_PAGE)
    in_report = None
    study_files = (NAME,)

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        try:
            written, damage = notes(snapshot.path), None
        except Damaged as error:
            written, damage = StudyNotes(), str(error)
        own = written.of(view.variant)
        return {
            "tags": [tag for _, tag in own.tags],
            "notes": own.notes,
            "damage": damage,
            "note_key": None if damage else view.note_key,
            "variant": view.variant,
            "most_letters": MOST_LETTERS,
            "most_tag_letters": MOST_TAG_LETTERS,
        }
