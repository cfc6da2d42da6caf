"""Pretrained: the tokenizer of a trained model, read from its `tokenizer.json`.

Why: a trained model understands the ids of its own tokenizer only, so a study of such models takes it.

Source: the format of https://github.com/huggingface/tokenizers, which Hugging Face models use.
Differs from the source: no special tokens are added; their characters in a text are encoded as text. The token that ends a text
(`eos_token`) ends a document.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Engine

from addnorm.data.tokenizers import TokenizerSpec
from addnorm.data.tokenizers.bpe import BpeTokenizer
from addnorm.errors import InputError

_FILE, _CONFIG, _SETTINGS = "tokenizer.json", "config.json", "tokenizer_config.json"
_OURS = "<|end|>"
"""Separator of tokenizers that a study of this library trained."""


@dataclass(frozen=True, kw_only=True)
class Pretrained(TokenizerSpec):
    """Spec of the tokenizer of a trained model."""

    path: str
    """Folder with `tokenizer.json`, such as a checkpoint of Transformers. A study with variants `from:` a checkpoint takes that
    one's unless it names another."""

    @property
    def size(self) -> int:
        return self.fit(()).vocab

    def fit(self, texts: Iterable[str]) -> "PretrainedTokenizer":
        """Read the tokenizer; the texts are not read.

        Raises:
            InputError: there is none, it is damaged, or no token ends a text.
        """
        file = Path(self.path) / _FILE
        content = _json(file)
        if "tokenizer" in content:  # of the data of a study
            return PretrainedTokenizer(_engine(content["tokenizer"], file), int(content["separator"]))
        engine = _engine(content, file)
        return PretrainedTokenizer(engine, _separator(Path(self.path), engine))

    @classmethod
    def load(cls, folder: Path) -> "PretrainedTokenizer":
        """Read the copy in the folder of a data set.

        Raises:
            InputError: the file is missing or is not such a tokenizer.
        """
        file = folder / _FILE
        content = _json(file)
        if content.get("kind") != "pretrained":
            raise InputError(
                f"tokenizer file {file}: expected a pretrained tokenizer, got another. Prepare the data again."
            )
        return PretrainedTokenizer(_engine(content["tokenizer"], file), int(content["separator"]))


class PretrainedTokenizer(BpeTokenizer):
    """A tokenizer of the tokenizers library with the id that ends a document."""

    def __init__(self, engine: Engine, separator: int) -> None:
        super().__init__(engine)
        self.separator = separator
        self.vocab = max(engine.get_vocab(with_added_tokens=True).values(), default=0) + 1  # ids may have gaps
        self._content = {"kind": "pretrained", "separator": separator, "tokenizer": json.loads(engine.to_str())}
        self.hash = hashlib.sha256(json.dumps(self._content, sort_keys=True).encode("ascii")).hexdigest()

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` with the separator."""
        (folder / _FILE).write_text(json.dumps(self._content) + "\n", encoding="utf-8")


def _engine(content: Any, file: Path) -> Engine:
    try:
        return Engine.from_str(json.dumps(content))
    except Exception as error:  # the library raises a bare Exception for a damaged file
        raise InputError(f"{file}: expected a tokenizer, got an error: {error}. Copy the file again.") from error


def _separator(folder: Path, engine: Engine) -> int:
    """The id that ends a text, by the model's or the tokenizer's configuration."""
    config, settings = (_json(folder / name) if (folder / name).is_file() else {} for name in (_CONFIG, _SETTINGS))
    named = settings.get("eos_token")
    token = engine.token_to_id(str(named["content"] if isinstance(named, dict) else named)) if named else None
    if token is not None:
        return int(token)
    ids = config.get("eos_token_id")
    first = ids[0] if isinstance(ids, list) and ids else ids
    if isinstance(first, int) and engine.id_to_token(first) is not None:
        return first
    ours = engine.token_to_id(_OURS)
    if ours is None:
        raise InputError(
            f"{folder / _SETTINGS}: expected the token that ends a text in eos_token, got {named!r}, which {_FILE} does not "
            "have. Name one of its tokens."
        )
    return int(ours)


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{file}: expected a tokenizer in the format of the tokenizers library, got an error: {error}. Write it with "
            "AutoTokenizer.from_pretrained(…).save_pretrained(FOLDER)."
        ) from error
    if not isinstance(content, dict):
        raise InputError(f"{file}: expected a JSON object, got {json.dumps(content)[:80]}. Copy the file again.")
    return content
