"""Torch's operation counter learns the in-place batched product, which it knows only out of place.

Without this, `torch.utils.flop_counter.FlopCounterMode` misses most of what streaming attention computes: scores and
the gradients of keys and values are accumulated in place, so that no product's result is held beside its sum.
"""

from typing import Any

import torch
from torch.utils.flop_counter import baddbmm_flop, flop_registry, register_flop_formula


def count_in_place_products() -> None:
    """Teach the counter, unless this torch has been taught already."""
    if torch.ops.aten.baddbmm_ not in flop_registry:
        register_flop_formula(torch.ops.aten.baddbmm_)(_baddbmm_in_place_flop)


def _baddbmm_in_place_flop(total: Any, first: Any, second: Any, **_: Any) -> int:
    """Operations of total += first @ second, from the shapes."""
    return int(baddbmm_flop(total, first, second))
