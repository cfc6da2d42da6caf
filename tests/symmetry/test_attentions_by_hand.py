"""Attentions as people write them by hand: every measured direction is explained, and used up or named.

Rotations by complex numbers and by learned or frozen angles, learned keys beside those of tokens, differences and mixtures of
heads, sums over the tokens before, adapters beside a matrix.
"""

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import addnorm
from addnorm.redundancy.execution.generic_weights import generic
from addnorm.symmetry.bases.representative import canonicalised, equal_up_to, freedom_of, random_moves
from sampled import sampled

WIDTH = 8
TOKENS = torch.stack([torch.randperm(24, generator=torch.Generator().manual_seed(seed))[:7] for seed in range(9)])


class Attention(nn.Module):
    """Two heads of four numbers, without biases, between a table, two RMS norms and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(24, WIDTH)
        self.norm, self.last = (nn.RMSNorm(WIDTH, eps=1e-3) for _ in range(2))
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.read = nn.Linear(WIDTH, 24, bias=False)

    def turned(self, x: Tensor) -> Tensor:
        """Queries or keys, [batch, head, token, number]."""
        return x

    def averaged(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Each head's values, [batch, head, token, number]."""
        return F.scaled_dot_product_attention(self.turned(q), self.turned(k), v, is_causal=True)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        y = self.norm(x)
        q, k, v = (each(y).unflatten(-1, (2, 4)).transpose(1, 2) for each in (self.q, self.k, self.v))
        read: Tensor = self.read(self.last(x + self.o(self.averaged(q, k, v).transpose(1, 2).flatten(2))))
        return read


def turned_by(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], -1)


class ComplexRotation(Attention):
    """As in the first Llama: pairs of numbers as complex ones, times others of length one."""

    def turned(self, x: Tensor) -> Tensor:
        angles = torch.outer(torch.arange(x.shape[-2], dtype=x.dtype), torch.tensor([1.0, 0.1], dtype=x.dtype))
        pairs = torch.view_as_complex(x.unflatten(-1, (2, 2)).contiguous())
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


class LearnedAngles(Attention):
    """Rotations whose frequencies are learned."""

    def __init__(self) -> None:
        super().__init__()
        self.frequencies = nn.Parameter(torch.tensor([1.0, 0.1]))

    def turned(self, x: Tensor) -> Tensor:
        angles = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * self.frequencies
        return turned_by(x, angles.cos(), angles.sin())


class AnglesFromTables(Attention):
    """Rotations by tables that are parameters, which are often frozen."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(16.0), torch.tensor([1.0, 0.1]))
        self.cosines = nn.Parameter(angles.cos(), requires_grad=False)
        self.sines = nn.Parameter(angles.sin(), requires_grad=False)

    def turned(self, x: Tensor) -> Tensor:
        return turned_by(x, self.cosines[: x.shape[-2]], self.sines[: x.shape[-2]])


class LearnedKeys(Attention):
    """A key and a value for each head that all tokens see."""

    def __init__(self) -> None:
        super().__init__()
        self.keys, self.values = (nn.Parameter(torch.randn(1, 2, 1, 4)) for _ in range(2))

    def averaged(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (
            torch.cat([own.expand(len(q), -1, -1, -1), each], 2) for own, each in ((self.keys, k), (self.values, v))
        )
        return F.scaled_dot_product_attention(q, k, v)


class Difference(Attention):
    """The difference of two softmaxes, one with a learned factor."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(0.3))

    def averaged(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        first, second = (
            (one @ other.transpose(-1, -2)).softmax(-1)
            for one, other in zip(q.chunk(2, -1), k.chunk(2, -1), strict=True)
        )
        return (first - self.factor * second) @ v


class MixedHeads(Attention):
    """Talking heads: weights of each head are a learned mixture of all heads' softmaxes."""

    def __init__(self) -> None:
        super().__init__()
        self.mixture = nn.Parameter(torch.randn(2, 2))

    def averaged(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.einsum("bhij,hg->bgij", (q @ k.transpose(-1, -2)).softmax(-1), self.mixture) @ v


class Linear(Attention):
    """Linear attention: a state that sums the products of keys and values, and one for the sum of the keys."""

    def averaged(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state = torch.einsum("bhtd,bhte->bhtde", k, v).cumsum(2)
        return torch.einsum("bhtd,bhtde->bhte", q, state) / torch.einsum("bhtd,bhtd->bht", q, k.cumsum(2))[..., None]


class Retention(Attention):
    """As RetNet: scores that decay with the distance, without a softmax, and a norm of each head's result by a group norm."""

    def __init__(self) -> None:
        super().__init__()
        self.groups = nn.GroupNorm(2, WIDTH, eps=1e-3)

    def averaged(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        places = torch.arange(q.shape[-2], dtype=q.dtype)
        decay = torch.tensor([[[0.9]], [[0.8]]], dtype=q.dtype) ** (places[:, None] - places).clamp(min=0)
        rows = ((q @ k.transpose(-1, -2) * decay.tril()) @ v).transpose(1, 2)
        normed = self.groups(rows.reshape(-1, WIDTH)).reshape(rows.shape)
        return normed.transpose(1, 2)


class Adapted(nn.Module):
    """A matrix with an adapter of rank two beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH, bias=False)
        self.down, self.up = nn.Parameter(torch.randn(2, WIDTH)), nn.Parameter(torch.randn(WIDTH, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + (x @ self.down.T) @ self.up.T * 2.0


class Adapters(Attention):
    """As LoRA, before it is merged: queries and keys by a matrix and an adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.v = Adapted(), Adapted()  # type: ignore[assignment]


GAINS, STREAM = {"gain into the next matrix": 16}, {"basis of the stream": 28}
PLAIN = GAINS | {"basis of queries and keys": 32, "basis of values": 32} | STREAM
TURNED = PLAIN | {"basis of queries and keys": 8}
CASES: dict[type[Attention], tuple[Mapping[str, int], int, int]] = {
    ComplexRotation: (TURNED, 0, 0),
    LearnedAngles: (TURNED, 0, 0),
    # Its tables can be turned and scaled, pair by pair, against each other and the keys: nobody would train them.
    AnglesFromTables: (TURNED, 4, 0),
    LearnedKeys: (PLAIN, 0, 64),
    Difference: (PLAIN | {"basis of queries and keys": 16}, 0, 0),
    # The numbers by which a head enters its mixture can be scaled against its values.
    MixedHeads: (PLAIN | {"basis of values": 34}, 0, 34),
    Linear: (GAINS | {"basis of values": 32} | STREAM, 0, 32),
    # All 32 numbers of an adapter are taken over by the matrix beside it.
    Adapters: (PLAIN | {"learned factor of a branch": 64}, 0, 164),
}
"""Families, measured directions beside them, and explained ones that the canonical form leaves and names."""


def made(cls: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return generic(cls().eval(), torch.float64)


@pytest.mark.parametrize("cls", sampled(8, CASES))
def test_families(cls: type[Attention]) -> None:
    families, beside, _ = CASES[cls]
    counted = addnorm.symmetries(made(cls), TOKENS, points=1)
    assert counted.refuted == ()
    assert {each.name: each.size for each in counted.families} == families
    assert counted.redundant == counted.explained + beside


@pytest.mark.parametrize("cls", sampled(4, CASES))
def test_what_the_canonical_form_leaves_is_named(cls: type[Attention]) -> None:
    families, _, left = CASES[cls]
    model = made(cls)
    freedom = freedom_of(model, TOKENS)
    representative = canonicalised(model, TOKENS, freedom=freedom)
    assert representative.certificate.passed
    assert sum(families.values()) - sum(freedom.used().values()) == left
    assert bool(representative.stays) or not left
    assert equal_up_to(model, random_moves(model, TOKENS, freedom=freedom).model, TOKENS, freedom=freedom).equal


def test_what_a_norm_of_each_head_removes_is_free_in_the_values() -> None:
    counted = addnorm.symmetries(made(Retention), TOKENS, points=1)
    assert (counted.unexplained, counted.refuted) == ((), ())
    # Gains of three norms; queries and keys, and each head's scores against its values; the stream; rotations of each head's
    # values that keep their mean; this mean in eight columns of the values, and what eight rows of the output read along it.
    assert counted.explained == 3 * 8 + (32 + 2) + 28 + 2 * 3 + 2 * 8 + 2 * 8
