"""Measures and explains the redundant directions of shipped classes in reduced size: `python docs/studies/symmetries.py` writes
docs/studies/data/symmetries.json (about ten minutes of one core), and the tables of docs/studies/symmetries.md from it.

    python docs/studies/symmetries.py LlamaForCausalLM BertModel    # these classes alone
    python docs/studies/symmetries.py --page                              # the tables alone
"""

import json
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

import addnorm
from addnorm.errors import AddnormError

DATA = Path(__file__).parent / "data" / "symmetries.json"
PAGE = Path(__file__).with_name("symmetries.md")
TOKENS = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 3, 1, 4, 1, 5, 9, 2]])
MORE_TOKENS = torch.arange(27).reshape(3, 9)
"""For parallel blocks and gated convolutions: what stands first sees tokens alone, so that fewer of them would make its
numbers look free."""
SIZES: dict[str, Any] = {
    "vocab_size": 11,
    "hidden_size": 8,
    "intermediate_size": 5,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "max_position_embeddings": 16,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
    "use_cache": False,
    "tie_word_embeddings": False,
}
DROPOUT = dict.fromkeys(
    (
        *("attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout", "resid_dropout"),
        *(
            "hidden_dropout_prob",
            "attention_probs_dropout_prob",
            "embedding_dropout",
            "mlp_dropout",
            "residual_dropout",
        ),
        *("classifier_dropout", "activation_dropout", "emb_pdrop", "ffn_dropout"),
    ),
    0.0,
)
LIKE_GPT2 = {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 16, "n_inner": 5}
LIKE_BERT = {"type_vocab_size": 2, "pad_token_id": 0}
EXPERTS = {"num_local_experts": 3, "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 3}
DEEPSEEK = {
    "q_lora_rank": 4,
    "kv_lora_rank": 4,
    "qk_rope_head_dim": 2,
    "qk_nope_head_dim": 2,
    "qk_head_dim": 4,
    "head_dim": 2,
    "v_head_dim": 3,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 3,
    "num_key_value_heads": 2,
}
MAMBA = {"mamba_d_state": 2, "mamba_d_conv": 2, "mamba_expand": 1, "mamba_chunk_size": 8, "pad_token_id": 0}
IMAGE = {"image_size": 4, "patch_size": 2, "num_channels": 2, "tokens": "image"}
PAIR = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2, "tokens": "pair"}
T5 = {
    "d_model": 8,
    "d_kv": 4,
    "d_ff": 5,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 2,
    "relative_attention_num_buckets": 4,
    "relative_attention_max_distance": 8,
    "dropout_rate": 0.0,
    **PAIR,
}
BART = {
    "d_model": 8,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 5,
    "decoder_ffn_dim": 5,
    **PAIR,
}
CLASSES: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": {},
    "LlamaForCausalLM, tied": {"tie_word_embeddings": True},
    "MistralForCausalLM": {},
    "Qwen2ForCausalLM": {},
    "Qwen3ForCausalLM": {},
    "GemmaForCausalLM": {},
    "Gemma2ForCausalLM": {"query_pre_attn_scalar": 4, "sliding_window": 8},
    "Gemma3ForCausalLM": {"query_pre_attn_scalar": 4, "sliding_window": 8},
    "OlmoForCausalLM": {"pad_token_id": 1},
    "Olmo2ForCausalLM": {},
    "Olmo3ForCausalLM": {"sliding_window": 8},
    "Phi3ForCausalLM": {"pad_token_id": 0},
    "SmolLM3ForCausalLM": {"pad_token_id": 0},
    "GraniteForCausalLM": {},
    "HeliumForCausalLM": {},
    "Glm4ForCausalLM": {"pad_token_id": 0},
    "NemotronForCausalLM": {},
    "StableLmForCausalLM": {
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    },
    "Starcoder2ForCausalLM": {},
    "GPT2LMHeadModel": LIKE_GPT2,
    "GPT2LMHeadModel, tied": {**LIKE_GPT2, "tie_word_embeddings": True},
    "GPTNeoForCausalLM": {"num_layers": 2, "num_heads": 2, "attention_types": [[["global"], 2]]},
    "GPTNeoXForCausalLM": {"num_key_value_heads": None, "tokens": "more"},
    "GPTJForCausalLM": {**LIKE_GPT2, "rotary_dim": 2, "tokens": "more"},
    "PhiForCausalLM": {"partial_rotary_factor": 0.5, "tokens": "more"},
    "CohereForCausalLM": {"pad_token_id": 0, "tokens": "more"},
    "FalconForCausalLM": {"ffn_hidden_size": 5, "tokens": "more"},
    "OPTForCausalLM": {"ffn_dim": 5, "word_embed_proj_dim": 8, "pad_token_id": 1},
    "BertModel": LIKE_BERT,
    "BertForMaskedLM": LIKE_BERT,
    "RobertaForMaskedLM": {"type_vocab_size": 1, "pad_token_id": 0, "max_position_embeddings": 20},
    "DistilBertForMaskedLM": {"dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 5, "pad_token_id": 0},
    "AlbertForMaskedLM": {"embedding_size": 6, **LIKE_BERT},
    "ModernBertForMaskedLM": {
        "local_attention": 6,
        "global_attn_every_n_layers": 2,
        "pad_token_id": 0,
        "cls_token_id": 0,
        "sep_token_id": 0,
        "bos_token_id": 0,
        "eos_token_id": 0,
    },
    "ViTForImageClassification": {**IMAGE, "num_labels": 3},
    "MixtralForCausalLM": EXPERTS,
    "Qwen3MoeForCausalLM": EXPERTS,
    "GptOssForCausalLM": {**EXPERTS, "sliding_window": 8, "pad_token_id": 0},
    "DeepseekV3ForCausalLM": DEEPSEEK,
    "DogeForCausalLM": {"pad_token_id": 0},
    "BloomForCausalLM": {"n_layer": 2, "n_head": 2, "pad_token_id": 0},
    "ApertusForCausalLM": {},
    "ArceeForCausalLM": {},
    "SeedOssForCausalLM": {},
    "NanoChatForCausalLM": {"pad_token_id": 0},
    "HunYuanDenseV1ForCausalLM": {"pad_token_id": 0},
    "Exaone4ForCausalLM": {"sliding_window": None, "layer_types": ["full_attention"] * 2},
    "Cohere2ForCausalLM": {
        "pad_token_id": 0,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"],
        "tokens": "more",
    },
    "DiffLlamaForCausalLM": {"num_key_value_heads": 2},
    "OlmoeForCausalLM": {**EXPERTS, "pad_token_id": 0},
    "GraniteMoeForCausalLM": EXPERTS,
    "ZayaForCausalLM": {
        **EXPERTS,
        "num_experts": 2,
        "num_experts_per_tok": 1,
        "router_hidden_size": 4,
        "pad_token_id": 0,
    },
    "Lfm2ForCausalLM": {
        "layer_types": ["conv", "full_attention"],
        "block_multiple_of": 1,
        "block_auto_adjust_ff_dim": False,
        "pad_token_id": 0,
        "tokens": "more",
    },
    "JambaForCausalLM": {
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "num_experts": 2,
        "num_experts_per_tok": 1,
        **MAMBA,
        "mamba_dt_rank": 2,
        "use_mamba_kernels": False,
    },
    "MambaForCausalLM": {
        "state_size": 2,
        "conv_kernel": 2,
        "expand": 1,
        "time_step_rank": 2,
        "use_mambapy": False,
        "pad_token_id": 0,
        # With the default, 0.1, so little of a state reaches the outputs that float64 takes six directions for free.
        "initializer_range": 1.0,
        "tokens": "more",
    },
    "RwkvForCausalLM": {"attention_hidden_size": 8, "rescale_every": 0},
    "FalconH1ForCausalLM": {**MAMBA, "mamba_d_ssm": 8, "mamba_n_heads": 2, "mamba_d_head": 4, "mamba_n_groups": 1},
    "BambaForCausalLM": {
        **MAMBA,
        "mamba_n_heads": 2,
        "mamba_d_head": 4,
        "mamba_n_groups": 1,
        "attn_layer_indices": [1],
        "attn_rotary_emb": 4,
        "tokens": "more",
    },
    "PersimmonForCausalLM": {"pad_token_id": 0, "tokens": "more"},
    "ConvBertForMaskedLM": {**LIKE_BERT, "embedding_size": 6, "conv_kernel_size": 3},
    "ElectraForMaskedLM": {**LIKE_BERT, "embedding_size": 6},
    "T5ForConditionalGeneration": T5,
    "BartForConditionalGeneration": BART,
    "MBartForConditionalGeneration": BART,
    "M2M100ForConditionalGeneration": {**BART, "pad_token_id": 1},
    "UMT5ForConditionalGeneration": T5,
    "RecurrentGemmaForCausalLM": {
        "lru_width": 8,
        "attention_window_size": 8,
        "conv1d_width": 2,
        "block_types": ["recurrent", "attention"],
        "pad_token_id": 0,
    },
    "NystromformerForMaskedLM": {
        **LIKE_BERT,
        "num_landmarks": 9,
        "segment_means_seq_len": 9,
        "conv_kernel_size": 3,
    },
    "Dinov2Model": {**IMAGE, "mlp_ratio": 1, "drop_path_rate": 0.0},
    "SiglipVisionModel": IMAGE,
}
"""Classes, and what their configurations have beside `SIZES`."""


def reduced(name: str) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """A class in reduced size, and inputs for it."""
    import transformers

    settings = dict(CLASSES[name])
    given = settings.pop("tokens", "")
    cls = getattr(transformers, name.partition(",")[0])
    known = {*cls.config_class().to_dict(), *cls.config_class.attribute_map}
    sizes = {**SIZES, **({"vocab_size": MORE_TOKENS.numel()} if given == "more" else {})}
    fields = {key: each for key, each in {**sizes, **DROPOUT, **settings}.items() if key in known}
    torch.manual_seed(0)
    model = cls(cls.config_class(**fields)).eval()
    if given == "image":
        return model, {"pixel_values": torch.randn(8, 2, 4, 4, generator=torch.Generator().manual_seed(1))}
    decoded = {"decoder_input_ids": TOKENS[:, :7].flip(1)} if given == "pair" else {}
    return model, {"input_ids": MORE_TOKENS if given == "more" else TOKENS, **decoded}


def measured(name: str, *, points: int = 1) -> dict[str, Any]:
    """The entry of a class in the data file."""
    model, inputs = reduced(name)
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = addnorm.symmetries(model, inputs, points=points)
    return {
        "parameters": found.parameters,
        "unread": found.unread,
        "redundant": found.redundant,
        "explained": found.explained,
        "families": {each.name: each.size for each in found.families},
        "rest": [{"size": each.size, "parameters": list(each.parameters)} for each in found.unexplained],
        "near": len(found.near),
        "refuted": len(found.refuted),
        "gap": found.gap,
        "processor_s": round(time.process_time() - started, 1),
    }


def tables(data: Mapping[str, Mapping[str, Any]]) -> str:
    """Both tables of the page."""
    names = list(dict.fromkeys(family for each in data.values() for family in each.get("families", {})))
    letters = {name: chr(ord("A") + at) for at, name in enumerate(names)}
    lines = ["| class | numbers | measured | explained | families |", "|---|---|---|---|---|"]
    for name, each in data.items():
        families = ", ".join(f"{letters[family]} {size}" for family, size in each["families"].items())
        unread = f" ({each['unread']} unread)" if each["unread"] else ""
        lines.append(
            f"| {name} | {each['parameters']}{unread} | {each['redundant']} | {each['explained']} | {families} |"
        )
    legend = ["", "| | family |", "|---|---|", *(f"| {letters[name]} | {name} |" for name in names)]
    rests = [(name, each["rest"]) for name, each in data.items() if each["rest"]]
    if rests:
        legend += ["", "| class | measured and not explained, by the parameters that it moves |", "|---|---|"]
        legend += [f"| {name} | {'; '.join(_parts(rest))} |" for name, rest in rests]
    return "\n".join([*lines, *legend])


def _parts(rest: list[dict[str, Any]]) -> Iterator[str]:
    for each in rest[:4]:
        names = list(dict.fromkeys(".".join(name.split(".")[-2:]) for name in each["parameters"]))
        yield f"{each['size']}: {', '.join(names[:4])}{', …' if len(names) > 4 else ''}"
    if left := sum(each["size"] for each in rest[4:]):
        yield f"{left} in further sets"


def page(text: str, data: Mapping[str, Mapping[str, Any]]) -> str:
    """The page with its tables written anew."""
    start, stop = "<!-- tables -->\n", "<!-- end of tables -->"
    before, _, rest = text.partition(start)
    return before + start + "\n" + tables(data) + "\n\n" + stop + rest.partition(stop)[2]


def write(names: list[str]) -> None:
    """Measure the named classes, or all, and write the data file."""
    data = json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {}
    for name in CLASSES:
        if names and name not in names:
            continue
        try:
            data[name] = measured(name)
        except (
            AddnormError,
            RuntimeError,
            TypeError,
            ValueError,
        ) as error:  # a class of another version of Transformers
            sys.stdout.write(f"{name}: {type(error).__name__}: {str(error)[:200]}\n")
            continue
        data = {each: data[each] for each in CLASSES if each in data}
        DATA.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        sys.stdout.write(f"{name}: {data[name]['explained']} of {data[name]['redundant']} explained\n")
        sys.stdout.flush()


if __name__ == "__main__":
    if "--page" not in sys.argv:
        write([each for each in sys.argv[1:] if not each.startswith("-")])
    PAGE.write_text(
        page(PAGE.read_text(encoding="utf-8"), json.loads(DATA.read_text(encoding="utf-8"))), encoding="utf-8"
    )
