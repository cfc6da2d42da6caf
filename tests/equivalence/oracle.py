"""A second reading of mechanisms.md: whole models as plain loops over full matrices, sharing no code with the package.

The oracle reads a built model's weights and nothing else. It is slow, holds every score matrix, and writes each formula as
it stands in the definitions.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from addnorm.model.transformer import Transformer


class Oracle:
    """The logits of a causal model, by formula."""

    def __init__(self, model: Transformer) -> None:
        self.model, self.spec, self.L = model, model.spec, model.spec.depth
        self.heads, self.kv = model.spec.shape.heads, model.spec.shape.kv_heads
        self.dk = model.spec.width // self.heads

    def logits(self, tokens: Tensor) -> Tensor:
        m, kind = self.model, self.spec.residual.kind
        x = m.embedding.weight[tokens]
        if self.spec.position.kind == "learned":
            x = x + m.position.table[: tokens.shape[1]]
        queries: list[Tensor] = []
        keys: list[Tensor] = []
        patterns: list[Tensor] = []
        u: list[Tensor] = []
        for layer in range(self.L):
            q, k = self.project(layer, self.norm(layer, "attention", x))
            queries.append(q)
            keys.append(k)
            P = self.softmax(self.scores(layer, queries, keys))
            patterns.append(P)
            y = x + self.attention(layer, x, P)
            u.append(self.feedforward(layer, y))
            if kind == "add":
                x = y + u[layer]
            elif kind == "cumulative":
                x = y + sum(c * u[i] for i, c in enumerate(self.mix(layer)))
            elif kind == "replay":
                x = y + self.replayed(layer, x, y, u[layer], patterns)
            else:
                raise NotImplementedError(kind)
        return self.linear(m.head, self._norm(m.final_norm, x))

    def mix(self, layer: int) -> list[Tensor | float]:
        """The weights of u_1 … u_m at layer m."""
        weights, count = self.spec.residual.weights, layer + 1
        if weights == "sum":
            return [1.0] * count
        if weights == "mean" or layer == 0:
            return [1.0 / count] * count
        w = self.model.residual.mix[layer - 1]
        return list(w.exp() / w.exp().sum())

    def replayed(self, layer: int, x: Tensor, y: Tensor, own: Tensor, patterns: list[Tensor]) -> Tensor:
        total = self.mix(layer)[layer] * own
        for i in range(layer):
            if self.spec.residual.scope == "feedforward":
                again = self.feedforward(i, y)
            else:
                again = self.feedforward(i, x + self.attention(i, x, patterns[i]))
            total = total + self.mix(layer)[i] * again
        return total

    def attention(self, layer: int, x: Tensor, P: Tensor) -> Tensor:
        """W_O (P W_V N(x))."""
        body = self.model.layers[layer].attention.body
        v = self.split(self.linear(body.value, self.norm(layer, "attention", x)), self.kv)
        v = v.repeat_interleave(self.heads // self.kv, dim=1)
        return self.linear(body.output, (P @ v).transpose(1, 2).reshape(x.shape))

    def feedforward(self, layer: int, y: Tensor) -> Tensor:
        body = self.model.layers[layer].feedforward.body
        h = self.norm(layer, "feedforward", y)
        if self.spec.activation == "swiglu":
            gate = self.linear(body.gate, h)
            return self.linear(body.down, gate * torch.sigmoid(gate) * self.linear(body.up, h))
        h = self.linear(body.up, h)
        return self.linear(body.down, h * 0.5 * (1 + torch.erf(h / math.sqrt(2))))

    def project(self, layer: int, x: Tensor) -> tuple[Tensor, Tensor]:
        """Q and K of every query head, rotated one position and one pair at a time."""
        body = self.model.layers[layer].attention.body
        q = self.split(self.linear(body.query, x) + self.qk_bias(body, "q"), self.heads)
        k = self.split(self.linear(body.key, x) + self.qk_bias(body, "k"), self.kv)
        k = k.repeat_interleave(self.heads // self.kv, dim=1)
        return self.rotate(q), self.rotate(k)

    def qk_bias(self, body: torch.nn.Module, which: str) -> Tensor | float:
        return 0.0 if body.qk_bias is None else getattr(body.qk_bias, which)

    def rotate(self, x: Tensor) -> Tensor:
        if self.spec.position.kind != "rope":
            return x
        r = int(self.dk * self.spec.position.fraction)
        out = x.clone()
        for t in range(x.shape[2]):
            for j in range(r // 2):
                angle = t * self.spec.position.theta ** (-2 * j / r)
                c, s = math.cos(angle), math.sin(angle)
                a, b = x[:, :, t, 2 * j], x[:, :, t, 2 * j + 1]
                out[:, :, t, 2 * j] = c * a - s * b
                out[:, :, t, 2 * j + 1] = s * a + c * b
        return out

    def scores(self, layer: int, queries: list[Tensor], keys: list[Tensor]) -> Tensor:
        """The summed scores of layer m = layer + 1, as full matrices."""
        kind, m, module = self.spec.scores.kind, layer + 1, self.model.scores
        raw = [q @ k.transpose(-1, -2) for q, k in zip(queries, keys, strict=True)]
        root = math.sqrt(self.dk)
        if kind == "own":
            return raw[layer] / root
        if kind == "sum":
            return sum(raw) / root
        if kind == "root_mean":
            return sum(raw) / math.sqrt(self.dk * m)
        if kind == "mean":
            return sum(raw) / (m * root)
        if kind == "power":
            return sum(raw) / (self.dk ** module.a[layer] * m ** module.b[layer])
        if kind == "weighted":
            return sum(raw[i] / (module.log_a[layer][i].exp() * root) for i in range(m))
        if kind == "weighted_power":
            return sum(raw[i] / (module.log_a[layer][i].exp() * self.dk ** module.b[layer][i]) for i in range(m))
        if kind == "free":
            return sum(raw[i] / module.log_a[layer][i].exp() for i in range(m))
        if kind == "signed":
            return sum(raw[i] * module.weight[layer][i] / root for i in range(m))
        if kind == "accumulated_projections":
            return sum(queries) @ sum(keys).transpose(-1, -2) / root
        raise NotImplementedError(kind)

    def softmax(self, scores: Tensor) -> Tensor:
        s = scores.shape[-1]
        return torch.softmax(scores.masked_fill(torch.ones(s, s).triu(1).bool(), -math.inf), dim=-1)

    def norm(self, layer: int, branch: str, x: Tensor) -> Tensor:
        return self._norm(getattr(self.model.layers[layer], branch).input_norm, x)

    def _norm(self, module: torch.nn.Module, x: Tensor) -> Tensor:
        kind = self.spec.norm.kind
        if kind == "none" or isinstance(module, torch.nn.Identity):
            return x
        if kind == "rms":
            return x / torch.sqrt((x * x).mean(-1, keepdim=True) + module.eps) * module.weight
        if kind == "layer":
            centred = x - x.mean(-1, keepdim=True)
            out = centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + module.eps) * module.weight
        else:
            over = (0, 1)
            mean, var = x.mean(over), x.var(over, unbiased=False)
            if not module.training:
                mean, var = module.running_mean, module.running_var
            out = (x - mean) / torch.sqrt(var + module.eps) * module.weight
        return out if module.bias is None else out + module.bias

    def split(self, x: Tensor, heads: int) -> Tensor:
        return x.reshape(*x.shape[:2], heads, self.dk).transpose(1, 2)

    def linear(self, module: torch.nn.Module, x: Tensor) -> Tensor:
        return F.linear(x, module.weight) + (0.0 if module.bias is None else module.bias)
