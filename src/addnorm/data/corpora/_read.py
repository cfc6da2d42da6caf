"""Reading text files strictly."""

from pathlib import Path

from addnorm.errors import InputError


def read_text(path: Path) -> str:
    """The file's text, line ends as they are.

    Raises:
        InputError: it cannot be opened, or is not UTF-8; the message names the first offending byte.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"corpus text must be UTF-8: {path} has byte 0x{error.object[error.start]:02x} at offset {error.start}. "
            f"Convert it, for instance: iconv -f LATIN1 -t UTF-8 {path.name} > {path.stem}.utf8{path.suffix}"
        ) from error
    except OSError as error:
        raise InputError(f"corpus file {path} cannot be read: {error.strerror}.") from error
