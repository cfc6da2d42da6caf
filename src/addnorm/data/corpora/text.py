"""Your own text: one UTF-8 file, or a folder of .txt files.

Why: the corpus that a question is about is usually already on disk. One file is cut once, near its end, between two
paragraphs; a folder is split by file, the name deciding. So nothing is on both sides.

Source: none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from addnorm.data.corpora import CorpusSpec, Document
from addnorm.data.corpora._read import read_text
from addnorm.data.corpora._split import hold_out, require_share
from addnorm.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Text(CorpusSpec):
    """Spec of text on disk.

    Raises:
        InputError: a field is out of range.
    """

    path: str
    """A UTF-8 file, or a folder searched with its subfolders for files ending in .txt."""
    held_out: float = 0.05
    """Share kept for evaluation: of the characters of a file, of the files of a folder. Unused with `held_out_path`."""
    held_out_path: str | None = None
    """A file or folder that is evaluated on as a whole (a published split); then all of `path` is for training."""

    def __post_init__(self) -> None:
        require_share(self.held_out)

    def documents(self) -> Iterator[Document]:
        """The file's two parts, or the folder's files by name.

        Raises:
            InputError: a path is missing, holds no text, is not UTF-8, or leaves nothing to hold out.
        """
        if self.held_out_path is not None:
            if Path(self.held_out_path).resolve() == Path(self.path).resolve():
                raise InputError(f"path and held_out_path must differ: both are {self.path}.")
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
                f"a folder is split by file and needs at least two: {folder} holds only {next(iter(files))}. "
                "Give the file itself as path, or a second one as held_out_path."
            )
        held = hold_out(list(files), self.held_out)
        for name, file in files.items():
            yield Document(name, read_text(file), name in held)

    def _cut(self, file: Path) -> Iterator[Document]:
        text = _some_text(file)
        at = _boundary(text, round(len(text) * (1 - self.held_out)))
        if at is None:
            raise InputError(
                f"corpus {file} cannot be cut: none of its {len(text)} characters near the last "
                f"{self.held_out:.0%} ends a line. Break its lines, give a longer file, or a held_out_path."
            )
        yield Document(f"{file.name}/head", text[:at], False)
        yield Document(f"{file.name}/tail", text[at:], True)


def _boundary(text: str, wanted: int) -> int | None:
    """The cut nearest to `wanted`, after a blank line if one is near, else after a line.

    Near is where the part held out has between half and one and a half times the size wanted.
    """
    slack = (len(text) - wanted) / 2
    for end in ("\n\n", "\n"):
        found = (text.rfind(end, 0, wanted + len(end) - 1), text.find(end, wanted))
        cuts = [at + len(end) for at in found if at >= 0 and abs(at + len(end) - wanted) <= slack]
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
        raise InputError(f"corpus path {path} does not exist (looked in {Path.cwd()}). Give a file or a folder.")
    return path


def _some_text(file: Path) -> str:
    text = read_text(file)
    if not text.strip():
        raise InputError(f"corpus {file} is empty. Give a file with text.")
    return text


def _text_files(folder: Path) -> dict[str, Path]:
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.txt") if path.is_file()}
    if not files:
        raise InputError(f"corpus folder {folder} holds no .txt file. Rename the files, or give one file as path.")
    return dict(sorted(files.items()))
