"""Texts as token ids of a checkpoint's own tokenizer, without Transformers."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from addnorm.data.text_encoding import advice
from addnorm.errors import InputError
from addnorm.outside.hugging_face.tokenizer import FILE, SETTINGS


def text_ids(folder: Path, file: Path) -> list[int]:
    """Encode a text file, without special tokens.

    Args:
        folder: of the checkpoint.
        file: a UTF-8 text, or a list of token ids in a file that ends in .json.

    Raises:
        InputError: there is no tokenizer or no text, or one of them is damaged.
    """
    if file.suffix == ".json":
        return listed_ids(file)
    tokenizer = _tokenizer(folder)
    ids: list[int] = tokenizer.encode(plain_text(file), add_special_tokens=False).ids
    return ids


def plain_text(file: Path) -> str:
    """Read a UTF-8 text that an option names.

    Raises:
        InputError: it cannot be read, or has another encoding.
    """
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        problem = f"got another encoding at byte {error.start}. {advice(file, error.start)}"
        raise InputError(f"--text: expected a UTF-8 text in {file}, {problem}") from error
    except OSError as error:
        raise InputError(f"--text: expected a UTF-8 text in {file}, got an error: {error}.") from error


def listed_ids(file: Path) -> list[int]:
    """Read a JSON list of token ids.

    Raises:
        InputError: it cannot be read, or is no list of whole numbers of at least zero.
    """
    try:
        ids = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"--text: expected token ids in {file}, got an error: {error}.") from error
    if not isinstance(ids, list) or not all(type(each) is int and each >= 0 for each in ids):
        raise InputError(f"--text: expected a JSON list of token ids in {file}, got {json.dumps(ids)[:60]}.")
    return ids


def require_vocab(folder: Path, ids: Iterable[int], vocab: int) -> None:
    """Require that a model has an embedding for every id.

    Raises:
        InputError: the tokenizer belongs to another model.
    """
    largest = max(ids, default=0)
    if largest >= vocab:
        raise InputError(
            f"{folder}: the text belongs to another model: it has token {largest}, the model has {vocab} embeddings. Copy the "
            f"{FILE} that belongs to the weights, or give token ids below {vocab}."
        )


def mask_id(folder: Path) -> int:
    """Find the id of the mask token of a masked model.

    Raises:
        InputError: the tokenizer has none.
    """
    path = folder / SETTINGS
    settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    named = settings.get("mask_token", "[MASK]")
    name = named.get("content") if isinstance(named, dict) else named
    number = _tokenizer(folder).token_to_id(str(name))
    if number is None:
        raise InputError(
            f"{folder / FILE}: expected the mask token {name!r} of a masked model, got none. Name it in {SETTINGS}."
        )
    return int(number)


def _tokenizer(folder: Path) -> Any:
    path = folder / FILE
    if not path.is_file():
        raise InputError(
            f"{folder}: expected a {FILE}, got none. Copy it next to config.json, or give token ids in a .json file."
        )
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises a bare Exception for a damaged file
        raise InputError(f"{path}: expected a tokenizer, got an error: {error}. Copy the file again.") from error
