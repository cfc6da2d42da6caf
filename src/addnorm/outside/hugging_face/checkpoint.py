"""The files of a Transformers checkpoint, read without Transformers. No code in a folder is executed."""

import json
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from addnorm.errors import InputError

Content = TypeVar("Content")
CONFIG = "config.json"
_INDEX = ".index.json"
_ADAPTER = "adapter_config.json"
"""File by which Transformers adds an adapter to the weights of a folder."""
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
"""Files that hold weights or name the files that do, the preferred one first."""
FLOATS = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}
"""Types in which a model is computed, by their names in safetensors."""
_LFS_POINTER = b"version https://git-lfs"
_WRAPPERS = {
    "_orig_mod": "torch.compile",
    "module": "DataParallel or DistributedDataParallel",
    "_fsdp_wrapped_module": "FSDP",
    "_checkpoint_wrapped_module": "activation checkpointing",
}
"""Wrappers of a module, by what they add to the names of its weights."""
_ADAPTED = re.compile(r"(^|\.)(base_layer|lora_\w+|base_model\.model)\.")
_QUANTISED = re.compile(
    r"\.(qweight|qzeros|scales|g_idx|SCB|absmax|weight_packed|weight_scale(_inv)?|quant_state\..+)$"
)


def is_checkpoint(folder: Path) -> bool:
    """True for a folder with a config.json.

    Raises:
        InputError: it is a file.
    """
    if folder.is_file():
        raise InputError(
            f"{folder}: expected the folder of a run, of a study or of a checkpoint, got a file. Give its "
            f"folder, {folder.parent}, if that is one."
        )
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
        InputError: there is none, an adapter lies beside it, or a second set of weights does.
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
    # Transformers reads the single file, others the files of the index: neither is the right one if they differ.
    index = file.with_name(file.name + _INDEX)
    if index.is_file() and {*_in_index(folder, index)} != {file}:
        raise InputError(
            f"{folder}: expected weights once, got {file.name} and the files of {index.name}, of which a program may take "
            "either. Remove the older ones."
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


def weight_types(folder: Path) -> dict[str, str]:
    """Read the name and the type of every tensor of a checkpoint, without its numbers.

    Raises:
        InputError: as `read_weights`, or a matrix has numbers of eight bits or fewer.
    """
    types: dict[str, str] = {}
    for path in weight_files(folder):
        if not path.name.endswith(_INDEX):
            types |= _read(path, _types)
    for name, kind in types.items():
        bits = re.search(r"\d+", kind)
        # Buffers such as GPT-2's mask may be of eight bits.
        if name.endswith("weight") and bits and int(bits[0]) <= 8:
            raise InputError(
                f"{folder}: {name}: expected numbers of 16 bits or more, got {kind}: quantised weights. Give "
                "the checkpoint that they were made of."
            )
    return types


def require_finite(tensors: Iterable[tuple[str, Tensor]], where: Path) -> None:
    """Require weights without NaN and infinity, with which some kernels still give finite logits.

    Args:
        tensors: with their names.
        where: file of the weights.

    Raises:
        InputError: one has such a number.
    """
    for name, tensor in tensors:
        wide = tensor.is_floating_point() and tensor.itemsize > 1  # numbers of eight bits are refused as quantised ones
        if wide and not bool((finite := tensor.isfinite()).all()):
            raise InputError(
                f"{where}: {name}: expected finite numbers, got NaN or infinity in {int((~finite).sum())} of {tensor.numel()}. "
                "Give a checkpoint from before the divergence, or convert the weights to a wider type again."
            )


def advice_on_missing(missing: Iterable[str], names: Collection[str]) -> str:
    """The reason why a file lacks weights that a class needs, as far as the names in the file tell, and the remedy.

    Args:
        missing: names of the weights that the class needs.
        names: names of the weights in the file.
    """
    if any(_ADAPTED.search(name) for name in names):
        return " The file holds the weights of an adapter: merge it into the model (merge_and_unload) and save again."
    if any(_QUANTISED.search(name) for name in names):
        return " The weights are quantised: give the checkpoint that they were made of."
    for wrapper, source in _WRAPPERS.items():
        wrapped = [name for name in names if wrapper in name.split(".")]
        if {re.sub(rf"(^|\.){wrapper}\.", r"\1", name) for name in wrapped} & {*missing}:
            return (
                f" The names in the file contain {wrapper!r}, as {source} writes them: save the module that it wraps."
            )
    return ""


def _in_index(folder: Path, file: Path) -> list[Path]:
    return [folder / name for name in sorted(set(_index(file).values()))]


def _index(file: Path) -> dict[str, str]:
    """The file of every tensor."""
    index = _json(file).get("weight_map")
    if not isinstance(index, dict) or not all(isinstance(name, str) for name in index.values()):
        raise InputError(f"{file}: $.weight_map: expected a mapping to names of files, got {index!r}. Copy it again.")
    return index


def _tensors(path: Path) -> dict[str, Tensor]:
    return _read(path, lambda file: load_file(file) if file.suffix == ".safetensors" else _unpickled(file, "cpu"))


def _types(path: Path) -> dict[str, str]:
    if path.suffix != ".safetensors":
        return {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in _unpickled(path, "meta").items()}
    with safe_open(path, "pt") as file:
        kinds = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 - a handle is not iterable
    return {name: FLOATS.get(kind, kind) for name, kind in kinds.items()}


def _unpickled(path: Path, device: str) -> dict[str, Tensor]:
    loaded: Any = torch.load(path, map_location=device, weights_only=True)
    if not isinstance(loaded, dict) or not all(isinstance(tensor, Tensor) for tensor in loaded.values()):
        keys = f": {', '.join(map(str, [*loaded][:5]))}" if isinstance(loaded, dict) else ""
        raise InputError(
            f"{path}: expected tensors by name, got other contents{keys}. Save the model's state_dict() alone, as "
            "save_pretrained does."
        )
    return loaded


def _read(path: Path, read: Callable[[Path], Content]) -> Content:
    """Read a file, or raise one line about it."""
    try:
        with path.open("rb") as file:
            if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
                raise InputError(
                    f"{path}: expected the file itself, got a pointer of Git LFS to it. Run `git lfs pull` in its folder."
                )
        return read(path)
    except InputError:
        raise
    except Exception as error:  # torch.load raises many kinds for a damaged file
        if "Weights only load failed" in str(error):
            raise InputError(
                f"{path}: expected tensors alone, got pickled Python objects, which addnorm does not execute. Save the model's "
                "state_dict(), as save_pretrained does."
            ) from error
        content = "JSON" if path.suffix == ".json" else "tensors"
        reason = " ".join(str(error).split())[:300]
        raise InputError(
            f"{path}: expected {content}, got an error: {type(error).__name__}: {reason}. Copy the file again."
        ) from error


def _json(path: Path) -> dict[str, Any]:
    content = _read(path, lambda file: json.loads(file.read_text(encoding="utf-8")))
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected a JSON object, got {json.dumps(content)[:80]}. Copy the file again.")
    return content
