"""Tiny models of the classes of Transformers whose residual is unusual, with random numbers everywhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

import torch
import transformers
from torch import Tensor

VOCAB = 50
_SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_EXPERTS = {"moe_intermediate_size": 16, "num_experts_per_tok": 2}
_EQUAL_HEADS = {"num_key_value_heads": 4}
_LATENT = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "index_n_heads": 2,
    "index_head_dim": 16,
    "index_topk": 16,
}


def _small(architecture: str, text: dict[str, Any], **others: Any) -> tuple[str, dict[str, Any]]:
    return architecture, {**_SIZES, **text, **others}


CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "beam": _small(
        "BeamForCausalLM",
        _EXPERTS,
        head_dim=8,
        num_experts=4,
        n_group=1,
        topk_group=1,
        sliding_window=4,
        mlp_layer_types=["dense", "sparse", "dense", "sparse"],
        layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    ),
    "muse_spark": (
        "MuseSparkForConditionalGeneration",
        {
            "text_config": {
                **_SIZES,
                **_EXPERTS,
                "head_dim": 8,
                "num_local_experts": 4,
                "moe_hidden_size": 16,
                "sliding_window": 4,
                "mlp_layer_types": ["dense", "sparse", "dense", "sparse"],
            },
            "vision_config": {
                "num_hidden_layers": 1,
                "hidden_size": 16,
                "intermediate_size": 16,
                "num_attention_heads": 2,
                "pos_emb_height": 4,
                "pos_emb_width": 4,
            },
            "audio_config": {
                "num_hidden_layers": 2,
                "patch_sizes": [4, 2],
                "hidden_sizes": [8, 16],
                "depths": [1, 1],
                "out_hidden_size": 32,
            },
            "projector_hidden_size": 16,
        },
    ),
    "doge": _small("DogeForCausalLM", {}, keep_window_size=6),
    "zaya": _small("ZayaForCausalLM", {}, moe_intermediate_size=16, num_experts=4, head_dim=8, router_hidden_size=8),
    "axk2": _small(
        "AXK2ForCausalLM",
        _EXPERTS | _LATENT | _EQUAL_HEADS,
        n_routed_experts=4,
        n_group=1,
        topk_group=1,
        gated_norm_rank=4,
    ),
    "smollm3": _small("SmolLM3ForCausalLM", {}),
    "llama4": _small(
        "Llama4ForCausalLM", {}, num_local_experts=4, intermediate_size_mlp=48, head_dim=8, attention_chunk_size=4
    ),
    "mistral_large4": (
        "MistralLarge4ForConditionalGeneration",
        {
            "text_config": {
                **_SIZES,
                **_EXPERTS,
                **_LATENT,
                **_EQUAL_HEADS,
                "n_routed_experts": 4,
                "head_dim": 8,
                "no_rope_layers": [1, 1, 0, 1],
                "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
            },
            "vision_config": {
                "model_type": "pixtral",
                "num_hidden_layers": 1,
                "hidden_size": 16,
                "intermediate_size": 16,
                "num_attention_heads": 2,
            },
        },
    ),
    "gemma4": _small(
        "Gemma4ForCausalLM",
        {},
        head_dim=8,
        global_head_dim=8,
        hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=VOCAB,
        num_kv_shared_layers=1,
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    ),
    "gemma3n": _small(
        "Gemma3nForCausalLM",
        {},
        head_dim=8,
        hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=VOCAB,
        num_kv_shared_layers=1,
        sliding_window=4,
        altup_num_inputs=3,
        altup_active_idx=1,
        laurel_rank=4,
        activation_sparsity_pattern=[0.5, 0.0, 0.0, 0.5],
        layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    ),
    "embedding_gemma2": (
        "EmbeddingGemma2Model",
        {
            "text_config": {
                **_SIZES,
                "head_dim": 8,
                "hidden_size_per_layer_input": 8,
                "embedding_dim": 24,
                "sliding_window": 4,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
                "per_layer_config": {1: {"head_dim": 16, "num_key_value_heads": 1}},
            },
        },
    ),
    "neomme": _small(
        "NeoMMEForMaskedLM",
        {},
        head_dim=16,
        embedding_rank=16,
        patch_size=4,
        sliding_window=4,
        layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
    ),
    "qwen4_exp": _small(
        "Qwen4ExpForCausalLM",
        _EXPERTS,
        head_dim=8,
        num_experts=4,
        shared_expert_intermediate_size=16,
        hc_count=2,
        hc_lowrank=4,
        ple_layer_ids=[1, 3],
        heads_per_ngram=2,
        ngram_vocab_size_base=40,
        make_ngram_vocab_size_divisible_by=2,
        split_ngram_parts=1,
        layer_types=["linear_attention", "indexed_attention", "linear_attention", "indexed_attention"],
        linear_num_key_heads=2,
        linear_num_value_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        indexer_n_heads=2,
        indexer_kv_heads=1,
        indexer_head_dim=8,
        indexer_budget=8,
        indexer_compress_ratio=2,
    ),
    "hy_v4": _small("HYV4ForCausalLM", _EXPERTS | _LATENT | _EQUAL_HEADS, n_routed_experts=4, hc_mult=2),
    "deepseek_v4": _small(
        "DeepseekV4ForCausalLM",
        _EXPERTS,
        num_key_value_heads=1,
        head_dim=8,
        q_lora_rank=16,
        n_routed_experts=4,
        hc_mult=2,
        hc_sinkhorn_iters=3,
        sliding_window=4,
        o_groups=2,
        o_lora_rank=8,
        index_n_heads=2,
        index_head_dim=8,
        index_topk=2,
        mlp_layer_types=["hash_moe", "moe", "moe", "moe"],
        compress_rates={"compressed_sparse_attention": 2, "heavily_compressed_attention": 4},
        layer_types=[
            "sliding_attention",
            "compressed_sparse_attention",
            "heavily_compressed_attention",
            "compressed_sparse_attention",
        ],
    ),
    "glm5_next": (
        "Glm5NextForConditionalGeneration",
        {
            "text_config": {
                **_SIZES,
                **_EXPERTS,
                **_LATENT,
                **_EQUAL_HEADS,
                "qk_rope_head_dim": 0,
                "n_routed_experts": 4,
                "hc_mult": 2,
                "hc_sinkhorn_iters": 3,
                "linear_head_dim": 8,
                "linear_num_heads": 2,
                "index_kpool": 2,
                "layer_types": ["linear_attention", "indexed_attention", "linear_attention", "indexed_attention"],
            },
            "vision_config": {
                "depth": 1,
                "hidden_size": 16,
                "intermediate_size": 16,
                "num_heads": 2,
                "out_hidden_size": 32,
                "projection_intermediate_size": 16,
            },
        },
    ),
    "inkling2": _small(
        "Inkling2ForCausalLM",
        {},
        unpadded_vocab_size=VOCAB - 2,
        head_dim=8,
        swa_num_attention_heads=4,
        swa_num_key_value_heads=2,
        swa_head_dim=8,
        sliding_window_size=4,
        d_rel=4,
        rel_extent=6,
        moe_intermediate_size=16,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_layers_per_attn_res_block=2,
        log_scaling_n_floor=4,
        layer_types=["hybrid_sliding", "hybrid", "hybrid_sliding", "hybrid"],
    ),
}
"""Class and configuration, by architecture."""


def config_of(case: str) -> Any:
    architecture, fields = CONFIGS[case]
    cls = getattr(transformers, architecture).config_class
    return cls(**_known(cls, fields))


def _known(cls: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that a configuration declares: sizes are shared by all, and Transformers keeps others silently."""
    declared = {name for base in cls.__mro__ for name in getattr(base, "__annotations__", {})} | {*cls.attribute_map}
    return {
        name: _known(cls.sub_configs[name], value)
        if hasattr(cls.sub_configs.get(name), "attribute_map") and isinstance(value, dict)
        else value
        for name, value in fields.items()
        if name in declared or name == "model_type"
    }


def shipped(case: str, seed: int = 0) -> Any:
    """A model of the class in evaluation mode, whose gains, gates and tables are random too."""
    torch.manual_seed(seed)
    model = getattr(transformers, CONFIGS[case][0])(config_of(case)).eval()
    module = vars(sys.modules[type(model).__module__])
    for name, function in list(
        module.items()
    ):  # the plain form of what packages for GPUs compute where they are installed
        if "torch_function" in getattr(getattr(function, "__code__", None), "co_freevars", ()):
            module[name] = function.__wrapped__
    random = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=random) * 0.2)
        factors = [buffer for name, buffer in model.named_buffers() if name.endswith("layer_scalar")]
        for number, factor in enumerate(factors):
            factor.fill_(0.7 + 0.2 * number)
    return model


def tokens(batch: int = 2, seq: int = 11) -> Tensor:
    """Random ids without the three special ones."""
    return torch.randint(3, VOCAB, (batch, seq), generator=torch.Generator().manual_seed(5))


def output(model: Any, ids: Tensor, **given: Any) -> Tensor:
    """Logits of a class, or what it returns of a text in their place."""
    returned = model(input_ids=ids, **given)
    found: Tensor = returned.logits if "logits" in returned else returned.last_hidden_state
    return found


def with_plain_experts(*models: Any) -> None:
    """Let experts be computed one by one: the product that Transformers groups them into takes no float64."""
    for model in models:
        for module in model.modules():
            if hasattr(module, "config"):
                module.config._experts_implementation = "eager"


@contextmanager
def in_float64(model: Any) -> Iterator[None]:
    """The modules of a class that compute in float32 whatever their input do so in float64."""
    wide = ModuleType("torch")
    wide.__dict__.update(torch.__dict__, float32=torch.float64, float=torch.float64)
    module = sys.modules[type(model).__module__]
    with mock.patch.object(module, "torch", wide), mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
        yield
