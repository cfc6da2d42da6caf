"""Each check of this folder fails where the fault that it is for is planted in the library."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from paths import cases, step
from test_kernels_fit import test_a_kernel_fits_a_card as require_a_fit
from test_paths import KEPT, require_as_kept
from torch import Tensor
from trained import kinds, waits_of_a_step

from addnorm.data import Dataset
from addnorm.kernels.grouped_attention import api, launches
from addnorm.model.feed_forward import GatedFeedForward
from addnorm.norm.rms import RMSNorm

PLAIN = next(kind for kind in kinds() if kind.name == "preset base")
CASES = cases()


def planted(cls: type, changed: Callable[[Callable[..., Tensor], Any, Tensor], Tensor]) -> Any:
    """A patch of a module's pass."""
    original = cls.forward  # type: ignore[attr-defined]
    return patch.object(cls, "forward", lambda self, x: changed(original, self, x))


def test_a_tensor_on_the_cpu_is_caught(dataset: Dataset) -> None:
    def scaled(forward: Callable[..., Tensor], norm: Any, x: Tensor) -> Tensor:
        return forward(norm, x) * torch.ones(x.shape[-1])

    with planted(RMSNorm, scaled), pytest.raises(RuntimeError, match="on the same device"):
        waits_of_a_step(PLAIN, dataset)


def test_an_item_is_caught_with_its_kind_and_place(dataset: Dataset) -> None:
    def asked(forward: Callable[..., Tensor], norm: Any, x: Tensor) -> Tensor:
        normed = forward(norm, x)
        normed.sum().item()
        return normed

    with planted(RMSNorm, asked):
        waits = waits_of_a_step(PLAIN, dataset)
    assert {kind for kind, _ in waits} == {"wait: stream"}
    assert any("model/transformer.py" in place for _, place in waits)


def test_a_float32_fall_back_is_caught() -> None:
    def widened(forward: Callable[..., Tensor], module: Any, x: Tensor) -> Tensor:
        with torch.autocast("cuda", enabled=False):
            return forward(module, x.float())

    with planted(GatedFeedForward, widened):
        asked = step(CASES["own scores"])
    assert asked["products"]["float32"] > 0
    with pytest.raises(AssertionError, match="read the difference"):
        require_as_kept("own scores", asked)


def test_a_loop_over_tiles_is_caught() -> None:
    with patch.object(api, "why_on_gpu", lambda problem: ("streaming", "planted")):
        asked = step(CASES["alibi"])
    assert asked["launches"] > 1.3 * KEPT["own scores"]["launches"]
    with pytest.raises(AssertionError, match="read the difference"):
        require_as_kept("alibi", asked)


def test_four_warps_are_caught_where_a_kernel_is_compiled_and_where_it_is_launched() -> None:
    narrow = {kernel: tuple(replace(row, warps=4) for row in rows) for kernel, rows in launches.NARROW.items()}
    with patch.object(launches, "NARROW", narrow):
        with pytest.raises(AssertionError):
            require_a_fit("attend_rows", torch.bfloat16, 64, "everything", 89)
        asked = step(CASES["alibi"])
    assert asked["programs"]["attend_rows"].startswith("4 warps")
    with pytest.raises(AssertionError, match="read the difference"):
        require_as_kept("alibi", asked)
