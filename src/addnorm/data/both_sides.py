"""Text that would be on both sides of a data set: training documents that are held out too, and excerpts of held-out text.

A corpus is split by the names of its documents, so one text under two names could be trained on and evaluated. A training
document with the text of a held-out one is left out. Texts are compared without white space and byte order marks, so that
line ends and a last empty line make no difference. Documents with fewer than 64 other bytes are no evidence of a copy (an
empty package, a line of licence) and stay, unless both are one file.

Excerpts that recur inside other documents, such as a training file that contains the held-out one, are counted and reported;
nothing is cut out of a document.
"""

import hashlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from addnorm.data.corpora import CorpusSpec, Document, FileText

EXCERPT = 64
"""Bytes without white space of an excerpt, and of the shortest document that is compared."""
WORTH_SAYING = 0.1
"""Share of the held-out excerpts in the training text from which it is reported; code and licences repeat themselves."""
_LOOKED_THROUGH = 2**30
"""Bytes of training text that are searched for excerpts, at about 50 MB per second."""
_MOST_EXCERPTS = 2**18
"""Held-out excerpts that are searched for; of more, every second, fourth, … is."""
_WHITE = b" \t\n\r\v\f"
_MARK = "\ufeff".encode()
_BLOCK = 2**16
_BASE = 0x9E3779B97F4A7C15
_WORD = 2**64


@dataclass(frozen=True, kw_only=True)
class BothSides:
    """Text on both sides of a data set, as it was found when the tokens were written."""

    left_out: int = 0
    """Training documents that were left out, because their text is held out."""
    names: tuple[str, ...] = ()
    """The first of their names."""
    repeated: float = 0.0
    """Share of the held-out text that stands in the training text; 0 if it is below a tenth."""

    @classmethod
    def of(cls, content: dict[str, Any]) -> "BothSides":
        """The content of `dataset.json`, which has the entry only if there is something to say."""
        entry = content.get("both_sides", {})
        return cls(**{**entry, "names": tuple(entry.get("names", ()))})

    def sentences(self) -> list[str]:
        """Sentences for the user; none for most data sets."""
        sentences = []
        if self.left_out:
            more = ", …" if self.left_out > len(self.names) else ""
            sentences.append(
                f"{self.left_out} document(s) left out of the training text, because the same text is held out: "
                f"{', '.join(self.names)}{more}."
            )
        if self.repeated:
            sentences.append(
                f"{self.repeated:.0%} of the held-out text is also training text (excerpts of {EXCERPT} bytes without white "
                "space): the held-out loss counts what was learned by heart. Hold out other text."
            )
        return sentences


class Separated:
    """The documents of a corpus without training documents whose text is held out.

    Memory: 16 bytes per held-out document, and the excerpts. The held-out text is read once more.

    Args:
        corpus: the corpus.

    Raises:
        InputError: its held-out text cannot be read.
    """

    def __init__(self, corpus: CorpusSpec) -> None:
        self._corpus = corpus
        self._excerpts = _Excerpts()
        beginnings, wholes, self._short_files = array("Q"), array("Q"), set[tuple[int, int]]()
        for document in corpus.documents():
            if not document.held_out:
                continue
            beginning, whole = hashlib.blake2b(digest_size=8), hashlib.blake2b(digest_size=8)
            length = 0
            for text in _plain(document):
                beginning.update(text[: max(0, EXCERPT - length)])
                whole.update(text)
                self._excerpts.hold_out(text)
                length += len(text)
            if length >= EXCERPT:
                beginnings.append(_number(beginning))
                wholes.append(_number(whole))
            # Too short to be evidence by its text; the same file under two names is a copy all the same.
            elif (file := _whole_file(document)) is not None:
                self._short_files.add(file)
        self._beginnings, self._wholes = (np.unique(np.array(each, dtype=np.uint64)) for each in (beginnings, wholes))
        self._excerpts.close()
        self._left_out, self._names = 0, list[str]()

    def documents(self) -> Iterator[Document]:
        """Yield the documents in the corpus's order.

        Raises:
            InputError: the corpus cannot be read.
        """
        self._left_out, self._names = 0, []
        for document in self._corpus.documents():
            if document.held_out or not self._is_held_out(document):
                yield document
            else:
                self._left_out += 1
                self._names += [document.name] if self._left_out <= 3 else []

    def read(self, document: Document, text: bytes) -> None:
        """Look for held-out excerpts in a part of a document."""
        if not document.held_out:
            self._excerpts.look_through(_without_space(text))

    def on_both_sides(self) -> BothSides:
        """The text on both sides among the documents that were yielded and read."""
        share = self._excerpts.share()
        repeated = round(share, 4) if share >= WORTH_SAYING else 0.0
        return BothSides(left_out=self._left_out, names=tuple(self._names), repeated=repeated)

    def _is_held_out(self, document: Document) -> bool:
        """True if a held-out document has the text of this one. Nearly all others are recognised by their first bytes."""
        whole, start = hashlib.blake2b(digest_size=8), b""
        for text in _plain(document):
            if len(start) < EXCERPT:
                start += text[: EXCERPT - len(start)]
                # The first 64 bytes decide for nearly every document, which is then not read any further here.
                if len(start) == EXCERPT and not _among(hashlib.blake2b(start, digest_size=8), self._beginnings):
                    return False
            whole.update(text)
        if len(start) < EXCERPT:
            return bool(self._short_files) and _whole_file(document) in self._short_files
        return _among(whole, self._wholes)


class _Excerpts:
    """Held-out excerpts, and which of them the training text has.

    An excerpt has a polynomial hash modulo 2**64. That of every window of a text follows from running sums; a table of bits
    keeps nearly all windows from being looked up.
    """

    def __init__(self) -> None:
        # A running sum of letter_j B^j gives, as a difference, B^i times the hash of the window that begins at i.
        # Multiplied by the inverse of B^i, equal windows have equal hashes wherever they stand. The inverse modulo
        # 2**64 exists because B is odd; wrap-around of unsigned numbers is the arithmetic that is meant.
        inverse = pow(_BASE, -1, _WORD)
        self._powers = np.cumprod(np.full(_BLOCK, _BASE, dtype=np.uint64))
        self._inverses = np.cumprod(np.full(_BLOCK, inverse, dtype=np.uint64))
        self._held: list[npt.NDArray[np.uint64]] = []
        self._known = np.zeros(0, dtype=np.uint64)
        self._seen = np.zeros(0, dtype=bool)
        self._left = _LOOKED_THROUGH
        self._every, self._kept = EXCERPT, 0

    def hold_out(self, text: bytes) -> None:
        """Add every excerpt of a held-out text, one after the other."""
        for hashes in self._windows(text):
            self._held.append(hashes[:: self._every].copy())
            self._kept += len(self._held[-1])
            if self._kept > _MOST_EXCERPTS:
                # Every second of those so far, and half as many from here on: the sample stays even over the whole
                # text, and its memory bounded, though the length of the text is not known before.
                self._every *= 2
                self._held = [np.concatenate(self._held)[::2]]
                self._kept = len(self._held[0])

    def close(self) -> None:
        """End the held-out text."""
        self._known = np.unique(np.concatenate(self._held)) if self._held else self._known
        self._seen = np.zeros(len(self._known), dtype=bool)
        self._bits = max(10, (16 * len(self._known)).bit_length())
        self._table = np.zeros(1 << self._bits, dtype=bool)
        self._table[self._place(self._known)] = True
        self._held = []

    def look_through(self, text: bytes) -> None:
        """Mark the excerpts that stand anywhere in a training text."""
        if self._left <= 0 or not len(self._known):
            return
        self._left -= len(text)
        for hashes in self._windows(text):
            # The table has at least 16 bits per excerpt, so at most one window in sixteen goes on to the search.
            likely = hashes[self._table[self._place(hashes)]]
            at = np.minimum(np.searchsorted(self._known, likely), len(self._known) - 1)
            self._seen[at[self._known[at] == likely]] = True

    def share(self) -> float:
        """Share of the excerpts that were seen."""
        return float(self._seen.mean()) if len(self._seen) else 0.0

    def _place(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        return (hashes * np.uint64(_BASE)) >> np.uint64(64 - self._bits)

    def _windows(self, text: bytes) -> Iterator[npt.NDArray[np.uint64]]:
        """Hash of every window of the text's blocks, which overlap so that no window is lost."""
        step = _BLOCK - EXCERPT + 1
        for first in range(0, len(text) - EXCERPT + 1, step):
            letters = np.frombuffer(text[first : first + _BLOCK], dtype=np.uint8).astype(np.uint64) + np.uint64(1)
            sums = np.concatenate([[np.uint64(0)], np.cumsum(letters * self._powers[: len(letters)])])
            windows = sums[EXCERPT:] - sums[:-EXCERPT]
            mixed = windows * self._inverses[: len(windows)]
            yield mixed ^ (mixed >> np.uint64(29))


def _plain(document: Document) -> Iterator[bytes]:
    """The text of a document without what does not count."""
    return (_without_space(text.encode("utf-8", "surrogatepass")) for text in document.chunks())


def _without_space(text: bytes) -> bytes:
    return text.translate(None, _WHITE).replace(_MARK, b"")


def _whole_file(document: Document) -> tuple[int, int] | None:
    """Identity of the file that a document is, whatever its names and links; None if it is a part of one, or text."""
    text = document.text
    if not isinstance(text, FileText) or text.first or text.end is not None:
        return None
    status = text.path.stat()
    return status.st_dev, status.st_ino


def _number(digest: "hashlib._Hash | hashlib.blake2b") -> int:
    return int.from_bytes(digest.digest(), "big")


def _among(digest: "hashlib.blake2b", numbers: npt.NDArray[np.uint64]) -> bool:
    number = np.uint64(_number(digest))
    at = int(np.searchsorted(numbers, number))
    return at < len(numbers) and bool(numbers[at] == number)
