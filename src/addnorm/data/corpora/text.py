"""Text on disk: one UTF-8 file, or a folder of .txt files.

Why: a study of the user's own corpus. A file is cut once, near its end, between two paragraphs; a folder is split by the names
of its files. Files whose text is held out are not trained on (`addnorm.data.both_sides`).

Source: none.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from addnorm.data.corpora import CorpusSpec, Document
from addnorm.data.corpora._read import FileText, boundary, count_characters, has_text
from addnorm.data.corpora._split import hold_out, require_held_out
from addnorm.errors import InputError
from addnorm.fields import require

_MARKED_UP = (".jsonl", ".json", ".csv", ".tsv", ".html", ".htm", ".xml")


@dataclass(frozen=True, kw_only=True)
class Text(CorpusSpec):
    """Spec of text on disk.

    Raises:
        FieldError: a field is out of range.
    """

    path: str
    """A UTF-8 file, or a folder whose .txt files are used, including those of its subfolders; beside the study file, unless the
    working folder has it."""
    held_out: float = 0.05
    """Share for evaluation: of the characters of a file, or of the files of a folder. Unused with `held_out_path`."""
    held_out_path: str | None = None
    """A file or folder for evaluation (a published split); all of `path` is then training text."""

    def __post_init__(self) -> None:
        require(self, "path", self.path.strip() != "" and "\0" not in self.path, "a file or folder")
        require_held_out(self)

    def documents(self) -> Iterator[Document]:
        """Yield the two parts of the file, or the files of the folder by name.

        Raises:
            InputError: a path is missing, has no text, is not UTF-8, or is too small to be split. Files of a folder are read,
                and refused, later.
        """
        if self.held_out_path is not None:
            if Path(self.held_out_path).resolve() == Path(self.path).resolve():
                raise InputError(f"text.held_out_path: expected another path than 'path', got {self.path} for both.")
            yield from _whole(Path(self.path), "train", held_out=False)
            yield from _whole(Path(self.held_out_path), "held-out", held_out=True)
        elif Path(self.path).is_dir():
            yield from self._by_file(Path(self.path))
        else:
            yield from self._cut(_file(Path(self.path)))

    def fingerprint(self) -> str:
        """Names, sizes and dates of the files."""
        entries = [(name, file.stat().st_size, file.stat().st_mtime_ns) for name, file in self._files()]
        return json.dumps([str(Path(self.path).resolve()), entries])

    def notes(self) -> Iterator[str]:
        """Files of a folder that are not read, and a file that holds more than text."""
        for side in ("path", "held_out_path"):
            given = getattr(self, side)
            if given and (others := _others(Path(given))):
                yield (
                    f"$.corpus.{side}: {len(others)} other file(s) or link(s) of {given} are not read, since they do not end "
                    f"in .txt, or lead to no file: {', '.join(others[:3])}{', …' if others[3:] else ''}."
                )
            elif given and Path(given).suffix.lower() in _MARKED_UP:
                yield f"$.corpus.{side}: {given} is read as plain text, with its marks and names of fields."

    def text_bytes(self) -> int:
        """Bytes of the files."""
        return sum(file.stat().st_size for _, file in self._files())

    def _files(self) -> Iterator[tuple[str, Path]]:
        for side in filter(None, (self.path, self.held_out_path)):
            path = Path(side)
            files = _text_files(path) if path.is_dir() else {path.name: _file(path)}
            yield from ((f"{side}/{name}", file) for name, file in files.items())

    def _by_file(self, folder: Path) -> Iterator[Document]:
        files = _text_files(folder)
        if len(files) < 2:
            raise InputError(
                f"corpus folder {folder}: expected at least two .txt files to split, got only {next(iter(files))}. "
                "Give the file as path, or a second one as held_out_path."
            )
        held = hold_out(list(files), self.held_out)
        for name, file in files.items():
            yield Document(name, FileText(file), name in held)

    def _cut(self, file: Path) -> Iterator[Document]:
        characters = _require_text(file)
        at = boundary(file, characters, round(characters * (1 - self.held_out)))
        if at is None:
            raise InputError(
                f"corpus file {file}: expected the end of a line near the last {self.held_out:.0%} of its {characters} "
                "characters, got none. Break its lines, give a longer file, or a held_out_path."
            )
        yield Document(f"{file.name}/head", FileText(file, 0, at), False)
        yield Document(f"{file.name}/tail", FileText(file, at), True)


def _whole(path: Path, side: str, *, held_out: bool) -> Iterator[Document]:
    if path.is_dir():
        for name, file in _text_files(path).items():
            yield Document(f"{side}/{name}", FileText(file), held_out)
    else:
        file = _file(path)
        _require_text(file)
        yield Document(f"{side}/{file.name}", FileText(file), held_out)


def _file(path: Path) -> Path:
    if not path.exists():
        raise InputError(
            f"corpus path {path}: no such file or folder (looked in {Path.cwd()}). "
            "Give a path relative to this folder, or an absolute one."
        )
    return path


def _require_text(file: Path) -> int:
    """Number of characters of a file that is not empty."""
    characters = count_characters(file)
    if not has_text(file):
        raise InputError(f"corpus file {file}: expected text, got an empty file. Give another.")
    return characters


def _others(folder: Path) -> list[str]:
    """Files and links in a folder that are not read; links to folders are not followed."""
    walk = os.walk(folder)
    paths = [Path(root, name) for root, folders, files in walk for name in (*files, *folders)]
    left = [path for path in paths if not (path.is_file() and path.suffix == ".txt")]
    return sorted(str(path.relative_to(folder)) for path in left if path.is_symlink() or not path.is_dir())


def _text_files(folder: Path) -> dict[str, Path]:
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.txt") if path.is_file()}
    if not files:
        raise InputError(
            f"corpus folder {folder}: expected .txt files, got none. Rename the files, or give one file as path."
        )
    return dict(sorted(files.items()))
