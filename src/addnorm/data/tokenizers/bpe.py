"""Byte-pair encoding: the most frequent pairs of adjacent tokens are merged until the vocabulary is full.

Why: a quarter of the tokens of `bytes` for the same text, and the tokenizer of published models. It is trained on the study's
training text only, so it does not depend on the held-out text; of more than 64 MiB, on a part of that size, spread over it.

Source: Sennrich et al. 2016, arXiv:1508.07909; byte level as in Radford et al. 2019 (GPT-2), trained by
https://github.com/huggingface/tokenizers.
Differs from the source: one special token, `<|end|>` with id 0, ends a document; the same characters in a text are encoded as
text.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
from jaxtyping import Int, Int64, Integer
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, pre_tokenizers, trainers

from addnorm.data.tokenizers import Tokenizer, TokenizerSpec
from addnorm.data.tokenizers._byte_lengths import byte_lengths
from addnorm.errors import InputError
from addnorm.fields import require_at_least

_FILE = "tokenizer.json"
_SEPARATOR = "<|end|>"
_SMALLEST = 257
_LEAST_IN_PARALLEL = 2**21
"""Characters that are encoded by several threads; fewer are not worth it, and leave no threads behind in a small process."""
_CHARACTERS_PER_THREAD = 2**20
"""Characters that are encoded at a time: the library holds about a hundred bytes per token until all of them are."""
_PART = 2**16
"""Characters of a part of a text; the library needs about two hundred bytes for each character of those at work."""
_CUT = re.compile(r"(?<=\S\n)(?=\S)")


@dataclass(frozen=True, kw_only=True)
class Bpe(TokenizerSpec):
    """Spec of byte-level BPE.

    Raises:
        FieldError: the vocabulary is too small for all bytes and the separator.
    """

    vocab: int = 8192
    """Number of ids: 256 bytes, the separator, and one per merge."""

    def __post_init__(self) -> None:
        require_at_least(self, _SMALLEST, "vocab")

    @property
    def size(self) -> int:
        return self.vocab

    def fit(self, texts: Iterable[str]) -> "BpeTokenizer":
        """Train the tokenizer. The same texts give the same ids.

        Raises:
            InputError: the texts have too few pairs for the vocabulary.
        """
        engine = Engine(models.BPE())
        engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        engine.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocab,
            # All 256 bytes from the start, in one order: any text can be encoded, and the same text trains the same
            # ids.
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            special_tokens=[_SEPARATOR],
            show_progress=False,
        )
        engine.train_from_iterator(texts, trainer)
        if engine.get_vocab_size() != self.vocab:
            raise InputError(
                f"bpe.vocab: expected at most {engine.get_vocab_size()}, the tokens that the training text yields, got "
                f"{self.vocab}. Lower vocab, or use more text."
            )
        return BpeTokenizer(engine)

    @classmethod
    def load(cls, folder: Path) -> "BpeTokenizer":
        """Read a trained tokenizer.

        Raises:
            InputError: the file is missing or is not a tokenizer.
        """
        try:
            engine = Engine.from_str((folder / _FILE).read_text(encoding="utf-8"))
        except Exception as error:  # the library raises plain Exception for a damaged file
            raise InputError(
                f"tokenizer file {folder / _FILE} cannot be read: {error}. Prepare the data again."
            ) from error
        return BpeTokenizer(engine)


class BpeTokenizer(Tokenizer):
    """A trained byte-level BPE."""

    separator = 0

    def __init__(self, engine: Engine) -> None:
        engine.encode_special_tokens = True  # the separator's characters in a text are encoded as text
        content = json.loads(engine.to_str())
        self._engine = engine
        self.vocab = engine.get_vocab_size()
        self.hash = hashlib.sha256(json.dumps(content, sort_keys=True).encode("ascii")).hexdigest()

    def encode(self, text: str) -> Int[np.ndarray, " tokens"]:
        """Encode a text, without a separator."""
        return _joined(self._engine.encode(part, add_special_tokens=False).ids for part in _parts(text))

    def encode_all(self, texts: Sequence[str]) -> Iterable[Int[np.ndarray, " tokens"]]:
        """Encode texts, many characters in parallel on all cores (or `RAYON_NUM_THREADS` of them)."""
        if sum(map(len, texts)) < _LEAST_IN_PARALLEL:
            return super().encode_all(texts)
        return self._encode_in_parallel(texts)

    def _encode_in_parallel(self, texts: Sequence[str]) -> Iterator[Int[np.ndarray, " tokens"]]:
        group: list[str] = []
        characters, room = 0, _threads() * _CHARACTERS_PER_THREAD
        for text in (*texts, None):
            # By characters, not by texts: one large file would otherwise be encoded with all of its tokens in memory at
            # once.
            if text is None or characters + len(text) > room:
                parts = [_parts(each) for each in group]
                encoded = iter(self._engine.encode_batch_fast(list(chain(*parts)), add_special_tokens=False))
                for of_text in parts:
                    yield _joined(each.ids for each in islice(encoded, len(of_text)))
                group, characters = [], 0
            if text is not None:
                group.append(text)
                characters += len(text)

    def decode(self, tokens: Integer[np.ndarray, " tokens"]) -> str:
        """Decode ids; separators are omitted, bytes that are not UTF-8 become the replacement character."""
        return str(self._engine.decode(np.asarray(tokens).tolist(), skip_special_tokens=True))

    def byte_lengths(self) -> Int64[np.ndarray, " vocab"] | None:
        """Bytes of every token, by the tokenizer's own file; None if it changes the text first, such as to lower case."""
        return byte_lengths(json.loads(self._engine.to_str()), self.vocab)

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` in the format of the tokenizers library, which Hugging Face models also use."""
        (folder / _FILE).write_text(self._engine.to_str(), encoding="utf-8")


def _parts(text: str) -> list[str]:
    """A text in parts of about 2**16 characters, whose tokens are those of the whole.

    It is cut after the end of a line, between two lines that neither end nor begin with white space. There the words that are
    merged apart end in any case: a line's end alone is a word, in the whole text as at the end of a part.
    """
    parts, start = [], 0
    while (cut := _CUT.search(text, start + _PART)) is not None:
        parts.append(text[start : cut.start()])
        start = cut.start()
    return [*parts, text[start:]]


def _joined(ids: Iterable[Sequence[int]]) -> Int[np.ndarray, " tokens"]:
    return np.concatenate([np.array(each, dtype=np.int64) for each in ids])


def _threads() -> int:
    """Number of the library's threads."""
    given = os.environ.get("RAYON_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) else os.cpu_count() or 1
