"""Small blocks of many kinds, all from [batch, tokens, WIDTH] to the same, for random networks and near misses."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, TOKENS = 6, 2, 4
HEAD = WIDTH // HEADS


def split(x: torch.Tensor, heads: int = HEADS) -> torch.Tensor:
    """[batch, tokens, heads * head] -> [batch, heads, tokens, head]."""
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def merge(x: torch.Tensor) -> torch.Tensor:
    """The reverse of `split`."""
    return x.transpose(1, 2).flatten(2)


class Projected(nn.Module):
    """Base of the attentions: q, k, v, o with biases; `mixed` does the rest."""

    def __init__(self, width: int = WIDTH, inner: int = WIDTH) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, inner) for _ in range(3))
        self.o = nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.o(merge(self.mixed(split(self.q(x)), split(self.k(x)), split(self.v(x)))))

    def mixed(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return self.weights(self.scores(q, k)) @ v

    def scores(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])

    def weights(self, scores: torch.Tensor) -> torch.Tensor:
        return torch.softmax(scores, dim=-1)


class Eager(Projected):
    """Softmax attention spelt out."""


class Fused(Projected):
    """Causal attention in one operation."""

    def mixed(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class SoftCap(Projected):
    """Scores through tanh: the k bias matters."""

    def scores(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return 3 * torch.tanh(super().scores(q, k) / 3)


class Sigmoid(Projected):
    """No normalisation over the keys: k and v biases matter."""

    def weights(self, scores: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(scores)


class ByHand(Projected):
    """Softmax from exp and a sum."""

    def weights(self, scores: torch.Tensor) -> torch.Tensor:
        exp = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
        return exp / exp.sum(dim=-1, keepdim=True)


class Masked(Projected):
    """Causal mask filled in before the softmax, ALiBi after it is not."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bias", torch.tril(torch.ones(TOKENS, TOKENS)))  # a mask under a misleading name
        self.register_buffer("slopes", torch.tensor([0.5, 0.25]).reshape(1, HEADS, 1, 1))

    def scores(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        place = torch.arange(q.shape[2])
        plain = super().scores(q, k) - self.slopes * (place[:, None] - place[None, :]).abs()
        return plain.masked_fill(self.bias[: q.shape[2], : k.shape[2]] == 0, float("-inf"))


class Sink(Projected):
    """A learned score takes part in the softmax and is dropped: k and v biases matter."""

    def __init__(self) -> None:
        super().__init__()
        self.sink = nn.Parameter(torch.randn(1, HEADS, 1, 1))

    def weights(self, scores: torch.Tensor) -> torch.Tensor:
        sink = self.sink.expand(scores.shape[0], HEADS, scores.shape[2], 1)
        return torch.softmax(torch.cat([scores, sink], dim=-1), dim=-1)[..., :-1]


class Prefix(Projected):
    """A learned key and value before the others, as an array of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.first_key, self.first_value = (nn.Parameter(torch.randn(1, HEADS, 1, HEAD)) for _ in range(2))

    def mixed(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        k = torch.cat([self.first_key.expand(k.shape[0], -1, -1, -1), k], dim=2)
        v = torch.cat([self.first_value.expand(k.shape[0], -1, -1, -1), v], dim=2)
        return super().mixed(q, k, v)


class TalkingHeads(Projected):
    """Scores and weights mixed over heads."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = (nn.Linear(HEADS, HEADS, bias=False) for _ in range(2))

    def mixed(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = self.before(self.scores(q, k).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        weights = self.after(torch.softmax(scores, dim=-1).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return weights @ v


def rotate(x: torch.Tensor, dims: int, base: float = 100.0) -> torch.Tensor:
    """Rotary position on the first `dims` (even) of the last axis."""
    place = torch.arange(x.shape[-2], dtype=x.dtype)
    angle = place[:, None] * base ** (-torch.arange(0, dims, 2, dtype=x.dtype) / dims)
    cos, sin = angle.cos(), angle.sin()
    turned, rest = x[..., :dims], x[..., dims:]
    a, b = turned[..., ::2], turned[..., 1::2]
    return torch.cat([torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2), rest], dim=-1)


class Rotary(Projected):
    """Rotary position on all dims of each head."""

    rotated = 4

    def __init__(self) -> None:
        super().__init__(inner=8)

    def mixed(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return super().mixed(rotate(q, self.rotated), rotate(k, self.rotated), v)


class PartialRotary(Rotary):
    """Rotary position on half of each head."""

    rotated = 2


class NormedKeys(Projected):
    """q and k through an RMS norm after their biases."""

    def mixed(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return super().mixed(F.rms_norm(q, (HEAD,)), F.rms_norm(k, (HEAD,)), v)


class Grouped(nn.Module):
    """Two query heads on one key and value head."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, each) for each in (WIDTH, HEAD, HEAD, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = split(self.q(x)), split(self.k(x), 1), split(self.v(x), 1)
        k, v = (each.repeat_interleave(HEADS, dim=1) for each in (k, v))
        return self.o(merge(F.scaled_dot_product_attention(q, k, v)))


class Interleaved(nn.Module):
    """One projection with q, k and v interleaved per head, as in Bloom."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.o = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        qkv = self.qkv(x).view(x.shape[0], x.shape[1], HEADS, 3, HEAD)
        q, k, v = (each.transpose(1, 2) for each in qkv.unbind(3))
        return self.o(merge(torch.softmax(torch.einsum("bhqd,bhkd->bhqk", q, k), dim=-1) @ v))


class ScoreResidual(nn.Module):
    """Two attentions; the second adds the first's scores."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Eager(), Eager()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.one.scores(split(self.one.q(x)), split(self.one.k(x)))
        x = x + self.one.o(merge(torch.softmax(first, dim=-1) @ split(self.one.v(x))))
        second = first + self.two.scores(split(self.two.q(x)), split(self.two.k(x)))
        return self.two.o(merge(torch.softmax(second, dim=-1) @ split(self.two.v(x))))


class Standard(nn.Module):
    """torch's own attention, with all its biases."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x, x, x, need_weights=False)[0]


class FeedForward(nn.Sequential):
    """Linear, GELU, linear."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))


class Gated(nn.Module):
    """SiLU gate times value."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Bilinear(nn.Module):
    """A product of two linear maps."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) * self.b(x)


class SpeltNorm(nn.Module):
    """Layer norm from means."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.shift = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(dim=-1, keepdim=True)
        return centred * torch.rsqrt(centred.pow(2).mean(dim=-1, keepdim=True) + 1e-5) * self.weight + self.shift


class RmsNorm(nn.Module):
    """RMS norm with a scale and a shift."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.shift = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (WIDTH,), self.weight, 1e-5) + self.shift


class Channels(nn.Module):
    """Any module over [batch, channels, places], applied to the tokens."""

    def __init__(self, *inner: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(*inner)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.transpose(1, 2)).transpose(1, 2)


class Twice(nn.Module):
    """One layer used two times."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(torch.tanh(self.inner(x)))


class Pooled(nn.Module):
    """The mean (or largest) over tokens, given back to all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.inner(x)
        return h.amax(dim=1, keepdim=True).expand_as(x) - h.mean(dim=1, keepdim=True) + x


class Centred(nn.Module):
    """Differences of neighbouring tokens: a bias before it cancels."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.inner(x)
        return h - torch.roll(h, 1, dims=1)


class Shuffled(nn.Module):
    """Split, flipped, joined in another order, one half scaled."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.inner(x).chunk(2, dim=-1)
        return torch.cat([b.flip(-1), 2 * a], dim=-1)


class Router(nn.Module):
    """A softmax over two experts, both run."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 2)
        self.experts = nn.ModuleList([FeedForward(), FeedForward()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        share = torch.softmax(self.router(x), dim=-1)
        return sum(share[..., at : at + 1] * expert(x) for at, expert in enumerate(self.experts))


class Recurrent(nn.Module):
    """A recurrent layer."""

    def __init__(self, kind: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.inner = kind(WIDTH, WIDTH, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)[0]


class LayerScale(nn.Module):
    """A linear map times a tiny learned scale."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.full((WIDTH,), 1e-6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * self.inner(x)


KINDS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "feed forward": FeedForward,
    "gated": Gated,
    "bilinear": Bilinear,
    "eager": Eager,
    "fused": Fused,
    "soft cap": SoftCap,
    "sigmoid": Sigmoid,
    "softmax by hand": ByHand,
    "masked": Masked,
    "sink": Sink,
    "prefix": Prefix,
    "talking heads": TalkingHeads,
    "rotary": Rotary,
    "partial rotary": PartialRotary,
    "normed keys": NormedKeys,
    "grouped": Grouped,
    "interleaved": Interleaved,
    "score residual": ScoreResidual,
    "torch attention": Standard,
    "layer norm": lambda: nn.LayerNorm(WIDTH),
    "spelt norm": SpeltNorm,
    "rms norm": RmsNorm,
    "convolution": lambda: Channels(nn.Conv1d(WIDTH, WIDTH, 3, padding=1), nn.Conv1d(WIDTH, WIDTH, 1)),
    "circular convolution": lambda: Channels(nn.Conv1d(WIDTH, WIDTH, 3, padding=1, padding_mode="circular")),
    "batch norm": lambda: Channels(nn.Conv1d(WIDTH, WIDTH, 1), nn.BatchNorm1d(WIDTH)),
    "group norm": lambda: Channels(nn.Conv1d(WIDTH, WIDTH, 1), nn.GroupNorm(2, WIDTH)),
    "instance norm": lambda: Channels(nn.Conv1d(WIDTH, WIDTH, 1), nn.InstanceNorm1d(WIDTH, affine=True)),
    "twice": Twice,
    "pooled": Pooled,
    "centred": Centred,
    "shuffled": Shuffled,
    "router": Router,
    "lstm": lambda: Recurrent(nn.LSTM),
    "gru": lambda: Recurrent(nn.GRU),
    "layer scale": LayerScale,
}
