"""Room of the tokenizers: maps from text to token ids. One file each."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int, Int64, Integer

from addnorm.catalogue import Spec, room
from addnorm.errors import InputError

__all__ = ["Tokenizer", "TokenizerSpec", "stored_tokenizer"]


class Tokenizer(ABC):
    """A fixed map from text to ids in [0, vocab).

    Example:
        >>> from addnorm.data.tokenizers.bytes import ByteTokenizer
        >>> tokenizer = ByteTokenizer()
        >>> tokenizer.encode("Ada").tolist(), tokenizer.vocab
        ([65, 100, 97], 256)
    """

    vocab: int
    hash: str
    """Hex digest of everything that determines the ids; part of every result."""
    separator: int
    """Id at the end of a document; the encoding of text does not contain it (for bytes: of text without NUL)."""

    @abstractmethod
    def encode(self, text: str) -> Int[np.ndarray, " tokens"]:
        """Encode a text as token ids."""

    def encode_all(self, texts: Sequence[str]) -> Iterable[Int[np.ndarray, " tokens"]]:
        """Encode texts one by one; a tokenizer may do so in parallel, with the same ids."""
        return map(self.encode, texts)

    @abstractmethod
    def decode(self, tokens: Integer[np.ndarray, " tokens"]) -> str:
        """Decode token ids; bytes that are not UTF-8 become the replacement character."""

    def byte_lengths(self) -> Int64[np.ndarray, " vocab"] | None:
        """UTF-8 bytes of the text that each id stands for, 0 for special ones; None, the default, if an id alone does not say.

        They are used where they add up to the bytes of the whole held-out text.
        """
        return None

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` into a folder, for `TokenizerSpec.load`."""


@dataclass(frozen=True, kw_only=True)
class TokenizerSpec(Spec, ABC):
    """Base of every tokenizer's spec.

    Example:
        >>> from addnorm.data.tokenizers.bytes import Bytes
        >>> Bytes().size, Bytes().fit([]).decode(np.array([65, 100, 97]))
        (256, 'Ada')
    """

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of ids, known before the tokenizer is trained."""

    @abstractmethod
    def fit(self, texts: Iterable[str]) -> Tokenizer:
        """Construct the tokenizer, trained on the corpus's training text if it needs training."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Read a tokenizer that `Tokenizer.save` wrote.

        Raises:
            InputError: the folder has no readable `tokenizer.json` of this kind.
        """


def stored_tokenizer(folder: Path) -> Tokenizer:
    """Read the tokenizer beside the weights of an exported model or of a checkpoint of Transformers.

    The data of a study name their tokenizer: use `Dataset.tokenizer` there.

    Args:
        folder: with `tokenizer.json`.

    Raises:
        InputError: there is no such file, it is damaged, or it is of a tokenizer of the user's own.

    Example:
        >>> from addnorm.data.tokenizers.bytes import ByteTokenizer
        >>> folder = Path("exported/tokenizer")
        >>> folder.mkdir(parents=True)
        >>> ByteTokenizer().save(folder)
        >>> stored_tokenizer(folder).vocab
        256
    """
    file = folder / "tokenizer.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{file}: expected the tokenizer of the model, got an error: {error}. Copy the file that belongs to the weights."
        ) from error
    kind = content.get("kind") if isinstance(content, dict) else None
    # A byte-level BPE is stored in the format of the tokenizers library, which has no field for a kind.
    if kind is None and isinstance(content, dict) and "model" in content:
        kind = "bpe"
    if kind not in ("bytes", "bpe", "pretrained"):
        raise InputError(
            f"{file}: expected a tokenizer of the kind 'bytes', 'bpe' or 'pretrained', or one of the tokenizers library, got "
            f"{kind!r}. Encode the text yourself, and give token ids."
        )
    return room("tokenizer").spec_class(kind).load(folder)
