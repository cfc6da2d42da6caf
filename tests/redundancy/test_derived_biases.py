"""Biases that pass through something that reads no data before they are added: a mask, a parametrisation, a selection.

What is linear is in the table and counted exactly; what is not is named in a note. The masked bias of a fused projection is
that of DINOv3's models of Transformers.
"""

from collections.abc import Callable

import pytest
import torch
from null_checks import audited, counted, hold
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize, prune

import addnorm
from sampled import sampled

SIZE = 6
Made = Callable[["Keyed"], Tensor]


class Keyed(nn.Module):
    """Attention whose keys (or queries, or what a ReLU reads) get a bias that a function makes of `b`."""

    def __init__(self, made: Made, place: str = "k", shape: tuple[int, ...] = (SIZE,)) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.v, self.out = nn.Linear(SIZE, 4), nn.Linear(SIZE, 4), nn.Linear(4, SIZE)
        self.k = nn.Linear(SIZE, 4, bias=False)
        self.b, self.made, self.place = nn.Parameter(torch.randn(shape)), made, place
        self.register_buffer("mask", torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 1.0]))
        self.register_buffer("factor", torch.rand(SIZE) + 0.5)
        self.register_buffer("order", torch.tensor([3, 1, 5, 0, 4, 2]))
        self.plain = torch.rand(SIZE) + 0.5
        self.register_buffer("matrix", torch.randn(SIZE, SIZE))

    def forward(self, x: Tensor) -> Tensor:
        bias = self.made(self)
        h = x + bias if self.place != "relu" else x + torch.relu(x + bias)
        q, k = (h, x) if self.place == "q" else (x, h)
        v = h if self.place == "relu" else x
        scores = self.q(q) @ self.k(k).mT
        return x + self.out(scores.softmax(-1) @ self.v(v))


def written(model: Keyed) -> Tensor:
    made = torch.zeros_like(model.factor)
    made[2:5] = model.b[1:4]
    return made


LINEAR: dict[str, tuple[Made, tuple[int, ...]]] = {
    "mask": (lambda m: m.b * m.mask, (SIZE,)),
    "factor": (lambda m: m.b * m.factor, (SIZE,)),
    "attribute": (lambda m: m.b * m.plain / 3, (SIZE,)),
    "literal": (lambda m: m.b * torch.tensor([1.0, 0.0, 2.0, 0.0, 1.0, 3.0]), (SIZE,)),
    "added": (lambda m: m.b + m.factor, (SIZE,)),
    "selected": (lambda m: m.b[m.order], (SIZE,)),
    "where": (lambda m: torch.where(m.mask > 0, m.b, 0.0), (SIZE,)),
    "filled": (lambda m: m.b.masked_fill(m.mask > 0, 0.0), (SIZE,)),
    "repeated": (lambda m: m.b.repeat(3), (2,)),
    "interleaved": (lambda m: m.b.repeat_interleave(2), (3,)),
    "expanded": (lambda m: m.b.expand(SIZE), (1,)),
    "expanded over all data": (lambda m: m.b.expand(2, 5, SIZE), (SIZE,)),
    "product": (lambda m: m.matrix @ m.b, (SIZE,)),
    "written": (written, (SIZE,)),
    "centred": (lambda m: m.b - m.b.mean(), (SIZE,)),
    "summed": (lambda m: m.b.cumsum(0) + m.b.flip(0), (SIZE,)),
}
NONLINEAR: dict[str, Made] = {
    "tanh": lambda m: m.b.tanh(),
    "relu": lambda m: m.b.relu(),
    "rounded": lambda m: m.b.round(),
    "whole": lambda m: m.b.long().float(),
    "straight through": lambda m: m.b + (m.b.round() - m.b).detach(),
    "squared": lambda m: m.b * m.b * m.mask,
    "normalised": lambda m: m.b / m.b.norm(),
    "python number": lambda m: m.mask * float(m.b.detach().max()),
}


@pytest.mark.parametrize("kind", sampled(3, LINEAR))
def test_a_linear_function_of_a_bias_is_tracked_and_free_where_keys_are(kind: str) -> None:
    made, shape = LINEAR[kind]
    case = audited(Keyed(made, "k", shape).eval(), torch.randn(2, 5, SIZE))
    assert "b" in case.tracked.names
    assert len(case.analysis.space.redundant("b")) == shape[0]
    hold(case)


@pytest.mark.parametrize("place", ["q", "relu"])
@pytest.mark.parametrize("kind", sampled(3, LINEAR))
def test_the_same_function_where_the_bias_matters(kind: str, place: str) -> None:
    """The near false claims: the same model, but queries, or a ReLU, get the bias."""
    made, shape = LINEAR[kind]
    case = audited(Keyed(made, place, shape).eval(), torch.randn(2, 5, SIZE))
    assert "b" in case.tracked.names
    assert len(case.analysis.space.redundant("b")) <= shape[0] - 1
    assert case.analysis.space.dim <= counted(case)
    hold(case)


def test_a_cast_counts_as_what_it_is_in_exact_arithmetic() -> None:
    audit = addnorm.audit(Keyed(lambda m: m.b.bfloat16().float()).eval(), torch.randn(2, 5, SIZE))
    assert audit.finding("b").verdict == "redundant"


@pytest.mark.parametrize("kind", NONLINEAR)
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True:UserWarning")
def test_what_is_not_linear_is_named_in_a_note(kind: str) -> None:
    audit = addnorm.audit(Keyed(NONLINEAR[kind]).eval(), torch.randn(2, 5, SIZE), methods="static")
    assert "b" not in [finding.parameter for finding in audit.findings]
    assert any(note.startswith("b: added to data, but not as an affine function") for note in audit.notes)


class Used(nn.Module):
    """A linear layer whose bias a function uses a second time, or not as a bias at all."""

    def __init__(self, use: Callable[[nn.Linear, Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.use = nn.Linear(4, 4), use

    def forward(self, x: Tensor) -> Tensor:
        return self.use(self.linear, x)


OTHER: dict[str, Callable[[nn.Linear, Tensor], Tensor]] = {
    "added and multiplied": lambda layer, x: layer(x) * layer.bias,
    "joined": lambda layer, x: torch.cat([x, layer.bias.expand(2, 1, 4)], 1) @ layer.weight,
    "looked up": lambda layer, x: x @ layer.weight + layer.bias[(x > 0).long()],
    "gain": lambda layer, x: x @ layer.weight * layer.bias,
    "added beside its norm": lambda layer, x: layer(x) / layer.bias.norm(),
    "a threshold": lambda layer, x: torch.where(x > layer.bias, x, 0.0) @ layer.weight,
}


@pytest.mark.parametrize("kind", OTHER)
def test_a_bias_with_another_use_is_named_in_a_note(kind: str) -> None:
    audit = addnorm.audit(Used(OTHER[kind]).eval(), torch.randn(2, 5, 4), methods="static")
    assert audit.findings == ()
    assert any(note.startswith("linear.bias: used in other ways than by being added") for note in audit.notes)


def test_the_keys_that_attention_joins_to_its_own_are_named() -> None:
    attention = nn.MultiheadAttention(4, 2, batch_first=True, add_bias_kv=True).eval()
    x = torch.randn(2, 5, 4)
    audit = addnorm.audit(attention, (x, x, x), methods="static")
    assert any(note.startswith("bias_k, bias_v: used in other ways") for note in audit.notes)
    assert addnorm.audit(attention, (x, x, x), track="bias").joint_null == 0
    assert addnorm.audit(attention, (x, x, x), track=".*bias.*").joint_null == 8  # keys, and values into the output


class Factors(nn.Module):
    """A bias that is the product of two parameters."""

    def __init__(self, *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.map, self.norm = nn.Linear(4, SIZE, bias=False), nn.LayerNorm(SIZE)
        self.left, self.right = (nn.Parameter(torch.randn(shape)) for shape in shapes)

    def forward(self, x: Tensor) -> Tensor:
        product = self.left @ self.right if self.left.dim() == 2 else self.left * self.right
        return self.norm(self.map(x) + product)


@pytest.mark.parametrize(
    ("shapes", "tracked", "noted"),
    [
        (((SIZE, 2), (2,)), [], ["left", "right"]),
        (((SIZE,), (SIZE,)), [], ["left", "right"]),
        (((SIZE,), ()), ["left"], ["right"]),
    ],
    ids=["low rank", "two vectors", "a learned scale"],
)
def test_products_of_parameters(shapes: tuple[tuple[int, ...], ...], tracked: list[str], noted: list[str]) -> None:
    case = audited(Factors(*shapes).eval(), torch.randn(2, 5, 4))
    assert case.tracked.names == (*tracked, "norm.bias")
    assert list(case.tracked.nonlinear) == noted
    assert case.analysis.space.dim == counted(case) == len(tracked)
    hold(case)


class Gated(nn.Module):
    """A bias times a number that data decide: it reaches the output by another way at every input."""

    def __init__(self) -> None:
        super().__init__()
        self.map, self.bias, self.norm = nn.Linear(4, SIZE), nn.Parameter(torch.randn(SIZE)), nn.LayerNorm(SIZE)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.map(x) + self.bias * (x[..., :1] > 0))


def test_a_factor_from_data_makes_no_bias() -> None:
    case = audited(Gated().eval(), torch.randn(2, 5, 4))
    assert case.tracked.names == ("map.bias", "norm.bias")
    assert not case.tracked.nonlinear


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.map, self.shift = nn.Linear(4, 4), nn.Parameter(torch.randn(4, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return torch.view_as_real(self.map(x) + self.shift)


def test_a_complex_bias_is_named() -> None:
    assert audited(Complex().eval(), torch.randn(2, 4)).tracked.nonlinear == ("shift",)


class Weight(nn.Module):
    """Weights that are computed from parameters are no biases, and no note is about them."""

    def __init__(self) -> None:
        super().__init__()
        self.map = parametrizations.weight_norm(nn.Linear(4, 6))
        self.low, self.high = nn.Parameter(torch.randn(6, 2)), nn.Parameter(torch.randn(2, 6))
        self.scale = nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(self.map(x), self.low @ self.high) * self.scale.exp()


def test_no_note_is_about_weights() -> None:
    tracked = audited(Weight().eval(), torch.randn(2, 4)).tracked
    assert tracked.names == ("map.bias",)
    assert not tracked.nonlinear


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("by", torch.rand(8) + 0.5)

    def forward(self, bias: Tensor) -> Tensor:
        return bias * self.by


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        (lambda layer: prune.random_unstructured(layer, "bias", 0.5), "0.bias_orig"),
        (
            lambda layer: parametrize.register_parametrization(layer, "bias", Scaled()),
            "0.parametrizations.bias.original",
        ),
    ],
    ids=["pruned", "parametrised"],
)
def test_torchs_own_ways_and_the_rewrite(changed: Callable[[nn.Module], nn.Module], name: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3), nn.Softmax(-1)).eval()
    changed(model[0])
    audit = addnorm.audit(model, torch.randn(5, 4))
    assert audit.finding(name).absorbable_dof == 8
    assert audit.joint_null == audit.numeric_joint_null == 9
    smaller, certificate = audit.strip()
    assert certificate.passed
    assert name in certificate.zeroed
    x = torch.randn(7, 4)
    torch.testing.assert_close(smaller(x), model(x))


class Fused(nn.Module):
    """A fused projection whose bias is masked: its third for the keys is multiplied by zero."""

    def __init__(self, masked: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.out = nn.LayerNorm(8), nn.Linear(4, 8)
        self.qkv = nn.Linear(8, 12)
        mask = torch.ones(12)
        mask[4 * masked : 4 * masked + 4] = 0
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        joined = functional.linear(self.norm(x), self.qkv.weight, self.qkv.bias * self.mask)
        return x + self.out(functional.scaled_dot_product_attention(*joined.chunk(3, -1)))


@pytest.mark.parametrize(("masked", "free"), [(0, 8), (1, 4), (2, 8)], ids=["q", "k", "v"])
def test_a_masked_third_of_a_fused_bias(masked: int, free: int) -> None:
    """The keys' third is free in any case; a masked third is free by itself. What is not masked is not free."""
    case = audited(Fused(masked).eval(), torch.randn(2, 5, 8))
    assert len(case.analysis.space.redundant("qkv.bias")) == free
    assert case.analysis.space.dim == counted(case)
    hold(case)
