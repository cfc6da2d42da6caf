"""Place of a checkpoint's measures, if they are written."""

from pathlib import Path

from addnorm.errors import InputError
from addnorm.store.measured import measured_folder


def measured_place(checkpoint: Path, to: str | Path | None, name: str | None) -> Path | None:
    """Folder for the measures of a checkpoint; None if they are not written.

    Args:
        checkpoint: its folder.
        to: folder of a study, or any other; None to write nothing.
        name: of the checkpoint in that folder; None for that of its own folder.

    Raises:
        InputError: a name without a folder; or as `measured_folder`.
    """
    if to is None:
        if name is not None:
            raise InputError("--name: expected together with --to. Add --to DIR, or leave --name out.")
        return None
    return measured_folder(Path(to), name, checkpoint)
