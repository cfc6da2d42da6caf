"""Random small modules from a grammar of steps: what a model may do with its biases, in any order.

A module has a few registers of shape [batch, tokens, width]. Each step reads one or two of them and writes a new one;
the output is the last register, also some others, or integers computed from it. Weights may be shared between steps,
and the whole may be stored in a lower precision.
"""

import random
from collections.abc import Callable

import torch
from torch import Tensor, nn

BATCH, TOKENS, WIDTH = 3, 5, 6
HIDDEN = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
"""Entries that a causal mask hides."""
ACTIVATIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    torch.tanh,
    torch.relu,
    torch.sigmoid,
    torch.square,
    nn.functional.gelu,
    nn.functional.silu,
    torch.abs,
)


class Step(nn.Module):
    """One step: a function of one or two registers."""

    def __init__(self, draw: random.Random, shared: list[nn.Linear]) -> None:
        super().__init__()
        self.axis = draw.choice((-1, 1, 2, -2))
        self.variant = draw.randrange(4)
        self.order: torch.Tensor
        self.register_buffer("order", torch.tensor(draw.sample(range(TOKENS), TOKENS)))
        self.activation = draw.choice(ACTIVATIONS)
        self.factor = draw.choice((-1.0, 0.5, 2.0))
        self.shared = shared

    def linear(self, draw: random.Random, size: int = WIDTH, out: int | None = None) -> nn.Linear:
        """A new linear layer, or one that another step uses too."""
        if size == WIDTH and out is None and self.shared and draw.random() < 0.25:
            return draw.choice(self.shared)
        layer = nn.Linear(size, out or size, bias=draw.random() < 0.85)
        if size == WIDTH and out is None:
            self.shared.append(layer)
        return layer


class Map(Step):
    """A linear layer over the width, or over the tokens."""

    def __init__(self, draw: random.Random, shared: list[nn.Linear]) -> None:
        super().__init__(draw, shared)
        self.over_tokens = draw.random() < 0.25
        self.layer = self.linear(draw, TOKENS if self.over_tokens else WIDTH)

    def forward(self, x: Tensor, _: Tensor) -> Tensor:
        return self.layer(x.transpose(1, 2)).transpose(1, 2) if self.over_tokens else self.layer(x)


class Norm(Step):
    """A norm over the width, over tokens, or over both."""

    def __init__(self, draw: random.Random, shared: list[nn.Linear]) -> None:
        super().__init__(draw, shared)
        affine = draw.random() < 0.7
        self.norm = (
            nn.LayerNorm(WIDTH, elementwise_affine=affine),
            nn.RMSNorm(WIDTH, elementwise_affine=affine),
            nn.LayerNorm((TOKENS, WIDTH), elementwise_affine=affine),
            nn.GroupNorm(draw.choice((1, 5)), TOKENS, affine=affine),
        )[self.variant]

    def forward(self, x: Tensor, _: Tensor) -> Tensor:
        return self.norm(x)


class Softmax(Step):
    """A softmax over any axis, of a part of the entries."""

    def forward(self, x: Tensor, _: Tensor) -> Tensor:
        if self.variant == 0:
            return torch.log_softmax(x, self.axis)
        if self.variant == 1:
            return torch.softmax(x, 0)
        if self.variant == 2:
            hidden = torch.arange(WIDTH) >= WIDTH - 2
            return torch.softmax(x.masked_fill(hidden, -torch.inf), -1)
        return torch.softmax(x * self.factor, self.axis)


class Attention(Step):
    """Attention by hand or by torch's function, with or without a mask, of one register to another."""

    def __init__(self, draw: random.Random, shared: list[nn.Linear]) -> None:
        super().__init__(draw, shared)
        self.q, self.k, self.v = (self.linear(draw) for _ in range(3))
        self.cross = draw.random() < 0.3
        self.heads = draw.choice((1, 2))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        given = y if self.cross else x
        q, k, v = (
            each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (self.q(x), self.k(given), self.v(given))
        )
        if self.variant < 2:
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.variant == 1)
        else:
            scores = q @ k.transpose(-1, -2) * self.factor
            scores = (
                scores.masked_fill(HIDDEN, -1e9 if self.heads == 1 else -torch.inf) if self.variant == 2 else scores
            )
            mixed = torch.softmax(scores, dim=-1 if self.heads == 1 or self.variant == 2 else -2) @ v
        return mixed.transpose(1, 2).flatten(2)


class Chosen(Step):
    """Scores of which a part is seen: the largest ones, what was not padded, what zeros and ones let through."""

    def __init__(self, draw: random.Random, shared: list[nn.Linear]) -> None:
        super().__init__(draw, shared)
        self.q, self.k = self.linear(draw), self.linear(draw)
        self.over = draw.choice((-1, -1, -2))
        self.fill = draw.choice((-torch.inf, -1e9, -2.0))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        scores = self.q(x) @ self.k(y).mT
        match self.variant:
            case 0:
                least = scores.topk(2, self.over).values.narrow(self.over, 1, 1)
                weights = torch.softmax(scores.masked_fill(scores < least, self.fill), self.over)
            case 1:
                best = scores.topk(2, self.over)
                weights = torch.full_like(scores, self.fill).scatter(-1, best.indices, best.values).softmax(self.over)
            case 2:
                padded = nn.functional.pad(scores, (2, 1), value=self.fill)
                weights = torch.softmax(padded, -1)[..., 2:-1] * self.factor
            case _:
                seen = (~HIDDEN).to(scores.dtype)
                weights = torch.softmax(scores * seen + max(self.fill, -1e5) * (1 - seen), self.over)
        return weights @ (x - x.mean(self.axis, keepdim=True) if self.factor > 0 else x)


class Streams(Step):
    """Two streams that numbers from data write to, mixed or summed, or rows that data choose for all channels."""

    def __init__(self, draw: random.Random, shared: list[nn.Linear]) -> None:
        super().__init__(draw, shared)
        self.gates = self.linear(draw, WIDTH, 2)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if self.variant == 0:
            rows = self.gates(x).argmax(-1, keepdim=True).expand(-1, -1, WIDTH)
            return torch.cat([x, y], 1).gather(1, rows)
        streams = self.gates(y).unsqueeze(-1) * x.unsqueeze(-2)
        if self.variant == 1:
            return streams.sum(-2)
        if self.variant == 2:
            return (streams - streams.mean(-1, keepdim=True)).flatten(-2)[..., :WIDTH]
        return streams[..., 1, :] / (1.0 + streams.var(self.axis, keepdim=True)).mean(-2)


class Alike(Step):
    """One factor in two products, keys of zeros, or rows of which a later step reads some."""

    def __init__(self, draw: random.Random, shared: list[nn.Linear]) -> None:
        super().__init__(draw, shared)
        self.gate, self.other, self.third = (self.linear(draw) for _ in range(3))
        self.part = draw.choice((1.0, 1.0, 0.5))
        self.seen = draw.choice((TOKENS, TOKENS, TOKENS + 1))
        self.reads = draw.choice((1, 2, TOKENS))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        match self.variant:
            case 0:
                share = torch.sigmoid(self.gate(y))
                return share * x + (self.part - share) * self.other(x)
            case 1:
                keys, more = self.gate(y), self.other(x)
                scores = self.third(x) @ keys.mT * self.factor + self.part * (keys @ more.mT).mT * self.factor
                return torch.softmax(scores, self.axis) @ x
            case 2:
                padded = nn.functional.pad(self.gate(y), (0, 0, 1, 1))
                hidden = (torch.arange(TOKENS + 2) - 1) % (TOKENS + 2) >= self.seen
                weights = torch.softmax((x @ padded.mT).masked_fill(hidden, -torch.inf), -1)
                return weights[..., 1:-1] @ x
            case _:
                rows = torch.cat([self.gate(x)[:, :1], self.other(y)[:, 1:]], 1)
                rows = self.activation(rows) if self.part < 1 else rows - rows.mean(-1, keepdim=True)
                return rows[:, : self.reads].sum(1, keepdim=True) + x


class Rearrange(Step):
    """Entries in another order, by an index, a roll, a split, or a gather."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        match self.variant:
            case 0:
                return x[:, self.order]
            case 1:
                return x.roll(1, self.axis)
            case 2:
                return torch.cat([x[..., WIDTH // 2 :], y[..., : WIDTH // 2]], dim=-1)
            case _:
                return x.gather(1, self.order[None, :, None].expand(len(x), -1, WIDTH))


class Wire(Step):
    """Two registers together: a sum, a difference, a gate, a scaled sum, a mean."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        match self.variant:
            case 0:
                return x + y
            case 1:
                return x - self.factor * y
            case 2:
                return x * torch.sigmoid(y)
            case _:
                return x - x.mean(self.axis, keepdim=True) + 0.0 * y.sum()


class Added(Step):
    """A parameter that is added, of one of several shapes."""

    def __init__(self, draw: random.Random, shared: list[nn.Linear]) -> None:
        super().__init__(draw, shared)
        self.bias = nn.Parameter(torch.randn(((WIDTH,), (TOKENS, 1), (1,), (1, 1, WIDTH))[self.variant]))

    def forward(self, x: Tensor, _: Tensor) -> Tensor:
        return x + self.bias


class Pointwise(Step):
    """An activation, or a mask that writes a number."""

    def forward(self, x: Tensor, _: Tensor) -> Tensor:
        return x.masked_fill(self.order[:, None] > 3, self.factor) if self.variant == 3 else self.activation(x)


STEPS: tuple[type[Step], ...] = (
    Map, Map, Norm, Softmax, Attention, Chosen, Streams, Alike, Rearrange, Wire, Wire, Added, Pointwise,
)  # fmt: skip


class Drawn(nn.Module):
    """A module drawn from the grammar."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        shared: list[nn.Linear] = []
        self.steps = nn.ModuleList()
        self.reads: list[tuple[int, int]] = []
        for at in range(draw.randint(2, 7)):
            self.steps.append(draw.choice(STEPS)(draw, shared))
            self.reads.append((at if draw.random() < 0.7 else draw.randint(0, at), draw.randint(0, at)))
        self.head = nn.Linear(WIDTH, 3)
        self.also_returned = draw.sample(
            range(1, len(self.steps) + 1), draw.choice((0, 0, 0, 1, 2)) if len(self.steps) > 1 else 0
        )
        self.chosen = draw.random() < 0.1
        self.dtype = draw.choice((torch.float32, torch.float32, torch.float64, torch.bfloat16))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        registers = [x]
        for step, (first, second) in zip(self.steps, self.reads, strict=True):
            registers.append(step(registers[first], registers[second]))
        last = self.head(registers[-1])
        also = [registers[at] for at in self.also_returned]
        return (last, *also, last.argmax(-1)) if self.chosen else (last, *also)


def drawn(seed: int) -> tuple[Drawn, Tensor]:
    """Return module number `seed` with an input for it, in its precision."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        module = Drawn(seed)
        return module.to(module.dtype).eval(), torch.randn(BATCH, TOKENS, WIDTH).to(module.dtype)
