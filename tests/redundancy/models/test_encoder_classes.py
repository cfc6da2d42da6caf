"""Transformers' encoders: degrees of freedom derived by hand (notation: `derived`)."""

import pytest
from derived import D, F, L, V, assert_derived, generic, noise, tokens
from transformers import (
    AlbertConfig,
    AlbertModel,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    DistilBertConfig,
    DistilBertForMaskedLM,
    RobertaConfig,
    RobertaForMaskedLM,
    ViTConfig,
    ViTForImageClassification,
)

pytestmark = [pytest.mark.compiled, pytest.mark.thorough]

SIZES = {
    "vocab_size": V,
    "hidden_size": D,
    "num_hidden_layers": L,
    "num_attention_heads": 2,
    "intermediate_size": F,
    "max_position_embeddings": 16,
}

# One post-norm layer. u: shift that enters (the norm's before it), w: the attention norm's own.
#   W_q u + db_q = 0 (d), key free, u + W_o(W_v u + db_v) + db_o = c ones (d - 1),
#   W_1 w + db_1 = 0 (f), w + db_2 = c ones (d - 1)
# of the d + d + d + d + d + f + d + d moves of q, k, v, o, norm, 1, 2, norm: 4d + 2 are left.
POST_NORM_LAYER = 4 * D + 2
# Alone, the value's bias may move along W_o^-1 ones, and what enters a norm along ones.


def bert_layers(prefix: str, last: tuple[int, int, int]) -> dict[str, tuple[int, int, int]]:
    """Every parameter of two BERT layers; `last` is derived for the norm that closes them."""
    rows = {
        "attention.self.query.bias": (D, 0, D),
        "attention.self.key.bias": (D, D, D),
        "attention.self.value.bias": (D, 1, D),
        "attention.output.dense.bias": (D, 1, D),
        "attention.output.LayerNorm.bias": (D, 0, D),
        "intermediate.dense.bias": (F, 0, D),  # W_1 w, so no more than d directions of f
        "output.dense.bias": (D, 1, D),
    }
    everywhere = {f"{prefix}encoder.layer.?.{name}": row for name, row in rows.items()}
    return everywhere | {
        f"{prefix}encoder.layer.0.output.LayerNorm.bias": (D, 0, D),
        f"{prefix}encoder.layer.1.output.LayerNorm.bias": last,
        f"{prefix}embeddings.LayerNorm.bias": (D, 0, D),
    }


def test_bert():
    """The embedding norm's bias adds d; the last norm's is what comes out, so d go: L (4d + 2). The pooler's tanh sees
    an unmoved vector, so its bias is held."""
    model = generic(BertModel(BertConfig(**SIZES)))
    rows = bert_layers("", (D, 0, 0)) | {"pooler.dense.bias": (D, 0, 0)}
    assert_derived(model, {"input_ids": tokens()}, L * POST_NORM_LAYER, rows)


def test_bert_for_masked_lm():
    """The head's transform takes over the last norm's bias (W_t u + db_t = 0 before the GELU), and the vocabulary's
    bias its norm's: W db + db_V = 0. So L (4d + 2) + 2d."""
    model = generic(BertForMaskedLM(BertConfig(**SIZES)))
    rows = bert_layers("bert.", (D, 0, D)) | {
        "cls.predictions.transform.dense.bias": (D, 0, D),
        "cls.predictions.transform.LayerNorm.bias": (D, 0, D),
        "cls.predictions.bias": (V, 0, D),
    }
    assert_derived(model, {"input_ids": tokens()}, L * POST_NORM_LAYER + 2 * D, rows)


def test_bert_for_masked_lm_up_to_the_softmax():
    """Where only probabilities count, the vocabulary's bias may also move along ones: one more."""
    model = generic(BertForMaskedLM(BertConfig(**SIZES)))
    rows = bert_layers("bert.", (D, 0, D)) | {
        "cls.predictions.transform.dense.bias": (D, 0, D),
        "cls.predictions.transform.LayerNorm.bias": (D, 0, D),
        "cls.predictions.bias": (V, 1, D + 1),
    }
    assert_derived(model, {"input_ids": tokens()}, L * POST_NORM_LAYER + 2 * D + 1, rows, observe="softmax")


def test_roberta_for_masked_lm():
    """BERT with another head of the same kind: L (4d + 2) + 2d."""
    model = generic(RobertaForMaskedLM(RobertaConfig(**SIZES, pad_token_id=1)))
    rows = bert_layers("roberta.", (D, 0, D)) | {
        "lm_head.dense.bias": (D, 0, D),
        "lm_head.layer_norm.bias": (D, 0, D),
        "lm_head.bias": (V, 0, D),
    }
    assert_derived(model, {"input_ids": tokens()}, L * POST_NORM_LAYER + 2 * D, rows)


def test_distilbert_for_masked_lm():
    """BERT under other names: L (4d + 2) + 2d."""
    config = DistilBertConfig(
        vocab_size=V, dim=D, n_layers=L, n_heads=2, hidden_dim=F, max_position_embeddings=16, pad_token_id=0
    )
    layer = "distilbert.transformer.layer.?."
    rows = {
        "distilbert.embeddings.LayerNorm.bias": (D, 0, D),
        f"{layer}attention.q_lin.bias": (D, 0, D),
        f"{layer}attention.k_lin.bias": (D, D, D),
        f"{layer}attention.v_lin.bias": (D, 1, D),
        f"{layer}attention.out_lin.bias": (D, 1, D),
        f"{layer}sa_layer_norm.bias": (D, 0, D),
        f"{layer}ffn.lin1.bias": (F, 0, D),
        f"{layer}ffn.lin2.bias": (D, 1, D),
        f"{layer}output_layer_norm.bias": (D, 0, D),
        "vocab_transform.bias": (D, 0, D),
        "vocab_layer_norm.bias": (D, 0, D),
        "vocab_projector.bias": (V, 0, D),
    }
    assert_derived(generic(DistilBertForMaskedLM(config)), {"input_ids": tokens()}, L * POST_NORM_LAYER + 2 * D, rows)


def test_albert_shares_its_layers():
    """One layer runs L times, with the shift of the mapped embeddings (u_0) at first and of its own norm (u) after. One
    query bias serves both: W_q u_0 = W_q u, so u_0 = u; and u comes out at the end, so both are 0. The embedding norm
    (e entries) and the mapping's bias still share W_m db + db_m = 0: e. The layer keeps k: d; v and o: d + 1; the
    attention norm with the feed-forward: d + 1. Together 3d + e + 2, whatever L is. The query's bias is held, unlike in
    BERT."""
    e = 6
    config = AlbertConfig(**{**SIZES, "num_hidden_layers": 3}, embedding_size=e)
    layer = "encoder.albert_layer_groups.0.albert_layers.0."
    rows = {
        "embeddings.LayerNorm.bias": (e, 0, e),
        "encoder.embedding_hidden_mapping_in.bias": (D, 0, e),
        f"{layer}attention.query.bias": (D, 0, 0),
        f"{layer}attention.key.bias": (D, D, D),
        f"{layer}attention.value.bias": (D, 1, D),
        f"{layer}attention.dense.bias": (D, 1, D),
        f"{layer}attention.LayerNorm.bias": (D, 0, D),
        f"{layer}ffn.bias": (F, 0, D),
        f"{layer}ffn_output.bias": (D, 1, D),
        f"{layer}full_layer_layer_norm.bias": (D, 0, 0),
        "pooler.bias": (D, 0, 0),
    }
    assert_derived(generic(AlbertModel(config)), {"input_ids": tokens()}, 3 * D + e + 2, rows)


def test_vit_for_image_classification():
    """Pre-norm: a branch's shift must be c ones, and the norm's own bias is taken over by q, (k), v and the first
    matrix, so a layer keeps 4d + 2: q with its norm d, k d, v with o d + 1, the feed-forward's norm d, its second bias
    1. The patches' bias moves all tokens but the class token: along ones every norm hides it (1). The last norm and the
    classifier (C labels) share W s + db = 0: d, of which the d - C that W does not see are the norm's alone."""
    labels = 3
    config = ViTConfig(
        hidden_size=D,
        num_hidden_layers=L,
        num_attention_heads=2,
        intermediate_size=F,
        image_size=6,
        patch_size=2,
        num_labels=labels,
    )
    layer = "vit.layers.?."
    rows = {
        "vit.embeddings.patch_embeddings.projection.bias": (D, 1, 1),
        f"{layer}layernorm_before.bias": (D, 0, D),
        f"{layer}attention.q_proj.bias": (D, 0, D),
        f"{layer}attention.k_proj.bias": (D, D, D),
        f"{layer}attention.v_proj.bias": (D, 1, D),
        f"{layer}attention.o_proj.bias": (D, 1, D),
        f"{layer}layernorm_after.bias": (D, 0, D),
        f"{layer}mlp.fc1.bias": (F, 0, D),
        f"{layer}mlp.fc2.bias": (D, 1, 1),
        "vit.layernorm.bias": (D, D - labels, D),
        "classifier.bias": (labels, 0, labels),
    }
    model = generic(ViTForImageClassification(config))
    assert_derived(model, {"pixel_values": noise(6, 3, 6, 6)}, L * (4 * D + 2) + 1 + D, rows)
