"""The tokenizer of a run in the format of the `tokenizers` library, with the settings that Transformers reads."""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Engine

from addnorm.data.tokenizers.bpe import Bpe
from addnorm.data.tokenizers.bytes import Bytes
from addnorm.errors import InputError
from addnorm.model.spec import ModelSpec
from addnorm.store.files import read_json

FILE, SETTINGS = "tokenizer.json", "tokenizer_config.json"
SEPARATOR, MASK = "<|end|>", "<|mask|>"


def tokenizer_files(folder: Path, spec: ModelSpec) -> dict[str, Any]:
    """Make the content of tokenizer.json and tokenizer_config.json for the tokenizer in a folder.

    Args:
        folder: with the tokenizer.json of a data set.
        spec: of the model. A masked one has one id more than the tokenizer, the mask's.

    Raises:
        InputError: the tokenizer has more ids than the model.
    """
    engine = _engine(folder)
    masked = spec.objective == "masked"
    if masked:
        engine.add_special_tokens([AddedToken(MASK, special=True, normalized=False)])
    if engine.get_vocab_size() > spec.vocab:
        raise InputError(
            f"{folder / FILE}: expected at most {spec.vocab} ids, the vocab of the model, got {engine.get_vocab_size()}. Put "
            "the tokenizer of the run's data set back."
        )
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": SEPARATOR,
        **({"mask_token": MASK} if masked else {}),
        # The separator's characters in a text are encoded as text, as in training.
        "split_special_tokens": True,
        "clean_up_tokenization_spaces": False,
        "model_max_length": spec.max_seq,
        "model_input_names": ["input_ids", "attention_mask"],
        "padding_side": "left",
    }
    return {FILE: json.loads(engine.to_str()), SETTINGS: settings}


def _engine(folder: Path) -> Engine:
    content = read_json(folder / FILE)
    if content.get("kind") == "bytes":
        return _byte_engine(Bytes.load(folder).separator)
    if "model" not in content:
        raise InputError(
            f"{folder / FILE}: expected the tokenizer 'bytes' or 'bpe', got one of your own, which the format of the "
            "tokenizers library cannot hold. Export without it: addnorm.save_hf(addnorm.load(…), to)."
        )
    Bpe.load(folder)  # refuses a damaged file
    return Engine.from_file(str(folder / FILE))


def _byte_engine(separator: int) -> Engine:
    """Build a BPE without merges. The separator has the id of byte 0, which the unknown token therefore stands for."""
    vocabulary = {character: byte for byte, character in _byte_characters().items() if byte != separator}
    engine = Engine(models.BPE(vocab={SEPARATOR: separator, **vocabulary}, merges=[], unk_token=SEPARATOR))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    engine.decoder = decoders.ByteLevel()
    engine.add_special_tokens([AddedToken(SEPARATOR, special=True, normalized=False)])
    return engine


def _byte_characters() -> dict[int, str]:
    """The character that stands for each byte in the library's byte level, as in GPT-2."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + place) for place, byte in enumerate(others)}
