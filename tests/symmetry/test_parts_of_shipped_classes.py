"""What shipped classes have beside plain layers: keys written part by part, scans, lengths that divide, pooled places, learned
queries. Each count is derived by hand."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import addnorm
from sampled import sampled

X = torch.randn(20, 5, 3, generator=torch.Generator().manual_seed(0))


class KeysInParts(nn.Module):
    """As DeepSeek-V3: 2 · 2 of queries and keys, 2 · 2 of values."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(3, 2, bias=False), nn.Linear(3, 2, bias=False)
        self.value, self.output = nn.Linear(3, 2, bias=False), nn.Linear(2, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        made = self.key(x)
        keys = x.new_empty(*x.shape[:2], 2)
        keys[..., :1] = made[..., :1]
        keys[..., 1:] = made[..., 1:]
        scores = self.query(x) @ keys.transpose(-1, -2)
        return self.output(torch.softmax(scores, -1) @ self.value(x))


class Scan(nn.Module):
    """As Mamba, place by place: a factor per number of the state (2), and one between its reader and the last map."""

    def __init__(self) -> None:
        super().__init__()
        self.write, self.read, self.last = nn.Linear(3, 2, bias=False), nn.Linear(3, 2, bias=False), nn.Linear(1, 2)
        self.register_buffer("decay", torch.tensor([0.5, 0.8]))

    def forward(self, x: Tensor) -> Tensor:
        state, made = x.new_zeros(len(x), 2), x.new_zeros(*x.shape[:2], 1)
        for place in range(x.shape[1]):
            state = torch.sigmoid(x[:, place, :1]) * self.decay * state + self.write(x[:, place])
            made[:, place] = (state[:, None] @ self.read(x[:, place])[..., None])[..., 0]
        return self.last(made)


class Channels(nn.Module):
    """As Mamba, with three channels beside each other: a factor per number of the state (2), and one that the readers, the
    weights of the input and the last map share (1)."""

    def __init__(self) -> None:
        super().__init__()
        self.write, self.read, self.last = nn.Linear(3, 2, bias=False), nn.Linear(3, 2, bias=False), nn.Linear(3, 2)
        self.beside = nn.Parameter(torch.randn(3))
        self.register_buffer("decay", torch.rand(3, 2))

    def forward(self, x: Tensor) -> Tensor:
        state, made = x.new_zeros(len(x), 3, 2), []
        for place in range(x.shape[1]):
            state = self.decay * state + x[:, place, :, None] * self.write(x[:, place])[:, None]
            made.append((state @ self.read(x[:, place])[..., None])[..., 0])
        return self.last(torch.stack(made, 1) + self.beside * x)


class MixOfTokens(nn.Module):
    """As RWKV, a mix with the token before, of which the first has none: a norm's gains (3)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mix, self.last = nn.RMSNorm(3), nn.Parameter(torch.rand(3)), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        return self.last(self.mix * x + (1 - self.mix) * F.pad(x, (0, 0, 1, 0))[:, :-1])


class ClassToken(nn.Module):
    """As ViT: a constant between the token and its place (3), and one between the patches' bias and theirs (3)."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, 3)), nn.Parameter(torch.randn(1, 6, 3))

    def forward(self, x: Tensor) -> Tensor:
        whole = torch.cat([self.token.expand(len(x), -1, -1), self.patches(x)], 1)
        return self.last(torch.tanh(whole + self.places[:, : whole.shape[1]]))


class UnitLength(nn.Module):
    """A rotation of four numbers (6), and their length (1)."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.normalize(self.up(x), dim=-1))


class Pooled(nn.Module):
    """A basis of three channels (9), and their biases (3), past a mean over two axes."""

    def __init__(self) -> None:
        super().__init__()
        self.map, self.last = nn.Conv2d(1, 3, 2), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.map(x.unsqueeze(1)).mean((-1, -2)))


class LearnedQuery(nn.Module):
    """Of 16 numbers of the query and the keys' matrix the scores read 3; 2 · 2 of values."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Parameter(torch.randn(1, 1, 4)), nn.Linear(3, 4, bias=False)
        self.value, self.output = nn.Linear(3, 2, bias=False), nn.Linear(2, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query.expand(len(x), 1, 4) @ self.key(x).transpose(-1, -2)
        return self.output(torch.softmax(scores, -1) @ self.value(x))


class NormOfEachHead(nn.Module):
    """As Persimmon: one map makes the queries and keys of two heads, and a norm takes the mean of each: a weight per column of
    x and a bias for each of the four means (4 · 3 + 4). The queries are put out, which leaves no factor between gains."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Linear(3, 12)
        self.of_queries, self.of_keys = nn.LayerNorm(3, bias=False), nn.LayerNorm(3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        both = self.both(x).unflatten(-1, (2, 2, 3))
        queries, keys = self.of_queries(both[:, :, :, 0]), self.of_keys(both[:, :, :, 1])
        weights = torch.softmax(queries.transpose(1, 2) @ keys.permute(0, 2, 3, 1), -1)
        return torch.cat([weights.flatten(1), queries.flatten(1)], -1)


class Windows(nn.Module):
    """As ConvBERT: windows of values, weighted by data: 2 · 2 of values."""

    def __init__(self) -> None:
        super().__init__()
        self.value, self.last = nn.Linear(3, 2, bias=False), nn.Linear(2, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        values = self.value(x).transpose(1, 2)[..., None]
        windows = F.unfold(values, (3, 1), padding=(1, 0)).transpose(1, 2).reshape(-1, 2, 3)
        made = windows @ torch.softmax(x, -1).reshape(-1, 3, 1)
        return self.last(made.reshape(len(x), -1, 2))


class WiderThanItsInput(nn.Module):
    """As ELECTRA: a norm before a map of 3 to 5 leaves 3 forms that its result never has, for both rows of the reader (6); the
    norm's gain and shift (3 + 3), and a column along its mean per row of the map (5)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.wider, self.reader = nn.LayerNorm(3), nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        wide = self.wider(self.norm(x))
        return torch.cat([wide, torch.tanh(self.reader(wide))], -1)


class Clamped(nn.Module):
    """Units from which a bound of zero leaves what is positive: a factor each (4)."""

    def __init__(self, bound: float = 0.0) -> None:
        super().__init__()
        self.up, self.down, self.bound = nn.Linear(3, 4), nn.Linear(4, 2), bound

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x).clamp(min=self.bound))


class HeadsAsAxes(nn.Module):
    """Attention in Einstein sums, as in JAX: 2 · 2 · 2 of queries and keys, as many of values."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Parameter(torch.randn(3, 2, 2)) for _ in range(3))
        self.output = nn.Parameter(torch.randn(2, 2, 5))

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = (torch.einsum("bpd,dhk->bphk", x, each) for each in (self.query, self.key, self.value))
        weights = torch.einsum("bphk,bqhk->bhpq", queries, keys).softmax(-1)
        return torch.einsum("bphk,hkd->bpd", torch.einsum("bhpq,bqhk->bphk", weights, values), self.output)


@pytest.mark.parametrize(
    ("cls", "directions"),
    sampled(
        3,
        [
            *((KeysInParts, 8), (Scan, 3), (Channels, 3), (MixOfTokens, 3), (ClassToken, 6)),
            *((UnitLength, 7), (Pooled, 12), (LearnedQuery, 17), (Clamped, 4)),
            *((NormOfEachHead, 16), (Windows, 4), (WiderThanItsInput, 17), (HeadsAsAxes, 16)),
        ],
    ),
)
def test_counts(cls: type[nn.Module], directions: int) -> None:
    torch.manual_seed(1)
    found = addnorm.symmetries(cls().eval(), X, points=1)
    assert (found.redundant, found.explained, found.refuted) == (directions, directions, ())


def test_of_another_bound_nothing_is_claimed() -> None:
    """It has a factor per unit as well, of the unit less the bound, which the biases take along; no rule knows it."""
    torch.manual_seed(1)
    found = addnorm.symmetries(Clamped(0.1).eval(), X, points=1)
    assert (found.redundant, found.explained, found.refuted) == (4, 0, ())
