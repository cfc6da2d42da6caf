"""A `Recording` has two makers: the trace of our models, and the events of a pass of any other model.

Measures are computed by one code, so that equal measures of equal weights say that the recordings are equal: streams, what is
added to them, rows of attention, queries, keys and read-outs, on every architecture that both can express. Classes of
Transformers compute norms, angles and softmaxes in float32 whatever their dtype; here that type is float64, so that only its
rounding is left.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from addnorm import preset
from addnorm.anatomy.recording import record
from addnorm.anatomy.structure import find_layers
from addnorm.insight.flow.attention import AttentionTally
from addnorm.insight.flow.measure import Windows, flow
from addnorm.insight.flow.recording import AttentionRows, LayerAttention, rows_of_trace
from addnorm.insight.probe import probe
from addnorm.insight.probe.attention import rows_of
from addnorm.model.trace import Trace
from addnorm.model.transformer import Transformer
from addnorm.testing.laws import subject
from addnorm.training.objective import Batch
from sampled import sampled

transformers = pytest.importorskip("transformers")

DEPTH, HEADS, GROUPS, WIDTH, VOCAB, SEQ = 3, 4, 2, 32, 23, 9
SIZES: dict[str, Any] = {"vocab": VOCAB, "width": WIDTH, "depth": DEPTH, "heads": HEADS, "hidden": 40, "max_seq": 16}
GROUPED = {**SIZES, "kv_heads": GROUPS}
THEIRS: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "intermediate_size": 40,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": HEADS,
    "max_position_embeddings": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
THEIRS_GROUPED = {**THEIRS, "num_key_value_heads": GROUPS, "head_dim": WIDTH // HEADS}
ROUNDING = 1e-9
"""Relative. float64 keeps 2e-16; a gradient passes some ten layers of sums of at most 1e3 terms each."""


@pytest.fixture(autouse=True)
def float64_where_they_take_float32(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    monkeypatch.setattr(torch, "float32", torch.float64)
    monkeypatch.setattr(torch, "float", torch.float64)
    monkeypatch.setattr(Tensor, "float", Tensor.double)
    yield
    monkeypatch.undo()
    torch.set_default_dtype(torch.float32)


def halves(weight: Tensor) -> Tensor:
    """Rows of each head in the order of classes that rotate entry i with entry i + half, where we rotate neighbours."""
    heads = weight.unflatten(0, (-1, WIDTH // HEADS // 2, 2))
    return heads.transpose(1, 2).flatten(0, 2)


def built(name: str, config: dict[str, Any], weights: dict[str, Tensor]) -> Any:
    cls = getattr(transformers, name)
    theirs = cls(cls.config_class(**config)).double().eval()
    missing, unexpected = theirs.load_state_dict(weights, strict=False)
    assert unexpected == []
    assert [name for name in missing if not name.endswith(("lm_head.weight", ".attn.bias", "decoder.weight"))] == []
    return theirs


def biases(path: str, bias: Tensor | None) -> dict[str, Tensor]:
    return {} if bias is None else {f"{path}.bias": bias}


def llama_like(ours: Transformer, turn: Callable[[Tensor], Tensor] = halves, gain: float = 0.0) -> dict[str, Tensor]:
    """Weights by the names of Llama and its relatives; `gain` is what the class adds to a norm's weight."""
    weights = {"model.embed_tokens.weight": ours.embedding.weight, "model.norm.weight": ours.final_norm.weight - gain}
    if not ours.spec.tied:
        weights["lm_head.weight"] = ours.head.weight
    for number, layer in enumerate(ours.layers):
        body, hidden, path = layer.attention.body, layer.feedforward.body, f"model.layers.{number}"
        weights |= {
            f"{path}.input_layernorm.weight": layer.attention.input_norm.weight - gain,
            f"{path}.self_attn.q_proj.weight": turn(body.query.weight),
            f"{path}.self_attn.k_proj.weight": turn(body.key.weight),
            f"{path}.self_attn.v_proj.weight": body.value.weight,
            f"{path}.self_attn.o_proj.weight": body.output.weight,
            f"{path}.mlp.gate_proj.weight": hidden.gate.weight,
            f"{path}.mlp.up_proj.weight": hidden.up.weight,
            f"{path}.mlp.down_proj.weight": hidden.down.weight,
        }
        if body.qk_bias is not None:
            query, key = body.qk_bias.vectors()
            weights |= {f"{path}.self_attn.q_proj.bias": turn(query), f"{path}.self_attn.k_proj.bias": turn(key)}
        weights |= biases(f"{path}.self_attn.v_proj", body.value.bias) | biases(
            f"{path}.self_attn.o_proj", body.output.bias
        )
        if ours.spec.placement.kind == "sandwich":
            weights |= {
                f"{path}.post_attention_layernorm.weight": layer.attention.output_norm.weight - gain,
                f"{path}.pre_feedforward_layernorm.weight": layer.feedforward.input_norm.weight - gain,
                f"{path}.post_feedforward_layernorm.weight": layer.feedforward.output_norm.weight - gain,
            }
        elif ours.spec.block.kind == "sequential":
            weights[f"{path}.post_attention_layernorm.weight"] = layer.feedforward.input_norm.weight - gain
        if ours.spec.qk_norm is not None:
            weights |= {
                f"{path}.self_attn.q_norm.weight": halves(body.query_norm.weight),
                f"{path}.self_attn.k_norm.weight": halves(body.key_norm.weight),
            }
    return weights


class OneExpert(nn.Module):
    """A feed-forward branch where a class has experts, whose activation no model here has."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return self.body(x), None


def pair_of_llama() -> tuple[Transformer, Any]:
    ours = model("llama", **GROUPED)
    return ours, built("LlamaForCausalLM", {**THEIRS_GROUPED, "rms_norm_eps": 1e-5}, llama_like(ours))


def pair_of_qwen2() -> tuple[Transformer, Any]:
    ours = model("llama", **GROUPED, bias={"q": True, "k": True, "v": True})
    return ours, built("Qwen2ForCausalLM", {**THEIRS_GROUPED, "rms_norm_eps": 1e-5}, llama_like(ours))


def pair_of_qwen3() -> tuple[Transformer, Any]:
    ours = model("qwen3", **GROUPED, position="rope")
    return ours, built("Qwen3ForCausalLM", {**THEIRS_GROUPED, "rms_norm_eps": 1e-6}, llama_like(ours))


def pair_of_mistral() -> tuple[Transformer, Any]:
    ours = model("llama", **GROUPED, windows=(4,))
    config = {**THEIRS_GROUPED, "rms_norm_eps": 1e-5, "sliding_window": 4}
    return ours, built("MistralForCausalLM", config, llama_like(ours))


def pair_of_gemma2() -> tuple[Transformer, Any]:
    ours = model("gemma2", **GROUPED, windows=(3, None), score_cap=0.5, logit_cap=2.0)
    config = THEIRS_GROUPED | {
        "query_pre_attn_scalar": WIDTH // HEADS,
        "sliding_window": 3,
        "attn_logit_softcapping": 0.5,
        "final_logit_softcapping": 2.0,
        "rms_norm_eps": 1e-6,
    }
    return ours, built("Gemma2ForCausalLM", config, llama_like(ours, gain=1.0))


def pair_of_gpt_oss(start: float = 0.0, **changes: Any) -> tuple[Transformer, Any]:
    sink = {"kind": "logit", "start": start}
    ours = model("gpt_oss", **GROUPED, windows=(3, None), position="rope", sink=sink, **changes)
    config = THEIRS_GROUPED | {
        "num_local_experts": 1,
        "num_experts_per_tok": 1,
        "sliding_window": 3,
        "rms_norm_eps": 1e-5,
        "attention_bias": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
    }
    theirs = transformers.GptOssForCausalLM(transformers.GptOssConfig(**config)).double().eval()
    for number, layer in enumerate(theirs.model.layers):
        layer.mlp = OneExpert(ours.layers[number].feedforward.body)
        # Not trained: ours belong to the model, theirs to a layer, whose gradient they are a part of.
        sinks = ours.sink.logits(number).requires_grad_(False)
        layer.self_attn.sinks = nn.Parameter(sinks.clone(), requires_grad=False)
    weights = {name: weight for name, weight in llama_like(ours).items() if ".mlp." not in name}
    missing, unexpected = theirs.load_state_dict(weights, strict=False)
    assert unexpected == []
    assert all(".mlp." in name or name.endswith(".sinks") for name in missing)
    return ours, theirs


def pair_of_cohere() -> tuple[Transformer, Any]:
    """Parallel branches that share a norm without a bias; both are added to the stream one after the other."""
    block = {"kind": "parallel", "norms": "one"}
    ours = model("llama", **GROUPED, block=block, norm={"kind": "layer", "eps": 1e-5}, tied=True)
    config = {**THEIRS, "num_key_value_heads": GROUPS, "logit_scale": 1.0, "layer_norm_eps": 1e-5}
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": 10_000.0}
    # Cohere rotates neighbours, as we do.
    return ours, built("CohereForCausalLM", config, llama_like(ours, turn=lambda weight: weight))


def pair_of_phi() -> tuple[Transformer, Any]:
    ours = model("gpt_j", **SIZES, bias=True, position={"kind": "rope", "fraction": 0.5})
    weights = {
        "model.embed_tokens.weight": ours.embedding.weight,
        "model.final_layernorm.weight": ours.final_norm.weight,
        "model.final_layernorm.bias": ours.final_norm.bias,
        "lm_head.weight": ours.head.weight,
        "lm_head.bias": ours.head.bias,
    }
    for number, layer in enumerate(ours.layers):
        body, hidden, path = layer.attention.body, layer.feedforward.body, f"model.layers.{number}"
        norm = layer.attention.input_norm
        query, key = body.qk_bias.vectors()
        weights |= {f"{path}.input_layernorm.weight": norm.weight, f"{path}.input_layernorm.bias": norm.bias}
        for name, linear, bias in (
            ("self_attn.q_proj", body.query, query),
            ("self_attn.k_proj", body.key, key),
            ("self_attn.v_proj", body.value, body.value.bias),
            ("self_attn.dense", body.output, body.output.bias),
            ("mlp.fc1", hidden.up, hidden.up.bias),
            ("mlp.fc2", hidden.down, hidden.down.bias),
        ):
            turn = half_turned if name.endswith(("q_proj", "k_proj")) else lambda rows: rows
            weights |= {f"{path}.{name}.weight": turn(linear.weight), f"{path}.{name}.bias": turn(bias)}
    config = {**THEIRS, "partial_rotary_factor": 0.5, "layer_norm_eps": 1e-5, "hidden_act": "gelu_new"}
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5}
    return ours, built("PhiForCausalLM", config, weights)


def norms(ours: Transformer, first: str, second: str, last: str) -> dict[str, Tensor]:
    """Weights and biases of pre-norms, by the names of a class."""
    weights = {f"{last}.{name}": value for name, value in ours.final_norm.named_parameters()}
    for number, layer in enumerate(ours.layers):
        for path, norm in ((first, layer.attention.input_norm), (second, layer.feedforward.input_norm)):
            weights |= {f"{path.format(number)}.{name}": value for name, value in norm.named_parameters()}
    return weights


LLAMAS_NORMS = ("model.layers.{}.input_layernorm", "model.layers.{}.post_attention_layernorm", "model.norm")
MIXED = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}


def pair_of_gemma() -> tuple[Transformer, Any]:
    ours = model("gemma2", **GROUPED, placement="pre", windows=(None,), score_cap=None, logit_cap=None)
    return ours, built("GemmaForCausalLM", {**THEIRS_GROUPED, "rms_norm_eps": 1e-6}, llama_like(ours, gain=1.0))


def pair_of_ministral() -> tuple[Transformer, Any]:
    ours = model("llama", **GROUPED, windows=(4, None))
    return ours, built("MinistralForCausalLM", {**THEIRS_GROUPED, **MIXED, "rms_norm_eps": 1e-5}, llama_like(ours))


def pair_of_qwen2_with_windows() -> tuple[Transformer, Any]:
    ours = model("llama", **GROUPED, windows=(4, None), bias={"q": True, "k": True, "v": True})
    config = {**THEIRS_GROUPED, **MIXED, "use_sliding_window": True, "rms_norm_eps": 1e-5}
    return ours, built("Qwen2ForCausalLM", config, llama_like(ours))


def pair_of_stablelm() -> tuple[Transformer, Any]:
    switches = {"q": True, "k": True, "v": True, "norm": True}
    position = {"kind": "rope", "fraction": 0.5}
    ours = model("llama", **SIZES, norm={"kind": "layer", "eps": 1e-5}, bias=switches, position=position)
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5}
    config = {
        **THEIRS,
        "num_key_value_heads": HEADS,
        "use_qkv_bias": True,
        "layer_norm_eps": 1e-5,
        "rope_parameters": rope,
    }
    return ours, built("StableLmForCausalLM", config, llama_like(ours, half_turned) | norms(ours, *LLAMAS_NORMS))


def pair_of_starcoder2() -> tuple[Transformer, Any]:
    ours = model("gpt_neox", **GROUPED, block="sequential", activation="gelu_tanh", position="rope", tied=True)
    weights = {"model.embed_tokens.weight": ours.embedding.weight} | norms(ours, *LLAMAS_NORMS)
    for number, layer in enumerate(ours.layers):
        body, hidden, path = layer.attention.body, layer.feedforward.body, f"model.layers.{number}"
        query, key = body.qk_bias.vectors()
        for name, linear, bias, turn in (
            ("self_attn.q_proj", body.query, query, halves),
            ("self_attn.k_proj", body.key, key, halves),
            ("self_attn.v_proj", body.value, body.value.bias, Tensor.clone),
            ("self_attn.o_proj", body.output, body.output.bias, Tensor.clone),
            ("mlp.c_fc", hidden.up, hidden.up.bias, Tensor.clone),
            ("mlp.c_proj", hidden.down, hidden.down.bias, Tensor.clone),
        ):
            weights |= {f"{path}.{name}.weight": turn(linear.weight), f"{path}.{name}.bias": turn(bias)}
    config = {**THEIRS, "num_key_value_heads": GROUPS, "norm_epsilon": 1e-5, "sliding_window": None}
    return ours, built("Starcoder2ForCausalLM", config, weights)


def half_turned(weight: Tensor) -> Tensor:
    """As `halves`, of the first half of a head's rows, which alone is rotated."""
    heads = weight.unflatten(0, (HEADS, 2, -1))
    turned = heads[:, 0].unflatten(1, (-1, 2)).transpose(1, 2).flatten(1, 2)
    return torch.stack([turned, heads[:, 1]], dim=1).flatten(0, 2)


def exported(preset_name: str, cls: str, tmp: Any, **changes: Any) -> tuple[Transformer, Any]:
    import addnorm

    ours = model(preset_name, **SIZES, **changes)
    addnorm.save_hf(ours, tmp)
    return ours, getattr(transformers, cls).from_pretrained(tmp, dtype=torch.float64).eval()


def model(name: str, **changes: Any) -> Transformer:
    return subject(preset(name, **changes, init_std=0.3))


PAIRS: dict[str, Callable[[], tuple[Transformer, Any]]] = {
    "llama": pair_of_llama,
    "qwen2": pair_of_qwen2,
    "qwen3: norms on queries and keys": pair_of_qwen3,
    "mistral: windows": pair_of_mistral,
    "gemma2: capped scores, sandwich norms": pair_of_gemma2,
    "gpt_oss: sinks and windows": pair_of_gpt_oss,
    "gpt_oss: sinks that take most": partial(pair_of_gpt_oss, start=8.0),
    "gpt_oss: sinks that take nothing": partial(pair_of_gpt_oss, start=-60.0),
    "cohere: parallel branches, added in turn": pair_of_cohere,
    "phi: parallel branches, added first": pair_of_phi,
    "gemma: gains around one, scaled embedding": pair_of_gemma,
    "ministral: windows in turn": pair_of_ministral,
    "qwen2: biases and windows in turn": pair_of_qwen2_with_windows,
    "stablelm: shifts of norms, a half of each head rotated": pair_of_stablelm,
    "starcoder2: layer norms, biases, groups": pair_of_starcoder2,
}
EXPORTED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("gpt2", "GPT2LMHeadModel", {}),
    "gpt_neox": ("gpt_neox", "GPTNeoXForCausalLM", {}),
    "gpt_neox, one after the other": ("gpt_neox", "GPTNeoXForCausalLM", {"block": "sequential"}),
    "bert: norms on the stream": ("bert", "BertForMaskedLM", {"head_transform": "gelu", "token_types": 2}),
}
NOT_OF_BOTH = {"gradient", "stream_gradient"}
"""Of a site, which a recorded pass has no modules for."""


def batch(sequences: int = 2, seq: int = SEQ, draw: int = 0) -> Batch:
    ids = torch.randint(3, VOCAB, (sequences, seq + 1), generator=torch.Generator().manual_seed(draw))
    return Batch(inputs=ids[:, :-1].contiguous(), targets=ids[:, 1:].contiguous(), mask=None)


def logits_of(theirs: nn.Module, tokens: Tensor) -> Tensor:
    logits: Tensor = theirs(tokens).logits
    return logits


def assert_same(theirs: Any, ours: Any, path: str = "$") -> None:
    """Numbers equal to rounding, everything else equal, at every place."""
    if isinstance(ours, dict):
        dropped = NOT_OF_BOTH if path.startswith("$.sites") else set()
        assert theirs.keys() == ours.keys() - dropped, path
        for name in theirs:
            assert_same(theirs[name], ours[name], f"{path}.{name}")
    elif isinstance(ours, list):
        assert len(theirs) == len(ours), path
        for place, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            assert_same(one, other, f"{path}[{place}]")
    elif isinstance(ours, float):
        assert theirs == pytest.approx(ours, rel=ROUNDING, abs=1e-12), path
    else:
        assert theirs == ours, path


def compared(ours: Transformer, theirs: Any, seq: int = SEQ) -> dict[str, Any]:
    batches, maps = [batch(seq=seq), batch(1, seq, draw=1)], [batch(1, seq, draw=2), batch(1, seq, draw=3)]
    expected = flow(ours, Windows(batches=batches, maps=maps))
    result = probe(theirs, batches, maps, logits_of)
    assert result.pop("missing") == []
    # The roads name reads and sources differently; test_probes compares the matrices of recorded passes.
    expected.pop("depth")
    result.pop("depth")
    assert_same(result, expected)
    return expected


@pytest.mark.parametrize("name", sampled(3, PAIRS))
def test_both_roads_give_the_same_measures(name: str) -> None:
    measures = compared(*PAIRS[name]())
    for row in measures["layers"]:
        assert {"entropy", "entropy_share", "one_hot", "first_share", "query_direction", "key_direction"} <= row.keys()
    assert "mean_similarity" in measures["layers"][1]


@pytest.mark.parametrize("name", EXPORTED)
def test_both_roads_give_the_same_measures_of_exported_models(name: str, tmp_path: Any) -> None:
    preset_name, cls, changes = EXPORTED[name]
    compared(*exported(preset_name, cls, tmp_path / "x", **changes))


def rows_of_ours(ours: Transformer, tokens: Tensor, real: Tensor | None = None) -> list[AttentionRows]:
    trace = Trace()
    with torch.no_grad():
        ours(tokens, padding=real, trace=trace)
    return [rows_of_trace(attention) for attention in trace.attentions]


def rows_of_theirs(theirs: Any, tokens: Tensor, mask: Tensor | None = None) -> list[AttentionRows]:
    with torch.no_grad():
        recording, _ = record(theirs, lambda: theirs(tokens, attention_mask=mask))
    rows = [rows_of(layer.attentions, *tokens.shape) for layer in find_layers(recording)]
    assert all(isinstance(row, AttentionRows) for row in rows), rows
    return rows  # type: ignore[return-value]


def tallied(rows: list[AttentionRows]) -> list[dict[str, Any]]:
    tally = AttentionTally()
    tally.add([LayerAttention(layer=0, order=None, rows=lambda row=row: row) for row in rows])
    return [tally.of(place) for place in range(len(rows))]


PADDED = {
    "left": torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1], [1] * 9]),
    "right": torch.tensor([[1, 1, 1, 1, 1, 0, 0, 0, 0], [1] * 9]),
    "left, one real token": torch.tensor([[0] * 8 + [1], [0, 1, 1, 1, 1, 1, 1, 1, 1]]),
    "in the middle": torch.tensor([[1, 1, 0, 0, 1, 1, 1, 1, 1], [1] * 9]),
}


@pytest.mark.parametrize("padding", PADDED)
@pytest.mark.parametrize(
    ("name", "implementation"),
    [
        ("llama", "sdpa"),
        ("llama", "eager"),
        ("mistral: windows", "sdpa"),
        ("gpt_oss: sinks and windows", "eager"),
        ("gpt_oss: sinks that take most", "eager"),
        ("gemma2: capped scores, sandwich norms", "eager"),
    ],
)
def test_rows_with_padding(name: str, implementation: str, padding: str) -> None:
    """Rows of padding see nothing, or no position but their own, and count on neither road; visible positions are real ones."""
    ours, theirs = PAIRS[name]()
    theirs.set_attn_implementation(implementation)
    tokens, real = batch().inputs, PADDED[padding]
    # The first layer's alone: rows that see nothing are zero here and uniform in classes of Transformers, so streams differ.
    assert_same(tallied(rows_of_theirs(theirs, tokens, real)[:1]), tallied(rows_of_ours(ours, tokens, real.bool())[:1]))


def test_padding_of_an_encoder(tmp_path: Any) -> None:
    ours, theirs = exported("bert", "BertForMaskedLM", tmp_path / "x", head_transform="gelu", token_types=2)
    tokens, real = batch().inputs, PADDED["right"]
    assert_same(tallied(rows_of_theirs(theirs, tokens, real)), tallied(rows_of_ours(ours, tokens, real.bool())))


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_masks_of_documents_and_rows_that_see_nothing(implementation: str) -> None:
    """By hand: two documents of four tokens, and a last row that sees nothing."""
    _, theirs = pair_of_llama()
    theirs.set_attn_implementation(implementation)
    tokens = batch(1).inputs
    seen = torch.block_diag(*[torch.ones(4, 4).tril()] * 2, torch.zeros(1, 1)).bool()
    mask = torch.zeros(1, 1, SEQ, SEQ).masked_fill(~seen, torch.finfo(torch.float64).min)
    (first, *_) = rows_of_theirs(theirs, tokens, mask)
    weights = first.block(slice(0, SEQ))[..., :8, :8]
    assert torch.equal(weights > 0, seen[:8, :8].expand_as(weights))
    assert torch.equal(first.visible.expand(1, HEADS, SEQ)[0, 0], torch.tensor([1, 2, 3, 4, 1, 2, 3, 4, 0]))
    (measures,) = tallied([first])
    several = [1, 2, 3, 5, 6, 7]
    entropy = -torch.special.xlogy(weights, weights).sum(-1)[..., several]
    assert measures["entropy"] == pytest.approx(entropy.mean().item(), rel=ROUNDING)
    share = entropy / torch.tensor([2.0, 3.0, 4.0] * 2).log()
    assert measures["entropy_share"] == pytest.approx(share.mean().item(), rel=ROUNDING)
    assert measures["first_share"] == pytest.approx(weights[..., several, 0].mean().item(), rel=ROUNDING)


@pytest.mark.parametrize("name", ["llama", "gpt_oss: sinks and windows"])
def test_a_single_token_has_no_measure_of_rows(name: str) -> None:
    measures = compared(*PAIRS[name](), seq=1)
    assert not {"entropy", "one_hot", "first_share", "similarity"} & measures["layers"][0].keys()
    assert measures["attention"][0]["heads"] == []


def test_a_sink_is_no_position() -> None:
    """By hand: where queries are zero, every position has the same share, and the sink takes its part of all of them."""
    _ours, theirs = pair_of_gpt_oss(start=3.0)
    with torch.no_grad():
        for layer in theirs.model.layers:
            layer.self_attn.q_proj.weight.zero_()
            layer.self_attn.q_proj.bias.zero_()
    (row,) = tallied(rows_of_theirs(theirs, batch().inputs)[1:2])  # of the layer without a window
    visible = torch.arange(2.0, SEQ + 1)
    assert row["entropy"] == pytest.approx(visible.log().mean().item(), rel=ROUNDING)
    assert row["entropy_share"] == pytest.approx(1.0, rel=ROUNDING)
    assert row["first_share"] == pytest.approx((1 / visible).mean().item(), rel=ROUNDING)
    assert row["one_hot"] == 0.0


def test_a_row_that_reads_nothing_is_left_out() -> None:
    """A sink of 1000 leaves each position nothing at all, in float64: there is no number, on either road."""
    for rows in (rows_of_ours, rows_of_theirs):
        pair = dict(zip((rows_of_ours, rows_of_theirs), pair_of_gpt_oss(start=1000.0), strict=True))
        (measures, *_) = tallied(rows(pair[rows], batch().inputs))
        assert not {"entropy", "one_hot", "first_share"} & measures.keys()
        assert measures["heads"] == []
