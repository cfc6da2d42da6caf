"""Whole models as others write them by hand: masks of -1e9, one matrix in parts, norms of a standard deviation, Einstein sums,
maps over tokens, pooling without padding, recurrent layers. Every measured direction is explained, a copy that is moved at
random passes the certificate, and comes back to the canonical form."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import addnorm
from addnorm.redundancy.execution.generic_weights import generic
from addnorm.symmetry.bases.representative import NO_RULE, SHORT, canonicalised, equal_up_to, freedom_of, random_moves
from sampled import sampled

TOKENS = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [7, 8, 3, 1, 4, 1, 5]])
PLACES = torch.randn(6, 7, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
IMAGES = torch.randn(12, 2, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


class ByHand(nn.Module):
    """As nanoGPT: scores scaled, masked and normalised in steps; keys of which a bias is seen by no softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(9, 6), nn.Embedding(7, 6)
        self.norm, self.heads, self.out = nn.LayerNorm(6), nn.Linear(6, 18), nn.Linear(6, 6)
        self.last, self.read = nn.LayerNorm(6), nn.Linear(6, 9, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x, size = self.table(tokens) + self.places(torch.arange(tokens.shape[1])), tokens.shape[1]
        parts = self.heads(self.norm(x)).split(6, 2)
        query, key, value = (each.view(len(x), size, 2, 3).transpose(1, 2) for each in parts)
        scores = (query @ key.transpose(-2, -1)) * 3**-0.5
        weights = F.softmax(scores.masked_fill(torch.ones(size, size).tril() == 0, -1e9), -1)
        x = x + self.out((weights @ value).transpose(1, 2).reshape(len(x), size, 6))
        read: Tensor = self.read(self.last(x))
        return read


class Deviation(nn.Module):
    """The norm of the Annotated Transformer: g (x - mean) / (std + eps) + b."""

    def __init__(self) -> None:
        super().__init__()
        self.a_2, self.b_2 = nn.Parameter(torch.ones(6)), nn.Parameter(torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        return self.a_2 * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + self.b_2


class Annotated(nn.Module):
    """As the Annotated Transformer: positions that are not learned, its norm, and a log-softmax, which removes a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.last = nn.Embedding(9, 6), Deviation(), Deviation()
        self.up, self.down, self.read = nn.Linear(6, 4), nn.Linear(4, 6), nn.Linear(6, 9)
        self.register_buffer("places", torch.randn(1, 20, 6, generator=torch.Generator().manual_seed(2)))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens) * math.sqrt(6) + self.get_buffer("places")[:, : tokens.shape[1]]
        x = x + self.down(F.relu(self.up(self.norm(x))))
        return F.log_softmax(self.read(self.last(x)), -1)


class EinsteinSums(nn.Module):
    """Two heads of queries that share one key head, and a map of the stream, as Einstein sums."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.last = nn.Embedding(9, 6), nn.LayerNorm(6), nn.LayerNorm(6)
        self.query, self.both = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
        self.out, self.read = nn.Parameter(torch.randn(6, 6)), nn.Linear(6, 9)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        y, (count, size) = self.norm(x), tokens.shape
        query = self.query(y).view(count, size, 2, 3)
        key, value = self.both(y).split(3, -1)
        weights = torch.softmax(torch.einsum("bihd,bjd->bhij", query, key) - 1e30 * torch.ones(size, size).triu(1), -1)
        made = torch.einsum("bhij,bjd->bihd", weights, value).reshape(count, size, 6)
        read: Tensor = self.read(self.last(x + torch.einsum("btd,de->bte", made, self.out)))
        return read


class Mixer(nn.Module):
    """As MLP-Mixer: one map over channels, one over tokens, and the mean over all tokens behind the last norm."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.norm, self.last = nn.Linear(3, 6), nn.LayerNorm(6), nn.LayerNorm(6)
        self.up, self.down, self.read = nn.Linear(7, 4), nn.Linear(4, 7), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        x = x + self.down(F.gelu(self.up(self.norm(x).transpose(1, 2)))).transpose(1, 2)
        read: Tensor = self.read(self.last(x).mean(1))
        return read


class Pooled(nn.Module):
    """As sentence encoders: positions by index, and a mean over the tokens that are not padding."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(9, 6), nn.Parameter(torch.randn(7, 6))
        self.norm, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 4), nn.Linear(4, 6)
        self.last, self.read = nn.LayerNorm(6), nn.Linear(6, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens) + self.places[torch.arange(tokens.shape[1])]
        x = self.last(x + self.down(torch.tanh(self.up(self.norm(x)))))
        mask = (tokens != 0).unsqueeze(-1).to(x.dtype)
        read: Tensor = self.read((x * mask).sum(1) / mask.sum(1).clamp(min=1e-9))
        return read


class OwnActivation(nn.Module):
    """Gated units whose activation, x σ(x), is written out, before the product with the value and behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(9, 6), nn.RMSNorm(6)
        self.norms = nn.ModuleList(nn.RMSNorm(6) for _ in range(2))
        self.gates, self.values = (nn.ModuleList(nn.Linear(6, 5, bias=False) for _ in range(2)) for _ in range(2))
        self.downs, self.read = (
            nn.ModuleList(nn.Linear(5, 6, bias=False) for _ in range(2)),
            nn.Linear(6, 9, bias=False),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        weights = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.float64).tril().softmax(-1)
        x = self.table(tokens)
        x = x + weights.to(x.dtype) @ x
        for at, norm in enumerate(self.norms):
            gate, value = self.gates[at](norm(x)), self.values[at](norm(x))
            active = gate * torch.sigmoid(gate)
            x = x + self.downs[at](value * active if at else active * value)
        read: Tensor = self.read(self.last(x))
        return read


class PostNorm(nn.Module):
    """As tutorials use `nn.TransformerEncoder`: the first layer's matrices and its norm read the same stream."""

    def __init__(self, make: Callable[[], nn.Module] = lambda: nn.Embedding(9, 6), heads: int = 2) -> None:
        super().__init__()
        self.into, self.places, self.read = make(), nn.Parameter(torch.randn(7, 6)), nn.Linear(6, 3)
        layer = nn.TransformerEncoderLayer(6, heads, 4, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, given: Tensor) -> Tensor:
        x = self.into(given)
        read: Tensor = self.read(self.layers(x + self.places[: given.shape[1]] if given.dtype == torch.int64 else x))
        return read


class Decoder(nn.Module):
    """A layer of torch in which queries, and keys and values, read other data by parts of one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.read = nn.Embedding(9, 6), nn.Linear(6, 9)
        self.attention, self.norm = nn.MultiheadAttention(6, 2, batch_first=True), nn.LayerNorm(6)
        self.before, self.memory = nn.LayerNorm(6), nn.LayerNorm(6)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        memory = self.memory(x.flip(1))
        made = x + self.attention(self.before(x), memory, memory, need_weights=False)[0]
        read: Tensor = self.read(self.norm(made))
        return read


class Recurrent(nn.Module):
    """A recurrent layer between a table and a readout."""

    def __init__(self, layer: Callable[..., nn.Module], **fields: object) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(9, 4), layer(4, 3, batch_first=True, **fields)
        self.read = nn.LazyLinear(9)
        self(TOKENS)

    def forward(self, tokens: Tensor) -> Tensor:
        read: Tensor = self.read(self.layer(self.table(tokens))[0])
        return read


class Cells(nn.Module):
    """The steps of a recurrent layer, one call each."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.cell, self.read = nn.Embedding(9, 4), nn.GRUCell(4, 3), nn.Linear(3, 9)

    def forward(self, tokens: Tensor) -> Tensor:
        x, made = self.table(tokens), []
        state = x.new_zeros(len(x), 3)
        for place in range(4):
            state = self.cell(x[:, place], state)
            made.append(self.read(state))
        return torch.stack(made, 1)


class Grouped(nn.Module):
    """A convolution of images in which each channel has a kernel of its own, and a norm that removes the channels' mean."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = nn.Conv2d(2, 6, 3, padding=1, groups=2)
        self.norm, self.read = nn.LayerNorm(6), nn.Linear(6, 3)

    def forward(self, images: Tensor) -> Tensor:
        read: Tensor = self.read(self.norm(self.kernels(images).permute(0, 2, 3, 1)).mean((1, 2)))
        return read


class Pooling(nn.Module):
    """Attention by one learned query, of which one matrix reads a column."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.query, self.norm = nn.Embedding(9, 6), nn.Parameter(torch.randn(1, 1, 6)), nn.LayerNorm(6)
        self.attention, self.read = nn.MultiheadAttention(6, 2, batch_first=True), nn.Linear(6, 7)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.norm(self.table(tokens))
        read: Tensor = self.read(self.attention(self.query.expand(len(x), -1, -1), x, x, need_weights=False)[0][:, 0])
        return read


def built(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return generic(make().eval(), torch.float64)


WHOLE: dict[str, tuple[Callable[[], nn.Module], Tensor, int]] = {
    # Model, inputs, and directions that the canonical form leaves.
    "by hand": (ByHand, TOKENS, 0),
    "annotated": (Annotated, TOKENS, 0),
    "Einstein sums": (EinsteinSums, TOKENS, 0),
    "mixer": (Mixer, PLACES, 2),  # the map over tokens, which no rule of that form knows
    "pooled": (Pooled, TOKENS, -1),  # the mean of the row of padding, which no output reads, is counted, too
    "own activation": (OwnActivation, TOKENS, 1),  # the scale of the stream, which an eps of 2e-16 breaks
    "parts of a matrix": (Decoder, TOKENS, 0),
    "post-norm": (PostNorm, TOKENS, 0),
}


@pytest.mark.parametrize("name", sampled(4, WHOLE))
def test_every_direction_is_explained_and_used_up(name: str) -> None:
    make, inputs, left = WHOLE[name]
    model = built(make)
    found = addnorm.symmetries(model, inputs, points=1)
    assert found.explained == found.redundant > 20
    assert not found.refuted
    freedom = freedom_of(model, inputs)
    assert sum(freedom.used().values()) == found.redundant - left
    moved = random_moves(model, inputs, freedom=freedom)
    assert moved.certificate.exact < 1e-12
    compared = equal_up_to(model, moved.model, inputs, freedom=freedom)
    assert compared.equal, compared.apart
    assert compared.as_stored > 0.1
    made = canonicalised(model, inputs, freedom=freedom)
    assert (made.certificate.passed, bool(made.stays)) == (True, name == "mixer")


@pytest.mark.parametrize(
    ("make", "count"),
    sampled(
        2,
        [
            # The table's basis (16), and b against c: in all gates of an LSTM (12), in two of three of a GRU (6); a shift of
            # the table goes to the first of them (4).
            (lambda: Recurrent(nn.LSTM), 16 + 12 + 4),
            (lambda: Recurrent(nn.GRU), 16 + 6 + 4),
            # Of the product of a table, 9 by 4, and a matrix, 3 by 4, only 27 numbers are seen.
            (lambda: Recurrent(nn.RNN, bias=False), 9 * 4 + 3 * 4 - 27),
            # The second layer reads what stays.
            (lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True), 16 + 4 * 12 + 4),
            (Cells, 16 + 6 + 4),
        ],
    ),
    ids=["lstm", "gru", "rnn", "layers", "cells"],
)
def test_recurrent_layers(make: Callable[[], nn.Module], count: int) -> None:
    found = addnorm.symmetries(built(make), TOKENS, points=1)
    assert (found.explained, found.redundant) == (count, count)
    assert not found.refuted


def test_kernels_of_several_groups_have_no_mean_in_common() -> None:
    """Channels of one group may be mixed, those of several may not: they are made of other channels each."""
    model = built(Grouped)
    freedom = freedom_of(model, IMAGES)
    assert canonicalised(model, IMAGES, freedom=freedom).certificate.passed
    assert random_moves(model, IMAGES, freedom=freedom).certificate.exact < 1e-12


def test_a_basis_that_too_few_numbers_span_is_named() -> None:
    model = built(Pooling)
    freedom = freedom_of(model, TOKENS)
    made = canonicalised(model, TOKENS, freedom=freedom)
    assert made.certificate.passed
    assert made.stays == {SHORT: ("query", "attention.in_proj_weight[0:6]")}
    moved = random_moves(model, TOKENS, freedom=freedom)
    assert moved.certificate.exact < 1e-12
    assert sum(moved.sizes.values()) == sum(made.sizes.values()) + 6 * 6


@pytest.mark.parametrize(
    "make", [lambda: PostNorm(lambda: nn.Linear(3, 6), 1), lambda: PostNorm(heads=1)], ids=["data", "wide head"]
)
def test_a_basis_that_zeros_leave_too_few_numbers_is_named(make: Callable[[], nn.Module]) -> None:
    """Three data channels span no head of six; behind a norm, keys of one wide head lack a dimension and their bias."""
    model = built(make)
    inputs = PLACES if isinstance(model.get_submodule("into"), nn.Linear) else TOKENS
    freedom = freedom_of(model, inputs)
    assert canonicalised(model, inputs, freedom=freedom).certificate.passed
    named = canonicalised(model, inputs, freedom=freedom).stays[SHORT]
    assert any("in_proj_weight" in name for name in named)
    moved = random_moves(model, inputs, freedom=freedom)
    assert moved.certificate.exact < 1e-12
    assert equal_up_to(model, moved.model, inputs, freedom=freedom).apart


def test_learned_weights_of_a_pooling_are_no_mask() -> None:
    """They see the stream's mean, which a norm behind the pooling would remove."""

    class Weighted(Pooled):
        def forward(self, tokens: Tensor) -> Tensor:
            x = self.table(tokens) + self.places[torch.arange(tokens.shape[1])]
            weights = torch.sigmoid(self.up(x)[..., :1])
            read: Tensor = self.read(self.last((x * weights).sum(1) / weights.sum(1)))
            return read

    model = built(Weighted)
    freedom = freedom_of(model, TOKENS)
    assert canonicalised(model, TOKENS, freedom=freedom).certificate.passed
    assert random_moves(model, TOKENS, freedom=freedom).certificate.exact < 1e-12


def test_what_an_operation_without_a_rule_reads_is_named() -> None:
    class Sorted(ByHand):
        def forward(self, tokens: Tensor) -> Tensor:
            x = self.heads(self.table(tokens)).cummax(-1).values
            read: Tensor = self.read(self.out(torch.tanh(x[..., :6])))
            return read

    model = built(Sorted)
    assert set(canonicalised(model, TOKENS).stays[NO_RULE]) == {"heads.weight", "heads.bias"}
