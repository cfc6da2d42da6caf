"""Checkpoints of the classes in these tables as models."""

import importlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from addnorm.errors import InputError, did_you_mean
from addnorm.outside.hugging_face.checkpoint import CONFIG, require_finite, require_weights
from addnorm.outside.hugging_face.shipped import ShippedClass, gemma, one_stream, several_streams
from addnorm.outside.hugging_face.shipped.assembly import ShippedModel
from addnorm.outside.hugging_face.unused import HARMLESS

_ABSENT = ("auto_map", "quantization_config")
"""Fields that no table can serve: code of a folder is not executed, and quantised weights are refused."""


def _tables() -> dict[str, ShippedClass]:
    values = (value for module in (gemma, one_stream, several_streams) for value in vars(module).values())
    classes = [
        one for one in values if isinstance(one, type) and issubclass(one, ShippedClass) and hasattr(one, "kind")
    ]
    return {one.kind: one() for one in sorted(set(classes), key=lambda one: one.kind)}


TABLES: Mapping[str, ShippedClass] = _tables()
"""Every table by `model_type`."""


def load_shipped(folder: Path, config: Mapping[str, Any]) -> ShippedModel:
    """Load a checkpoint whose `model_type` has a table.

    Args:
        folder: of the checkpoint.
        config: contents of its config.json.

    Raises:
        InputError: Transformers is absent or too old, a field is unknown or asks for a missing part, or tensors are missing,
            superfluous, of other shapes or not finite.
    """
    table, where = TABLES[config["model_type"]], f"{folder / CONFIG}"
    cls = foreign_class(table, where)
    _require_fields(cls.config_class, config, where)
    weights = require_weights(folder)
    with torch.random.fork_rng([]):  # the class draws parameters before it reads them
        # Other sizes are allowed here and refused below, with a message that names the tensor.
        theirs, report = cls.from_pretrained(
            folder, dtype=_dtype(config), output_loading_info=True, ignore_mismatched_sizes=True
        )
    for kind, got in (
        ("missing_keys", "got none"),
        ("unexpected_keys", "got it beside them"),
        ("mismatched_keys", "got another"),
    ):
        wrong = sorted(map(str, report[kind]))
        if wrong:
            raise InputError(
                f"{weights}: expected the tensors of {table.architecture} with the sizes of config.json, {got}: {wrong[0]}"
                f"{f' and {len(wrong) - 1} more' if len(wrong) > 1 else ''}. Copy both files from one model."
            )
    require_finite(theirs.named_parameters(), weights)
    return ShippedModel(table, theirs.eval()).eval()


def foreign_class(table: ShippedClass, where: str) -> Any:
    """The class of Transformers.

    Raises:
        InputError: Transformers cannot be imported, or has no such class.
    """
    try:
        transformers = importlib.import_module("transformers")
    except ImportError as error:
        raise InputError(
            f"{where}: expected Transformers, whose modules are the branches of {table.architecture}, got an error: {error}. "
            "pip install 'addnorm[hf]'."
        ) from error
    cls = getattr(transformers, table.architecture, None)
    if cls is None:
        raise InputError(
            f"{where}: expected a Transformers with {table.architecture} (5.23), got {transformers.__version__}. Update it."
        )
    return cls


def _require_fields(config_class: Any, config: Mapping[str, Any], where: str, path: str = "$") -> None:
    # Transformers keeps fields that it does not know, silently: a misspelt one would give other logits than those of the
    # model that was trained. The class reads the fields that it declares; those of every model are known not to act.
    known = {*_declared(config_class)}
    for name, value in config.items():
        if name in _ABSENT and value:
            raise InputError(f"{where}: {path}.{name}: expected none, got {str(value)[:60]}. It cannot be loaded.")
        parts = config_class.sub_configs.get(name)
        if parts is not None and isinstance(value, Mapping):
            if hasattr(parts, "model_type") and parts.model_type:
                _require_fields(parts, value, where, f"{path}.{name}")
        elif value is not None and name not in known and not any(re.fullmatch(each, name) for each in HARMLESS):
            raise InputError(
                f"{where}: {path}.{name}: expected a field that {config_class.__name__} has, got {name} = {str(value)[:60]}."
                f"{did_you_mean(name, known)} If the model is the same without it, remove it."
            )


def _declared(config_class: Any) -> Iterator[str]:
    for base in config_class.__mro__:
        yield from getattr(base, "__annotations__", {})
    yield from config_class.attribute_map
    yield from config_class().to_dict()


def _dtype(config: Mapping[str, Any]) -> torch.dtype:
    """One type for all parameters: that of the checkpoint, or float32 if that type is narrower."""
    name = config.get("dtype") or config.get("torch_dtype") or "float32"
    dtype = getattr(torch, str(name).removeprefix("torch."), None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise InputError(f"{CONFIG}: $.dtype: expected a floating-point type, got {json.dumps(name)}.")
    return torch.promote_types(dtype, torch.float32)
