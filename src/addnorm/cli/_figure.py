"""How commands write a figure: the kind of file by its ending, whole or not at all."""

from pathlib import Path
from typing import TYPE_CHECKING

from addnorm.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDINGS = (".svg", ".pdf", ".png")


def require_figure_file(path: Path | None) -> None:
    """Make sure, before any work is done, that a figure can be written there.

    Raises:
        InputError: another ending, or no such folder.
    """
    if path is None:
        return
    if path.suffix not in ENDINGS:
        raise InputError(f"a figure's file ends with one of {', '.join(ENDINGS)}, got {str(path)!r}.")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is no folder to write a figure into. Make it first.")


def write_figure(figure: "Figure", path: Path) -> None:
    """Put the figure at `path`.

    Raises:
        DiskFull, JobError: the disk refused.
    """
    from addnorm.reporting.drawing.image import saved
    from addnorm.store import write_atomic

    write_atomic(path, saved(figure, path.suffix[1:]))
