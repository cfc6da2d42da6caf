"""Small models whose redundant biases are known by hand."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH = 6


def data(*shape: int, seed: int = 0) -> Tensor:
    """Reproducible normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def tokens(*shape: int, vocab: int = 7, seed: int = 0) -> Tensor:
    """Reproducible token numbers."""
    return torch.randint(0, vocab, shape, generator=torch.Generator().manual_seed(seed))


def seeded(build: Callable[..., nn.Module], *args: object) -> nn.Module:
    """A module built from fixed random numbers, its biases not at zero, with the process's random state left alone."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = build(*args)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


class Behind(nn.Module):
    """An operation behind linear maps: op(W_0 x + b_0, ..., x)."""

    def __init__(self, op: Callable[..., Any], maps: int = 1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.op, self.maps = op, nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(maps))

    def forward(self, x: Tensor) -> Any:
        return self.op(*(each(x) for each in self.maps), x)


class Attention(nn.Module):
    """Softmax attention."""

    def __init__(self, heads: int = 2, width: int = WIDTH) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.split(linear(x)) for linear in (self.q, self.k, self.v))
        return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)


class PostNorm(nn.Module):
    """Norm, attention and feed-forward as BERT joins them: k, v, o and the second feed-forward bias are jointly redundant."""

    def __init__(self, heads: int = 2, width: int = WIDTH) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.LayerNorm(width) for _ in range(3))
        self.attention = Attention(heads)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = self.second(x + self.attention(x))
        return self.third(x + self.down(F.gelu(self.up(x))))


class Branching(nn.Module):
    """Looks at its data in Python, which torch.export cannot follow."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x) if float(x.sum()) < 1e9 else x


class Convolved(nn.Module):
    """Convolution, batch norm, activation, mean over the image."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.norm(self.conv(x))).mean((2, 3)))


class Padded(nn.Module):
    """An embedding with a padding row, whose gradient torch zeroes although the row is used."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(7, WIDTH, padding_idx=0), nn.Linear(WIDTH, 3)
        with torch.no_grad():
            self.table.weight[0] = 0.5

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(torch.tanh(self.table(ids)))


class Routed(nn.Module):
    """The two best of four experts, chosen by biased scores, equally weighted: the bias has no gradient, but it matters."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(WIDTH, 4, bias=False)
        self.correction = nn.Parameter(torch.zeros(4))
        self.experts = nn.Parameter(torch.randn(4, WIDTH, 3))

    def forward(self, x: Tensor) -> Tensor:
        chosen = torch.topk(self.score(x).tanh() + self.correction, 2, dim=-1).indices
        picked = F.one_hot(chosen, 4).sum(-2).to(x.dtype)
        return torch.einsum("bte,ewo,btw->bto", picked, self.experts, x)


class Dead(nn.Module):
    """A hidden unit that never fires on data of ordinary size: its bias looks useless and is not."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4), nn.Linear(4, 2)
        with torch.no_grad():
            self.up.bias[0] = -30.0

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.relu(self.up(x)))


class ZeroStart(nn.Module):
    """A branch that starts switched off, by a zero scale and by a layer scale of 1e-6."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.side, self.scale = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.full((WIDTH,), 1e-6))
        nn.init.zeros_(self.norm.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.norm(torch.tanh(self.up(x))) + self.scale * torch.tanh(self.side(x))


class Rotary(nn.Module):
    """Attention with rotary positions, whose base decides how slowly the slow pair turns."""

    def __init__(self, base: float, width: int = 4) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(width, width), nn.Linear(width, width)
        self.register_buffer(
            "turn", base ** -(torch.arange(0, width, 2, dtype=torch.float64) / width), persistent=False
        )

    def forward(self, x: Tensor) -> Tensor:
        angle = torch.arange(x.shape[1])[:, None] * self.turn
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        return F.scaled_dot_product_attention(_turned(self.q(x), cos, sin), _turned(self.k(x), cos, sin), x)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class Casting(nn.Module):
    """Computes its softmax in float32 whatever its weights are, as models in the field do."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.q(x) @ self.k(x).transpose(1, 2)
        return torch.softmax(scores, dim=-1, dtype=torch.float32).to(x.dtype) @ self.v(x).float().to(x.dtype)
