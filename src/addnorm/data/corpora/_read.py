"""Strict reading of text files."""

from pathlib import Path

from addnorm.errors import InputError


def read_text(path: Path) -> str:
    """Read a file's text, with its line ends unchanged.

    Raises:
        InputError: the file cannot be read, or is not UTF-8; the message has the first wrong byte.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"corpus file {path}: expected UTF-8, got byte 0x{error.object[error.start]:02x} at offset {error.start}. "
            f"Convert it, for example: iconv -f LATIN1 -t UTF-8 {path.name} > {path.stem}.utf8{path.suffix}"
        ) from error
    except OSError as error:
        raise InputError(f"corpus file {path}: cannot be read: {error.strerror}.") from error
