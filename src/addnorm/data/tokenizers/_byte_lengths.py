"""Bytes of text that each id of a tokenizer of the tokenizers library stands for."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Int64

_REVERSIBLE = {"ByteLevel", "NFC", "Prepend", "Replace", "Sequence"}
"""Normalisers after which the text is still known. NFC changes it only where it changes the number of its bytes too."""
_SPACE = "\u2581"
"""Sign for a space in tokens of SentencePiece."""
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


def byte_lengths(content: Mapping[str, Any], vocab: int) -> Int64[np.ndarray, " vocab"] | None:
    """UTF-8 bytes of every id's text, 0 for special tokens and for the unknown token; None where the text is not kept.

    Spaces that a pre-tokenizer drops, or that it adds, are counted nowhere: the sum over a text then differs from its bytes.

    Args:
        content: of `tokenizer.json`.
        vocab: number of ids.
    """
    if not {part["type"] for part in _parts(content.get("normalizer"))} <= _REVERSIBLE:
        return None  # lower case, stripped accents: the tokens are those of another text
    is_byte_level = any(
        part["type"] == "ByteLevel"
        for name in ("normalizer", "pre_tokenizer", "decoder")
        for part in _parts(content.get(name))
    )
    model = content["model"]
    lengths = np.zeros(vocab, dtype=np.int64)
    for token, index in _entries(model):
        lengths[index] = len(token) if is_byte_level else _length(token, model)
    if model.get("unk_token") is not None:
        lengths[[index for token, index in _entries(model) if token == model["unk_token"]]] = 0
    if model.get("unk_id") is not None:
        lengths[model["unk_id"]] = 0
    for added in content.get("added_tokens") or ():
        lengths[added["id"]] = 0 if added["special"] else len(added["content"].encode("utf-8"))
    return lengths


def _length(token: str, model: Mapping[str, Any]) -> int:
    if model.get("byte_fallback") and _BYTE.fullmatch(token):
        return 1
    text = token.removeprefix(model.get("continuing_subword_prefix") or "")
    return len(text.removesuffix(model.get("end_of_word_suffix") or "").replace(_SPACE, " ").encode("utf-8"))


def _entries(model: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    vocabulary = model["vocab"]
    if isinstance(vocabulary, Mapping):
        yield from vocabulary.items()
    else:  # of Unigram: tokens with their scores, in the order of their ids
        yield from ((token, index) for index, (token, _) in enumerate(vocabulary))


def _parts(part: Any) -> Iterator[Mapping[str, Any]]:
    """A normaliser, pre-tokenizer or decoder with all parts of a sequence."""
    if isinstance(part, Mapping):
        yield part
        for name in ("normalizers", "pretokenizers", "decoders"):
            for inner in part.get(name) or ():
                yield from _parts(inner)
