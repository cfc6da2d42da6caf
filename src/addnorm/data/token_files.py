"""Token files that are being written: documents in pieces, encoded in parallel, and resumed after a kill.

Memory is bounded by the pieces of one batch, whatever the size of the corpus. A journal, `progress.json`, says how many
pieces are encoded and flushed to disk. A resumed preparation reads the corpus from its beginning, because the data set's hash
covers its text, but encodes only what follows; the files are first cut to the tokens of the journal.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Int

from addnorm.data.both_sides import Separated
from addnorm.data.corpora import CorpusSpec, Document
from addnorm.data.tokenizers import Tokenizer
from addnorm.errors import InputError
from addnorm.store.files import read_json, sync, write_json

JOURNAL = "progress.json"
_PIECE = 2**20
"""Characters encoded at a time, which bounds the memory for a large document."""
_BATCH = 2**23
"""Characters encoded together, in parallel if the tokenizer can."""
_JOURNAL_TOKENS = 2**25
"""Tokens between two entries of the journal."""
_TELL_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Progress of a preparation."""

    read: int
    """Bytes of text read so far."""
    total: int | None
    """About how many bytes there are; None if it is not known."""
    tokens: int
    """Tokens written so far, by earlier attempts too."""


Tell = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Tell nothing."""


class TokenFiles:
    """The two token files of a data set, in a folder of their own.

    Args:
        folder: the folder.
        tokenizer: encodes the text.
        key: identity of corpus and tokenizer, by which an interrupted preparation is recognised; None to begin anew.
    """

    def __init__(self, folder: Path, tokenizer: Tokenizer, key: str | None) -> None:
        self._folder, self._key = folder, key
        journal = journal_of(folder, key)
        self._encoded = int(journal.get("pieces", 0))
        self._journaled = 0
        self.sides = {
            held_out: _Side(folder / f"{name}.tokens", tokenizer, int(journal.get(name, 0)))
            for held_out, name in ((False, "train"), (True, "held"))
        }
        self._tokenizer = tokenizer
        self._batch: list[tuple[_Side, str]] = []
        self._characters = self._pieces = 0

    def write(self, corpus: CorpusSpec, separated: Separated, digest: "hashlib._Hash", tell: Tell) -> None:
        """Write all documents.

        Args:
            corpus: the corpus.
            separated: its documents, without those that would be on both sides.
            digest: updated with the documents' names, sides and texts in order.
            tell: called with the progress every two seconds.

        Raises:
            InputError: the corpus cannot be read, or two documents have one name.
            OSError: a file cannot be written.
        """
        try:
            self._write(corpus, separated, digest, tell)
        finally:
            for side in self.sides.values():
                side.close()

    def _write(self, corpus: CorpusSpec, separated: Separated, digest: "hashlib._Hash", tell: Tell) -> None:
        names, last_told_s, total = set[str](), time.monotonic(), corpus.text_bytes()
        for document in separated.documents():
            if document.name in names:
                raise InputError(
                    f"corpus '{corpus.kind}': expected unique document names, got {document.name!r} twice."
                )
            if self._key is None:  # otherwise they are unique by themselves, and may be too many to remember
                names.add(document.name)
            side, text = self.sides[document.held_out], hashlib.sha256()
            for piece in pieces(document.chunks()):
                encoded = _utf8(document, piece)
                text.update(encoded)
                side.bytes += len(encoded)
                separated.read(document, encoded)
                self._add(side, piece)
                if time.monotonic() - last_told_s >= _TELL_S:
                    last_told_s = time.monotonic()
                    tell(self._progress(total))
            self._add(side, "")
            side.documents += 1
            digest.update(json.dumps([document.name, document.held_out, text.hexdigest()]).encode("ascii"))
        self._flush()

    def _progress(self, total: int | None) -> Progress:
        train, held = self.sides[False], self.sides[True]
        return Progress(read=train.bytes + held.bytes, total=total, tokens=train.tokens + held.tokens)

    def _add(self, side: "_Side", piece: str) -> None:
        """Append a piece of a document, or its separator, which stands for itself as an empty piece."""
        self._pieces += 1
        # The cut into pieces is a function of the text alone, so skipping as many pieces as the journal counts skips
        # exactly those whose tokens the files hold.
        if self._pieces <= self._encoded:
            return
        self._batch.append((side, piece))
        self._characters += len(piece) + 1
        if self._characters >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        texts = [piece for _, piece in self._batch if piece]
        ids = iter(self._tokenizer.encode_all(texts))
        for side, piece in self._batch:
            side.append(next(ids) if piece else np.array([self._tokenizer.separator]))
        self._batch, self._characters = [], 0
        written = sum(side.tokens for side in self.sides.values())
        if self._key is not None and written - self._journaled >= _JOURNAL_TOKENS:
            for side in self.sides.values():
                side.sync()
            # The files are on the disk before the journal counts them. A journal that is ahead would make the next
            # attempt skip text whose tokens are nowhere; files that are ahead are cut back to it.
            train, held = self.sides[False].tokens, self.sides[True].tokens
            journal = {"key": self._key, "pieces": self._pieces, "train": train, "held": held}
            write_json(self._folder / JOURNAL, journal)
            self._journaled = written


class _Side:
    """A token file that is being written.

    Args:
        path: the file.
        tokenizer: gives the type of the ids.
        tokens: number of tokens that the file has already; what follows them is cut off.
    """

    def __init__(self, path: Path, tokenizer: Tokenizer, tokens: int) -> None:
        self._dtype, self._vocab, self.tokens = id_type(tokenizer), tokenizer.vocab, tokens
        self.documents = self.bytes = 0
        self._file: BinaryIO = open(path, "ab")  # noqa: SIM115  closed by `close`
        # Tokens after the last entry of the journal may be half of a batch; they are encoded again.
        self._file.truncate(tokens * self._dtype.itemsize)

    def append(self, ids: Int[np.ndarray, " tokens"]) -> None:
        """Append tokens."""
        if ids.size and not (ids.min() >= 0 and ids.max() < self._vocab):
            raise InputError(f"tokenizer: expected ids in [0, {self._vocab}), got {ids.min()} to {ids.max()}.")
        self._file.write(ids.astype(self._dtype).tobytes())
        self.tokens += ids.size

    def sync(self) -> None:
        """Flush the file to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """End the file."""
        self._file.close()
        sync(Path(self._file.name))

    def counts(self) -> dict[str, Any]:
        """The entry of this side in `dataset.json`."""
        return {
            "documents": self.documents,
            "tokens": self.tokens,
            "bytes": self.bytes,
            "sha256": file_digest(Path(self._file.name)),
        }


def journal_of(folder: Path, key: str | None) -> dict[str, Any]:
    """The journal of an interrupted preparation with this key; empty without one."""
    path = folder / JOURNAL
    if key is None or not path.is_file():
        return {}
    journal: dict[str, Any] = read_json(path)
    return journal if journal["key"] == key else {}


def id_type(tokenizer: Tokenizer) -> np.dtype[Any]:
    """Type of a tokenizer's ids in files."""
    return np.dtype("<u2" if tokenizer.vocab <= 2**16 else "<u4")


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pieces(chunks: Iterable[str], size: int | None = None) -> Iterator[str]:
    """The text of chunks in pieces of at most `size` characters, 2**20 if not given, cut after a line's end where one has any.

    The pieces do not depend on how the text is divided into chunks.
    """
    size = _PIECE if size is None else size
    text = ""
    for chunk in chunks:
        text += chunk
        start = 0
        while len(text) - start > size:
            end = text.rfind("\n", start, start + size) + 1 or start + size
            yield text[start:end]
            start = end
        text = text[start:]
    if text:
        yield text


def _utf8(document: Document, piece: str) -> bytes:
    try:
        return piece.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"document {document.name!r}: expected Unicode text, got text that UTF-8 cannot encode: {error}."
        ) from error
