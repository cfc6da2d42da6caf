"""gpt2, llama and bert against implementations that share no code with the package, weights copied, float64."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm import preset
from addnorm.model.transformer import Transformer
from addnorm.testing.contract import shrunk
from addnorm.testing.laws import rounding, some_tokens, subject

pytestmark = pytest.mark.plain  # shapes of the same models are checked in tests/contracts


class PlainGPT2(nn.Module):
    """Radford et al. 2019, as nanoGPT writes it: one matrix for q, k, v; tied head."""

    def __init__(self, vocab: int, width: int, depth: int, heads: int, hidden: int, seq: int) -> None:
        super().__init__()
        self.heads = heads
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(seq, width)
        parts = {"ln_1": nn.LayerNorm, "ln_2": nn.LayerNorm}
        self.h = nn.ModuleList()
        for _ in range(depth):
            block = nn.ModuleDict({name: cls(width) for name, cls in parts.items()})
            block.update({"c_attn": nn.Linear(width, 3 * width), "c_proj": nn.Linear(width, width)})
            block.update({"c_fc": nn.Linear(width, hidden), "c_out": nn.Linear(hidden, width)})
            self.h.append(block)
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        B, T = tokens.shape
        x = self.wte(tokens) + self.wpe(torch.arange(T))
        for b in self.h:
            q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in b["c_attn"](b["ln_1"](x)).chunk(3, -1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + b["c_proj"](y.transpose(1, 2).reshape(B, T, -1))
            x = x + b["c_out"](F.gelu(b["c_fc"](b["ln_2"](x))))
        return self.ln_f(x) @ self.wte.weight.T


def as_gpt2(model: Transformer) -> PlainGPT2:
    spec = model.spec
    plain = PlainGPT2(spec.vocab, spec.width, spec.depth, spec.heads, spec.hidden, spec.max_seq).double()
    ours = model.state_dict()
    theirs = {"wte.weight": ours["embedding.weight"], "wpe.weight": ours["position.table"]}
    theirs |= {f"ln_f.{p}": ours[f"final_norm.{p}"] for p in ("weight", "bias")}
    for i in range(spec.depth):
        a, f = f"layers.{i}.attention.", f"layers.{i}.feedforward."
        names = {"c_proj": a + "body.output", "c_fc": f + "body.up", "c_out": f + "body.down"}
        names |= {"ln_1": a + "input_norm", "ln_2": f + "input_norm"}
        theirs |= {f"h.{i}.{n}.{p}": ours[f"{o}.{p}"] for n, o in names.items() for p in ("weight", "bias")}
        theirs[f"h.{i}.c_attn.weight"] = torch.cat([ours[f"{a}body.{n}.weight"] for n in ("query", "key", "value")])
        biases = [ours[f"{a}body.qk_bias.q"], ours[f"{a}body.qk_bias.k"], ours[f"{a}body.value.bias"]]
        theirs[f"h.{i}.c_attn.bias"] = torch.cat(biases)
    plain.load_state_dict(theirs)
    return plain


def plain_llama(w: dict[str, Tensor], tokens: Tensor, depth: int, heads: int, kv_heads: int) -> Tensor:
    """Touvron et al. 2023, with complex numbers for the rotation as in its reference code."""
    B, T = tokens.shape
    x = w["embedding.weight"][tokens]
    dim = x.shape[-1] // heads
    angles = torch.outer(torch.arange(T).double(), 10_000.0 ** -(torch.arange(0, dim, 2).double() / dim))
    turn = torch.polar(torch.ones_like(angles), angles)

    def rms(x: Tensor, gain: Tensor) -> Tensor:
        return gain * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)

    def rope(x: Tensor) -> Tensor:  # [B, heads, T, dim]
        return torch.view_as_real(torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * turn).flatten(3)

    mask = torch.full((T, T), -math.inf, dtype=torch.float64).triu(1)
    for i in range(depth):
        a, f = f"layers.{i}.attention.", f"layers.{i}.feedforward."
        h = rms(x, w[a + "input_norm.weight"])
        q, k, v = (
            (h @ w[f"{a}body.{n}.weight"].T).view(B, T, -1, dim).transpose(1, 2) for n in ("query", "key", "value")
        )
        q, k = rope(q), rope(k)
        k, v = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (k, v))
        p = torch.softmax(q @ k.mT / math.sqrt(dim) + mask, dim=-1)
        x = x + (p @ v).transpose(1, 2).reshape(B, T, -1) @ w[a + "body.output.weight"].T
        h = rms(x, w[f + "input_norm.weight"])
        h = F.silu(h @ w[f + "body.gate.weight"].T) * (h @ w[f + "body.up.weight"].T)
        x = x + h @ w[f + "body.down.weight"].T
    return rms(x, w["final_norm.weight"]) @ w["head.weight"].T


def as_bert(model: Transformer) -> nn.TransformerEncoder:
    spec = model.spec
    layer = nn.TransformerEncoderLayer(
        spec.width, spec.heads, spec.hidden, dropout=0.0, activation="gelu", batch_first=True, norm_first=False
    )
    encoder = nn.TransformerEncoder(layer, spec.depth, enable_nested_tensor=False).double()
    ours, theirs = model.state_dict(), {}
    for i in range(spec.depth):
        a, f = f"layers.{i}.attention.", f"layers.{i}.feedforward."
        names = {"self_attn.out_proj": a + "body.output", "linear1": f + "body.up", "linear2": f + "body.down"}
        names |= {"norm1": a + "stream_norm", "norm2": f + "stream_norm"}
        theirs |= {f"layers.{i}.{n}.{p}": ours[f"{o}.{p}"] for n, o in names.items() for p in ("weight", "bias")}
        theirs[f"layers.{i}.self_attn.in_proj_weight"] = torch.cat(
            [ours[f"{a}body.{n}.weight"] for n in ("query", "key", "value")]
        )
        theirs[f"layers.{i}.self_attn.in_proj_bias"] = torch.cat(
            [ours[f"{a}body.qk_bias.q"], ours[f"{a}body.qk_bias.k"], ours[f"{a}body.value.bias"]]
        )
    encoder.load_state_dict(theirs)
    return encoder


def toy(name: str, **changes: object) -> Transformer:
    return subject(shrunk(preset(name), **changes))


def assert_same(model: Transformer, logits: Tensor, tokens: Tensor) -> None:
    with torch.no_grad():
        assert (model(tokens) - logits).abs().max() <= rounding(model, tokens)


def test_gpt2_is_the_plain_one() -> None:
    model = toy("gpt2", init_branch="same")
    tokens = some_tokens(model.spec)
    plain = as_gpt2(model)
    assert_same(model, plain(tokens), tokens)
    # The same number of parameters, each counted once: nothing of ours is left out of the comparison.
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in plain.parameters())
    weight = torch.linspace(-1, 1, model.spec.vocab, dtype=torch.float64)
    for one in (model, plain):
        (torch.log_softmax(one(tokens), -1) @ weight).sum().backward()
    grad = dict(model.named_parameters())
    torch.testing.assert_close(grad["embedding.weight"].grad, plain.wte.weight.grad, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(grad["position.table"].grad, plain.wpe.weight.grad, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("kv_heads", [None, 2])
def test_llama_is_the_plain_one(kv_heads: int | None) -> None:
    model = toy("llama", kv_heads=kv_heads)
    tokens = some_tokens(model.spec)
    weights = model.state_dict()
    assert_same(model, plain_llama(weights, tokens, model.spec.depth, model.spec.heads, kv_heads or 4), tokens)
    per_layer = 9  # q, k, v, o, gate, up, down and two gains
    assert len(weights) == per_layer * model.spec.depth + 3


def test_bert_is_torchs_encoder() -> None:
    model = toy("bert")
    tokens = some_tokens(model.spec)
    encoder = as_bert(model).train()  # in training: torch's fused inference path is another implementation again
    x = model.embedding.weight[tokens] + model.position.table[: tokens.shape[1]]
    x = F.layer_norm(x, x.shape[-1:], model.embedding_norm.weight, model.embedding_norm.bias)
    assert_same(model, encoder(x) @ model.embedding.weight.T + model.head.bias, tokens)


def test_bert_ignores_padding_as_torchs_encoder_does() -> None:
    model = toy("bert")
    tokens = some_tokens(model.spec)
    real = torch.arange(tokens.shape[1]) < torch.tensor([[5], [9]])
    x = model.embedding.weight[tokens] + model.position.table[: tokens.shape[1]]
    x = F.layer_norm(x, x.shape[-1:], model.embedding_norm.weight, model.embedding_norm.bias)
    logits = as_bert(model).train()(x, src_key_padding_mask=~real) @ model.embedding.weight.T + model.head.bias
    with torch.no_grad():
        gap = (model(tokens, padding=real) - logits)[real].abs().max()
        assert gap <= rounding(model, tokens)


def test_realformer_is_bert_with_summed_scores() -> None:
    """At depth one a sum of one score is the score, so realformer is bert; at depth two it is not."""
    for depth, same in ((1, True), (2, False)):
        real, bert = toy("realformer", depth=depth), toy("bert", depth=depth)
        tokens = some_tokens(bert.spec)
        with torch.no_grad():
            gap, allowed = (real(tokens) - bert(tokens)).abs().max().item(), rounding(bert, tokens)
        assert (gap <= allowed) is same
