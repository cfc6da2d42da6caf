"""The model's own cache where layers read scores or values of earlier ones, which must be of the same positions.

A model of Transformers that mixes full and sliding layers keeps few positions for the sliding ones. A layer with a longer
window needs the earlier layers' keys of all positions that it sees, and its own mask hides the others. So all layers keep all.
"""

from collections.abc import Mapping
from typing import Any

from torch import nn

from addnorm.errors import InputError


def keep_all_positions(module: nn.Module, args: tuple[Any, ...], settings: Mapping[str, Any]) -> None:
    """Hook before the first layer: make the sliding layers of a mixed cache full ones.

    Masks are computed before the first layer, from the cache as it was. They fit all the same, because a full layer has as
    many positions as a sliding one that has lost none.

    Raises:
        InputError: positions are lost, or the cache has fixed lengths.
    """
    from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer

    cache = next((given for given in (*args, *settings.values()) if isinstance(given, Cache)), None)
    layers = getattr(cache, "layers", [])
    # Layers that all keep the same positions can read each other as they are.
    if len({_kept(layer) for layer in layers}) < 2:
        return
    for index, layer in enumerate(layers):
        if not getattr(layer, "is_sliding", False):
            continue
        if type(layer) is not DynamicSlidingWindowLayer or layer.get_seq_length() >= layer.sliding_window:
            raise InputError(
                f"past_key_values: expected a DynamicCache that the patched model filled, got a {type(layer).__name__} that "
                f"keeps {_kept(layer)} positions, where other layers keep more and read its scores or values. Leave the cache "
                "to the model."
            )
        full = DynamicLayer()
        if layer.is_initialized:
            full.lazy_initialization(layer.keys, layer.values)
            full.keys, full.values = layer.keys, layer.values
        layers[index] = full


def _kept(layer: Any) -> int | None:
    """Number of positions that a layer of a cache keeps; None for all."""
    window: int | None = getattr(layer, "sliding_window", getattr(layer, "max_cache_len", None))
    return window
