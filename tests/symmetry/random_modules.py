"""Random small modules with additive and multiplicative wiring, for the fuzzer of symmetries."""

import random
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PLACES = 5
"""Places of an input."""


class Gained(nn.Module):
    """A learned factor per channel, for all channels, or a shift."""

    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.weight, self.kind = nn.Parameter(torch.randn(1 if kind == "factor" else width)), kind

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight if self.kind == "shift" else x * self.weight


class GatedUnits(nn.Module):
    """Two maps, the product of one with a function of the other, and a map."""

    def __init__(self, width: int, hidden: int, function: Callable[[Tensor], Tensor], *, bias: bool) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, hidden, bias=bias), nn.Linear(width, hidden, bias=bias)
        self.down, self.function = nn.Linear(hidden, width, bias=bias), function

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.function(self.gate(x)) * self.up(x))


class Units(nn.Module):
    """A map, a function, and a map; without a function a product of two matrices."""

    def __init__(self, width: int, hidden: int, function: Callable[[Tensor], Tensor], *, bias: bool) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden, bias=bias), nn.Linear(hidden, width, bias=bias)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.function(self.up(x)))


class Attention(nn.Module):
    """Attention over the places, with one key head for all query heads or for each."""

    def __init__(self, width: int, heads: int, *, bias: bool, is_manual: bool) -> None:
        super().__init__()
        self.heads, self.is_manual = heads, is_manual
        self.query = nn.Linear(width, heads * 2, bias=bias)
        self.key, self.value = nn.Linear(width, 2, bias=bias), nn.Linear(width, 2, bias=bias)
        self.output = nn.Linear(heads * 2, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        query = self.query(x).unflatten(-1, (self.heads, 2)).transpose(-3, -2)
        key, value = (each(x).unsqueeze(-3).expand_as(query) for each in (self.key, self.value))
        if self.is_manual:
            made = torch.softmax(query @ key.transpose(-1, -2), -1) @ value
        else:
            made = F.scaled_dot_product_attention(query, key, value)
        return self.output(made.transpose(-3, -2).flatten(-2))


class ManualNorm(nn.Module):
    """An RMS or layer norm from its parts."""

    def __init__(self, width: int, *, centres: bool) -> None:
        super().__init__()
        self.weight, self.centres = nn.Parameter(torch.randn(width)), centres

    def forward(self, x: Tensor) -> Tensor:
        if self.centres:
            x = x - x.mean(-1, keepdim=True)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-3) * self.weight


class Convolution(nn.Module):
    """A causal convolution over the places, per channel or over all."""

    def __init__(self, width: int, *, groups: int, bias: bool) -> None:
        super().__init__()
        self.map = nn.Conv1d(width, width, 2, groups=groups, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.map(F.pad(x.transpose(-1, -2), (1, 0))).transpose(-1, -2)


class Wired(nn.Module):
    """Blocks one after the other, each with or without a residual sum, between two maps."""

    def __init__(self, parts: list[tuple[nn.Module, str]], width: int, *, bias: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, width, bias=bias), nn.Linear(width, 2, bias=bias)
        self.parts, self.joins = nn.ModuleList(each for each, _ in parts), [join for _, join in parts]
        self.alpha = nn.Parameter(torch.randn(len(parts)))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for at, (part, join) in enumerate(zip(self.parts, self.joins, strict=True)):
            made = part(x)
            x = made if join == "none" else x + (made * self.alpha[at] if join == "scaled" else made)
        return self.last(x)


FUNCTIONS: list[Callable[[Tensor], Tensor]] = [F.relu, F.silu, F.gelu, torch.tanh, lambda x: x, torch.square]


def module(seed: int) -> nn.Module:
    """Draw a module."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    width = draw.choice([3, 4])
    bias = draw.random() < 0.5

    def part() -> nn.Module:
        kind = draw.choice(["gain", "gated", "units", "attention", "norm", "manual", "convolution", "linear"])
        match kind:
            case "gain":
                return Gained(width, draw.choice(["gain", "factor", "shift"]))
            case "gated":
                return GatedUnits(width, draw.choice([2, 3]), draw.choice(FUNCTIONS), bias=bias)
            case "units":
                return Units(width, draw.choice([2, 3]), draw.choice(FUNCTIONS), bias=bias)
            case "attention":
                return Attention(width, draw.choice([1, 2]), bias=bias, is_manual=draw.random() < 0.5)
            case "norm":
                return nn.RMSNorm(width, eps=1e-3) if draw.random() < 0.5 else nn.LayerNorm(width, eps=1e-3)
            case "manual":
                return ManualNorm(width, centres=draw.random() < 0.5)
            case "convolution":
                return Convolution(width, groups=draw.choice([1, width]), bias=bias)
            case _:
                return nn.Linear(width, width, bias=bias)

    parts = [(part(), draw.choice(["none", "sum", "scaled"])) for _ in range(draw.choice([1, 2, 3]))]
    return Wired(parts, width, bias=bias).eval()


def inputs(seed: int) -> Tensor:
    """Inputs of a module."""
    return torch.randn(24, PLACES, 4, generator=torch.Generator().manual_seed(seed))
