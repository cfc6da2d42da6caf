"""A local folder with a Transformers checkpoint: config.json and weights. Nothing in it is executed.

The class is taken from the installed Transformers by the name in `architectures`; weights are read from safetensors, or from
torch files with `weights_only=True`. A folder that needs code of its own (`auto_map`) is refused, not run.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from addnorm.errors import InputError
from addnorm.redundancy.execution.memory import needed_bytes
from addnorm.targets.example_inputs import example_inputs
from addnorm.targets.input_spec import make_inputs
from addnorm.targets.target import Target
from addnorm.targets.transformers_class import model_class, of_config, parameters_of, refusing, silent

_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


def of_checkpoint(folder: Path, given: Mapping[str, Any] | None, memory: int | None = None) -> Target:
    """The model in a folder, in the dtype of its weights, with inputs derived from its configuration; a smaller one with random
    weights if its audit needs more than `memory` bytes.

    Raises:
        InputError: config.json or the weights are missing or damaged, the folder wants code of its own to run, its class is
            not in the installed Transformers, or its weights do not fill the model.
    """
    content = _config(folder)
    name = _architecture(folder, content)
    weights = next((file for file in _WEIGHTS if (folder / file).is_file()), None)
    if weights is None:
        raise InputError(f"{folder} holds no weights: none of {', '.join(_WEIGHTS)}. Copy them next to config.json.")
    if memory is not None:
        cls, config = _class_and_config(folder, name)
        with silent(), refusing(f"{folder} does not hold a {name}"):
            needed = needed_bytes(parameters_of(cls, config))
        if needed > memory:
            return of_config(str(folder), "checkpoint", cls, config, given, memory)
    model = _loaded(folder, name, weights)
    inputs, notes = (make_inputs(given), ()) if given is not None else example_inputs(model)
    notes = (f"weights: {weights}", *notes)
    return Target(name=str(folder), model=model, inputs=inputs, kind="checkpoint", notes=notes)


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as JSON: {error}. Copy it again.") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} must hold a table, got {json.dumps(content)[:80]}.")
    for field, why in (
        ("auto_map", "its model is Python code in that folder or on a hub, which addnorm does not run"),
        ("quantization_config", "its weights are quantised, so no number of theirs can be moved by little"),
    ):
        if content.get(field) is not None:
            raise InputError(
                f"{path} has {field!r}: {why}. Build the model yourself and give it as module:function instead."
            )
    return content


def _architecture(folder: Path, content: dict[str, Any]) -> str:
    names = content.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise InputError(
            f"{folder / 'config.json'} must name one class in 'architectures', got {json.dumps(names)}. "
            'Write the class in, such as "architectures": ["BertModel"].'
        )
    return names[0]


def _class_and_config(folder: Path, name: str) -> tuple[Any, Any]:
    cls = model_class(name)
    with silent(), refusing(f"{folder} does not hold a {name}"):
        config = cls.config_class.from_json_file(folder / "config.json")
    if getattr(config, "use_cache", None):
        config.use_cache = False
    return cls, config


def _loaded(folder: Path, name: str, weights: str) -> nn.Module:
    cls, config = _class_and_config(folder, name)
    with silent(), refusing(f"{folder} does not hold a {name}"), torch.random.fork_rng(devices=[]):
        model, told = cls.from_pretrained(
            folder,
            config=config,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=".safetensors" in weights,
            weights_only=True,
            # A configuration may name an attention kernel to be fetched from a hub; ours comes from torch.
            attn_implementation="sdpa" if cls._supports_sdpa else "eager",
            output_loading_info=True,
            # Transformers would only say that something does not fit; what does not is named below.
            ignore_mismatched_sizes=True,
        )
    unlike = sorted((key, tuple(there), tuple(wanted)) for key, there, wanted in told["mismatched_keys"])
    if unlike:
        key, there, wanted = unlike[0]
        raise InputError(
            f"{folder} does not hold a {name} of its config.json's sizes: {key} has the shape {there} in {weights}, "
            f"{wanted} by the configuration{f'; {len(unlike) - 1} more differ' if len(unlike) > 1 else ''}. Copy both from one "
            "model."
        )
    lacking = sorted(told["missing_keys"])
    if lacking:
        raise InputError(
            f"{folder / weights} lacks weights of {name}: {', '.join(lacking[:5])}"
            f"{f' and {len(lacking) - 5} more' if len(lacking) > 5 else ''}. They would be random; name the class that was "
            "saved in 'architectures' of config.json."
        )
    found: nn.Module = model.eval()
    return found
