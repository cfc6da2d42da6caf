"""Strict reading of text files, whole or in parts that need not fit in memory."""

import codecs
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from addnorm.data.text_encoding import advice
from addnorm.errors import InputError

_CHUNK = 1 << 22
"""Bytes read at a time."""


@dataclass(frozen=True)
class FileText:
    """Text that is read when it is used: a part of a UTF-8 file.

    Example:
        >>> Path("two_lines.txt").write_text("first\\nsecond\\n")
        13
        >>> "".join(FileText(Path("two_lines.txt"), first=6).chunks())
        'second\\n'
    """

    path: Path
    first: int = 0
    """Its first byte."""
    end: int | None = None
    """The byte after it; None for the rest of the file."""

    def chunks(self) -> Iterator[str]:
        """The text, a few megabytes at a time, with its line ends unchanged.

        Raises:
            InputError: the file cannot be read, is not UTF-8 or has a NUL byte; the message has the first wrong byte.
        """
        return chunks(self.path, self.first, self.end)


def chunks(path: Path, first: int, end: int | None) -> Iterator[str]:
    """The text of a file from byte `first` to before byte `end`.

    Raises:
        InputError: as `FileText.chunks`.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    position = first
    try:
        with open(path, "rb") as file:
            file.seek(first)
            while True:
                size = _CHUNK if end is None else min(_CHUNK, end - position)
                # `kept` are bytes of a character that the last chunk cut; an error's position counts from them.
                data, kept = file.read(size), len(decoder.getstate()[0])
                text = decoder.decode(data, final=not data)
                # UTF-16 of English text is UTF-8 with a NUL beside every letter, and so are many files of token ids.
                if (nul := data.find(b"\0")) >= 0:
                    at = position + nul
                    raise InputError(
                        f"corpus file {path}: expected text, got a NUL byte at offset {at}. {advice(path, at)}"
                    )
                position += len(data)
                if text:
                    yield text
                if not data:
                    return
    except UnicodeDecodeError as error:
        at = position - kept + error.start
        raise InputError(
            f"corpus file {path}: expected UTF-8, got byte 0x{error.object[error.start]:02x} at offset {at}. "
            f"{advice(path, at)}"
        ) from error
    except OSError as error:
        raise InputError(f"corpus file {path}: cannot be read: {error.strerror}.") from error


def has_text(path: Path, first: int = 0, end: int | None = None) -> bool:
    """True if a part of a file has more than white space.

    Raises:
        InputError: as `FileText.chunks`.
    """
    return any(text.strip() for text in chunks(path, first, end))


def count_characters(path: Path) -> int:
    """Number of characters in a file.

    Raises:
        InputError: as `FileText.chunks`.
    """
    return sum(len(text) for text in chunks(path, 0, None))


def boundary(path: Path, characters: int, wanted: int) -> int | None:
    """Byte of the end of a line nearest to character `wanted`, after a blank line if possible; None if none is near.

    The tolerance allows a second part of 0.5 to 1.5 times the wanted size.

    Args:
        path: the file.
        characters: number of its characters.
        wanted: number of characters before the boundary.
    """
    tolerance = (characters - wanted) / 2
    start = _byte_of(path, wanted)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        # Searched in bytes, in a mapped file, since both ends are single bytes in UTF-8 and never part of another
        # character: the whole file is never in memory.
        for end in (b"\n\n", b"\n"):
            places = (content.rfind(end, 0, start + len(end) - 1), content.find(end, start))
            cuts = [place + len(end) for place in places if place >= 0]
            distance = {cut: _characters_between(path, cut, start) for cut in cuts}
            near = [
                cut for cut in cuts if distance[cut] <= tolerance and has_text(path, 0, cut) and has_text(path, cut)
            ]
            if near:
                return min(near, key=distance.__getitem__)
    return None


def _byte_of(path: Path, character: int) -> int:
    """Byte at which a character begins."""
    position = 0
    for text in chunks(path, 0, None):
        if len(text) >= character:
            return position + len(text[:character].encode("utf-8"))
        character -= len(text)
        position += len(text.encode("utf-8"))
    return position


def _characters_between(path: Path, one: int, other: int) -> int:
    return sum(len(text) for text in chunks(path, min(one, other), max(one, other)))
