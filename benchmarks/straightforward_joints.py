"""Training steps of joints against the same joint written down directly, in a hand-written decoder on the same parameters.

Every side is first compared: logits and gradients of both must be equal to rounding, with all numbers of the joint at random,
and FLOPs are counted. Then steps of ours and of the direct form take turns, round after round; the number is the median of the
ratios. Memory and its plan: benchmarks/plan_memory.py.

    python benchmarks/straightforward_joints.py                     all joints: width 256, 6 layers, length 256, batch 8
    python benchmarks/straightforward_joints.py --check             equality and FLOPs alone, at a tiny size: seconds
    python benchmarks/straightforward_joints.py --sides altup affine --rounds 21

Exit code 1 if a side is not equal.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import addnorm

VOCAB = 256


class Direct(nn.Module):
    """A decoder with learned positions, RMS norms and gated feed-forward branches, on the parameters of a model of ours."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.ours = model
        self.r, self.sites = model.residual, 2 * len(model.layers)

    def forward(self, tokens: Tensor) -> Tensor:
        m = self.ours
        x = F.embedding(tokens, m.embedding.weight)
        if hasattr(m.position, "table"):
            x = x + m.position.table[: tokens.shape[1]]
        state, self.carried = self.open(x), None
        for index, layer in enumerate(m.layers):
            for site, branch in ((2 * index, layer.attention), (2 * index + 1, layer.feedforward)):
                read, state = self.read(state, site)
                h = self.norm(branch.input_norm, read)
                y = self.attention(index, branch.body, h) if site % 2 == 0 else self.feed_forward(branch.body, h)
                state = self.write(state, y, site)
        return F.linear(self.norm(m.final_norm, self.close(state)), m.head.weight)

    def norm(self, norm: Any, x: Tensor) -> Tensor:
        return F.rms_norm(x, norm.weight.shape, norm.weight, norm.eps)

    def feed_forward(self, b: Any, h: Tensor) -> Tensor:
        return F.linear(F.silu(F.linear(h, b.gate.weight)) * F.linear(h, b.up.weight), b.down.weight)

    def attention(self, layer: int, b: Any, h: Tensor) -> Tensor:
        q, k, v = (F.linear(h, each.weight) for each in (b.query, b.key, b.value))
        q, k, v = self.projected(b, q, k, v)
        q, k, v = (each.unflatten(-1, (-1, b.head_dim)).transpose(1, 2) for each in (q, k, v))
        y = self.attend(layer, h, q, k, v).transpose(1, 2).flatten(2)
        return F.linear(self.gated(b, y, h), b.output.weight)

    def projected(self, b: Any, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return q, k, v

    def attend(self, layer: int, h: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def gated(self, b: Any, y: Tensor, h: Tensor) -> Tensor:
        return y

    def open(self, x: Tensor) -> Any:
        return x

    def read(self, state: Any, site: int) -> tuple[Tensor, Any]:
        return state, state

    def write(self, state: Any, y: Tensor, site: int) -> Any:
        return state + y

    def close(self, state: Any) -> Tensor:
        return state


def rms(x: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


class DepthScaled(Direct):
    def write(self, state: Any, y: Tensor, site: int) -> Any:
        k = site + 2
        return y / k**0.5 + state * ((k - 1) / k) ** 0.5


class VarianceKeeping(Direct):
    def write(self, state: Any, y: Tensor, site: int) -> Any:
        beta = torch.sigmoid(self.r.gate[site] / self.r.temperature)
        return torch.sqrt(torch.clamp(1 - beta**2, min=self.r.floor)) * state + beta * y


class Affine(Direct):
    def write(self, state: Any, y: Tensor, site: int) -> Any:
        r = self.r
        return (state + r.stream_shift[site]) * r.stream_scale[site] + (y + r.output_shift[site]) * r.output_scale[site]


class StreamWeight(Direct):
    def write(self, state: Any, y: Tensor, site: int) -> Any:
        return self.r.weight[site] * state + y


class InitialState(Direct):
    def open(self, x: Tensor) -> Any:
        return x, x

    def read(self, state: Any, site: int) -> tuple[Tensor, Any]:
        if site % 2:
            return state[0], state
        kept, initial = self.r.mixture[site // 2]
        return kept * state[0] + initial * state[1], state

    def write(self, state: Any, y: Tensor, site: int) -> Any:
        return state[0] + y, state[1]

    def close(self, state: Any) -> Tensor:
        return state[0]


class NoResidual(Direct):
    def write(self, state: Any, y: Tensor, site: int) -> Any:
        return y


class Streams(Direct):
    """Base of those with several streams [batch, seq, streams, width]."""

    def open(self, x: Tensor) -> Any:
        return x.unsqueeze(-2).repeat(1, 1, self.r.streams, 1)

    def close(self, state: Any) -> Tensor:
        return state.mean(-2)


class Wide(Streams):
    def read(self, state: Any, site: int) -> tuple[Tensor, Any]:
        return state.mean(-2), state

    def write(self, state: Any, y: Tensor, site: int) -> Any:
        return state + 2 * torch.sigmoid(self.r.beta[site])[:, None] * y.unsqueeze(-2)


class GatedStreams(Streams):
    def mixed(self, state: Tensor, row: int) -> tuple[Tensor, Tensor]:
        r = self.r
        normed = rms(state, r.eps) * r.gain[row]
        flat = normed.flatten(-2)
        gates = torch.sigmoid(F.linear(F.silu(F.linear(flat, r.down[row]) / r.streams), r.up[row]))
        return (gates.view_as(state) * normed).mean(-2), flat

    def read(self, state: Any, site: int) -> tuple[Tensor, Any]:
        read, flat = self.mixed(state, site)
        self.carried = 2 * torch.sigmoid(F.linear(flat, self.r.inject[site]) / self.r.streams)
        return read, state

    def write(self, state: Any, y: Tensor, site: int) -> Any:
        return state + self.carried.unsqueeze(-1) * y.unsqueeze(-2)

    def close(self, state: Any) -> Tensor:
        return self.mixed(state, -1)[0]


class Mixed(Streams):
    """Base of those whose streams are mixed by a matrix per position."""

    def weights(self, state: Tensor, site: int) -> tuple[Tensor, Tensor | None, Tensor]:
        r, n = self.r, self.r.streams
        moved = F.linear(rms(state.flatten(-2), r.norm_eps), r.weight[site])
        pre, post, mixed = moved.split(r.sizes, -1)
        factor, (of_pre, of_post, of_mixed) = r.factor[site], r.offset[site].split(r.sizes)
        pre = torch.sigmoid(of_pre + factor[0] * pre) + r.read_eps
        post = r.magnitude * torch.sigmoid(of_post + factor[1] * post) + r.write_eps
        return pre, self.matrix(of_mixed + factor[2] * mixed, n), post

    def matrix(self, logits: Tensor, n: int) -> Tensor | None:
        eps = self.r.read_eps
        matrix = torch.softmax(logits.unflatten(-1, (n, n)), -2) + eps
        matrix = matrix / (matrix.sum(-1, keepdim=True) + eps)
        for _ in range(self.r.rounds - 1):
            matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
            matrix = matrix / (matrix.sum(-1, keepdim=True) + eps)
        return matrix

    def read(self, state: Any, site: int) -> tuple[Tensor, Any]:
        pre, mix, post = self.weights(state, site)
        self.carried = mix, post
        return (pre.unsqueeze(-1) * state).sum(-2), state

    def write(self, state: Any, y: Tensor, site: int) -> Any:
        mix, post = self.carried
        return (state if mix is None else mix @ state) + post.unsqueeze(-1) * y.unsqueeze(-2)


class HyperConnections(Mixed):
    def close(self, state: Any) -> Tensor:
        r = self.r
        moved = F.linear(rms(state.flatten(-2), r.norm_eps), r.close_weight)
        weights = torch.sigmoid(r.close_offset + r.close_factor * moved) + r.read_eps
        return (weights.unsqueeze(-1) * state).sum(-2)


class Unmixed(HyperConnections):
    def matrix(self, logits: Tensor, n: int) -> Tensor | None:
        return None


class KroneckerStreams(Mixed):
    def matrix(self, logits: Tensor, n: int) -> Tensor | None:
        made = logits.new_ones(*logits.shape[:-1], 1, 1)
        for own in torch.sigmoid(logits).unbind(-1):
            pair = torch.stack((own, 1 - own, 1 - own, own), -1).unflatten(-1, (2, 2))
            size = 2 * made.shape[-1]
            made = torch.einsum("...ij,...kl->...ikjl", made, pair).reshape(*logits.shape[:-1], size, size)
        return made


class OrthogonalStreams(Mixed):
    def weights(self, state: Tensor, site: int) -> tuple[Tensor, Tensor | None, Tensor]:
        r, n = self.r, self.r.streams
        angle = r.angle[site] + r.factor[site] * F.linear(rms(state.flatten(-2), 1e-8), r.weight[site])
        upper, one = torch.triu_indices(n, n, 1), torch.eye(n)
        square = state.new_zeros(*state.shape[:2], n, n)
        square[..., upper[0], upper[1]] = angle
        skew = square - square.mT
        return r.pre[site], torch.linalg.solve(one - skew, one + skew), r.post[site]

    def close(self, state: Any) -> Tensor:
        return (self.r.last[:, None] * state).sum(-2)


class BlockAttention(Direct):
    """Blocks of two layers, as in the class that ships it."""

    def open(self, x: Tensor) -> Any:
        return [], x

    def read(self, state: Any, site: int) -> tuple[Tensor, Any]:
        return (state[1] if site == 0 else self.attended(state, site)), state

    def attended(self, state: Any, row: int) -> Tensor:
        sources = rms(torch.stack([*state[0], state[1]], -2), self.r.eps)
        weights = torch.softmax(sources @ self.r.query[row] / sources.shape[-1] ** 0.5, -1)
        return (weights.unsqueeze(-1) * sources).sum(-2)

    def write(self, state: Any, y: Tensor, site: int) -> Any:
        return ([*state[0], state[1]], y) if site % 4 == 0 else (state[0], state[1] + y)

    def close(self, state: Any) -> Tensor:
        return self.attended(state, self.sites)


class AltUp(Direct):
    def sized(self, matrix: Tensor, x: Tensor, like: Tensor) -> Tensor:
        moved = F.linear(x, matrix)
        return (
            moved
            * (like.square().mean(-1, keepdim=True) / moved.square().mean(-1, keepdim=True).clamp(min=1e-5)).sqrt()
        )

    def routed(self, weights: Tensor, x: Tensor, layer: int) -> Tensor:
        normed = self.norm(self.r.router_norms[layer], x) / x.shape[-1]
        return F.linear(torch.tanh(F.linear(normed, self.r.router[layer])), weights[layer])

    def open(self, x: Tensor) -> Any:
        return torch.stack([x, *(self.sized(matrix, x, x) for matrix in self.r.entry)])

    def read(self, state: Any, site: int) -> tuple[Tensor, Any]:
        if site % 2:
            return self.carried, state
        coefficients = self.routed(self.r.prediction, state[0], site // 2).unflatten(-1, (len(state), -1))
        state = state + torch.einsum("bsij,jbsd->ibsd", coefficients, state)
        return state[0], state

    def write(self, state: Any, y: Tensor, site: int) -> Any:
        layer = site // 2
        if site % 2 == 0:
            normed = self.norm(self.r.input_norms[layer], state[0])
            path = F.linear(F.linear(normed, self.r.down[layer]), self.r.up[layer])
            self.carried = (state[0] + y + normed + self.norm(self.r.path_norms[layer], path)) / 2**0.5
            return state
        active = self.carried + y
        factors = 1 + self.routed(self.r.correction, active, layer)
        return state + factors.permute(2, 0, 1).unsqueeze(-1) * (active - state[0])

    def close(self, state: Any) -> Tensor:
        others = [self.sized(matrix, one, state[0]) for matrix, one in zip(self.r.exit, state[1:], strict=True)]
        return torch.stack([state[0], *others]).mean(0)


class GatedNorm(Direct):
    def norm(self, norm: Any, x: Tensor) -> Tensor:
        normed = super().norm(norm, x)
        return normed * torch.sigmoid(F.linear(F.silu(F.linear(normed, norm.down)), norm.up))


class QuerySink(Direct):
    def attend(self, layer: int, h: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        seq = q.shape[2]
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores = scores.masked_fill(torch.ones(seq, seq, dtype=torch.bool).triu(1), float("-inf"))
        sink = F.linear(h, self.ours.sink.weight[layer]).transpose(1, 2).unsqueeze(-1)
        return torch.cat([scores, sink], -1).softmax(-1)[..., :-1] @ v


class RelativeBank(Direct):
    def attend(self, layer: int, h: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        position, seq = self.ours.position, q.shape[2]
        mixtures = F.linear(h, position.reads[layer]).unflatten(-1, (q.shape[1], -1)).transpose(1, 2)
        distance = torch.arange(seq)[:, None] - torch.arange(seq)
        index = distance.clamp(0, position.extent - 1).expand(*q.shape[:2], -1, -1)
        bias = (mixtures @ position.profiles[layer]).gather(-1, index)
        bias = bias.masked_fill(distance >= position.extent, 0).masked_fill(distance < 0, float("-inf"))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


class Convolution(Direct):
    def projected(self, b: Any, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return q, self.convolved(k, b.convolution["key"].weight), self.convolved(v, b.convolution["value"].weight)

    def convolved(self, x: Tensor, weight: Tensor) -> Tensor:
        taps = len(weight)  # of the positions before, the nearest first
        kernel = weight.flip(0).T.unsqueeze(1)
        before = F.pad(x.mT, (taps, 0))[..., :-1]
        return x + F.conv1d(before, kernel, groups=x.shape[-1]).mT


class HybridGate(Direct):
    def gated(self, b: Any, y: Tensor, h: Tensor) -> Tensor:
        a = b.attended
        return y * torch.sigmoid(F.linear(h, a.weight) + F.linear(F.linear(y, a.down), a.up))


class NormedValues(Direct):
    def attend(self, layer: int, h: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().attend(layer, h, q, k, rms(v, self.ours.values.eps))


class DepthAttention(Direct):
    def attend(self, layer: int, h: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.carried = [(k, v)] if layer == 0 else [*self.carried, (k, v)]
        keys, values = (torch.stack(each, -2) for each in zip(*self.carried, strict=True))
        weights = torch.softmax(torch.einsum("bhsd,bhsnd->bhsn", q, keys) / q.shape[-1] ** 0.5, -1)
        return super().attend(layer, h, q, k, torch.einsum("bhsn,bhsnd->bhsd", weights, values))


class TokenTables(Direct):
    def forward(self, tokens: Tensor) -> Tensor:
        self.tokens = tokens
        return super().forward(tokens)

    def write(self, state: Any, y: Tensor, site: int) -> Any:
        state = state + y
        if site % 2 == 0:
            return state
        branch = self.ours.layers[site // 2].table
        b, h = branch.body, self.norm(branch.input_norm, state)
        rows = F.embedding(self.tokens, b.table.weight)
        return state + F.linear(torch.sigmoid(F.linear(h, b.gate.weight)) * rows, b.out.weight)


class Clipped(Direct):
    def attend(self, layer: int, h: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().attend(layer, h, self.clipped(q), self.clipped(k), v)

    def clipped(self, x: Tensor) -> Tensor:
        return x * (1.0 / (x.norm(dim=-1, keepdim=True) + 1e-6)).clamp(max=1)


UNMIXED = {"kind": "hyper_connections", "mixing": "identity", "write_eps": 1e-6}
SIDES: dict[str, tuple[dict[str, Any], type[Direct]]] = {
    "plain": ({}, Direct),
    "depth_scaled": ({"residual": "depth_scaled"}, DepthScaled),
    "variance_keeping": ({"residual": "variance_keeping"}, VarianceKeeping),
    "affine": ({"residual": "affine"}, Affine),
    "stream_weight": ({"residual": "stream_weight"}, StreamWeight),
    "initial_state": ({"residual": "initial_state"}, InitialState),
    "none": ({"residual": "none"}, NoResidual),
    "wide": ({"residual": "wide"}, Wide),
    "gated_streams": ({"residual": "gated_streams"}, GatedStreams),
    "hyper_connections": ({"residual": "hyper_connections"}, HyperConnections),
    "hyper_connections, identity": ({"residual": UNMIXED}, Unmixed),
    "kronecker_streams": ({"residual": "kronecker_streams"}, KroneckerStreams),
    "orthogonal_streams": ({"residual": "orthogonal_streams"}, OrthogonalStreams),
    "block_attention": ({"residual": {"kind": "block_attention", "block": 2}}, BlockAttention),
    "altup": ({"residual": "altup"}, AltUp),
    "norm gated": ({"norm": {"kind": "gated", "rank": 16}}, GatedNorm),
    "sink query": ({"sink": "query"}, QuerySink),
    "position relative_bank": ({"position": {"kind": "relative_bank", "extent": 128}}, RelativeBank),
    "convolution": ({"convolution": {"positions": 4}}, Convolution),
    "attended hybrid_gate": ({"attended": "hybrid_gate"}, HybridGate),
    "values normed": ({"values": "normed"}, NormedValues),
    "values depth_attention": ({"values": "depth_attention"}, DepthAttention),
    "block token_tables": ({"block": "token_tables"}, TokenTables),
    "qk_norm clip": ({"qk_norm": {"kind": "clip", "threshold": 1.0}}, Clipped),
}


def pair(side: str, width: int, depth: int, length: int) -> tuple[Any, Direct]:
    """Our model with a joint and the direct form on its parameters, which are at random."""
    fields, direct = SIDES[side]
    sizes = {"vocab": VOCAB, "width": width, "depth": depth, "heads": 4, "kv_heads": 4, "hidden": 4 * width}
    ours = addnorm.preset("llama", **sizes, max_seq=length, **{"position": "learned", **fields}).build(seed=0)
    draws = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=draws))
    return ours, direct(ours)


def loss_of(model: nn.Module, tokens: Tensor) -> Tensor:
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def differ(ours: nn.Module, direct: Direct, tokens: Tensor) -> float:
    """The largest difference of logits and of gradients, each relative to the largest number."""
    found = []
    for model in (ours, direct):
        logits = model(tokens[:, :-1])
        gradients = torch.autograd.grad(logits.square().mean(), list(ours.parameters()), materialize_grads=True)
        found.append([each.detach() for each in (logits, *gradients)])
    pairs = list(zip(*found, strict=True))
    return max(float((one - other).abs().max() / other.abs().max().clamp_min(1e-3)) for one, other in pairs)


def flops(model: nn.Module, tokens: Tensor) -> int:
    with FlopCounterMode(display=False) as counter:
        loss_of(model, tokens).backward()
    model.zero_grad(set_to_none=True)
    return int(counter.get_total_flops())


def seconds(model: nn.Module, tokens: Tensor, clock: Callable[[], float]) -> float:
    start = clock()
    loss_of(model, tokens).backward()
    taken = clock() - start
    model.zero_grad(set_to_none=True)
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", nargs="+", choices=list(SIDES), default=list(SIDES))
    parser.add_argument("--check", action="store_true", help="no times")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--processor-time", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    clock = time.process_time if options.processor_time else time.perf_counter
    unequal, flop_ratios = [], {}
    for side in options.sides:
        ours, direct = (model.double() for model in pair(side, 32, 4, 12))
        tokens = torch.randint(VOCAB, (2, 13))
        torch.set_default_dtype(torch.float64)
        found = differ(ours, direct, tokens)
        torch.set_default_dtype(torch.float32)
        if not found < 1e-9:
            unequal.append(f"{side}: {found:.1e}")
        ours, direct = pair(side, 64, 4, 64)
        flop_ratios[side] = flops(ours, torch.randint(VOCAB, (2, 65))) / flops(direct, torch.randint(VOCAB, (2, 65)))
    print(f"not equal to the direct form: {'; '.join(unequal) or 'none'}")
    if options.check:
        print("\n".join(f"{side}: FLOPs of ours / direct {ratio:.3f}" for side, ratio in flop_ratios.items()))
        return 1 if unequal else 0
    pairs = {side: pair(side, options.width, options.depth, options.length) for side in options.sides}
    tokens = torch.randint(VOCAB, (options.batch, options.length + 1))
    taken: dict[str, list[tuple[float, float]]] = {side: [] for side in pairs}
    for turn in range(options.rounds + 1):
        for side, (ours, direct) in pairs.items():
            one, other = seconds(ours, tokens, clock), seconds(direct, tokens, clock)
            if turn:  # the first round warms up
                taken[side].append((one, other))
    print(
        "| joint | ours / direct | lowest | highest | ours, seconds | FLOPs, ours / direct |\n|---|---|---|---|---|---|"
    )
    for side, rows in taken.items():
        ratios = [one / other for one, other in rows]
        median = statistics.median(one for one, _ in rows)
        print(
            f"| {side} | {statistics.median(ratios):.2f} | {min(ratios):.2f} | {max(ratios):.2f} | {median:.2f} "
            f"| {flop_ratios[side]:.3f} |"
        )
    return 1 if unequal else 0


if __name__ == "__main__":
    sys.exit(main())
