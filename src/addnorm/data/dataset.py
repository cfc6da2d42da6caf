"""A prepared data set: two flat token files and what is known about them.

train.tokens, held.tokens    token ids, little-endian uint16 or uint32, documents ended by the tokenizer's separator
tokenizer.json               the tokenizer, so that text can be read back without training it again
dataset.json                 hash, vocabulary, sizes, and the specs that made it
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt

from addnorm.catalogue import room
from addnorm.data.tokenizers import Tokenizer
from addnorm.errors import InputError

FILES = ("train.tokens", "held.tokens", "tokenizer.json", "dataset.json")
_DTYPES = ("<u2", "<u4")


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Token files opened for reading; nothing is held in memory."""

    folder: Path
    hash: str
    """Hex digest of every document's name, text and side, and of the tokenizer. Results of different hashes are never
    compared."""
    tokenizer_hash: str
    vocab: int
    """Ids lie in [0, vocab)."""
    train: UInt[np.ndarray, " train_tokens"]
    held: UInt[np.ndarray, " held_tokens"]
    train_bytes: int
    """UTF-8 bytes of the training text; separators do not count."""
    held_bytes: int
    """UTF-8 bytes of the held-out text; separators do not count."""
    corpus: dict[str, Any]
    """The corpus spec that made it: `kind` and every field."""
    tokenizer_spec: dict[str, Any]
    """The tokenizer spec that made it: `kind` and every field."""

    @classmethod
    def load(cls, folder: Path) -> "Dataset":
        """Open a prepared data set.

        Raises:
            InputError: a file is missing, unreadable or of the wrong size.
        """
        content = _content(folder)
        try:
            sides = {side: _open(folder, side, content) for side in ("train", "held")}
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
            )
        except (KeyError, TypeError) as error:
            raise InputError(f"data set {folder} is damaged: dataset.json lacks {error}. Prepare it anew.") from error

    @property
    def held_bytes_per_token(self) -> float:
        """Bytes of held-out text per held-out token: bits per byte = nats per token / (ln 2 · this)."""
        return self.held_bytes / len(self.held)

    @property
    def mask_id(self) -> int:
        """Id that hides a token in masked-LM training: the one after the vocabulary; such models hold vocab + 1."""
        return self.vocab

    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the ids, read from the folder.

        Raises:
            InputError: its file is missing or damaged, or gives another hash than the one recorded.
        """
        tokenizer: Tokenizer = room("tokenizer").spec_class(self.tokenizer_spec["kind"]).load(self.folder)
        if tokenizer.hash != self.tokenizer_hash:
            raise InputError(
                f"data set {self.folder}: tokenizer.json has hash {tokenizer.hash[:12]}, the tokens were made with "
                f"{self.tokenizer_hash[:12]}. Prepare the data set anew."
            )
        return tokenizer

    def require(self, seq: int) -> None:
        """Make sure that both sides hold at least one sequence with its targets.

        Raises:
            InputError: a side is shorter than seq + 1 tokens.
        """
        for side, tokens in (("training", self.train), ("held-out", self.held)):
            if len(tokens) < seq + 1:
                raise InputError(
                    f"the {side} side must hold at least one sequence: {seq} + 1 tokens are needed, corpus "
                    f"'{self.corpus['kind']}' gives {len(tokens)}. Take more text, another held_out share, or a "
                    f"shorter sequence (at most {len(tokens) - 1})."
                )


def _content(folder: Path) -> dict[str, Any]:
    path = folder / "dataset.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"no whole data set in {folder}: {path.name} cannot be read ({error}). Prepare it.") from error
    if not isinstance(content, dict):
        raise InputError(f"data set {folder} is damaged: dataset.json is not a table. Prepare it anew.")
    return content


def _open(folder: Path, side: str, content: dict[str, Any]) -> UInt[np.ndarray, " tokens"]:
    path, count, dtype = folder / f"{side}.tokens", content[side]["tokens"], content["dtype"]
    if dtype not in _DTYPES:
        raise InputError(f"data set {folder} is damaged: dtype {dtype!r} is none of {_DTYPES}. Prepare it anew.")
    expected = count * np.dtype(dtype).itemsize
    actual = path.stat().st_size if path.is_file() else None
    if actual != expected or count < 1:
        raise InputError(f"data set {folder} is damaged: {path.name} must have {expected} bytes, has {actual}.")
    return np.memmap(path, dtype=dtype, mode="r", shape=(count,))
