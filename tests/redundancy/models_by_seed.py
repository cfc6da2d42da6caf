"""Small models drawn by a seed, with inputs drawn by it too."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from addnorm import preset
from addnorm.model.presets import PRESETS
from addnorm.testing.contract import shrunk

Drawn = tuple[nn.Module, Any, dict[str, Any]]
VOCAB, WIDTH, HIDDEN, DEPTH, HEADS = 40, 8, 12, 2, 2


class ResNet(nn.Module):
    """Two residual blocks of convolutions with biases before batch norms, and a head."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList([nn.Conv2d(channels, channels, 3, padding=1) for _ in range(4)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels) for _ in range(4)])
        self.head = nn.Linear(channels, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for at in (0, 2):
            y = torch.relu(self.norms[at](self.convolutions[at](x)))
            x = torch.relu(x + self.norms[at + 1](self.convolutions[at + 1](y)))
        return self.head(x.mean((2, 3)))


def _drawn(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return build().eval()


def _tokens(seed: int, vocab: int = VOCAB) -> torch.Tensor:
    return torch.randint(5, vocab, (3, 6), generator=torch.Generator().manual_seed(seed))


def _resnet(training: bool) -> Callable[[int], Drawn]:
    def build(seed: int) -> Drawn:
        images = torch.randn(4, 4, 4, 4, generator=torch.Generator().manual_seed(seed))
        return _drawn(lambda: ResNet(4), seed), images, {"training": training}

    return build


def _bert(seed: int) -> Drawn:
    config = BertConfig(
        vocab_size=VOCAB, hidden_size=WIDTH, num_hidden_layers=DEPTH, num_attention_heads=HEADS, intermediate_size=HIDDEN,
        max_position_embeddings=16,
    )  # fmt: skip
    return _drawn(lambda: BertModel(config), seed), {"input_ids": _tokens(seed)}, {}


def _gpt2(seed: int) -> Drawn:
    config = GPT2Config(
        vocab_size=VOCAB, n_embd=WIDTH, n_layer=DEPTH, n_head=HEADS, n_inner=HIDDEN, n_positions=16, use_cache=False,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return _drawn(lambda: GPT2LMHeadModel(config), seed), {"input_ids": _tokens(seed)}, {}


def _llama(seed: int) -> Drawn:
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=WIDTH, num_hidden_layers=DEPTH, num_attention_heads=HEADS, num_key_value_heads=1,
        intermediate_size=HIDDEN, max_position_embeddings=16, use_cache=False, attention_bias=True, mlp_bias=True,
    )  # fmt: skip
    return _drawn(lambda: LlamaForCausalLM(config), seed), {"input_ids": _tokens(seed)}, {}


def _preset(name: str) -> Callable[[int], Drawn]:
    def build(seed: int) -> Drawn:
        spec = shrunk(preset(name, bias=True), vocab=13, width=WIDTH, depth=DEPTH, hidden=HIDDEN)
        if spec.block.kind != "gau":
            spec = replace(spec, heads=HEADS, kv_heads=None if spec.kv_heads is None else 1)
        return spec.build(seed).eval(), _tokens(seed, 13), {"track": r"(bias|qk_bias\.[qk])$"}

    return build


MODELS: dict[str, Callable[[int], Drawn]] = {
    "resnet, running statistics": _resnet(False),
    "resnet, batch statistics": _resnet(True),
    "bert": _bert,
    "gpt2": _gpt2,
    "llama": _llama,
    **{f"preset {name}": _preset(name) for name in PRESETS},
}
