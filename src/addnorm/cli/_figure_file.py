"""Figure files of the commands: the format follows from the suffix, and a file is written whole or not at all."""

from pathlib import Path
from typing import TYPE_CHECKING

from addnorm.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".pdf", ".png")


def require_figure_file(path: Path | None) -> None:
    """Require, before any work is done, that a figure can be written to `path`.

    Raises:
        InputError: another suffix, or its folder does not exist.
    """
    if path is None:
        return
    if path.suffix not in SUFFIXES:
        raise InputError(
            f"--plot: expected a file name that ends with one of {', '.join(SUFFIXES)}, got {str(path)!r}."
        )
    if not path.parent.is_dir():
        raise InputError(f"--plot: expected a file in an existing folder, got {str(path)!r}. Make the folder first.")


def write_figure(figure: "Figure", path: Path) -> None:
    """Write a figure to `path`.

    Raises:
        DiskFull, JobError: the disk refused the file.
    """
    from addnorm.reporting.drawing.image import saved
    from addnorm.store import write_atomic

    write_atomic(path, saved(figure, path.suffix[1:]))
