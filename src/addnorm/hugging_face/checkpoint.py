"""The files of a Transformers checkpoint, read without Transformers. No code in a folder is executed."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from addnorm.errors import InputError

CONFIG = "config.json"
_WHOLE = ("model.safetensors", "pytorch_model.bin")
_SHARDED = tuple(f"{name}.index.json" for name in _WHOLE)


def is_checkpoint(folder: Path) -> bool:
    """True for a folder with a config.json."""
    return (folder / CONFIG).is_file()


def read_config(folder: Path) -> dict[str, Any]:
    """Read config.json.

    Raises:
        InputError: the folder has none, or it is damaged, or its weights are quantised.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise InputError(
            f"{folder}: expected the folder of a Transformers checkpoint with {CONFIG}, got none. Save a model with "
            "save_pretrained, or give a run to addnorm.load."
        )
    config = _json(path)
    if config.get("quantization_config") is not None:
        raise InputError(
            f"{path}: $.quantization_config: expected none, got quantised weights. Give the checkpoint that they were made of."
        )
    return config


def read_weights(folder: Path) -> tuple[dict[str, Tensor], Path]:
    """Read all tensors of a checkpoint: safetensors before torch files, which are read with `weights_only=True`.

    Returns:
        The tensors by name, and the file that names them, for messages.

    Raises:
        InputError: there are none, or a file is missing or damaged.
    """
    for whole, sharded in zip(_WHOLE, _SHARDED, strict=True):
        if (folder / whole).is_file():
            return _tensors(folder / whole), folder / whole
        if (folder / sharded).is_file():
            index = _json(folder / sharded).get("weight_map")
            if not isinstance(index, dict):
                raise InputError(f"{folder / sharded}: $.weight_map: expected a mapping, got {index!r}. Copy it again.")
            weights: dict[str, Tensor] = {}
            for name in sorted(set(index.values())):
                weights |= _tensors(folder / name)
            return weights, folder / sharded
    raise InputError(
        f"{folder}: expected weights in one of {', '.join((*_WHOLE, *_SHARDED))}, got none of these files. Copy them next to "
        f"{CONFIG}."
    )


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        loaded: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises many kinds for a damaged file
        kind = "" if isinstance(error, OSError | SafetensorError) else f"{type(error).__name__}: "
        raise InputError(f"{path}: expected tensors, got an error: {kind}{error}. Copy the file again.") from error
    return loaded


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: expected JSON, got an error: {error}. Copy the file again.") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected a JSON object, got {json.dumps(content)[:80]}. Copy the file again.")
    return content
