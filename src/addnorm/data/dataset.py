"""A prepared data set: two flat token files and their description.

train.tokens, held.tokens    token ids, little-endian uint16 or uint32; the tokenizer's separator ends each document
tokenizer.json               the tokenizer
dataset.json                 hash, vocabulary, sizes, and the specs of corpus and tokenizer

In a study's folder, `dataset.json` may name another folder, in the cache, that holds the token files of several studies.
"""

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt

from addnorm.catalogue import room
from addnorm.data.both_sides import BothSides
from addnorm.data.episodes import Episodes
from addnorm.data.tokenizers import Tokenizer
from addnorm.errors import InputError

FILES = ("train.tokens", "held.tokens", "tokenizer.json", "dataset.json")
_DTYPES = ("<u2", "<u4")
_COUNTED = 2**22
"""Tokens counted at a time."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Memory-mapped token files and their description."""

    folder: Path
    hash: str
    """Hex digest of every document's name, text and side, and of the tokenizer. Only results with equal hashes are
    compared."""
    tokenizer_hash: str
    vocab: int
    """Number of ids, which are in [0, vocab)."""
    train: UInt[np.ndarray, " train_tokens"]
    held: UInt[np.ndarray, " held_tokens"]
    train_bytes: int
    """UTF-8 bytes of the training text, without separators."""
    held_bytes: int
    """UTF-8 bytes of the held-out text, without separators."""
    corpus: dict[str, Any]
    """The spec of the corpus: `kind` and every field."""
    tokenizer_spec: dict[str, Any]
    """The spec of the tokenizer: `kind` and every field."""
    both_sides: BothSides = field(default_factory=BothSides)
    """Documents that were left out because they are held out, and held-out excerpts in the training text."""
    episodes: Episodes | None = None
    """The layout of a task, whose answers alone are scored; None for text."""

    @classmethod
    def load(cls, folder: Path) -> "Dataset":
        """Open a prepared data set.

        Raises:
            InputError: a file is missing, unreadable or of the wrong size.
        """
        content = _content(folder)
        try:
            tokens = Path(content.get("location", folder))
            if not tokens.is_dir():
                raise InputError(
                    f"data set {folder}: expected its tokens in {tokens}, got no such folder on this host. Set ADDNORM_CACHE "
                    "to a folder that every host sees, or prepare the data set again without it."
                )
            sides = {side: _open(tokens, side, content) for side in ("train", "held")}
            return cls(
                folder=folder,
                hash=content["hash"],
                tokenizer_hash=content["tokenizer_hash"],
                vocab=content["vocab"],
                train=sides["train"],
                held=sides["held"],
                train_bytes=content["train"]["bytes"],
                held_bytes=content["held"]["bytes"],
                corpus=content["corpus"],
                tokenizer_spec=content["tokenizer"],
                both_sides=BothSides.of(content),
                episodes=Episodes.of(content),
            )
        except (KeyError, TypeError) as error:
            raise InputError(
                f"data set {folder} is damaged: dataset.json: missing or wrong field: {error}. Prepare the data set again."
            ) from error

    @cached_property
    def byte_lengths(self) -> Int64[np.ndarray, " vocab"] | None:
        """UTF-8 bytes of the text that each id stands for, 0 for separators.

        None if they do not add up to the bytes of the held-out text, as with tokenizers that drop spaces, change letters or
        have a token for all unknown text. Bits per byte are then not known: the bytes of a part of the tokens are a guess.

        Raises:
            InputError: the tokenizer's file is missing or damaged.
        """
        lengths = self._stored_tokenizer().byte_lengths()
        if lengths is None:
            return None
        counts = sum(
            np.bincount(self.held[first : first + _COUNTED], minlength=self.vocab)
            for first in range(0, len(self.held), _COUNTED)
        )
        # A check of the whole held-out text, once: a tokenizer that lost a single byte would give bits per byte that
        # look right and cannot be compared.
        return lengths if int(lengths @ counts) == self.held_bytes else None

    @property
    def mask_id(self) -> int:
        """Id of a hidden token in masked-LM training: `vocab`; such models have vocab + 1 ids."""
        return self.vocab

    def tokenizer(self) -> Tokenizer:
        """Read the tokenizer from the folder.

        Raises:
            InputError: its file is missing or damaged, or has another hash than the recorded one.
        """
        tokenizer = self._stored_tokenizer()
        if tokenizer.hash != self.tokenizer_hash:
            raise InputError(
                f"data set {self.folder}: tokenizer.json: expected hash {self.tokenizer_hash[:12]}, got "
                f"{tokenizer.hash[:12]}. Prepare the data set again."
            )
        return tokenizer

    def _stored_tokenizer(self) -> Tokenizer:
        tokenizer: Tokenizer = room("tokenizer").spec_class(self.tokenizer_spec["kind"]).load(self.folder)
        return tokenizer

    def require(self, seq: int) -> None:
        """Make sure that the training and held-out tokens are long enough for a window, and that it cuts no episode.

        Raises:
            InputError: one of them is shorter than seq + 1 tokens, or a task's window would end within an episode.
        """
        if self.episodes is not None:
            self.episodes.require(seq)
        for side, tokens in (("training", self.train), ("held-out", self.held)):
            if len(tokens) < seq + 1:
                raise InputError(
                    f"corpus '{self.corpus['kind']}': expected at least {seq} + 1 {side} tokens, one sequence and its last "
                    f"target, got {len(tokens)}. Use more text, another held_out share, or a shorter sequence (at most "
                    f"{len(tokens) - 1})."
                )


def _content(folder: Path) -> dict[str, Any]:
    path = folder / "dataset.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"data set {folder}: {path.name} cannot be read ({error}). Prepare the data set.") from error
    if not isinstance(content, dict):
        raise InputError(
            f"data set {folder} is damaged: dataset.json: expected a mapping, got {content!r}. Prepare the data set again."
        )
    return content


def _open(folder: Path, side: str, content: dict[str, Any]) -> UInt[np.ndarray, " tokens"]:
    path, count, dtype = folder / f"{side}.tokens", content[side]["tokens"], content["dtype"]
    if dtype not in _DTYPES:
        raise InputError(
            f"data set {folder} is damaged: dtype: expected one of {_DTYPES}, got {dtype!r}. Prepare the data set again."
        )
    expected = count * np.dtype(dtype).itemsize
    actual = path.stat().st_size if path.is_file() else None
    if actual != expected or count < 1:
        raise InputError(f"data set {folder} is damaged: {path.name}: expected {expected} bytes, got {actual}.")
    return np.memmap(path, dtype=dtype, mode="r", shape=(count,))
