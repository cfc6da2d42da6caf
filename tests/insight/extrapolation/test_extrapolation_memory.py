"""Evaluation holds nothing of the size of length × length, for any position, with any switch."""

import weakref

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import addnorm
from addnorm.catalogue import ROOMS
from addnorm.insight.extrapolation.lengths import Lengths
from addnorm.insight.extrapolation.measure import measure_length
from addnorm.insight.extrapolation.segments import Segments
from addnorm.insight.extrapolation.switches import Reach, parse_switches, switched
from addnorm.kernels.grouped_attention import tiles

TRAINED = 64
SIZES = {"vocab": 11, "width": 8, "depth": 1, "heads": 2, "kv_heads": 1, "hidden": 8}


class Alive(TorchDispatchMode):
    """The most bytes alive at once among what operations made."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = self._now = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                key = storage._cdata
                if key not in self._known:
                    self._known.add(key)
                    self._now += storage.nbytes()
                    weakref.finalize(storage, self._gone, key, storage.nbytes())
        self.peak = max(self.peak, self._now)
        return result

    def _gone(self, key: int, size: int) -> None:
        self._known.discard(key)
        self._now -= size


def peak(spec, combination, length: int) -> int:
    model = spec.build().eval()
    view = switched(model, combination, Reach(trained=TRAINED, length=length, causal=True))
    tokens = np.arange(length)[None] % 11
    text = Segments(inputs=tokens, targets=tokens, scored=np.ones(tokens.shape, dtype=bool))
    with Alive() as seen:
        measure_length(
            view, text, Lengths(trained=TRAINED, multiples=(length // TRAINED,)), length, torch.device("cpu")
        )
    return seen.peak


def growth(spec, combination=()) -> float:
    """How often the peak's step from L to 2L fits into the step from 2L to 4L: 2 if linear, 4 if quadratic."""
    peaks = [peak(spec, combination, length) for length in (512, 1024, 2048)]
    return (peaks[2] - peaks[1]) / (peaks[1] - peaks[0])


def subject(**changes):
    return addnorm.preset("base", **(SIZES | {"max_seq": 2048} | changes))


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the tiles' own fixed buffer does not hide what grows."""
    monkeypatch.setattr(tiles, "CPU_BUDGET", 2**10)


@pytest.mark.parametrize("position", ROOMS["position"].kinds())
def test_memory_is_linear_for_every_position(position: str) -> None:
    by_query = position == "relative_bank"  # a bias that depends on the query is a matrix
    assert growth(subject(position=position)) == pytest.approx(4 if by_query else 2, rel=0.1)


@pytest.mark.parametrize("kind", ROOMS["switch"].kinds())
def test_memory_is_linear_with_every_switch(kind: str) -> None:
    assert growth(subject(), parse_switches(kind)[0]) == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize("normalisation", ["softmax", "squared_relu"])
def test_memory_is_linear_for_gated_attention_units(normalisation: str) -> None:
    spec = subject(heads=1, kv_heads=None, gau={"key_dim": 8, "normalisation": normalisation})
    assert growth(spec) == pytest.approx(2, rel=0.1)


def test_the_measure_sees_a_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    from addnorm.kernels.grouped_attention import api

    monkeypatch.setattr(api, "choose", lambda problem: "reference")
    assert growth(subject()) > 3.5
