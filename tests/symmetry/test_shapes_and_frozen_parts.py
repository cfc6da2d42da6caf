"""What reads no numbers changes nothing, what training leaves alone is differentiated, and constants pass gains and kernels.

Each was seen in a class of Transformers: ZAYA, GPT-NeoX Japanese, AFMoE, Marian."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import addnorm
from addnorm.redundancy.execution.generic_weights import generic
from addnorm.symmetry.bases.representative import ZEROS, canonicalised, equal_up_to, freedom_of, random_moves
from addnorm.symmetry.families import BIAS, STREAM_MEAN

TOKENS = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [7, 8, 3, 1, 4, 1, 5]])


class Stream(nn.Module):
    """A table, a norm, a map and a read-out."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.last = nn.Embedding(9, 6), nn.RMSNorm(6, 1e-2), nn.RMSNorm(6, 1e-2)
        self.into, self.out, self.read = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False), nn.Linear(6, 9)


class ShapesAlone(Stream):
    """The token before, with zeros at the start, and a bias in the shape of the stream."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(6))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        y = self.norm(x)
        before = torch.cat([self.into(y.new_zeros(len(y), 1, 6)), self.into(y)[:, :-1]], 1)
        started = torch.cat([torch.zeros_like(y[:, :1]), torch.ones_like(y[:, 1:])], 1)[..., :1]
        x = x + self.out(F.gelu(before) * started) + self.bias.expand_as(x)
        read: Tensor = self.read(self.last(x))
        return read


class GatedHeads(Stream):
    """Two heads of queries share one of keys and values; what they attend to is gated, as in AFMoE and Qwen3-Next."""

    def __init__(self) -> None:
        super().__init__()
        self.both, self.gate = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        y, (count, size) = self.norm(x), tokens.shape
        query = self.into(y).view(count, size, 2, 3).transpose(1, 2)
        key, value = (each.unsqueeze(1).expand(count, 2, size, 3) for each in self.both(y).split(3, -1))
        made = F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).reshape(count, size, 6)
        read: Tensor = self.read(self.last(x + self.out(made * torch.sigmoid(self.gate(y)))))
        return read


class UnbiasedHeads(Stream):
    """As GPT-NeoX Japanese: norms with shifts, no biases, and as many numbers of values as channels or fewer."""

    def __init__(self, keys: int = 2) -> None:
        super().__init__()
        self.keys = keys
        self.norm, self.last = nn.LayerNorm(6), nn.LayerNorm(6)
        self.both, self.read = nn.Linear(6, 6 + 6 * keys, bias=False), nn.Linear(6, 9, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x, (count, size) = self.table(tokens), tokens.shape
        parts = self.both(self.norm(x)).split((6, 3 * self.keys, 3 * self.keys), -1)
        query, key, value = (each.unflatten(-1, (-1, 3)).transpose(1, 2) for each in parts)
        key, value = (each.repeat_interleave(2 // self.keys, 1) for each in (key, value))
        made = F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).reshape(count, size, 6)
        read: Tensor = self.read(self.last(x + self.out(made)))
        return read


class ScaledJoin(Stream):
    """As ZAYA: (f + b) s + (x + c) r."""

    def __init__(self) -> None:
        super().__init__()
        self.b, self.c = nn.Parameter(torch.zeros(6)), nn.Parameter(torch.zeros(6))
        self.s, self.r = nn.Parameter(torch.ones(6)), nn.Parameter(torch.ones(6))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        y = self.out(F.gelu(self.into(self.norm(x))))
        read: Tensor = self.read(self.last((y + self.b) * self.s + (x + self.c) * self.r))
        return read


class TwoKernels(Stream):
    """A kernel for each channel and one for three channels at a time, each with a bias, behind zeros at the start."""

    def __init__(self) -> None:
        super().__init__()
        self.each, self.some = nn.Conv1d(6, 6, 2, groups=6), nn.Conv1d(6, 6, 2, groups=2)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        made = self.some(self.each(F.pad(self.into(self.norm(x)).transpose(1, 2), (2, 0)))).transpose(1, 2)
        read: Tensor = self.read(self.last(x + self.out(F.gelu(made))))
        return read


class PartlyFrozen(nn.Module):
    """A stream of which a part is computed without autograd, as sinusoidal positions in a table of their own (Marian)."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.table, self.places, self.map, self.read = (
            nn.Embedding(9, 4),
            nn.Embedding(7, 4),
            nn.Linear(4, 4),
            nn.Linear(4, 5),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        with torch.set_grad_enabled(self.kind != "no_grad"):
            places = self.places(torch.arange(tokens.shape[1]))
        places = places.detach() if self.kind == "detach" else places
        read: Tensor = self.read(torch.tanh(self.map(self.table(tokens) + places)))
        return read


def built(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return generic(make().eval(), torch.float64)


@pytest.mark.parametrize("make", [ShapesAlone, GatedHeads, ScaledJoin])
def test_all_that_is_explained_is_used_up(make: Callable[[], nn.Module]) -> None:
    model = built(make)
    freedom = freedom_of(model, TOKENS)
    assert freedom.staying() == {}
    made = canonicalised(model, TOKENS, freedom=freedom)
    assert made.certificate.passed
    assert sum(made.sizes.values()) == addnorm.symmetries(model, TOKENS, points=1).explained
    moved = random_moves(model, TOKENS, seed=1, freedom=freedom)
    assert moved.certificate.exact < 1e-12
    assert equal_up_to(model, moved.model, TOKENS, freedom=freedom).equal


@pytest.mark.parametrize(("keys", "left"), [(2, 1), (1, 0)])
def test_values_whose_constant_can_only_be_level_are_named(keys: int, left: int) -> None:
    model = built(lambda: UnbiasedHeads(keys))
    freedom = freedom_of(model, TOKENS)
    assert addnorm.symmetries(model, TOKENS, points=1).explained == sum(freedom.sizes().values()) + left
    assert freedom.staying() == ({STREAM_MEAN.name: ("both.weight",)} if left else {})


def test_a_constant_passes_no_gain_with_a_zero() -> None:
    model = built(ScaledJoin)
    assert freedom_of(model, TOKENS).sizes()[BIAS.name] == 6
    with torch.no_grad():
        model.get_parameter("r")[2] = 0.0
    assert freedom_of(model, TOKENS).staying() == {ZEROS: ("r",)}
    assert BIAS.name not in freedom_of(model, TOKENS).sizes()
    assert canonicalised(model, TOKENS).certificate.passed


def test_a_constant_passes_a_kernel_without_padding() -> None:
    model = built(TwoKernels)
    freedom = freedom_of(model, TOKENS)
    assert freedom.sizes()[BIAS.name] == 6
    made = canonicalised(model, TOKENS, freedom=freedom)
    assert made.certificate.passed
    assert random_moves(model, TOKENS, freedom=freedom).certificate.exact < 1e-12
    assert float(made.model.get_parameter("each.bias").detach().abs().max()) < 1e-12


@pytest.mark.parametrize("kind", ["no_grad", "detach"])
def test_what_is_computed_without_autograd_is_read(kind: str) -> None:
    wanted = addnorm.symmetries(built(lambda: PartlyFrozen("")), TOKENS, points=1)
    assert wanted.explained >= 4 * 4 + 4
    found = addnorm.symmetries(built(lambda: PartlyFrozen(kind)), TOKENS, points=1)
    assert (found.unread, found.redundant, found.explained) == (wanted.unread, wanted.redundant, wanted.explained)
    assert not found.refuted
