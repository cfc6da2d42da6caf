"""Bytes: every UTF-8 byte is a token.

Why: it needs no training, and every token occurs in a small corpus. Sequences are about four times longer than with BPE.

Source: Xue et al. 2021, "ByT5", arXiv:2105.13626.
Differs from the source: no reserved ids. Byte 0, which text does not contain, ends a document, so the vocabulary is 256.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int, Int64, Integer

from addnorm.data.tokenizers import Tokenizer, TokenizerSpec
from addnorm.errors import InputError

_CONTENT = {"kind": "bytes", "vocab": 256, "separator": 0}
_FILE = "tokenizer.json"


@dataclass(frozen=True, kw_only=True)
class Bytes(TokenizerSpec):
    """Spec of the byte tokenizer; it has no fields."""

    @property
    def size(self) -> int:
        return ByteTokenizer.vocab

    def fit(self, texts: Iterable[str]) -> "ByteTokenizer":
        """Construct the tokenizer; the texts are not read."""
        return ByteTokenizer()

    @classmethod
    def load(cls, folder: Path) -> "ByteTokenizer":
        """Construct the tokenizer after checking the folder's file.

        Raises:
            InputError: the file is missing or belongs to another tokenizer.
        """
        try:
            content = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(
                f"tokenizer file {folder / _FILE} cannot be read: {error}. Prepare the data again."
            ) from error
        if content != _CONTENT:
            raise InputError(
                f"tokenizer file {folder / _FILE}: expected a byte tokenizer, got another. Prepare the data again."
            )
        return ByteTokenizer()


class ByteTokenizer(Tokenizer):
    """UTF-8 bytes as ids; 0 ends a document."""

    vocab = 256
    separator = 0
    hash = hashlib.sha256(json.dumps(_CONTENT, sort_keys=True).encode("ascii")).hexdigest()

    def encode(self, text: str) -> Int[np.ndarray, " tokens"]:
        """Encode a text as its UTF-8 bytes."""
        return np.frombuffer(text.encode("utf-8"), dtype=np.uint8).astype(np.int64)

    def decode(self, tokens: Integer[np.ndarray, " tokens"]) -> str:
        """Decode bytes; those that are not UTF-8 become the replacement character."""
        return np.asarray(tokens, dtype=np.uint8).tobytes().decode("utf-8", errors="replace")

    def byte_lengths(self) -> Int64[np.ndarray, " vocab"]:
        """One for all but the separator."""
        lengths = np.ones(self.vocab, dtype=np.int64)
        lengths[self.separator] = 0
        return lengths

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json`."""
        (folder / _FILE).write_text(json.dumps(_CONTENT) + "\n", encoding="utf-8")
