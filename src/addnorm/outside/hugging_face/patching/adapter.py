"""A patch as a small file: its mechanisms and their parameters, without the model."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.outside.hugging_face.patching.attach import Patch, patch, patch_of, unpatch
from addnorm.store.files import write_atomic

_FORMAT = "1"
_NORM = "norm."
"""First part of the names of the norms' parameters, which belong to the model and are written too."""


def save_patch(model: nn.Module, path: str | Path) -> Path:
    """Write the patch of a model: safetensors of the mechanisms' parameters, with their settings in its header.

    Weights of the model are not in it, except those of norms that the patch replaced; save others with `save_pretrained`.

    Raises:
        InputError: the model has no patch.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
        >>> model = LlamaForCausalLM(LlamaConfig(**sizes, intermediate_size=64, max_position_embeddings=16)).eval()
        >>> made = patch(model, residual="rezero")
        >>> save_patch(model, "rezero.safetensors").name
        'rezero.safetensors'
    """
    made = patch_of(model)
    path = Path(path)
    header = {"format": _FORMAT, "patch": json.dumps(made.specs)}
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in _tensors(model, made).items()}
    write_atomic(path, save(tensors, header))
    return path


def load_patch(model: nn.Module, path: str | Path) -> Patch:
    """Patch a model with a file that `save_patch` wrote.

    Raises:
        InputError: the file is missing, damaged, no patch, or made for a model of other sizes. The model is then as it was.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
        >>> model = LlamaForCausalLM(LlamaConfig(**sizes, intermediate_size=64, max_position_embeddings=16)).eval()
        >>> made = patch(model, residual="rezero")
        >>> file = save_patch(model, "patch.safetensors")
        >>> unpatch(model)
        >>> [name for name, _ in load_patch(model, file).named_parameters()]
        ['residual.alpha']
    """
    path = Path(path)
    specs, tensors = _read(path)
    # The file has every setting written out, so that a later version with other defaults builds the same mechanisms.
    made = patch(model, **specs)
    own = _tensors(model, made)
    wrong = sorted(set(own) ^ set(tensors)) or sorted(name for name in own if own[name].shape != tensors[name].shape)
    if wrong:
        unpatch(model)
        raise InputError(
            f"{path}: expected a patch of a model with the layers and sizes of this {type(model).__name__}, got another "
            f"{wrong[0]}. Load the model that it was made for."
        )
    for name, tensor in own.items():
        tensor.detach().copy_(tensors[name])
    return made


def _tensors(model: nn.Module, made: Patch) -> dict[str, Tensor]:
    norms = {
        f"{_NORM}{path}.{name}": tensor
        for path in made.norms
        for name, tensor in model.get_submodule(path).state_dict().items()
    }
    return {**made.state_dict(), **norms}


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a mapping
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"{path}: expected a file written by addnorm.save_patch, got an error: {error}. Write it again."
        ) from error
    if header.get("format") != _FORMAT or "patch" not in header:
        raise InputError(
            f"{path}: expected a file written by addnorm.save_patch, got other tensors. Models are loaded by from_pretrained."
        )
    return json.loads(header["patch"]), tensors
