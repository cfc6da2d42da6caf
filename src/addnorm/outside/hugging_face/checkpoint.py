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
_INDEX = ".index.json"
_ADAPTER = "adapter_config.json"
"""File by which Transformers adds an adapter to the weights of a folder."""
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
"""Files that hold weights or name the files that do, the preferred one first."""


def is_checkpoint(folder: Path) -> bool:
    """True for a folder with a config.json."""
    return (folder / CONFIG).is_file()


def read_config(folder: Path) -> dict[str, Any]:
    """Read config.json of a model whose weights are to be read.

    Raises:
        InputError: the folder has none, or it is damaged, or its weights are quantised.
    """
    config = plain_config(folder)
    if config.get("quantization_config") is not None:
        raise InputError(
            f"{folder / CONFIG}: $.quantization_config: expected none, got quantised weights. Give the checkpoint that "
            "they were made of."
        )
    return config


def plain_config(folder: Path) -> dict[str, Any]:
    """Read config.json, whatever it says.

    Raises:
        InputError: the folder has none, or it is damaged.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise InputError(
            f"{folder}: expected the folder of a Transformers checkpoint with {CONFIG}, got none. Save a model with "
            "save_pretrained, or give a run to addnorm.load."
        )
    return _json(path)


def weights_file(folder: Path) -> Path | None:
    """The file that holds the weights, or the index of several; None if there is none. Safetensors come before torch files."""
    return next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)


def require_weights(folder: Path) -> Path:
    """The file of `weights_file`.

    Raises:
        InputError: there is none, or an adapter lies beside it.
    """
    if (folder / _ADAPTER).is_file():
        raise InputError(
            f"{folder / _ADAPTER}: expected weights without an adapter, got one, which changes the model. Merge it into the "
            "weights (merge_and_unload), or remove its files."
        )
    file = weights_file(folder)
    if file is None:
        raise InputError(
            f"{folder}: expected weights in one of {', '.join(WEIGHTS)}, got none of these files. Copy them next to {CONFIG}."
        )
    return file


def weight_files(folder: Path) -> list[Path]:
    """The files with weights, sorted.

    Raises:
        InputError: there are none, or the index of several is damaged.
    """
    file = require_weights(folder)
    return [file, *_in_index(folder, file)] if file.name.endswith(_INDEX) else [file]


def read_weights(folder: Path) -> tuple[dict[str, Tensor], Path]:
    """Read all tensors of a checkpoint; torch files are read with `weights_only=True`.

    Returns:
        The tensors by name, and the file that names them, for messages.

    Raises:
        InputError: there are none, a file is missing or damaged, or files of an index hold others than it says.
    """
    file = require_weights(folder)
    if not file.name.endswith(_INDEX):
        return _tensors(file), file
    weights: dict[str, Tensor] = {}
    for path in _in_index(folder, file):
        tensors = _tensors(path)
        twice = next((name for name in sorted(tensors.keys() & weights.keys())), None)
        if twice is not None:
            raise InputError(
                f"{path}: {twice}: expected it in one file of {file.name}, got it in two. Copy all files again."
            )
        weights |= tensors
    # A file of an older save with the right name has other tensors; without this, the rest would be reported as missing
    # from the model.
    absent = sorted(_index(file).keys() - weights.keys())
    if absent:
        raise InputError(
            f"{file}: $.weight_map: expected tensors of its files, got also {absent[0]}. Copy all files again."
        )
    return weights, file


def _in_index(folder: Path, file: Path) -> list[Path]:
    return [folder / name for name in sorted(set(_index(file).values()))]


def _index(file: Path) -> dict[str, str]:
    """The file of every tensor."""
    index = _json(file).get("weight_map")
    if not isinstance(index, dict) or not all(isinstance(name, str) for name in index.values()):
        raise InputError(f"{file}: $.weight_map: expected a mapping to names of files, got {index!r}. Copy it again.")
    return index


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        loaded: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises many kinds for a damaged file
        kind = "" if isinstance(error, OSError | SafetensorError) else f"{type(error).__name__}: "
        raise InputError(f"{path}: expected tensors, got an error: {kind}{error}. Copy the file again.") from error
    if not isinstance(loaded, dict) or not all(isinstance(tensor, Tensor) for tensor in loaded.values()):
        raise InputError(
            f"{path}: expected tensors by name, got other contents. Save the model's state_dict() alone, as save_pretrained "
            "does."
        )
    return loaded


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: expected JSON, got an error: {error}. Copy the file again.") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected a JSON object, got {json.dumps(content)[:80]}. Copy the file again.")
    return content
