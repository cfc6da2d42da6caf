"""Room of the tokenizers: text to token ids."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int, Integer

from addnorm.catalogue import Spec

__all__ = ["Tokenizer", "TokenizerSpec"]


class Tokenizer(ABC):
    """A fixed map from text to ids in [0, vocab)."""

    vocab: int
    hash: str
    """Hex digest of everything that decides the ids; part of every result."""
    separator: int
    """Id that ends a document; text never encodes to it (for bytes: text without NUL)."""

    @abstractmethod
    def encode(self, text: str) -> Int[np.ndarray, " tokens"]:
        """Token ids of the text."""

    @abstractmethod
    def decode(self, tokens: Integer[np.ndarray, " tokens"]) -> str:
        """Text of the ids; bytes that are not UTF-8 become the replacement character."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` into the folder; `TokenizerSpec.load` reads it back."""


@dataclass(frozen=True, kw_only=True)
class TokenizerSpec(Spec, ABC):
    """Base of every tokenizer's configuration."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of ids that its tokenizers have, known before one is trained."""

    @abstractmethod
    def fit(self, texts: Iterable[str]) -> Tokenizer:
        """The tokenizer, trained on the training side of the corpus where it needs training."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path) -> Tokenizer:
        """The tokenizer that `Tokenizer.save` left in the folder, not trained again.

        Raises:
            InputError: the folder holds no readable `tokenizer.json` of this kind.
        """
