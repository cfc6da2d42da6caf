"""Text on disk: one UTF-8 file, or a folder of .txt files.

Why: a study of the user's own corpus. A file is cut once, near its end, between two paragraphs; a folder is split by the names
of its files. No text is on both sides.

Source: none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from addnorm.data.corpora import CorpusSpec, Document
from addnorm.data.corpora._read import read_text
from addnorm.data.corpora._split import hold_out, require_held_out
from addnorm.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Text(CorpusSpec):
    """Spec of text on disk.

    Raises:
        FieldError: a field is out of range.
    """

    path: str
    """A UTF-8 file, or a folder whose .txt files are used, including those of its subfolders."""
    held_out: float = 0.05
    """Share for evaluation: of the characters of a file, or of the files of a folder. Unused with `held_out_path`."""
    held_out_path: str | None = None
    """A file or folder for evaluation (a published split); all of `path` is then training text."""

    def __post_init__(self) -> None:
        require_held_out(self)

    def documents(self) -> Iterator[Document]:
        """Yield the two parts of the file, or the files of the folder by name.

        Raises:
            InputError: a path is missing, has no text, is not UTF-8, or is too small to be split.
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

    def _by_file(self, folder: Path) -> Iterator[Document]:
        files = _text_files(folder)
        if len(files) < 2:
            raise InputError(
                f"corpus folder {folder}: expected at least two .txt files to split, got only {next(iter(files))}. "
                "Give the file as path, or a second one as held_out_path."
            )
        held = hold_out(list(files), self.held_out)
        for name, file in files.items():
            yield Document(name, read_text(file), name in held)

    def _cut(self, file: Path) -> Iterator[Document]:
        text = _some_text(file)
        at = _boundary(text, round(len(text) * (1 - self.held_out)))
        if at is None:
            raise InputError(
                f"corpus file {file}: expected the end of a line near the last {self.held_out:.0%} of its {len(text)} "
                "characters, got none. Break its lines, give a longer file, or a held_out_path."
            )
        yield Document(f"{file.name}/head", text[:at], False)
        yield Document(f"{file.name}/tail", text[at:], True)


def _boundary(text: str, wanted: int) -> int | None:
    """The position nearest to `wanted` after a blank line, else after a line, within the tolerance; None if there is none.

    The tolerance allows held-out parts of 0.5 to 1.5 times the wanted size.
    """
    tolerance = (len(text) - wanted) / 2
    for end in ("\n\n", "\n"):
        ends = (text.rfind(end, 0, wanted + len(end) - 1), text.find(end, wanted))
        cuts = [at + len(end) for at in ends if at >= 0 and abs(at + len(end) - wanted) <= tolerance]
        cuts = [cut for cut in cuts if text[:cut].strip() and text[cut:].strip()]
        if cuts:
            return min(cuts, key=lambda cut: abs(cut - wanted))
    return None


def _whole(path: Path, side: str, *, held_out: bool) -> Iterator[Document]:
    if path.is_dir():
        for name, file in _text_files(path).items():
            yield Document(f"{side}/{name}", read_text(file), held_out)
    else:
        file = _file(path)
        yield Document(f"{side}/{file.name}", _some_text(file), held_out)


def _file(path: Path) -> Path:
    if not path.exists():
        raise InputError(f"corpus path {path}: no such file or folder (looked in {Path.cwd()}).")
    return path


def _some_text(file: Path) -> str:
    text = read_text(file)
    if not text.strip():
        raise InputError(f"corpus file {file}: expected text, got an empty file.")
    return text


def _text_files(folder: Path) -> dict[str, Path]:
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.txt") if path.is_file()}
    if not files:
        raise InputError(
            f"corpus folder {folder}: expected .txt files, got none. Rename the files, or give one file as path."
        )
    return dict(sorted(files.items()))
