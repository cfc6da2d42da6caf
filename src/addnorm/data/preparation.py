"""Making a data set, once, so that it is there whole or not at all.

What must hold: two runs that start together, or a kill at any moment, leave in `folder` either nothing or a whole data
set. Why it is hard: tokens are written for minutes, and a reader cannot tell a file half-written from a short one. The
trick: everything is written into a hidden folder beside it, forced to disk, and renamed into place, which is one step
for the file system. Writers take turns by a lock that the kernel drops when its holder dies; so a hidden folder found
by the one who holds the lock is left over from a dead writer, and is removed.
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
"""Characters encoded at a time: bounds memory for one large document."""


def prepare(corpus: CorpusSpec, tokenizer: TokenizerSpec, folder: Path) -> Dataset:
    """The corpus as token files in `folder`: opened if they are there already, made otherwise.

    A data set found whole and made by the same specs is opened at once, without reading the corpus again: what a study
    has begun with, it goes on with. A damaged one is made anew.

    Raises:
        InputError: the corpus cannot be read, is empty, has nothing on one side; or the folder holds something else.
        DiskFull, JobError: the folder cannot be written; a data set that was there is whole.
    """
    found = _opened(folder)
    if found is not None and _made_by(found, corpus, tokenizer):
        return found
    make_folder(folder.parent)
    try:
        return _prepare(corpus, tokenizer, folder)
    except OSError as error:  # of the files written here: a corpus that cannot be read is an InputError
        raise disk_error(error, folder) from error


def _prepare(corpus: CorpusSpec, tokenizer: TokenizerSpec, folder: Path) -> Dataset:
    with _turn(folder):
        found = _opened(folder)
        if found is not None and _made_by(found, corpus, tokenizer):
            return found
        _require_ours(folder)
        building = folder.parent / f".{folder.name}.building"
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir()
        try:
            made = _make(corpus, tokenizer, building)
            if found is None:
                _put(building, folder)
            elif found.hash != made:
                raise InputError(
                    f"{folder} holds another data set (corpus '{found.corpus['kind']}', hash {found.hash[:12]}; asked "
                    f"for '{corpus.kind}', {made[:12]}). Choose another folder, or delete that one."
                )
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return Dataset.load(folder)


def _opened(folder: Path) -> Dataset | None:
    try:
        return Dataset.load(folder)
    except InputError:
        return None  # absent or damaged: either way it is made anew


def _made_by(found: Dataset, corpus: CorpusSpec, tokenizer: TokenizerSpec) -> bool:
    return found.corpus == _fields(corpus) and found.tokenizer_spec == _fields(tokenizer)


def _fields(spec: Spec) -> dict[str, Any]:
    # Through JSON, so that what is compared is what is stored: a tuple comes back as a list.
    fields: dict[str, Any] = json.loads(json.dumps({"kind": spec.kind, **asdict(spec)}))
    return fields


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    with (folder.parent / f".{folder.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _require_ours(folder: Path) -> None:
    strange = sorted(path.name for path in folder.iterdir() if path.name not in FILES) if folder.is_dir() else []
    if strange or (folder.exists() and not folder.is_dir()):
        raise InputError(
            f"a data set needs a folder of its own: {folder} holds {', '.join(strange[:3]) or 'a file'}. "
            "Choose another folder."
        )


def _put(building: Path, folder: Path) -> None:
    if folder.is_dir():
        shutil.rmtree(folder)  # empty or damaged, and ours: checked above
    os.rename(building, folder)
    sync(folder.parent)


def _make(corpus: CorpusSpec, spec: TokenizerSpec, folder: Path) -> str:
    """Write the four files; returns the data set's hash."""
    training = (piece for document in corpus.documents() if not document.held_out for piece in _pieces(document.text))
    tokenizer = spec.fit(training)
    dtype = np.dtype("<u2" if tokenizer.vocab <= 2**16 else "<u4")
    digest = hashlib.sha256()
    with (folder / "train.tokens").open("wb") as train, (folder / "held.tokens").open("wb") as held:
        sides = {False: _Side(train, dtype, tokenizer), True: _Side(held, dtype, tokenizer)}
        names: set[str] = set()
        for document in corpus.documents():
            if document.name in names:
                raise InputError(f"document names must be unique: corpus '{corpus.kind}' has {document.name!r} twice.")
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
    """One token file while it is written."""

    def __init__(self, file: BinaryIO, dtype: np.dtype[Any], tokenizer: Tokenizer) -> None:
        self._file, self._dtype, self._tokenizer = file, dtype, tokenizer
        self.documents = self.tokens = self.bytes = 0

    def write(self, document: Document) -> str:
        """Append the document and its separator; returns the digest of its text."""
        digest = hashlib.sha256()
        for piece in _pieces(document.text):
            try:
                encoded = piece.encode("utf-8")
            except UnicodeEncodeError as error:
                raise InputError(f"document {document.name!r} holds text that is no Unicode text: {error}.") from error
            digest.update(encoded)
            self.bytes += len(encoded)
            self._append(self._tokenizer.encode(piece))
        self._append(np.array([self._tokenizer.separator]))
        self.documents += 1
        return digest.hexdigest()

    def counts(self) -> dict[str, int]:
        """What `dataset.json` says of this side."""
        return {"documents": self.documents, "tokens": self.tokens, "bytes": self.bytes}

    def _append(self, ids: Int[np.ndarray, " tokens"]) -> None:
        vocab = self._tokenizer.vocab
        if ids.size and not (ids.min() >= 0 and ids.max() < vocab):
            raise InputError(f"a tokenizer's ids lie in [0, vocab): got {ids.min()} to {ids.max()}, vocab {vocab}.")
        self._file.write(ids.astype(self._dtype).tobytes())
        self.tokens += ids.size


def _require_both_sides(corpus: CorpusSpec, documents: int, *, train: _Side, held: _Side) -> None:
    if not train.bytes + held.bytes:
        raise InputError(f"corpus '{corpus.kind}' is empty: {documents} documents without text. Give it some text.")
    for side, name in ((train, "training"), (held, "held-out")):
        if not side.bytes:
            raise InputError(
                f"corpus '{corpus.kind}' has no {name} text: all of its {documents} documents fall on the other side. "
                "Take more text, or another held_out share."
            )


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = start + _PIECE
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield text[start:end]
        start = end
