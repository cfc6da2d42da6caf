"""A stripped Transformers model as a folder that the original class loads: configuration, tokenizer files, and weights in
which the removed parameters are zeros."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from addnorm.errors import InputError
from addnorm.outside.targets.transformers_class import quiet_transformers

_WEIGHT_FILES = (".safetensors", ".bin", ".pt", ".pth", ".h5", ".msgpack", ".ot", ".onnx", ".index.json", ".ckpt")
_CODE = (".py", ".pyc")


def require_checkpoint_class(model: nn.Module, folder: Path) -> None:
    """Refuse a model that no folder can hold.

    Raises:
        InputError: it is not a model of Transformers.
    """
    if not hasattr(getattr(model, "config", None), "save_pretrained"):
        raise InputError(
            f"--strip {folder}: expected a Transformers model for a folder, got {type(model).__qualname__}. Give a file, "
            "such as smaller.safetensors."
        )


def every_name(model: nn.Module, names: Sequence[str]) -> list[str]:
    """Return all names of some parameters, those of shared ones included."""
    named = dict(model.named_parameters(remove_duplicate=False))
    chosen = {id(named[name]) for name in names}
    return [name for name, each in named.items() if id(each) in chosen]


def write_checkpoint(
    stripped: nn.Module, original: nn.Module, removed: Sequence[str], folder: Path, source: Path | None
) -> None:
    """Write a folder that `from_pretrained` of the original class loads.

    Args:
        stripped: the stripped model.
        original: the model before.
        removed: the parameters that are missing in the stripped model; the file holds zeros for them.
        folder: is made, or its files of these names are replaced.
        source: folder of the original checkpoint, whose files except weights and code are copied; None if there is none.

    Raises:
        InputError: the model is not one of Transformers, or `folder` is the source.
    """
    from safetensors.torch import save_file

    require_checkpoint_class(stripped, folder)
    if source is not None and folder.exists() and folder.samefile(source):
        raise InputError(f"--strip {folder}: expected another folder than that of the checkpoint. Choose a new one.")
    folder.mkdir(exist_ok=True)
    for file in sorted(source.iterdir()) if source is not None else ():
        if file.is_file() and not file.name.endswith((*_WEIGHT_FILES, *_CODE)):
            shutil.copyfile(file, folder / file.name)
    if not (folder / "config.json").is_file():
        stripped.config.save_pretrained(folder)  # type: ignore[union-attr,operator]
    _name_class(folder / "config.json", type(stripped).__name__)
    tensors = _tensors(stripped, original, removed)
    absent = _absent(original)
    tensors |= absent
    path = folder / "model.safetensors"
    path.touch()
    mode = path.stat().st_mode
    save_file(tensors, str(path), metadata={"format": "pt", "removed": json.dumps([*removed, *absent])})
    path.chmod(mode)  # safetensors makes a file that only its owner can read


def _name_class(config: Path, name: str) -> None:
    content = json.loads(config.read_text(encoding="utf-8"))
    if content.get("architectures") != [name]:
        config.write_text(json.dumps({**content, "architectures": [name]}, indent=2) + "\n", encoding="utf-8")


def _tensors(stripped: nn.Module, original: nn.Module, removed: Sequence[str]) -> dict[str, torch.Tensor]:
    """All weights, zeros for the removed ones; of tied weights the first name, as Transformers saves them."""
    before = original.state_dict()
    after = stripped.state_dict()
    tensors: dict[str, torch.Tensor] = {}
    seen: set[tuple[int, int, tuple[int, ...]]] = set()
    for name, value in before.items():
        kept = torch.zeros_like(value) if name in removed else after[name].to(value.dtype)
        place = (value.untyped_storage().data_ptr(), value.storage_offset(), tuple(value.shape))
        if place not in seen or not value.numel():
            tensors[name] = kept.detach().contiguous().clone()
        seen.add(place)
    return tensors


def _absent(original: nn.Module) -> dict[str, torch.Tensor]:
    """Zeros for the parameters of the class that the model lacks because an earlier rewrite removed them."""
    with quiet_transformers(), torch.device("meta"):
        whole = type(original)(original.config)
    dtype = next(original.parameters()).dtype
    names = original.state_dict().keys()
    return {
        name: torch.zeros(each.shape, dtype=dtype)
        for name, each in whole.named_parameters()
        if name not in names and isinstance(each, torch.Tensor)
    }


def removed_biases(path: Path) -> tuple[str, ...]:
    """Return the parameters that are zeros in a folder's weights because `--strip` removed them; none in other files."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            names = json.loads((file.metadata() or {}).get("removed", "[]"))
            held = set(file.keys())
            return tuple(name for name in names if name in held and not bool(file.get_tensor(name).any()))
    except (OSError, SafetensorError, ValueError, TypeError):
        return ()  # other weights, which their class reads or refuses
