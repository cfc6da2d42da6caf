"""A local folder with a Transformers checkpoint: config.json and weights. No code in it is executed.

The class is taken from the installed Transformers by the name in `architectures`; weights are read from safetensors, or from
torch files with `weights_only=True`. A folder that requires its own code (`auto_map`) is refused.
"""

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from addnorm.errors import InputError
from addnorm.outside.hugging_face.checkpoint import (
    CONFIG,
    FLOATS,
    advice_on_missing,
    plain_config,
    require_finite,
    require_weights,
    weight_types,
    weights_file,
)
from addnorm.outside.hugging_face.loading import load_hf
from addnorm.outside.hugging_face.own_class import MODEL_TYPE
from addnorm.outside.targets.checkpoint_folder import removed_biases
from addnorm.outside.targets.class_fit import best_class, some
from addnorm.outside.targets.example_inputs import example_inputs
from addnorm.outside.targets.input_spec import make_inputs
from addnorm.outside.targets.run import random_tokens
from addnorm.outside.targets.shrinking import num_parameters
from addnorm.outside.targets.target import Target
from addnorm.outside.targets.transformers_class import (
    configuration_target,
    model_class,
    quiet_transformers,
    raised_as_input_error,
    unread_fields,
)
from addnorm.redundancy.execution.copies import copy_of
from addnorm.redundancy.execution.inputs import bind
from addnorm.redundancy.execution.memory import needed_bytes
from addnorm.redundancy.rewriting.removal import remove, set_to_none, set_to_zeros
from addnorm.words import Sentence, say

_HARMLESS = re.compile(
    r"(^|\.)(pooler\..+|seq_relationship\..+|position_ids|inv_freq|(attn|attention)\.(masked_)?bias)$"
)
"""Weights of parts beside the language model, and buffers that every class computes."""


def checkpoint_target(folder: Path, given: Mapping[str, Any] | None, memory: int | None = None) -> Target:
    """Load the model in a folder, in the dtype of its weights, with inputs derived from its configuration.

    If its audit needs more than `memory` bytes, the target is a reduced configuration with random weights.

    Raises:
        InputError: config.json or the weights are missing or damaged, the folder requires its own code, the installed
            Transformers lacks its class, or weights are missing.
    """
    content = plain_config(folder)
    if content.get("model_type") == MODEL_TYPE:
        return _own_target(folder, given)
    _require_plain(folder, content)
    name = _architecture(folder, content)
    weights = require_weights(folder).name
    cls, config = _class_and_config(folder, name)
    without_effect = unread_note(cls, content)
    if memory is not None:
        with quiet_transformers(), raised_as_input_error(f"{folder} cannot be loaded as {name}"):
            needed = needed_bytes(num_parameters(cls, config))
        if needed > memory:
            target = configuration_target(str(folder), "checkpoint", cls, config, given, memory)
            return replace(target, notes=(*target.notes, *map(str, without_effect)))
    model, ignored = _loaded(folder, name, weights)
    _require_unrelated(model, ignored, folder / weights)
    inputs, notes = (make_inputs(given, model), ()) if given is not None else example_inputs(model)
    notes = (f"weights: {weights}", *([f"{name} ignores {some(ignored)} of {weights}"] if ignored else []), *notes)
    notes += (*map(str, without_effect),)
    gone = _without_removed(model, folder / weights, inputs)
    notes += (f"{some(gone)} removed by `addnorm audit --strip`, which the file holds as zeros",) if gone else ()
    return Target(name=str(folder), model=model, inputs=inputs, kind="checkpoint", notes=notes)


def unread_note(cls: Any, content: Mapping[str, Any]) -> list[Sentence]:
    """A sentence about the fields of config.json that the class does not read, if there are any."""
    with quiet_transformers(), raised_as_input_error(f"{CONFIG} cannot be read as {cls.__name__}"):
        unread = unread_fields(cls, content)
    return [say("unread_fields", name=cls.config_class.__name__, fields=", ".join(unread))] if unread else []


def _without_removed(model: nn.Module, weights: Path, inputs: Any) -> tuple[str, ...]:
    """Remove from the model what a stripped folder's metadata names, and return these names."""
    names = removed_biases(weights) if weights.suffix == ".safetensors" else ()
    named = dict(model.named_parameters(remove_duplicate=False))
    names = tuple(name for name in names if name in named)
    if not names:
        return ()
    aliases = {name: [each for each, other in named.items() if other is named[name]] for name in names}
    # Decided on a copy in float64; the model itself then gets the same removals in its own dtype.
    absent, zeroed = remove(copy_of(model, torch.float64), names, aliases, bind(inputs))
    for name in absent:
        set_to_none(model, aliases[name])
    for name in zeroed:
        set_to_zeros(model, aliases[name])
    return names


def load_checkpoint(folder: Path) -> nn.Module:
    """Load the model in a folder by its class of Transformers, in the dtype of its weights and in evaluation mode.

    Raises:
        InputError: as `checkpoint_target`, or the class does not read some of the weights, which may make it another model, or
            they hold NaN or infinity.
    """
    content = plain_config(folder)
    _require_plain(folder, content)
    name, weights = _architecture(folder, content), require_weights(folder)
    model, ignored = _loaded(folder, name, weights.name)
    ignored = [weight for weight in ignored if not _HARMLESS.search(weight)]
    if ignored:
        raise InputError(
            f"{weights}: expected the weights of {name} with the sizes of config.json, got also {some(ignored)}, which it does "
            "not read. config.json and weights must belong to one model."
        )
    require_finite(model.named_parameters(), weights)
    return model


def _require_unrelated(model: nn.Module, ignored: list[str], weights: Path) -> None:
    """Require that weights which the class does not read belong to none of its modules, such as another head.

    Raises:
        InputError: one is a number of a module that the model has (a bias that config.json switches off, the scale of a
            quantised matrix, an adapter), or a layer beyond those that it has.
    """
    modules = dict(model.named_modules())
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    for name in ignored:
        # The innermost module that the model has too. One with parameters of its own computes something else than the module
        # that was saved; a list of layers is longer in the file.
        inner = name if name.partition(".")[0] in modules else name.removeprefix(prefix)
        while inner not in modules:
            inner = inner.rpartition(".")[0]
        own = inner and any(True for _ in modules[inner].parameters(recurse=False))
        if not _HARMLESS.search(name) and (own or isinstance(modules[inner], nn.ModuleList)):
            raise InputError(
                f"{weights}: {name}: expected a weight of {type(model).__name__} with the settings of config.json, got one "
                f"that it does not read, although it has {inner}, so that it is another model than was saved."
                f"{advice_on_missing((), [name]) or ' Correct config.json, or remove the weight if it does nothing.'}"
            )


def _own_target(folder: Path, given: Mapping[str, Any] | None) -> Target:
    """An exported run, whose class is this library's own; its spec is in config.json."""
    model = load_hf(folder)
    inputs = make_inputs(given, model) if given is not None else random_tokens(model)
    return Target(
        name=str(folder), model=model, inputs=inputs, kind="checkpoint", notes=("weights: model.safetensors",)
    )


def _require_plain(folder: Path, content: dict[str, Any]) -> None:
    path = folder / CONFIG
    for field, why in (
        ("auto_map", "its model is Python code in the folder or on a hub, which addnorm does not execute"),
        ("quantization_config", "its weights are quantised and cannot be changed by small amounts"),
    ):
        if content.get(field) is not None:
            raise InputError(
                f"{path} has {field!r}: {why}. Build the model yourself and give it as module:function instead."
            )


def _architecture(folder: Path, content: dict[str, Any]) -> str:
    names = content.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        fit = best_class(folder, content, {*weight_types(folder)}) if weights_file(folder) is not None else None
        advice = (
            f'The weights fit {fit.name} best{fit.in_words}. Add "architectures": ["{fit.name}"].'
            if fit is not None
            else 'Add the class, such as "architectures": ["BertModel"].'
        )
        raise InputError(f"{folder / CONFIG}: expected one class in 'architectures', got {json.dumps(names)}. {advice}")
    return names[0]


def _class_and_config(folder: Path, name: str) -> tuple[Any, Any]:
    cls = model_class(name)
    with quiet_transformers(), raised_as_input_error(f"{folder} cannot be loaded as {name}"):
        config = cls.config_class.from_json_file(folder / CONFIG)
    if getattr(config, "use_cache", None):
        config.use_cache = False
    return cls, config


def _loaded(folder: Path, name: str, weights: str) -> tuple[nn.Module, list[str]]:
    """The model, and the names of weights in the file that its class does not read.

    Raises:
        InputError: as `checkpoint_target`.
    """
    types = weight_types(folder)
    cls, config = _class_and_config(folder, name)
    # config.json may name a narrower type than the file holds, to which Transformers would round the weights.
    stored = [getattr(torch, kind) for kind in {*types.values()} & {*FLOATS.values()}]
    named = getattr(config, "dtype", None)
    if stored and isinstance(named, torch.dtype) and named not in stored:
        config.dtype = functools.reduce(torch.promote_types, stored, named)
    with (
        quiet_transformers(),
        raised_as_input_error(f"{folder} cannot be loaded as {name}"),
        torch.random.fork_rng(devices=[]),
    ):
        model, loading_info = cls.from_pretrained(
            folder,
            config=config,
            # Each of the next lines closes a way by which a folder could run code or load anything from elsewhere.
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=".safetensors" in weights,
            weights_only=True,
            # A configuration may name an attention kernel that is fetched from a hub; torch's is used instead.
            attn_implementation="sdpa" if cls._supports_sdpa else "eager",
            output_loading_info=True,
            # Mismatches are reported below with the name and shapes of the weight.
            ignore_mismatched_sizes=True,
        )
    mismatched = sorted((key, tuple(got), tuple(expected)) for key, got, expected in loading_info["mismatched_keys"])
    if mismatched:
        key, got, expected = mismatched[0]
        raise InputError(
            f"{folder}: expected {key} of shape {expected} by config.json, got {got} in {weights}"
            f"{f'; {len(mismatched) - 1} more differ' if len(mismatched) > 1 else ''}. Copy both files from one model."
        )
    missing = sorted(loading_info["missing_keys"])
    if missing:
        raise InputError(
            f"{folder / weights}: expected all weights of {name}, got none for {', '.join(missing[:5])}"
            f"{f' and {len(missing) - 5} more' if len(missing) > 5 else ''}, which would be random."
            f"{_advice(model, missing, types)}"
        )
    evaluated: nn.Module = model.eval()
    return evaluated, sorted(loading_info["unexpected_keys"])


def _advice(model: nn.Module, missing: list[str], types: Mapping[str, str]) -> str:
    advice = advice_on_missing(missing, types)
    if advice:
        return advice
    if {*missing} <= {*(getattr(model, "_tied_weights_keys", None) or ())}:
        return f' If {missing[0]} is the embedding, write "tie_word_embeddings": true into config.json.'
    return " Name the saved class in 'architectures' of config.json."
