"""A port of block attention residuals, written from the paper in plain torch with other names, against our residual."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import addnorm
from addnorm.errors import InputError

pytestmark = pytest.mark.plain  # models of others

WIDTH, HEADS, DEPTH, VOCAB = 16, 2, 4, 23
TOKENS = torch.randint(VOCAB, (2, 9), generator=torch.Generator().manual_seed(0))


class Scale(nn.Module):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.g, self.eps = nn.Parameter(torch.ones(WIDTH)), eps

    def forward(self, x: Tensor) -> Tensor:
        return self.g * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)


class PortedLayer(nn.Module):
    """Queries, keys and values of one matrix, gate and input of another."""

    def __init__(self) -> None:
        super().__init__()
        self.attn_norm, self.mlp_norm = Scale(1e-5), Scale(1e-5)
        self.wqkv, self.wo = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.w13, self.w2 = nn.Linear(WIDTH, 48, bias=False), nn.Linear(24, WIDTH, bias=False)
        self.proj = nn.ParameterList(nn.Parameter(torch.zeros(WIDTH)) for _ in range(2))
        self.key_norm = nn.ModuleList(Scale(1e-8) for _ in range(2))

    def attention(self, x: Tensor) -> Tensor:
        q, k, v = (y.unflatten(-1, (HEADS, -1)).transpose(1, 2) for y in self.wqkv(self.attn_norm(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        return self.wo(y.transpose(1, 2).flatten(2))

    def mlp(self, x: Tensor) -> Tensor:
        gate, up = self.w13(self.mlp_norm(x)).chunk(2, -1)
        return self.w2(F.silu(gate) * up)


def rotated(x: Tensor) -> Tensor:
    rates = 10000.0 ** -(torch.arange(0, x.shape[-1], 2, dtype=torch.float64) / x.shape[-1])
    angle = torch.outer(torch.arange(x.shape[-2], dtype=torch.float64), rates)
    cos, sin, one, two = angle.cos().to(x), angle.sin().to(x), x[..., ::2], x[..., 1::2]
    return torch.stack([one * cos - two * sin, two * cos + one * sin], -1).flatten(-2)


class Port(nn.Module):
    def __init__(self, block: int) -> None:
        super().__init__()
        self.block, self.embed = block, nn.Embedding(VOCAB, WIDTH)
        self.layers = nn.ModuleList(PortedLayer() for _ in range(DEPTH))
        self.last_proj, self.last_norm = nn.Parameter(torch.zeros(WIDTH)), Scale(1e-8)
        self.out, self.lm_head = Scale(1e-5), nn.Linear(WIDTH, VOCAB, bias=False)

    def mixed(self, values: list[Tensor], query: Tensor, norm: Any) -> Tensor:
        stacked = torch.stack(values)
        return torch.einsum("nbt,nbtd->btd", (norm(stacked) @ query).softmax(0), stacked)

    def forward(self, tokens: Tensor) -> Tensor:
        done, open_block, count = [self.embed(tokens)], [], 0
        for layer in self.layers:
            branches: tuple[Callable[[Tensor], Tensor], ...] = (layer.attention, layer.mlp)
            for branch, query, norm in zip(branches, layer.proj, layer.key_norm, strict=True):
                open_block.append(branch(self.mixed([*done, *open_block[-1:]], query, norm)))
                open_block, count = [sum(open_block)], count + 1
                if count % self.block == 0:
                    done, open_block = [*done, *open_block], []
        return self.lm_head(self.out(self.mixed([*done, *open_block], self.last_proj, self.last_norm)))


def ported(block: int, port_block: int, *, filled: bool = True) -> tuple[Any, Port]:
    """Our model, with every number at random if `filled`, and a port with its numbers."""
    sizes = {
        "vocab": VOCAB,
        "width": WIDTH,
        "depth": DEPTH,
        "heads": HEADS,
        "kv_heads": HEADS,
        "hidden": 24,
        "max_seq": 16,
    }
    ours = addnorm.preset("llama", **sizes, residual={"kind": "attention", "block": block}).build(seed=0)
    draws, port = torch.Generator().manual_seed(1), Port(port_block)
    with torch.no_grad():
        for parameter in ours.parameters() if filled else ():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draws))
        theirs, queries, gains = (
            [port.embed.weight, port.lm_head.weight, port.out.g],
            ours.residual.query,
            ours.residual.gain,
        )
        pairs = list(zip(theirs, [ours.embedding.weight, ours.head.weight, ours.final_norm.weight], strict=True))
        for number, (layer, own) in enumerate(zip(port.layers, ours.layers, strict=True)):
            a, f = own.attention, own.feedforward
            pairs += [(layer.wqkv.weight, torch.cat([a.body.query.weight, a.body.key.weight, a.body.value.weight]))]
            pairs += [(layer.w13.weight, torch.cat([f.body.gate.weight, f.body.up.weight]))]
            pairs += [(layer.wo.weight, a.body.output.weight), (layer.w2.weight, f.body.down.weight)]
            pairs += [(layer.attn_norm.g, a.input_norm.weight), (layer.mlp_norm.g, f.input_norm.weight)]
            pairs += [(layer.proj[each], queries[2 * number + each]) for each in (0, 1)]
            pairs += [(layer.key_norm[each].g, gains[2 * number + each]) for each in (0, 1)]
        for parameter, value in [*pairs, (port.last_proj, queries[-1]), (port.last_norm.g, gains[-1])]:
            parameter.copy_(value)
    return ours, port


def test_vectors_of_a_port_are_rows_of_one_matrix_here() -> None:
    result = addnorm.equal_to(*ported(2, 2), TOKENS)
    assert result.equal, result.text
    assert result.only_ours == result.only_theirs == ()
    assert max(result.differences.values()) < 1e-12


def test_a_block_that_counts_otherwise_is_found_where_the_second_block_begins() -> None:
    """Blocks of two branches here, of four there: the same sources up to the second branch of the second layer."""
    first = addnorm.equal_to(*ported(2, 4), TOKENS).first_difference
    assert first is not None
    assert first.theirs.startswith("layers.1."), first.text


def test_fresh_numbers_that_do_not_say_which_is_which_are_refused_and_not_called_different() -> None:
    with pytest.raises(
        InputError, match=r"got residual\.query \[9, 16\].* each of one number\. Fill the first with random"
    ):
        addnorm.equal_to(*ported(2, 2, filled=False), TOKENS)
