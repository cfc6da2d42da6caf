"""Changes of basis where a bias or a gain is no weight of its own, and where a weight is read in two ways: a random element of
every group, and the canonical representative, compute the same."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import addnorm
from addnorm.symmetry.bases.representative import canonicalised, equal_up_to, freedom_of, random_moves
from sampled import sampled

X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
IMAGE = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
IDS = torch.arange(12).reshape(2, 6)
Forward = Callable[[Any, Tensor], Tensor]


class Model(nn.Module):
    """Named parts and what is made of them; the buffer `fixed` holds numbers that are not learned."""

    def __init__(self, forward: Forward, parts: dict[str, nn.Module | tuple[int, ...]], fixed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.function = forward
        for name, each in parts.items():
            setattr(self, name, copy.deepcopy(each) if isinstance(each, nn.Module) else nn.Parameter(torch.empty(each)))
        self.register_buffer("fixed", torch.rand(fixed) + 0.5)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, 0.2, 1.0) if parameter.dim() == 1 else nn.init.normal_(parameter, std=0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


UP, OUT = nn.Linear(8, 6), nn.Linear(6, 3)


def channels_first(x: Tensor, conv: Callable[[Tensor], Tensor]) -> Tensor:
    return conv(x.transpose(1, 2)).transpose(1, 2)


def qkv(m: Any, x: Tensor) -> Tensor:
    """As BEiT, whose keys have a bias of zeros."""
    bias = torch.cat([m.qb, torch.zeros_like(m.vb), m.vb])
    q, k, v = F.linear(m.norm(x), m.w, bias).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4).unbind(0)
    made: Tensor = m.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))
    return made


def shared(m: Any, x: Tensor) -> Tensor:
    gained = F.rms_norm(m.up(x), (6,), m.g)
    made: Tensor = m.out(F.rms_norm(m.mid(gained), (6,), m.g))
    return made


MODELS: dict[str, tuple[Forward, dict[str, Any], int, Tensor]] = {
    "a bias that is not learned": (
        lambda m, x: m.out(torch.relu(F.linear(m.up(x), m.w, m.fixed))),
        {"up": UP, "w": (6, 6), "out": OUT},
        6,
        X,
    ),
    "a bias that is computed": (
        lambda m, x: m.out(torch.relu(F.linear(m.up(x), m.w, m.c * 0.5))),
        {"up": UP, "w": (6, 6), "c": (6,), "out": OUT},
        0,
        X,
    ),
    "a bias of a half": (
        qkv,
        {"norm": nn.LayerNorm(8), "w": (24, 8), "qb": (8,), "vb": (8,), "out": nn.Linear(8, 3)},
        0,
        X,
    ),
    "a bias plus one": (
        lambda m, x: m.out(torch.relu(F.linear(m.up(x), m.w, m.c + 1))),
        {"up": UP, "w": (6, 6), "c": (6,), "out": OUT},
        0,
        X,
    ),
    "one bias of all units": (
        lambda m, x: m.out(torch.relu(F.linear(m.up(x), m.w, m.c))),
        {"up": UP, "w": (6, 6), "c": (1,), "out": OUT},
        0,
        X,
    ),
    "a bias of each token": (
        lambda m, x: m.out(torch.relu(torch.addmm(m.c, m.up(x[0]), m.w))),
        {"up": UP, "w": (6, 6), "c": (5, 6), "out": OUT},
        0,
        X,
    ),
    "a gain that is not learned": (
        lambda m, x: m.out(F.rms_norm(m.up(x), (6,), m.fixed)),
        {"up": UP, "out": OUT},
        6,
        X,
    ),
    "a gain that is computed": (
        lambda m, x: m.out(F.layer_norm(m.up(x), (6,), m.g * 2, m.h * 0.5)),
        {"up": UP, "g": (6,), "h": (6,), "out": OUT},
        0,
        X,
    ),
    "a gain plus twice one": (
        lambda m, x: m.out(F.rms_norm(m.up(x), (6,)) * torch.add(m.g, 1, alpha=2)),
        {"up": UP, "g": (6,), "out": OUT},
        0,
        X,
    ),
    "a shift of a norm that is not learned": (
        lambda m, x: m.out(F.layer_norm(m.up(x), (6,), m.g, m.fixed)),
        {"up": UP, "g": (6,), "out": OUT},
        6,
        X,
    ),
    "a bias of patches": (
        lambda m, x: m.out(F.conv2d(x, m.w, m.fixed, stride=2).flatten(2).transpose(1, 2)),
        {"w": (6, 3, 2, 2), "out": OUT},
        6,
        IMAGE,
    ),
    "a bias of a kernel": (
        lambda m, x: m.out(channels_first(m.up(x), lambda y: F.conv1d(y, m.w, m.fixed, groups=6))),
        {"up": UP, "w": (6, 1, 3), "out": OUT},
        6,
        X,
    ),
    "bounds of each unit": (
        lambda m, x: m.out(torch.clamp(m.up(x), max=m.fixed)),
        {"up": UP, "out": OUT},
        6,
        X,
    ),
    "a sum of absolute numbers": (lambda m, x: m.out(F.normalize(m.up(x), p=1, dim=-1)), {"up": UP, "out": OUT}, 0, X),
    "a layer that reads data and itself": (
        lambda m, x: m.out(torch.relu(m.up(torch.relu(m.up(x))))),
        {"up": nn.Linear(8, 8), "out": nn.Linear(8, 3)},
        0,
        X,
    ),
    "a layer that reads data and another": (
        lambda m, x: m.out(torch.cat([m.up(x), m.up(m.mid(x))], -1)),
        {"up": nn.Linear(8, 3), "mid": nn.Linear(8, 8), "out": OUT},
        0,
        X,
    ),
    "a table that is a matrix, too": (
        lambda m, ids: m.out(torch.relu(F.linear(m.table(ids), m.table.weight))),
        {"table": nn.Embedding(12, 6), "out": nn.Linear(12, 3)},
        0,
        IDS,
    ),
    "positions that are a matrix, too": (
        lambda m, x: m.out(F.linear(m.up(x) + m.p, m.p)),
        {"up": UP, "p": (5, 6), "out": nn.Linear(5, 3)},
        0,
        X,
    ),
    "some rows of a matrix": (
        lambda m, x: m.out(torch.relu(F.linear(m.up(x), m.p[2:8]))),
        {"up": UP, "p": (12, 6), "out": OUT},
        0,
        X,
    ),
    "rows of a matrix twice": (
        lambda m, x: m.out(torch.relu(F.linear(m.up(x), m.p[2:])) + torch.relu(F.linear(m.up(x), m.p[:6]))),
        {"up": UP, "p": (8, 6), "out": OUT},
        0,
        X,
    ),
    "a bias whose order something else reads": (
        lambda m, x: m.out(torch.relu(m.up(x) + m.c)) + m.c.cumsum(0)[:3],
        {"up": UP, "c": (6,), "out": OUT},
        0,
        X,
    ),
    "a gain that is a bias, too": (
        lambda m, x: m.out(torch.relu(m.mid(F.rms_norm(m.up(x), (6,), m.g)) + m.g)),
        {"up": UP, "mid": nn.Linear(6, 6), "g": (6,), "out": OUT},
        0,
        X,
    ),
    "a gain that one of two readers takes over": (
        lambda m, x: torch.tanh(F.rms_norm(m.mid(F.rms_norm(m.up(x), (6,), m.g)), (6,), m.g)),
        {"up": UP, "mid": nn.Linear(6, 6), "g": (6,)},
        0,
        X,
    ),
    "a gain that both readers take over": (
        shared,
        {"up": UP, "mid": nn.Linear(6, 6), "g": (6,), "out": OUT},
        0,
        X,
    ),
    "two gains in a row": (
        lambda m, x: m.out(F.rms_norm(m.up(x), (6,), m.g) * m.h),
        {"up": UP, "g": (6,), "h": (6,), "out": OUT},
        0,
        X,
    ),
    "one gain twice in a row": (
        lambda m, x: m.out(F.rms_norm(m.up(x), (6,), m.g) * m.g),
        {"up": UP, "g": (6,), "out": OUT},
        0,
        X,
    ),
    "one gain of queries and keys": (
        lambda m, x: m.out(
            F.scaled_dot_product_attention(
                F.rms_norm(m.up(x), (6,), m.g)[:, None], F.rms_norm(m.mid(x), (6,), m.g)[:, None], m.v(x)[:, None]
            )[:, 0]
        ),
        {"up": UP, "mid": UP, "v": UP, "g": (6,), "out": OUT},
        0,
        X,
    ),
}


@pytest.mark.parametrize("name", sampled(2, MODELS))
def test_moves_and_the_representative_compute_the_same(name: str) -> None:
    function, parts, fixed, inputs = MODELS[name]
    model = Model(function, parts, fixed).eval()
    freedom = freedom_of(model, inputs)
    for made in (random_moves(model, inputs, freedom=freedom), canonicalised(model, inputs, freedom=freedom)):
        assert made.certificate.passed, (name, made.sizes, made.certificate)
        assert made.certificate.exact < 1e-12


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("a bias that is not learned", {"basis between two linear maps": 36}),
        ("a layer that reads data and itself", {}),
        ("a table that is a matrix, too", {"basis of the stream": 15}),
        ("some rows of a matrix", {"basis between two linear maps": 36}),
        ("a gain that both readers take over", {"gain into the next matrix": 6, "basis of the stream": 30}),
        ("two gains in a row", {"gain into the next matrix": 12, "basis of the stream": 15}),
    ],
)
def test_what_stays_free_is_counted(name: str, sizes: dict[str, int]) -> None:
    function, parts, fixed, inputs = MODELS[name]
    assert freedom_of(Model(function, parts, fixed).eval(), inputs).sizes() == sizes


def test_models_with_other_outputs_are_not_equal() -> None:
    """A unit is scaled against a bias that is not learned, and against rows that read the data as well."""
    function, parts, fixed, inputs = MODELS["a bias that is not learned"]
    model = Model(function, parts, fixed).eval()
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.w *= 2
        other.out.weight /= 2
    assert not torch.allclose(model(inputs), other(inputs))
    assert not equal_up_to(model, other, inputs).equal
    function, parts, fixed, inputs = MODELS["a layer that reads data and itself"]
    model = Model(function, parts, fixed).eval()
    other = copy.deepcopy(model)
    scales = torch.tensor([2.0, 1, 1, 1, 1, 1, 1, 1])
    with torch.no_grad():
        other.up.weight.mul_(scales[:, None] / scales)
        other.up.bias.mul_(scales)
        other.out.weight.div_(scales)
    assert not torch.allclose(model(inputs), other(inputs))
    assert not equal_up_to(model, other, inputs).equal


@pytest.mark.parametrize("name", ["one bias of all units", "a bias of each token"])
def test_no_direction_of_a_bias_of_another_shape_is_refuted(name: str) -> None:
    function, parts, fixed, inputs = MODELS[name]
    found = addnorm.symmetries(Model(function, parts, fixed).eval(), inputs, points=1)
    assert found.refuted == ()
