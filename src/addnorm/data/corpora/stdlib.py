"""The Python standard library: its sources with their docstrings, and the help topics of pydoc.

Why: about 10 MB of real text, code and English, that every machine with Python already holds, so that a study starts
with nothing to download.

Source: the running Python, https://docs.python.org/3/library/; a help topic is one document, and so is a source file.
Different Python versions hold different text, hence the corpus hash in every result.
"""

import ast
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from addnorm.data.corpora import CorpusSpec, Document
from addnorm.data.corpora._split import hold_out, in_hash_order, require_share
from addnorm.errors import InputError

_TOPICS = "pydoc_data/topics.py"
_EXCLUDED_FOLDERS = frozenset(
    {"__pycache__", "dist-packages", "idle_test", "lib-dynload", "site-packages", "test", "tests"}
    # A hundred near-copies of one character table, which would stand on both sides of the split.
    | {"encodings"}
)
_MACHINE_OWN_PREFIXES = ("_sysconfigdata", "config-", "sitecustomize", "usercustomize")


@dataclass(frozen=True, kw_only=True)
class Stdlib(CorpusSpec):
    """Spec of the standard library as text.

    Raises:
        InputError: a field is out of range.
    """

    held_out: float = 0.05
    """Share of the documents kept for evaluation."""
    max_bytes: int | None = None
    """Upper bound on the text taken, in UTF-8 bytes, each side getting its share; None takes everything."""

    def __post_init__(self) -> None:
        require_share(self.held_out)
        if self.max_bytes is not None and self.max_bytes < 1:
            raise InputError(f"max_bytes must be at least 1, or null for the whole library; got {self.max_bytes}.")

    def documents(self) -> Iterator[Document]:
        """All documents by name, which is the path below the library's folder.

        Raises:
            InputError: this Python keeps no library sources on disk.
        """
        texts = dict(sorted(_texts(_library_folder())))
        held = hold_out(list(texts), self.held_out)
        kept = set(texts)
        if self.max_bytes is not None:
            held_bytes = round(self.max_bytes * self.held_out)
            kept = _that_fit({name: texts[name] for name in held}, held_bytes)
            kept |= _that_fit({n: t for n, t in texts.items() if n not in held}, self.max_bytes - held_bytes)
        for name, text in texts.items():
            if name in kept:
                yield Document(name, text, name in held)


def _library_folder() -> Path:
    folder = Path(sysconfig.get_path("stdlib"))
    if not (folder / "ast.py").is_file():
        raise InputError(
            f"corpus 'stdlib' needs the sources of Python's library, which {folder} does not hold. "
            "Use a Python installed with its sources, or corpus 'text' with a file of your own."
        )
    return folder


def _texts(folder: Path) -> Iterator[tuple[str, str]]:
    for parent, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if f not in _EXCLUDED_FOLDERS and not f.startswith(_MACHINE_OWN_PREFIXES)]
        for file in files:
            if not file.endswith(".py") or file.startswith(_MACHINE_OWN_PREFIXES):
                continue
            path = Path(parent, file)
            name = path.relative_to(folder).as_posix()
            try:
                text = path.read_bytes().decode("utf-8")
            except UnicodeDecodeError:
                continue  # a source may declare another encoding (PEP 263): text, but not for byte models
            if name == _TOPICS:
                yield from _topics(text)
            elif text.strip():
                yield name, text


def _topics(source: str) -> Iterator[tuple[str, str]]:
    # As a source file the topics are one quoted literal; apart they are the prose that a reader sees.
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign):
            for topic, text in ast.literal_eval(statement.value).items():
                yield f"{_TOPICS}/{topic}", text


def _that_fit(texts: dict[str, str], max_bytes: int) -> set[str]:
    kept: set[str] = set()
    for name in in_hash_order(list(texts), "subset"):
        size = len(texts[name].encode("utf-8"))
        if size <= max_bytes:
            kept.add(name)
            max_bytes -= size
    return kept
