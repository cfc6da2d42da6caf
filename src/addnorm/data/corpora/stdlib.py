"""The Python standard library: its sources with their docstrings, and the help topics of pydoc; or a package's docstrings.

Why: about 10 MB of code and English text on every machine with Python, so that a study needs no download.

Source: the running Python, https://docs.python.org/3/library/; each help topic and each source file is one document. The text
differs between Python versions, so every result has the corpus hash. With `package`, each module's docstrings are one document:
English prose of another kind, 5 MB of it in scipy, which addnorm needs anyway.
"""

import ast
import importlib.util
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from addnorm.data.corpora import CorpusSpec, Document
from addnorm.data.corpora._split import hold_out, in_hash_order, require_held_out
from addnorm.errors import InputError
from addnorm.fields import require

_TOPICS = "pydoc_data/topics.py"
_EXCLUDED_FOLDERS = frozenset(
    {"__pycache__", "dist-packages", "idle_test", "lib-dynload", "site-packages", "test", "tests"}
    # A hundred similar character tables, which would be on both sides of the split.
    | {"encodings"}
)
_MACHINE_OWN_PREFIXES = ("_sysconfigdata", "config-", "sitecustomize", "usercustomize")


@dataclass(frozen=True, kw_only=True)
class Stdlib(CorpusSpec):
    """Spec of the standard library as text.

    Raises:
        FieldError: a field is out of range.
    """

    held_out: float = 0.05
    """Share of the documents for evaluation."""
    max_bytes: int | None = None
    """Largest size of the text in UTF-8 bytes, divided between the sides; None for all text."""
    package: str | None = field(default=None, metadata={"omitted_at_default": True})
    """Installed package whose docstrings are the text, such as `scipy`; null for the library itself."""

    def __post_init__(self) -> None:
        require_held_out(self)
        valid = self.max_bytes is None or self.max_bytes >= 1
        require(self, "max_bytes", valid, "a whole number of at least 1, or null for the whole library")

    def documents(self) -> Iterator[Document]:
        """Yield all documents, named by their path in the library's folder.

        Raises:
            InputError: this Python has no library sources, or the package no docstrings, on disk.
        """
        texts = dict(sorted(_texts(_library_folder()) if self.package is None else _docstrings(self.package)))
        held = hold_out(list(texts), self.held_out)
        selected = set(texts)
        if self.max_bytes is not None:
            held_bytes = round(self.max_bytes * self.held_out)
            selected = _within_size({name: texts[name] for name in held}, held_bytes)
            selected |= _within_size({n: t for n, t in texts.items() if n not in held}, self.max_bytes - held_bytes)
        for name, text in texts.items():
            if name in selected:
                yield Document(name, text, name in held)


def _library_folder() -> Path:
    folder = Path(sysconfig.get_path("stdlib"))
    if not (folder / "ast.py").is_file():
        raise InputError(
            f"corpus stdlib: expected the sources of Python's library in {folder}, got none. "
            "Use a Python that is installed with its sources, or corpus 'text' with a file of your own."
        )
    return folder


def _docstrings(package: str) -> Iterator[tuple[str, str]]:
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"corpus stdlib: package: expected an installed package with modules, got {package!r}.")
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for name, source in _texts(Path(next(iter(spec.submodule_search_locations)))):
        try:
            tree = ast.parse(source)
        except SyntaxError:
            continue  # a template, or a source of another Python: it has no docstrings that this one could read
        nodes = (node for node in ast.walk(tree) if isinstance(node, documented))
        if text := "\n\n".join(doc for node in nodes if (doc := ast.get_docstring(node))):
            yield f"{package}/{name}", text + "\n"


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
                continue  # a source in another encoding (PEP 263)
            if name == _TOPICS:
                yield from _topics(text)
            elif text.strip():
                yield name, text


def _topics(source: str) -> Iterator[tuple[str, str]]:
    # The source file is one quoted literal; the separate topics are plain prose.
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign):
            for topic, text in ast.literal_eval(statement.value).items():
                yield f"{_TOPICS}/{topic}", text


def _within_size(texts: dict[str, str], max_bytes: int) -> set[str]:
    selected: set[str] = set()
    for name in in_hash_order(list(texts), "subset"):
        size = len(texts[name].encode("utf-8"))
        if size <= max_bytes:
            selected.add(name)
            max_bytes -= size
    return selected
