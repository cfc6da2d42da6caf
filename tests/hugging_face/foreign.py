"""Models with no parameter at its start, and classes of Transformers that compute in float64 where they would in float32."""

from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm

import addnorm
from addnorm.model.transformer import Transformer

SIZES = {"vocab": 50, "width": 32, "depth": 2, "heads": 4, "hidden": 48, "max_seq": 16}
LLAMA_BIASES = dict.fromkeys(("q", "k", "v", "o", "up", "down"), True)

CLASSES: dict[str, tuple[str, dict[str, Any], str]] = {
    "llama": ("llama", {"kv_heads": 2, "position": {"kind": "rope", "theta": 500.0}}, "LlamaForCausalLM"),
    "llama with biases": ("llama", {"bias": LLAMA_BIASES, "norm": {"kind": "rms", "eps": 1e-3}}, "LlamaForCausalLM"),
    "qwen2": (
        "llama",
        {"bias": {"q": True, "k": True, "v": True}, "kv_heads": 2, "tied": True},
        "Qwen2ForCausalLM",
    ),
    "gpt2": ("gpt2", {"norm": {"kind": "layer", "eps": 1e-3}}, "GPT2LMHeadModel"),
    "gpt2 by tanh": ("gpt2", {"activation": "gelu_tanh", "tied": False}, "GPT2LMHeadModel"),
    "gpt2 without biases": ("gpt2", {"bias": False}, "GPT2LMHeadModel"),
    "gpt_neox": (
        "gpt2",
        {"position": {"kind": "rope", "fraction": 0.5, "theta": 300.0}, "tied": False},
        "GPTNeoXForCausalLM",
    ),
    "gpt_neox with parallel branches": (
        "gpt2",
        {"position": {"kind": "rope", "fraction": 0.5}, "block": "parallel", "tied": False},
        "GPTNeoXForCausalLM",
    ),
    "bert": ("bert", {"head_transform": "gelu", "token_types": 3}, "BertForMaskedLM"),
    "bert, untied": ("bert", {"head_transform": "gelu", "token_types": 2, "tied": False}, "BertForMaskedLM"),
    "bert without types": ("bert", {"head_transform": "relu", "activation": "relu"}, "BertForMaskedLM"),
    "llama with a shared bias per head": (
        "llama",
        {"bias": {"q": True, "k": True, "v": True}, "qk_bias": "head_shared"},
        "Qwen2ForCausalLM",
    ),
}
"""Preset, changes to it, and the class that the spec is."""


def model(preset: str, seed: int = 1, **changes: Any) -> Transformer:
    """A model in evaluation mode whose biases and gains are random too."""
    built = addnorm.preset(preset, **{**SIZES, **changes}).build(seed=seed).eval()
    disturb(built)
    return built


def disturb(built: nn.Module) -> None:
    """Add a random number to every parameter."""
    random = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=random) * 0.2)


def tokens(batch: int = 2, seq: int = 12) -> Tensor:
    """Random ids."""
    return torch.randint(SIZES["vocab"], (batch, seq), generator=torch.Generator().manual_seed(5))


def in_float64(foreign: Any) -> Any:
    """Make a class of Transformers compute norms and rotary angles in float64; they are in float32 whatever the dtype."""
    foreign = foreign.double().eval()
    for module in foreign.modules():
        if isinstance(module, LlamaRMSNorm | Qwen2RMSNorm):
            module.forward = _norm_of(module)
        elif type(module).__name__.endswith("RotaryEmbedding"):
            module.forward = _angles_of(foreign.config)
    return foreign


def _norm_of(module: Any) -> Any:
    return lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + module.variance_epsilon) * module.weight


def _angles_of(config: Any) -> Any:
    rope = config.rope_parameters
    rotated = int(config.hidden_size // config.num_attention_heads * rope.get("partial_rotary_factor", 1.0))
    frequencies = rope["rope_theta"] ** (-torch.arange(0, rotated, 2, dtype=torch.float64) / rotated)

    def angles(x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        angle = (position_ids[..., None].double() * frequencies).repeat(1, 1, 2)
        return angle.cos(), angle.sin()

    return angles


def assert_equal_to_rounding(got: Tensor, expected: Tensor) -> None:
    """Compare logits: some ten products in a row of at most 48 summands, about sqrt(48) roundings each, and as many again
    for the norms between them."""
    roundings = 2 * 10 * 48**0.5
    bound = roundings * torch.finfo(got.dtype).eps * expected.abs().max()
    assert float((got - expected).abs().max()) <= float(bound)


def auto_class(spec: Any) -> Any:
    """The class of Transformers that loads a spec's checkpoint."""
    return transformers.AutoModelForCausalLM if spec.objective == "causal" else transformers.AutoModelForMaskedLM
