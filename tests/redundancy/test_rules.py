"""Each rule with a model where it finds freedom, a near miss where it finds less, and one where it finds none.

The three stand side by side behind linear maps h = x W + b of their own, so that b's redundant directions can be derived
by hand: they are what the operation cannot see.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from null_checks import audited, counted, hold
from torch import nn
from toys import Behind

from addnorm.redundancy.graph.rules import rules
from sampled import sampled

pytestmark = pytest.mark.compiled

Op = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From h and the input x, both [3 samples, 4 tokens, 6 channels]."""


@dataclass(frozen=True)
class Rule:
    """Models of one family and the redundant directions of b in each."""

    ops: str
    """Operations of the exported graph that it is about."""
    positive: tuple[Op, int]
    near: tuple[Op, int]
    negative: tuple[Op, int]


RAMP = torch.arange(1.0, 7.0)
LOW = torch.ones(4, 4).tril()
ODD = torch.tensor([True, False, True, False, True, False])


def known(like: torch.Tensor, *shape: int) -> torch.Tensor:
    """Fixed numbers of the type of another tensor."""
    return (torch.arange(float(math.prod(shape))).square() * 0.7).sin().reshape(shape).to(like.dtype)


def places(x: torch.Tensor, size: int) -> torch.Tensor:
    """Data-dependent places [3, 4, 6] below `size`."""
    return (x.abs() * 100).long() % size


def rows(scores: torch.Tensor) -> torch.Tensor:
    return torch.softmax(scores, dim=-1)


def c(x: torch.Tensor) -> torch.Tensor:
    """Channels before tokens."""
    return x.transpose(1, 2)


def less_largest(scores: torch.Tensor, axis: int) -> torch.Tensor:
    return scores - scores.amax(axis, True)


def less_mean(scores: torch.Tensor, axis: int, share: float = 1.0) -> torch.Tensor:
    return scores - share * scores.mean(axis, keepdim=True)


def bound(seen: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Infinity where an entry is seen, minus infinity elsewhere."""
    return torch.where(seen, math.inf, -math.inf).to(like.dtype)


def refilled(scores: torch.Tensor, fill: float) -> torch.Tensor:
    """Causal scores, zeros in the masked places, halved, and filled once more."""
    masked = scores.masked_fill(torch.ones(4, 4, dtype=torch.bool).triu(1), -math.inf)
    hidden = masked == -math.inf
    return (masked.masked_fill(hidden, 0.0) * 0.5).masked_fill(hidden, fill)


def largest_two(scores: torch.Tensor, fill: float) -> torch.Tensor:
    """The two largest scores of each row, written between filled ones."""
    best = scores.topk(2, -1)
    return torch.full_like(scores, fill).scatter(-1, best.indices, best.values)


def below_second(scores: torch.Tensor, fill: float) -> torch.Tensor:
    """Scores below the second largest are filled."""
    return scores.masked_fill(scores < scores.topk(2, -1).values[..., -1:], fill)


def gated(h: torch.Tensor, z: torch.Tensor, rest: torch.Tensor) -> torch.Tensor:
    """A share z of h + 1, and another of h."""
    return F.layer_norm(z * (h + 1) + rest * h, (6,))


def met(h: torch.Tensor, x: torch.Tensor, keys: torch.Tensor, share: float) -> torch.Tensor:
    """h against some keys, less a share of h against keys that the two have in common or not."""
    return torch.tanh(h @ c(x) - share * (keys @ c(h)).mT)


def zero_keys(h: torch.Tensor, x: torch.Tensor, seen: int, fill: float) -> torch.Tensor:
    """Scores of keys, two of which are zeros; those from `seen` on are filled."""
    return rows((x @ F.pad(h, (0, 0, 0, 2)).mT).masked_fill(torch.arange(6) >= seen, fill))


def first_apart(h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Tokens of which the first alone does not move."""
    return F.layer_norm(torch.cat([x[:, :1], h[:, 1:]], 1), (6,))


def frozen(h: torch.Tensor) -> torch.Tensor:
    one = torch.ones(4, dtype=h.dtype)
    return torch.ops.aten._native_batch_norm_legit_no_training(h, 2 * one, one, one, 3 * one, 0.1, 1e-5)[0]


NONE: tuple[Op, int] = (lambda h, x: torch.tanh(h), 0)

RULES: dict[str, Rule] = {
    "softmax": Rule(
        "softmax", (lambda h, x: rows(h), 1), (lambda h, x: rows(torch.cat([h, 0 * x[..., :1]], -1)), 0), NONE
    ),
    "log_softmax": Rule(
        "log_softmax",
        (lambda h, x: F.log_softmax(h, -1), 1),
        (lambda h, x: F.log_softmax(h * RAMP, -1), 1),
        (lambda h, x: F.log_softmax(h * x, -1), 0),
    ),
    "logsumexp": Rule(
        "logsumexp",
        (lambda h, x: h - h.logsumexp(-1, True), 1),
        (lambda h, x: h - h.logsumexp(1, True), 6),
        (lambda h, x: h.logsumexp(-1), 0),
    ),
    "cross_entropy": Rule(
        "cross_entropy_loss",
        (lambda h, x: F.cross_entropy(c(h), places(x, 6)[..., 0]), 1),
        (lambda h, x: F.cross_entropy(c(torch.cat([h, x], -1)), places(x, 6)[..., 0]), 0),
        (lambda h, x: F.mse_loss(h, x), 0),
    ),
    "view": Rule(
        "view reshape",
        (lambda h, x: rows(h.reshape(3, 4, 2, 3)), 2),
        (lambda h, x: h.reshape(3, 8, 3).softmax(1), 3),
        NONE,
    ),
    "permute": Rule(
        "permute",
        (lambda h, x: h.permute(2, 0, 1).softmax(-1), 6),
        (lambda h, x: h.permute(2, 0, 1).softmax(0), 1),
        NONE,
    ),
    "expand": Rule(
        "expand",
        (lambda h, x: h.unsqueeze(1).expand(3, 2, 4, 6).softmax(2), 6),
        (lambda h, x: h.unsqueeze(1).expand(3, 2, 4, 6).softmax(3), 1),
        NONE,
    ),
    "slice": Rule(
        "slice",
        (lambda h, x: h[:, 1:] - h[:, :-1], 6),
        (lambda h, x: h[..., 1:] - h[..., :-1], 1),
        (lambda h, x: h[..., 1:] * h[..., :-1], 0),
    ),
    "select": Rule(
        "select",
        (lambda h, x: h[:, 0] - h[:, 2], 6),
        (lambda h, x: h[..., 0] - h[..., 2], 5),
        (lambda h, x: h[:, 0] - 2 * h[:, 2], 0),
    ),
    "split": Rule(
        "split chunk",
        (lambda h, x: h.chunk(2, 1)[0] - h.chunk(2, 1)[1], 6),
        (lambda h, x: h.chunk(2, -1)[0] - h.chunk(2, -1)[1], 3),
        (lambda h, x: h.chunk(2, 1)[0] * h.chunk(2, 1)[1], 0),
    ),
    "unbind": Rule(
        "unbind",
        (lambda h, x: h.unbind(1)[0] - h.unbind(1)[3], 6),
        (lambda h, x: h.unbind(2)[0] - h.unbind(2)[3], 5),
        (lambda h, x: h.unbind(1)[0] + h.unbind(1)[3], 0),
    ),
    "cat": Rule(
        "cat",
        (lambda h, x: rows(torch.cat([h, h], -1)), 1),
        (lambda h, x: rows(torch.cat([h, 2 * h], -1)), 0),
        (lambda h, x: torch.cat([h, x], -1), 0),
    ),
    "stack": Rule(
        "stack",
        (lambda h, x: torch.stack([h, h + x], -1).softmax(-1), 6),
        (lambda h, x: torch.stack([h, h + x], -1).softmax(-2), 1),
        (lambda h, x: torch.stack([h, x], -1).softmax(-1), 0),
    ),
    "flip": Rule(
        "flip", (lambda h, x: h - h.flip(1), 6), (lambda h, x: h - h.flip(2), 3), (lambda h, x: h * h.flip(2), 0)
    ),
    "roll": Rule(
        "roll",
        (lambda h, x: h - h.roll(1, 1), 6),
        (lambda h, x: h - h.roll(1, 2), 1),
        (lambda h, x: h - 2 * h.roll(1, 2), 0),
    ),
    "repeat": Rule(
        "repeat",
        (lambda h, x: h.repeat(1, 2, 1).softmax(1), 6),
        (lambda h, x: h.repeat(1, 1, 2).softmax(2), 1),
        (lambda h, x: h.repeat(1, 1, 2), 0),
    ),
    "repeat_interleave": Rule(
        "repeat_interleave",
        (lambda h, x: h.repeat_interleave(2, 1).softmax(1), 6),
        (lambda h, x: h.repeat_interleave(2, 2)[..., :6] - h, 1),
        (lambda h, x: h.repeat_interleave(2, 2), 0),
    ),
    "pad": Rule(
        "constant_pad_nd pad",
        (lambda h, x: F.pad(h, (1, 1))[..., 1:-1].softmax(-1), 1),
        (lambda h, x: F.pad(h, (1, 1)).softmax(-1), 0),
        (lambda h, x: F.pad(h, (1, 1)), 0),
    ),
    "circular pad": Rule(
        "pad",
        (lambda h, x: F.pad(h, (1, 1), mode="circular").softmax(-1), 1),
        (lambda h, x: F.pad(h, (2, 2), mode="circular")[..., 6:8] - h[..., 4:6], 6),
        (lambda h, x: F.pad(h, (1, 1), mode="circular"), 0),
    ),
    "index_select": Rule(
        "index_select",
        (lambda h, x: h.index_select(1, torch.tensor([2, 0])) - h[:, :2], 6),
        (lambda h, x: h.index_select(2, torch.tensor([2, 0])) - h[..., :2], 4),
        (lambda h, x: h.index_select(2, torch.arange(6)), 0),
    ),
    "index": Rule(
        "index",
        (lambda h, x: h[:, torch.tensor([2, 0])] - h[:, :2], 6),
        (lambda h, x: h[places(x, 3)[:, 0, 0]] - h[:1], 6),
        (lambda h, x: h[:, torch.tensor([2, 0])], 0),
    ),
    "gather": Rule(
        "gather",
        (lambda h, x: h.gather(1, places(x, 4)) - h, 6),
        (lambda h, x: h.gather(2, places(x, 6)) - h, 1),
        (lambda h, x: h.gather(1, places(x, 4)), 0),
    ),
    "take_along_dim": Rule(
        "take_along_dim",
        (lambda h, x: torch.take_along_dim(h, places(x, 4), 1) - h, 6),
        (lambda h, x: torch.take_along_dim(h, places(x, 6), 2) - h, 1),
        (lambda h, x: torch.take_along_dim(h, places(x, 4), 1), 0),
    ),
    "add": Rule(
        "add",
        (lambda h, x: h - (h + x), 6),
        (lambda h, x: h - 2 * (h[:, :1] + x) + c(h)[..., :1, None].sum(), 0),
        (lambda h, x: h + x, 0),
    ),
    "sub": Rule(
        "sub rsub",
        (lambda h, x: h - h.mean(1, keepdim=True), 6),
        (lambda h, x: h - h.mean(2, keepdim=True), 1),
        (lambda h, x: 1 - h, 0),
    ),
    "mul": Rule(
        "mul", (lambda h, x: rows(h * RAMP), 1), (lambda h, x: rows(h * x[..., :1]), 1), (lambda h, x: rows(h * x), 0)
    ),
    "div": Rule(
        "div",
        (lambda h, x: rows(h / RAMP), 1),
        (lambda h, x: rows(h / x[..., :1].exp()), 1),
        (lambda h, x: rows(x.exp() / h), 0),
    ),
    "where": Rule(
        "where",
        (lambda h, x: torch.where(x > 0, h, h + x) - h, 6),
        (lambda h, x: torch.where(ODD, h, x), 3),
        (lambda h, x: torch.where(x > 0, h, x), 0),
    ),
    "where a number": Rule(
        "where",
        (lambda h, x: rows(torch.where(x > 1, -1e9, h)), 1),
        (lambda h, x: torch.where(ODD, h, 0.5), 3),
        (lambda h, x: rows(torch.where(x > 1, 0.5, h)), 0),
    ),
    "masked_fill": Rule(
        "masked_fill",
        (lambda h, x: rows(h.masked_fill(c(x)[:, :1, :1] > 1, -1e9)), 1),
        (lambda h, x: rows(h.masked_fill(x > 1, -1e9)), 1),
        (lambda h, x: rows(h.masked_fill(ODD, -10.0)), 3),
    ),
    "clamp": Rule(
        "clamp minimum",
        (lambda h, x: rows(h.clamp(max=bound(ODD, x))), 1 + 3),
        (lambda h, x: rows(torch.minimum(h, bound(torch.ones(4, 6).tril() > 0, x))), 1 + 2),
        (lambda h, x: rows(h.clamp(max=x)), 0),
    ),
    "scaled mask": Rule(
        "mul masked_fill",
        (lambda h, x: rows(h.masked_fill(x > 1, -1e4) * 0.125), 1),
        (lambda h, x: rows(h.masked_fill(x > 1, -1e4) * 0.02 * 0.02 * 0.02), 0),
        (lambda h, x: rows(h.masked_fill(x > 1, -1.0) * 0.125), 0),
    ),
    "matmul": Rule(
        "matmul",
        (lambda h, x: rows(x @ c(h)), 6),
        (lambda h, x: (x @ c(h)).softmax(1), 0),
        (lambda h, x: torch.sigmoid(x @ c(h)), 0),
    ),
    "weighted mean": Rule(
        "matmul",
        (lambda h, x: rows(x @ c(x)) @ h - h, 6),
        (lambda h, x: 0.5 * rows(x @ c(x)) @ h - h, 0),
        (lambda h, x: torch.sigmoid(x @ c(x)) @ h - h, 0),
    ),
    "known product": Rule(
        "matmul",
        (lambda h, x: h @ (6 * torch.eye(6, dtype=h.dtype) - 1), 1),
        (lambda h, x: known(h, 2, 4) @ h, 0),
        (lambda h, x: h @ known(h, 6, 6), 0),
    ),
    "linear": Rule(
        "linear", (lambda h, x: F.linear(h, known(h, 4, 6)), 2), (lambda h, x: F.linear(h, known(h, 6, 6)), 0), NONE
    ),
    "bmm": Rule(
        "bmm",
        (lambda h, x: rows(torch.bmm(x, c(h))), 6),
        (lambda h, x: torch.bmm(x, c(h)).softmax(1), 0),
        (lambda h, x: torch.bmm(x, c(h)), 0),
    ),
    "addmm": Rule(
        "addmm",
        (lambda h, x: rows(torch.addmm(x[0], known(h, 4, 4), h[0])), 1),
        (lambda h, x: torch.addmm(h[0], known(h, 4, 6), known(h, 6, 6)).softmax(0), 6),
        (lambda h, x: torch.addmm(h[0], x[0], known(h, 6, 6)), 0),
    ),
    "einsum": Rule(
        "einsum",
        (lambda h, x: rows(torch.einsum("btd,bsd->bts", x, h)), 6),
        (lambda h, x: rows(torch.einsum("btd,bsd->bst", x, h)), 0),
        (lambda h, x: torch.einsum("btd,btd->bt", x, h), 0),
    ),
    "attention": Rule(
        "scaled_dot_product_attention",
        (lambda h, x: F.scaled_dot_product_attention(x, h, x), 6),
        (lambda h, x: F.scaled_dot_product_attention(x, x, h) - h, 6),
        (lambda h, x: F.scaled_dot_product_attention(h, x, x), 0),
    ),
    "layer_norm": Rule(
        "layer_norm",
        (lambda h, x: F.layer_norm(h, (6,)), 1),
        (lambda h, x: F.layer_norm(h.reshape(3, 4, 2, 3), (3,)), 2),
        (lambda h, x: F.rms_norm(h, (6,)), 0),
    ),
    "group_norm": Rule(
        "group_norm",
        (lambda h, x: F.group_norm(c(h), 2), 2),
        (lambda h, x: F.group_norm(c(h), 1), 1),
        (lambda h, x: F.group_norm(c(h * x), 1), 0),
    ),
    "instance_norm": Rule(
        "instance_norm",
        (lambda h, x: F.instance_norm(c(h)), 6),
        (lambda h, x: F.instance_norm(h), 1),
        (lambda h, x: F.instance_norm(h * x), 0),
    ),
    "batch_norm": Rule(
        "batch_norm",
        (lambda h, x: F.batch_norm(c(h), None, None, training=True), 6),
        (lambda h, x: F.batch_norm(h, None, None, training=True), 1),
        (lambda h, x: F.batch_norm(c(h), torch.zeros(6, dtype=h.dtype), torch.ones(6, dtype=h.dtype)), 0),
    ),
    "var": Rule("var", (lambda h, x: h.var(1), 6), (lambda h, x: h.var(2), 1), (lambda h, x: h.pow(2).mean(1), 0)),
    "conv1d": Rule(
        "conv1d",
        (lambda h, x: F.instance_norm(F.conv1d(c(h), known(h, 6, 6, 3))), 6),
        (lambda h, x: F.instance_norm(F.conv1d(c(h), known(h, 6, 6, 3), padding=1)), 0),
        (lambda h, x: F.conv1d(c(h), known(h, 6, 6, 3)), 0),
    ),
    "avg_pool": Rule(
        "avg_pool1d",
        (lambda h, x: F.avg_pool1d(c(h), 2) - c(h)[..., :2], 6),
        (lambda h, x: F.avg_pool1d(h, 2) - h[..., ::2], 3),
        (lambda h, x: F.avg_pool1d(c(h), 3, padding=1)[..., :1] - c(h)[..., :1], 0),
    ),
    "max_pool": Rule(
        "max_pool1d",
        (lambda h, x: F.max_pool1d(c(h), 2) - c(h)[..., :2], 6),
        (lambda h, x: F.max_pool1d(c(h), 2) - 2 * c(h)[..., :2], 0),
        (lambda h, x: F.max_pool1d(c(h), 2), 0),
    ),
    "amax": Rule(
        "amax",
        (lambda h, x: h - h.amax(1, keepdim=True), 6),
        (lambda h, x: h - h.amax(2, keepdim=True), 1),
        (lambda h, x: h.amax(1), 0),
    ),
    "topk": Rule(
        "topk",
        (lambda h, x: h.topk(2, 1).values - h[:, :2], 6),
        (lambda h, x: h.topk(5, 2).values - h[..., :5], 1),
        (lambda h, x: h.topk(2, 1).values, 0),
    ),
    "largest taken off": Rule(
        "amax sub",
        (lambda h, x: less_largest(x @ c(h), -1), 6),
        (lambda h, x: less_largest(x @ c(h), 1), 0),
        (lambda h, x: x @ c(h) - 0.5 * (x @ c(h)).amax(-1, True), 0),
    ),
    "compare": Rule(
        "eq masked_fill",
        (lambda h, x: rows(refilled(x @ c(h), -math.inf)), 6),
        (lambda h, x: refilled(x @ c(h), -10.0), 0),
        (lambda h, x: rows(refilled(x @ c(h), 0.0)), 0),
    ),
    "select_scatter": Rule(
        "select_scatter",
        (lambda h, x: torch.select_scatter(h, h[:, 0], 1, 2).softmax(1), 6),
        (lambda h, x: torch.select_scatter(h, 0 * x[:, 0], 1, 2).softmax(-1), 1),
        (lambda h, x: torch.select_scatter(h, 0 * x[:, 0], 1, 2).softmax(1), 0),
    ),
    "fill": Rule(
        "fill",
        (lambda h, x: torch.fill(h, 2.0) * x + h.softmax(1), 6),
        (lambda h, x: torch.fill(h, 2.0) * x + h.softmax(-1), 1),
        (lambda h, x: torch.fill(h, 2.0) * x + h.tanh(), 0),
    ),
    "slice_scatter": Rule(
        "slice_scatter",
        (lambda h, x: torch.slice_scatter(h, h[:, :2], 1, 2, 4).softmax(1), 6),
        (lambda h, x: torch.slice_scatter(h, 0 * x[:, :2], 1, 2, 4).softmax(-1), 1),
        (lambda h, x: torch.slice_scatter(h, 0 * x[:, :2], 1, 2, 4).softmax(1), 0),
    ),
    "keys in a plane": Rule(
        "layer_norm matmul",
        (lambda h, x: rows(h @ c(F.layer_norm(x, (6,), RAMP.to(x.dtype)))), 1),
        (lambda h, x: (h @ c(F.layer_norm(x, (6,)))).softmax(1), 6),
        (lambda h, x: rows(h @ c(F.rms_norm(x, (6,)))), 0),
    ),
    "keys in a plane, fused": Rule(
        "layer_norm scaled_dot_product_attention",
        (lambda h, x: F.scaled_dot_product_attention(h, F.layer_norm(x, (6,)), x), 1),
        (lambda h, x: F.scaled_dot_product_attention(h, F.linear(x[..., :4], known(h, 6, 4)), x), 2),
        (lambda h, x: F.scaled_dot_product_attention(h, F.layer_norm(x, (6,)) * x.exp(), x), 0),
    ),
    "keys out of a plane": Rule(
        "layer_norm linear",
        (lambda h, x: rows(h @ c(F.linear(F.layer_norm(x, (6,)), known(h, 6, 6)))), 1),
        (lambda h, x: rows(h @ c(F.layer_norm(x, (6,)) + x.cumsum(1))), 0),
        (lambda h, x: rows(h[..., :3] @ c(F.layer_norm(x, (6,))[..., :3])), 3),
    ),
    "mean": Rule(
        "mean sum",
        (lambda h, x: h.mean(1) - h[:, 0], 6),
        (lambda h, x: h.sum(2) - 6 * h[..., 0], 5),
        (lambda h, x: h.sum(1) - h[:, 0], 0),
    ),
    "cumsum": Rule(
        "cumsum",
        (lambda h, x: h.cumsum(1)[:, 3] - 4 * h[:, 0], 6),
        (lambda h, x: h.cumsum(2)[..., 5] - h.sum(2), 6),
        (lambda h, x: h.cumsum(1) - h.sum(1, True), 0),
    ),
    "addcmul": Rule(
        "addcmul",
        (lambda h, x: torch.addcmul(h, x, x, value=2).softmax(1), 6),
        (lambda h, x: rows(torch.addcmul(h, x, x)), 1),
        (lambda h, x: rows(torch.addcmul(x, h, x)), 0),
    ),
    "outer": Rule(
        "outer",
        (lambda h, x: rows(torch.outer(x[0, 0], h[0, 0])), 1),
        (lambda h, x: torch.outer(x[0, 0], h[0, 0]).softmax(0), 0),
        (lambda h, x: torch.outer(x[0, 0], h[0, 0]), 0),
    ),
    "bilinear": Rule(
        "bilinear",
        (lambda h, x: F.bilinear(x, x, known(h, 6, 6, 6), h[0, 0]).softmax(1), 6),
        (lambda h, x: rows(F.bilinear(x, x, known(h, 6, 6, 6), h[0, 0])), 1),
        (lambda h, x: rows(F.bilinear(h, x, known(h, 6, 6, 6))), 0),
    ),
    "cast": Rule(
        "to _to_copy",
        (lambda h, x: h.to(torch.float64).to(x.dtype).softmax(1), 6),
        (lambda h, x: rows(h.to(torch.float64)), 1),
        (lambda h, x: h.to(torch.float64), 0),
    ),
    "written over": Rule(
        "copy",
        (lambda h, x: torch.zeros_like(h).copy_(h).softmax(1), 6),
        (lambda h, x: rows(x.clone().copy_(h[:, :1])), 1),
        (lambda h, x: x.clone().copy_(h), 0),
    ),
    "dropout": Rule(
        "dropout",
        (lambda h, x: F.dropout(h, 0.5, training=False).softmax(1), 6),
        (lambda h, x: rows(F.dropout(h, 0.5, training=False)), 1),
        (lambda h, x: rows(F.dropout(h, 0.5, training=True)), 0),
    ),
    "frozen batch norm": Rule(
        "_native_batch_norm_legit_no_training",
        (lambda h, x: frozen(h).softmax(1), 6),
        (lambda h, x: rows(frozen(h)), 1),
        (lambda h, x: frozen(h), 0),
    ),
    "scatter": Rule(
        "scatter",
        (lambda h, x: rows(largest_two(x @ c(h), -math.inf)), 6),
        (lambda h, x: rows(largest_two(x @ c(h), -10.0)), 0),
        (lambda h, x: x.scatter(1, places(x, 4), h), 0),
    ),
    "the largest scores": Rule(
        "topk lt masked_fill",
        (lambda h, x: rows(below_second(x @ c(h), -math.inf)), 6),
        (lambda h, x: rows(below_second(x @ c(h), -10.0)), 0),
        (lambda h, x: below_second(x @ c(h), -math.inf).exp(), 0),
    ),
    "scores over their deviation": Rule(
        "std",
        (lambda h, x: rows((x @ c(h)) / (x @ c(h)).std(-1, keepdim=True)), 6),
        (lambda h, x: rows((x @ c(h)) / (x @ c(h)).std(1, keepdim=True)), 0),
        (lambda h, x: (x @ c(h)) / (x @ c(h)).std(-1, keepdim=True), 0),
    ),
    "the mean taken off": Rule(
        "mean sub",
        (lambda h, x: torch.tanh(less_mean(x @ c(h), -1)), 6),
        (lambda h, x: torch.tanh(less_mean(x @ c(h), 1)), 0),
        (lambda h, x: torch.tanh(less_mean(x @ c(h), -1, 0.5)), 0),
    ),
    "keys on a grid": Rule(
        "view",
        (lambda h, x: rows(((x @ c(h)).view(3, 4, 2, 2) + x.sum()).view(3, 4, 4)), 6),
        (lambda h, x: (x @ c(h)).view(3, 16).softmax(-1), 0),
        (lambda h, x: (x @ c(h)).view(3, 4, 2, 2).tanh(), 0),
    ),
    "padded scores": Rule(
        "pad constant_pad_nd",
        (lambda h, x: rows(F.pad(x @ c(h), (1, 3), value=-math.inf)), 6),
        (lambda h, x: rows(F.pad(x @ c(h), (1, 3), value=-10.0)), 0),
        (lambda h, x: F.pad(x @ c(h), (1, 3), value=-math.inf).exp(), 0),
    ),
    "weights of padded scores": Rule(
        "softmax slice matmul",
        (lambda h, x: rows(F.pad(x @ c(x), (1, 3), value=-math.inf))[..., 1:5] @ h - h[:, :1], 6),
        (lambda h, x: rows(F.pad(x @ c(x), (1, 3), value=-math.inf))[..., :4] @ h - h[:, :1], 0),
        (lambda h, x: rows(F.pad(x @ c(x), (1, 3)))[..., 1:5] @ h - h[:, :1], 0),
    ),
    "zeros and ones": Rule(
        "mul add",
        (lambda h, x: rows((x @ c(h)) * LOW.to(h) + -1e4 * (1 - LOW.to(h))), 6),
        (lambda h, x: rows((x @ c(h)) * LOW.to(h) + -10.0 * (1 - LOW.to(h))), 0),
        (lambda h, x: rows((x @ c(h)) * LOW.to(h)), 0),
    ),
    # The first three channels count by their sum, the others but for one number: 2 + 1.
    "two factors that shift": Rule(
        "mul sum",
        (lambda h, x: (h[..., :3, None] * h[..., None, 3:]).sum(2).softmax(-1), 3),
        (lambda h, x: (h[..., :3, None] * h[..., None, 3:]).softmax(-1), 1),
        (lambda h, x: h[..., :3] * h[..., 3:], 0),
    ),
    "a row chosen for all channels": Rule(
        "gather",
        (lambda h, x: F.layer_norm(torch.cat([h, x], 1).gather(1, places(x, 8)[..., :1].expand(-1, -1, 6)), (6,)), 1),
        (lambda h, x: F.layer_norm(torch.cat([h, x], 1).gather(1, places(x, 8)), (6,)), 0),
        (lambda h, x: torch.cat([h, x], 1).gather(1, places(x, 8)[..., :1].expand(-1, -1, 6)), 0),
    ),
    "a gate and its complement": Rule(
        "mul rsub add",
        (lambda h, x: gated(h, x.sigmoid(), 1 - x.sigmoid()), 1),
        (lambda h, x: gated(h, x.sigmoid(), 1 - 0.5 * x.sigmoid()), 0),
        (lambda h, x: gated(h, x.sigmoid(), 1 - x.tanh()), 0),
    ),
    "a product less another": Rule(
        "mul sub",
        (lambda h, x: (h + 1) * x - x * h, 6),
        (lambda h, x: h * x.chunk(2, 1)[0].repeat(1, 2, 1) - x.chunk(2, 1)[1].repeat(1, 2, 1) * h, 0),
        (lambda h, x: (h + 1) * x + x * h, 0),
    ),
    "the same keys twice": Rule(
        "matmul transpose sub",
        (lambda h, x: met(h, x, x, 1.0), 6),
        (lambda h, x: met(h, x, x, 0.5), 0),
        (lambda h, x: met(h, x, x.flip(1), 1.0), 0),
    ),
    "keys of zeros": Rule(
        "pad constant_pad_nd masked_fill",
        (lambda h, x: zero_keys(h, x, 4, -math.inf), 6),
        (lambda h, x: zero_keys(h, x, 5, -math.inf), 0),
        (lambda h, x: zero_keys(h, x, 4, -3.0), 0),
    ),
    "rows that nothing reads": Rule(
        "layer_norm cat",
        (lambda h, x: first_apart(h, x)[:, 0], 6),
        (lambda h, x: first_apart(h, x)[:, :2], 1),
        (lambda h, x: torch.cat([x[:, :1], h[:, 1:]], 1)[:, :2].tanh(), 0),
    ),
    "like": Rule(
        "zeros_like",
        (lambda h, x: x + torch.zeros_like(h), 6),
        (lambda h, x: rows(h + torch.zeros_like(h)), 1),
        (lambda h, x: h + torch.zeros_like(x), 0),
    ),
}


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Operations whose rule was asked, filled in while a test runs."""
    ops: set[str] = set()

    def noting(op: str, given: object) -> object:
        def asked(*args: object, **kwargs: object) -> object:
            ops.add(op)
            return given(*args, **kwargs)

        return asked

    for op, given in list(rules().items()):
        monkeypatch.setitem(rules(), op, noting(op, given))
    return ops


@pytest.mark.parametrize("name", sampled(3, RULES))
def test_rule(name: str, reached: set[str]) -> None:
    entry = RULES[name]
    ops, expected = zip(entry.positive, entry.near, entry.negative, strict=True)
    case = audited(
        Behind(lambda *given: [op(h, given[-1]) for op, h in zip(ops, given, strict=False)], 3), torch.randn(3, 4, 6)
    )
    sizes = tuple(len(case.analysis.space.redundant(f"maps.{at}.bias")) for at in range(3))
    assert sizes == expected
    assert case.analysis.space.dim == counted(case) == sum(expected)
    hold(case)
    assert reached & set(entry.ops.split())


class Looked(nn.Module):
    """Rows that data choose."""

    def __init__(self, seen: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.table, self.seen = nn.Embedding(5, 6), seen

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.seen(self.table(places(x, 5)[..., 0]))


class Recurrent(nn.Module):
    """A recurrent module's sequence output, or of a cell that runs three steps its last state."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if isinstance(self.module, nn.RNNBase):
            return self.module(x)[0]
        state = None
        for step in range(3):
            state = self.module(x[:, step], state)
        return state[0] if isinstance(state, tuple) else state


class ReadAgain(Recurrent):
    """The second bias of the first gate is added to the output too, so that the first one cannot make up for it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        second = dict(self.module.named_parameters())[
            "bias_hh_l0" if isinstance(self.module, nn.RNNBase) else "bias_hh"
        ]
        return super().forward(x) + second[:3]


def tied(module: nn.Module) -> nn.Module:
    """Both biases one parameter: their sum is twice it."""
    last = "_l0" if isinstance(module, nn.RNNBase) else ""
    setattr(module, f"bias_hh{last}", getattr(module, f"bias_ih{last}"))
    return Recurrent(module)


def recurrent(module: Callable[[], nn.Module], pairs: int) -> tuple[tuple[Callable[[], nn.Module], int], ...]:
    """A module in which `pairs` sums of two biases count, the same with three of them kept apart, and with none."""
    return (
        (lambda: Recurrent(module()), pairs),
        (lambda: ReadAgain(module()), pairs - 3),
        (lambda: tied(module()), 0),
    )


ELSEWHERE: dict[str, tuple[tuple[Callable[[], nn.Module], int], ...]] = {
    # Every row may move along the ones; all rows may move together; nothing may.
    "embedding": (
        (lambda: Looked(lambda rows_: rows_.softmax(1)), 6),
        (lambda: Looked(rows), 5),
        (lambda: Looked(torch.tanh), 0),
    ),
    # The two biases of every gate are one sum; in a GRU, of two gates of three.
    "lstm": recurrent(lambda: nn.LSTM(6, 3), 12),
    "gru": recurrent(lambda: nn.GRU(6, 3), 6),
    "lstm_cell": recurrent(lambda: nn.LSTMCell(6, 3), 12),
    "gru_cell": recurrent(lambda: nn.GRUCell(6, 3), 6),
}
"""Rules of operations that have parameters of their own: a positive, a near miss and a negative model with the dimensions of
their joint null spaces."""


@pytest.mark.parametrize("op", ELSEWHERE)
def test_rule_with_its_own_parameters(op: str, reached: set[str]) -> None:
    assert len(ELSEWHERE[op]) == 3
    for build, dim in ELSEWHERE[op]:
        torch.manual_seed(0)
        case = audited(build(), torch.randn(3, 4, 6), track="bias+tables")
        assert op in reached
        assert case.analysis.space.dim == counted(case) == dim
        hold(case)


class Fed(nn.Module):
    """A cell whose input comes from a linear map with a bias."""

    def __init__(self, cell: nn.Module, seen: bool) -> None:
        super().__init__()
        self.first, self.cell, self.seen = nn.Linear(6, 6), cell, seen

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        fed, state = self.first(x[:, 0]), x[:, 1, :3]
        out = self.cell(fed, (state, state) if isinstance(self.cell, nn.LSTMCell) else state)
        new = out[0] if isinstance(out, tuple) else out
        return (new, fed) if self.seen else new


@pytest.mark.parametrize(("cell", "pairs"), [(nn.GRUCell, 6), (nn.LSTMCell, 12), (nn.RNNCell, 3)])
def test_the_first_bias_of_a_cell_absorbs_that_of_its_input(cell: type[nn.Module], pairs: int) -> None:
    """The pairs of the cell's own vectors, and the 6 numbers of the bias in front unless the output shows them."""
    for seen, more in ((False, 6), (True, 0)):
        torch.manual_seed(0)
        case = audited(Fed(cell(6, 3), seen), torch.randn(3, 4, 6))
        assert case.analysis.space.dim == counted(case) == pairs + more
        hold(case)


def test_every_rule_has_its_three_models() -> None:
    """A rule may have several operations; one of them is enough, since each test above asserts that its rule was asked."""
    named = {op for entry in RULES.values() for op in entry.ops.split()} | set(ELSEWHERE)
    asked = {rules()[op] for op in named if op in rules()}
    # Flex attention has no backward pass on the CPU to count with: test_flex_attention.py has its models.
    lacking = [op for op, each in rules().items() if each not in asked and op != "flex_attention"]
    assert not lacking, f"no positive, near-miss and negative model for the rule of {lacking}"
