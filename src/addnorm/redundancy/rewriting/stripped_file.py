"""File of a stripped model: its weights, and metadata that name what is missing on purpose.

    removed, zeroed, changed, float32     names of parameters, as JSON lists
    target, config                        the model that was stripped, as given to `addnorm audit`; empty if unknown

The original class reads the file back once the removed parameters are set to None.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import nn

from addnorm.errors import InputError
from addnorm.redundancy.rewriting.float32_biases import store_in_float32
from addnorm.redundancy.rewriting.removal import set_to_none, set_to_zeros

NAMES = ("removed", "zeroed", "changed", "float32")


def write_stripped(
    model: nn.Module, path: Path, names: Mapping[str, Sequence[str]], *, target: str = "", config: str = ""
) -> None:
    """Write a stripped model's weights.

    Args:
        model: the stripped model.
        path: of the file.
        names: the parameters of each key of `NAMES`.
        target: the model that was stripped, as `addnorm audit` names it.
        config: its configuration, as JSON.
    """
    from safetensors.torch import save_model

    metadata = {key: json.dumps(list(names[key])) for key in NAMES}
    path.touch()
    mode = path.stat().st_mode
    save_model(model, str(path), metadata={**metadata, "target": target, "config": config})
    path.chmod(mode)  # safetensors makes a file that only its owner can read


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a stripped model's file.

    Raises:
        InputError: the file is not one.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            metadata = dict(file.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: expected a safetensors file, got an error: {error}. Write it again.") from error
    if "removed" not in metadata or "zeroed" not in metadata:
        raise InputError(
            f"{path}: expected a file written by `addnorm audit --strip`, got one whose metadata names no removed parameters. "
            "Give the folder of the checkpoint that it belongs to."
        )
    return metadata


def load_stripped(model: nn.Module, path: Path) -> None:
    """Turn the original model into the stripped one, in place.

    Raises:
        InputError: the file does not fit the model.
    """
    from safetensors.torch import load_model

    metadata = read_metadata(path)
    lists = {key: json.loads(metadata.get(key, "[]")) for key in NAMES}
    named = dict(model.named_parameters(remove_duplicate=False))
    unknown = [name for key in NAMES if key != "changed" for name in lists[key] if name not in named]
    if unknown:
        raise InputError(
            f"{path}: expected parameters of {type(model).__qualname__}, got {', '.join(unknown[:5])}. Give the model from "
            "which the file was made."
        )
    aliases = {
        name: [each for each, other in named.items() if other is named[name]]
        for key in NAMES
        for name in lists[key]
        if name in named
    }
    for name in lists["float32"]:
        store_in_float32(model, aliases[name], torch.zeros_like(named[name], dtype=torch.float64))
    for name in lists["removed"]:
        set_to_none(model, aliases[name])
    for name in lists["zeroed"]:
        set_to_zeros(model, aliases[name])
    try:
        load_model(model, str(path))
    except RuntimeError as error:  # names or shapes that differ; torch lists them
        lines = " ".join(str(error).split())
        raise InputError(
            f"{path}: expected the weights of {type(model).__qualname__}, got others: {lines[:400]}"
        ) from error
