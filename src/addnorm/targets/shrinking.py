"""A smaller configuration of the same Transformers class, for a model whose audit would not fit into memory.

Verdicts are about generic weights, so random ones of another size serve as well, as long as the structure is the same.
Layers go first, down to two or to as many as show every kind of layer; then widths, keeping the number of heads per key
head. The result counts only if its parameters have the names of the full model's, layer numbers aside, and as many axes.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from addnorm.errors import InputError
from addnorm.redundancy.execution.memory import gb, needed_bytes

_DEPTHS = ("num_hidden_layers", "encoder_layers", "decoder_layers", "num_layers", "num_decoder_layers")
_HIDDEN = ("intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "n_inner", "ffn_dim")
_HEADS = ("num_attention_heads", "encoder_attention_heads", "decoder_attention_heads", "num_heads")
_WIDTHS = ("hidden_size", "d_model")
_HEAD_DIM = 16


def shrunk_config(cls: Any, config: Any, budget: int) -> tuple[Any, str]:
    """The largest smaller configuration whose audit fits, and what it is in words.

    Args:
        cls: the model's class.
        config: its full configuration.
        budget: bytes that an audit may take.

    Raises:
        InputError: none fits or has the same structure.
    """
    full = parameter_shapes(cls, config)
    for settings, told in _candidates(config):
        try:
            small = config.__class__.from_dict({**config.to_dict(), **settings})
            shapes = parameter_shapes(cls, small)
        except Exception:  # noqa: BLE001 - a class may refuse sizes anywhere in its code, with any exception
            continue
        if _structure(shapes) == _structure(full) and needed_bytes(_count(shapes)) <= budget:
            return small, told
    raise InputError(
        f"an audit of {cls.__name__} takes about {gb(needed_bytes(_count(full)))}, and {gb(budget)} are allowed; no smaller "
        "configuration with the same structure fits. Allow more with --memory, or give transformers:"
        f"{cls.__name__} --config with fewer layers and a smaller vocabulary."
    )


def parameter_shapes(cls: Any, config: Any) -> Mapping[str, tuple[int, ...]]:
    """Every parameter's name and shape; nothing is allocated."""
    with torch.device("meta"):
        return {name: tuple(each.shape) for name, each in cls(config).named_parameters()}


def pattern(name: str) -> str:
    """A parameter's name without its layer number."""
    return re.sub(r"(?<![A-Za-z0-9_])\d+(?![A-Za-z0-9_])", "#", name)


def _structure(shapes: Mapping[str, tuple[int, ...]]) -> set[tuple[str, int]]:
    return {(pattern(name), len(shape)) for name, shape in shapes.items()}


def _count(shapes: Mapping[str, tuple[int, ...]]) -> int:
    found = 0
    for shape in shapes.values():
        size = 1
        for each in shape:
            size *= each
        found += size
    return found


def _candidates(config: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Settings to change, from little to much, each with its words."""
    fewer, layers = _fewer_layers(config)
    yield fewer, f"{layers} layers"
    for heads in (4, 2):
        narrow, width = _narrower(config, heads)
        if narrow:
            yield {**fewer, **narrow}, f"{layers} layers, width {width}"


def _own(config: Any, canonical: str) -> str:
    """What this class calls a field."""
    return str(config.attribute_map.get(canonical, canonical))


def _fewer_layers(config: Any) -> tuple[dict[str, Any], int]:
    fields = config.to_dict()
    depth = getattr(config, "num_hidden_layers", None)
    kinds = fields.get("layer_types") or []
    # As many as show every kind of layer.
    kept = next((n for n in range(2, len(kinds)) if set(kinds[:n]) == set(kinds)), 2)
    settings: dict[str, Any] = {
        _own(config, field): min(kept, number)
        for field in _DEPTHS
        if isinstance(number := fields.get(_own(config, field)), int)
    }
    for field, value in fields.items():
        if isinstance(value, list) and depth is not None and len(value) == depth > kept:
            settings[field] = value[:kept]
    return settings, kept


def _narrower(config: Any, most_heads: int) -> tuple[dict[str, Any], int]:
    fields = config.to_dict()
    settings: dict[str, Any] = {}
    heads = [number for field in _HEADS if isinstance(number := fields.get(_own(config, field)), int)]
    if not heads:
        return {}, 0
    few = min([most_heads, *heads])
    keys = fields.get("num_key_value_heads")
    if isinstance(keys, int):
        group = max(1, heads[0] // keys)
        few = max(group, few // group * group)
        settings["num_key_value_heads"] = few // group
    width = few * _HEAD_DIM
    for names, size in ((_HEADS, few), (_WIDTHS, width), (_HIDDEN, 3 * width)):
        for field in names:
            if isinstance(fields.get(_own(config, field)), int):
                settings[_own(config, field)] = size
    if isinstance(fields.get("head_dim"), int):
        settings["head_dim"] = _HEAD_DIM
    return settings, width
