"""Preparation of a data set: once, and atomically.

Invariant: after concurrent starts, or a kill at any moment, the folder contains either nothing or a complete data set. The
difficulty: tokens are written for minutes, and a reader cannot distinguish a partial file from a short one. The method: all
files are written into a hidden folder beside the final one, flushed to disk, and renamed into place, which is atomic. Writers
exclude each other by a lock that the kernel releases when its holder dies, so a hidden folder that the holder of the lock
finds belongs to a dead writer and is removed.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Int

from addnorm.catalogue import Spec
from addnorm.data.corpora import CorpusSpec, Document
from addnorm.data.dataset import FILES, Dataset
from addnorm.data.tokenizers import Tokenizer, TokenizerSpec
from addnorm.errors import InputError
from addnorm.store.files import disk_error, make_folder, sync

_PIECE = 2**20
"""Characters encoded at a time, which bounds the memory for a large document."""


def prepare(corpus: CorpusSpec, tokenizer: TokenizerSpec, folder: Path) -> Dataset:
    """Open the token files of a corpus in `folder`, and make them first if they are missing.

    A complete data set with the same specs is opened without reading the corpus, so a study continues with the data it
    started with. A damaged one is made again.

    Args:
        corpus: the spec of the corpus.
        tokenizer: the spec of the tokenizer.
        folder: the data set's folder.

    Raises:
        InputError: the corpus cannot be read, is empty or has no text on one side, or the folder contains other files.
        DiskFull, JobError: the folder cannot be written; an existing data set is intact.
    """
    existing = _open(folder)
    if existing is not None and _has_specs(existing, corpus, tokenizer):
        return existing
    make_folder(folder.parent)
    try:
        return _prepare(corpus, tokenizer, folder)
    except OSError as error:  # from the files written here; a corpus that cannot be read raises InputError
        raise disk_error(error, folder) from error


def _prepare(corpus: CorpusSpec, tokenizer: TokenizerSpec, folder: Path) -> Dataset:
    with _locked(folder):
        existing = _open(folder)
        if existing is not None and _has_specs(existing, corpus, tokenizer):
            return existing
        _require_own_folder(folder)
        building = folder.parent / f".{folder.name}.building"
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir()
        try:
            new_hash = _make(corpus, tokenizer, building)
            if existing is None:
                _move(building, folder)
            elif existing.hash != new_hash:
                raise InputError(
                    f"{folder}: expected the data set of corpus '{corpus.kind}' with hash {new_hash[:12]}, got that of "
                    f"'{existing.corpus['kind']}' with {existing.hash[:12]}. Choose another folder, or delete that one."
                )
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return Dataset.load(folder)


def _open(folder: Path) -> Dataset | None:
    try:
        return Dataset.load(folder)
    except InputError:
        return None  # missing or damaged: made again in both cases


def _has_specs(dataset: Dataset, corpus: CorpusSpec, tokenizer: TokenizerSpec) -> bool:
    return dataset.corpus == _fields(corpus) and dataset.tokenizer_spec == _fields(tokenizer)


def _fields(spec: Spec) -> dict[str, Any]:
    # Through JSON, which turns tuples into lists, so that the comparison is with the stored form.
    fields: dict[str, Any] = json.loads(json.dumps({"kind": spec.kind, **asdict(spec)}))
    return fields


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder.parent / f".{folder.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _require_own_folder(folder: Path) -> None:
    others = sorted(path.name for path in folder.iterdir() if path.name not in FILES) if folder.is_dir() else []
    if others or (folder.exists() and not folder.is_dir()):
        raise InputError(
            f"{folder}: expected a folder for the data set alone, got {', '.join(others[:3]) or 'a file'}. "
            "Choose another folder."
        )


def _move(building: Path, folder: Path) -> None:
    if folder.is_dir():
        shutil.rmtree(folder)  # empty or a damaged data set, by the check above
    os.rename(building, folder)
    sync(folder.parent)


def _make(corpus: CorpusSpec, spec: TokenizerSpec, folder: Path) -> str:
    """Write the four files. Returns the data set's hash."""
    training = (piece for document in corpus.documents() if not document.held_out for piece in _pieces(document.text))
    tokenizer = spec.fit(training)
    dtype = np.dtype("<u2" if tokenizer.vocab <= 2**16 else "<u4")
    digest = hashlib.sha256()
    with (folder / "train.tokens").open("wb") as train, (folder / "held.tokens").open("wb") as held:
        sides = {False: _Side(train, dtype, tokenizer), True: _Side(held, dtype, tokenizer)}
        names: set[str] = set()
        for document in corpus.documents():
            if document.name in names:
                raise InputError(
                    f"corpus '{corpus.kind}': expected unique document names, got {document.name!r} twice."
                )
            names.add(document.name)
            text_digest = sides[document.held_out].write(document)
            digest.update(json.dumps([document.name, document.held_out, text_digest]).encode("ascii"))
    _require_both_sides(corpus, len(names), train=sides[False], held=sides[True])
    digest.update(tokenizer.hash.encode("ascii"))
    tokenizer.save(folder)
    content = {
        "hash": digest.hexdigest(),
        "tokenizer_hash": tokenizer.hash,
        "vocab": tokenizer.vocab,
        "dtype": dtype.str,
        "train": sides[False].counts(),
        "held": sides[True].counts(),
        "corpus": _fields(corpus),
        "tokenizer": _fields(spec),
    }
    (folder / "dataset.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    for name in FILES:
        sync(folder / name)
    sync(folder)
    return digest.hexdigest()


class _Side:
    """A token file that is being written."""

    def __init__(self, file: BinaryIO, dtype: np.dtype[Any], tokenizer: Tokenizer) -> None:
        self._file, self._dtype, self._tokenizer = file, dtype, tokenizer
        self.documents = self.tokens = self.bytes = 0

    def write(self, document: Document) -> str:
        """Append a document and its separator. Returns the digest of its text."""
        digest = hashlib.sha256()
        for piece in _pieces(document.text):
            try:
                encoded = piece.encode("utf-8")
            except UnicodeEncodeError as error:
                raise InputError(
                    f"document {document.name!r}: expected Unicode text, got text that UTF-8 cannot encode: {error}."
                ) from error
            digest.update(encoded)
            self.bytes += len(encoded)
            self._append(self._tokenizer.encode(piece))
        self._append(np.array([self._tokenizer.separator]))
        self.documents += 1
        return digest.hexdigest()

    def counts(self) -> dict[str, int]:
        """The entry of this side in `dataset.json`."""
        return {"documents": self.documents, "tokens": self.tokens, "bytes": self.bytes}

    def _append(self, ids: Int[np.ndarray, " tokens"]) -> None:
        vocab = self._tokenizer.vocab
        if ids.size and not (ids.min() >= 0 and ids.max() < vocab):
            raise InputError(f"tokenizer: expected ids in [0, {vocab}), got {ids.min()} to {ids.max()}.")
        self._file.write(ids.astype(self._dtype).tobytes())
        self.tokens += ids.size


def _require_both_sides(corpus: CorpusSpec, documents: int, *, train: _Side, held: _Side) -> None:
    if not train.bytes + held.bytes:
        raise InputError(f"corpus '{corpus.kind}': expected text, got {documents} documents without any.")
    for side, name in ((train, "training"), (held, "held-out")):
        if not side.bytes:
            raise InputError(
                f"corpus '{corpus.kind}': expected {name} text, got none: all of its {documents} documents are on the other "
                "side. Use more text, or another held_out share."
            )


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = start + _PIECE
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield text[start:end]
        start = end
