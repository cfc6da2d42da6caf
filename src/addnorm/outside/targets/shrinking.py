"""A reduced configuration of the same Transformers class, for a model whose audit does not fit into memory.

Verdicts hold for generic weights, so random weights of another size give the same ones if the structure is the same. First
layers are removed, down to two or to the fewest that include every kind of layer; then widths are reduced, with the number of
query heads per key head kept. A reduced configuration is used only if its parameters have the same names, up to layer
numbers, and the same number of axes as those of the full model.
"""

import math
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
    """Find the largest reduced configuration whose audit fits, with a description.

    Args:
        cls: the model's class.
        config: its full configuration.
        budget: memory limit of an audit in bytes.

    Raises:
        InputError: no reduced configuration fits and has the same structure.
    """
    full = parameter_shapes(cls, config)
    for settings, description in _candidates(config):
        try:
            small = config.__class__.from_dict({**config.to_dict(), **settings})
            shapes = parameter_shapes(cls, small)
        except Exception:  # noqa: BLE001 - a class may refuse sizes with any exception
            continue
        # The same names up to layer numbers and the same axes: then the same code runs, on generic weights of other
        # sizes, and the verdicts are those of the full model. A class that builds something else when it is small is
        # passed over.
        if _structure(shapes) == _structure(full) and needed_bytes(_count(shapes)) <= budget:
            return small, description
    raise InputError(
        f"an audit of {cls.__name__} takes about {gb(needed_bytes(_count(full)))}, {gb(budget)} are allowed; no reduced "
        "configuration with the same structure fits. Allow more with --memory, or give transformers:"
        f"{cls.__name__} --config with fewer layers and a smaller vocabulary."
    )


def parameter_shapes(cls: Any, config: Any) -> Mapping[str, tuple[int, ...]]:
    """Names and shapes of the parameters, without allocating them."""
    with torch.device("meta"):
        return {name: tuple(each.shape) for name, each in cls(config).named_parameters()}


def num_parameters(cls: Any, config: Any) -> int:
    """Count the parameters of a configuration's model without allocating them."""
    return _count(parameter_shapes(cls, config))


def pattern(name: str) -> str:
    """A parameter's name without its layer number."""
    return re.sub(r"(?<![A-Za-z0-9_])\d+(?![A-Za-z0-9_])", "#", name)


def _structure(shapes: Mapping[str, tuple[int, ...]]) -> set[tuple[str, int]]:
    return {(pattern(name), len(shape)) for name, shape in shapes.items()}


def _count(shapes: Mapping[str, tuple[int, ...]]) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def _candidates(config: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Changed settings with a description, from the smallest reduction on."""
    fewer, layers = _fewer_layers(config)
    yield fewer, f"{layers} layers"
    for heads in (4, 2):
        narrow, width = _narrower(config, heads)
        if narrow:
            yield {**fewer, **narrow}, f"{layers} layers, width {width}"


def _own(config: Any, canonical: str) -> str:
    """Translate a field's canonical name to that of this class."""
    return str(config.attribute_map.get(canonical, canonical))


def _fewer_layers(config: Any) -> tuple[dict[str, Any], int]:
    fields = config.to_dict()
    depth = getattr(config, "num_hidden_layers", None)
    kinds = fields.get("layer_types") or []
    # The fewest layers that include every kind.
    fewest = next((n for n in range(2, len(kinds)) if set(kinds[:n]) == set(kinds)), 2)
    settings: dict[str, Any] = {
        _own(config, field): min(fewest, number)
        for field in _DEPTHS
        if isinstance(number := fields.get(_own(config, field)), int)
    }
    for field, value in fields.items():
        if isinstance(value, list) and depth is not None and len(value) == depth > fewest:
            settings[field] = value[:fewest]
    return settings, fewest


def _narrower(config: Any, most_heads: int) -> tuple[dict[str, Any], int]:
    fields = config.to_dict()
    settings: dict[str, Any] = {}
    heads = [number for field in _HEADS if isinstance(number := fields.get(_own(config, field)), int)]
    if not heads:
        return {}, 0
    few = min([most_heads, *heads])
    keys = fields.get("num_key_value_heads")
    if isinstance(keys, int):
        # Grouped keys are structure: what a key bias shifts depends on the number of query heads that read it.
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
