"""Additive positions inside a model: they join the scores once, after the sum, cost no matrix, and decode in any precision."""

import math
import weakref
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from comparing import assert_same_function, make, tiny
from oracle import Oracle
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from addnorm.block.gau import Gau
from addnorm.catalogue import ROOMS
from addnorm.kernels.grouped_attention import DistanceBias
from addnorm.model.spec import ModelSpec
from addnorm.position import DistancePosition
from addnorm.testing.laws import some_tokens, subject
from sampled import sampled

pytestmark = pytest.mark.plain  # shapes of the same models are checked in tests/contracts

LENGTH = 512
"""At four and eight times as long, a tile of scores of the default model has one size and the length decides what is needed."""
POSITIONS = ROOMS["position"].kinds()
BUILT = {kind: make("position", kind).build(tiny().shape) for kind in POSITIONS}
ADDITIVE = [kind for kind, position in BUILT.items() if isinstance(position, DistancePosition)]


def test_additive_positions_are_those_that_are_known() -> None:
    assert ADDITIVE == ["alibi", "gau_additive", "kerple", "sandwich", "t5"]


class WithBias(Oracle):
    """The oracle's summed scores, and a bias of its own formula added once."""

    def scores(self, layer: int, queries: list[Tensor], keys: list[Tensor]) -> Tensor:
        summed = super().scores(layer, queries, keys)
        s = summed.shape[-1]
        rows = [torch.stack([self.bias(layer, m - n) for n in range(s)], -1) for m in range(s)]
        return summed + torch.stack(rows, -2)

    def bias(self, layer: int, d: int) -> Tensor:
        """Of every head at distance d."""
        position, kind = self.model.position, self.spec.position.kind
        if kind == "alibi":
            return torch.tensor([-abs(d) * 2.0 ** (-8 * (h + 1) / self.heads) for h in range(self.heads)]).double()
        if kind == "kerple" and self.spec.position.kernel == "log":
            return -position.log_r1.exp() * torch.log(1 + position.log_r2.exp() * abs(d))
        if kind == "kerple":
            r2 = 2 / (1 + torch.exp(-position.logit_r2))
            return -position.log_r1.exp() * (abs(d) ** r2 if d else 0 * r2)
        if kind == "sandwich":
            return (
                sum(math.cos(d * 10_000 ** (-2 * j / self.dk)) for j in range(self.dk // 2))
                * torch.ones(self.heads).double()
            )
        if kind == "t5":  # at this length every distance has a bucket of its own
            return position.table[max(d, 0)]
        if kind == "gau_additive":
            a, b, total = position.a[layer], position.b[layer], torch.zeros(self.heads).double()
            for j in range(self.dk // 2):
                angle = -d * 10_000 ** (-2 * j / self.dk)  # R_{n-m}
                c, s = math.cos(angle), math.sin(angle)
                first, second = b[:, 2 * j], b[:, 2 * j + 1]
                total = total + a[:, 2 * j] * (c * first - s * second) + a[:, 2 * j + 1] * (s * first + c * second)
            return total
        raise NotImplementedError(kind)


@pytest.mark.parametrize("scores", sampled(2, ["own", "sum", "accumulated_projections", "weighted"]))
@pytest.mark.parametrize("kind", [*ADDITIVE, "kerple-power"])
def test_it_joins_once_after_the_sum(kind: str, scores: str) -> None:
    position = make("position", "kerple", kernel="power") if kind == "kerple-power" else make("position", kind)
    model = subject(tiny(position=position, scores=make("scores", scores)))
    assert_same_function(model, WithBias(model).logits)


@pytest.mark.parametrize("kind", ADDITIVE)
def test_a_row_of_a_longer_pass_is_the_row_of_a_shorter_one(kind: str) -> None:
    position = BUILT[kind].double()
    with torch.no_grad():
        for name, parameter in position.named_parameters():
            position.initialise(name, torch.Generator().manual_seed(len(parameter)))
        like = torch.zeros(1, dtype=torch.float64)
        whole = position.score_bias(1, position.prepare(0, 9, like)).matrix(9, 9)
        last = position.score_bias(1, position.prepare(6, 3, like)).matrix(3, 9)
    # Other lengths may sum a product's DIM/2 waves, of which each adds at most the largest entry, in another order.
    assert (whole[:, :, 6:] - last).abs().max() <= 2 * 4 * 4 * 2**-53 * max(1.0, whole.abs().max().item())


@pytest.mark.parametrize("kind", POSITIONS)
def test_decoding_keeps_the_precision_of_the_model(kind: str) -> None:
    for dtype in (torch.bfloat16, torch.float32):
        model = tiny(position=make("position", kind)).build().to(dtype).eval()
        cache, tokens = model.new_cache(), some_tokens(model.spec)
        with torch.no_grad():
            parts = [model(piece, cache=cache) for piece in tokens.split([4, 1, 4], dim=1)]
        assert all(part.dtype == dtype and part.isfinite().all() for part in parts)


def test_far_distances_keep_apart_in_bfloat16() -> None:
    """bfloat16 holds whole numbers up to 256; ALiBi's neighbours at distance 1000 differ by a slope."""
    alibi = BUILT["alibi"]
    bias = alibi.score_bias(0, alibi.prepare(1000, 1, torch.zeros(1, dtype=torch.bfloat16)))
    assert bias.values.dtype == torch.float32
    assert (bias.values[:, 1:] < bias.values[:, :-1]).all()
    with torch.autocast("cpu", torch.bfloat16):
        additive = BUILT["gau_additive"].float()
        inside = additive.score_bias(0, additive.prepare(0, 9, torch.zeros(1)))
    assert torch.equal(inside.values, additive.score_bias(0, additive.prepare(0, 9, torch.zeros(1))).values)


class Alive(TorchDispatchMode):
    """The most bytes alive at once, each storage once, beside those of the given tensors; also of tensors without data."""

    def __init__(self, passed: Iterable[Tensor]) -> None:
        super().__init__()
        self._passed = {tensor.untyped_storage()._cdata for tensor in passed}
        self._alive: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata not in self._passed:
                self._alive[id(tensor)] = (weakref.ref(tensor), tensor.untyped_storage().nbytes())
        self._alive = {key: (ref, size) for key, (ref, size) in self._alive.items() if ref() is not None}
        storages = {ref().untyped_storage()._cdata: size for ref, size in self._alive.values()}
        self.peak = max(self.peak, sum(storages.values()))
        return result


def peak(spec: ModelSpec, seq: int) -> int:
    """Most bytes alive at once beside the weights while the model reads one sequence; counted, not computed."""
    with torch.device("meta"):
        model = spec.build().eval()
        tokens = torch.zeros(1, seq, dtype=torch.int64)
    with torch.no_grad(), Alive(model.parameters()) as seen:
        model(tokens)
    return seen.peak


def default_model(**changes: Any) -> ModelSpec:
    """The default model, one layer of it, two heads and few tokens: none changes how memory grows with the length."""
    return ModelSpec(**{"depth": 1, "width": 128, "heads": 2, "vocab": 64, "max_seq": 8 * LENGTH} | changes)


def growth(spec: ModelSpec) -> float:
    """How many times as much eight train lengths need as four: 2 if linear, 4 if quadratic; less where something is fixed."""
    return peak(spec, 8 * LENGTH) / peak(spec, 4 * LENGTH)


@pytest.mark.parametrize("kind", sampled(3, POSITIONS))
def test_memory_is_linear_up_to_eight_times_the_length(kind: str) -> None:
    """But for a bias that depends on the query as well: it is a matrix, and `addnorm plan` counts it as one."""
    times = growth(default_model(position=make("position", kind)))
    if kind == "relative_bank":
        assert 3.5 < times < 4
    else:
        assert times == pytest.approx(2, rel=0.02)


@pytest.mark.parametrize("normalisation", ["softmax", "squared_relu"])
@pytest.mark.thorough
def test_so_is_that_of_gated_attention_units(normalisation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Up to 724 positions a whole matrix of one head would be within squared ReLU's budget.
    monkeypatch.setattr("addnorm.kernels.grouped_attention.streaming.budget_of", lambda tensor: 1)
    spec = default_model(heads=1, block=Gau(normalisation=normalisation), position=make("position", "alibi"))  # type: ignore[arg-type]
    assert growth(spec) == pytest.approx(2, rel=0.02)


def test_the_measure_sees_a_bias_that_is_a_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = default_model(position=make("position", "alibi"))
    by_distance = DistancePosition.score_bias

    def as_matrix(self: DistancePosition, layer: int, prepared: Any) -> Tensor:
        bias: DistanceBias = by_distance(self, layer, prepared)
        seq = bias.values.shape[1] // 2 + 1
        return bias.matrix(seq, seq)

    monkeypatch.setattr(DistancePosition, "score_bias", as_matrix)
    assert growth(spec) > 3.5
