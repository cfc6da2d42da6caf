"""Numbers that are known from elsewhere or can be worked out on paper."""

import math
from dataclasses import replace

import pytest
import torch

from addnorm import preset
from addnorm.catalogue import ROOMS
from addnorm.model.spec import ModelSpec
from addnorm.model.transformer import Transformer


def count(spec: ModelSpec) -> int:
    """Parameters, each once, without memory for them."""
    with torch.device("meta"):
        return sum(p.numel() for p in Transformer(spec).parameters())


def test_base_has_kuang_2025s_51_7_million() -> None:
    embedding = head = 32_000 * 512
    attention = 512 * 512 + 2 * 512 * 256 + 512 * 512  # q; k and v with half the heads; o
    feedforward = 3 * 512 * 1024  # gate, up, down
    norms = 2 * 512
    by_hand = embedding + head + 8 * (attention + feedforward + norms) + 512
    assert count(preset("base")) == by_hand == 51_651_072
    assert round(by_hand / 1e6, 1) == 51.7


def test_gpt2_has_its_published_count() -> None:
    """124 439 808 in the released checkpoint, the tied table counted once."""
    assert count(preset("gpt2")) == 124_439_808


def test_gpt1_has_its_published_count() -> None:
    """116 534 784 in the released checkpoint."""
    assert count(preset("gpt1")) == 116_534_784


def test_bert_has_its_published_count_less_the_parts_that_are_left_out() -> None:
    """The released encoder: 109 482 240 with its pooler (768² + 768) and two segment vectors; ours has a head bias."""
    released, pooler, segments, head_bias = 109_482_240, 768 * 768 + 768, 2 * 768, 30_522
    assert count(preset("bert")) == released - pooler - segments + head_bias
    assert count(preset("realformer")) == count(preset("bert"))


def test_llama_has_its_published_count() -> None:
    """6 738 415 616 in the released 7 B checkpoint."""
    assert count(preset("llama")) == 6_738_415_616


def test_gau_alpha_has_two_units_for_every_layer() -> None:
    """24 units of one matrix to U, V and Z, two scales, one matrix back and the norm's gain; 12 000 tied embeddings."""
    unit = 768 * (2 * 1536 + 128) + 2 * 128 + 1536 * 768 + 768
    assert count(preset("gau_alpha")) == 12_000 * 768 + 24 * unit
    assert count(preset("gau_alpha", bias={"q": True, "k": True})) == 12_000 * 768 + 24 * (unit + 2 * 128)


# Layers 1 … 8: softmax kinds have m numbers at layer m but none at the first; weighted kinds have m from the first on.
EXTRA = {
    "v2m1": 0,
    "v2m3": 35,
    "v3m1": 0,
    "v3m3_1": 0,
    "v3m3_2": 35,
    "v4m1": 0,
    "v4m2": 0,
    "v4m3": 0,
    "v4m4": 16,
    "v4m5": 36,
    "v4m6": 72,
    "v4m7": 36,
}


@pytest.mark.parametrize(("name", "extra"), EXTRA.items())
def test_models_of_kuang_2025_add_a_handful_of_scalars(name: str, extra: int) -> None:
    assert count(preset(name)) == 51_651_072 + extra


# Head width 4, so sqrt(d_k) = 2; layers 1, 2, 3.
STARTS = {
    "own": [[0.5], [0.5], [0.5]],
    "sum": [[0.5], [0.5, 0.5], [0.5, 0.5, 0.5]],
    "root_mean": [[0.5], [0.353553] * 2, [0.288675] * 3],
    "mean": [[0.5], [0.25] * 2, [0.166667] * 3],
    "power": [[0.5], [0.25] * 2, [0.166667] * 3],
    "weighted": [[0.5], [0.5] * 2, [0.5] * 3],
    "weighted_power": [[0.5], [0.5] * 2, [0.5] * 3],
    "free": [[0.5], [0.5] * 2, [0.5] * 3],
    "accumulated_projections": [[0.5], [0.5], [0.5]],
    "signed": [[0.5], [0.0, 0.5], [0.0, 0.0, 0.5]],
}


@pytest.mark.parametrize("kind", ROOMS["scores"].kinds())
def test_score_weights_at_the_start(kind: str) -> None:
    if kind not in STARTS:
        pytest.skip("no numbers worked out for this kind yet")
    shape = ModelSpec(width=8, heads=2, depth=3).shape
    scores = ROOMS["scores"].make(kind).build(shape)
    got = [torch.as_tensor(scores.weights(layer)).tolist() for layer in range(3)]
    assert [[round(weight, 6) for weight in row] for row in got] == STARTS[kind]
    assert [scores.terms(layer) for layer in range(3)] == [len(row) for row in STARTS[kind]]


def test_learned_score_weights_by_their_formula() -> None:
    """One hand-worked value away from the start for each learned kind, at layer 2 with head width 4."""
    shape = ModelSpec(width=8, heads=2, depth=3).shape
    made = {kind: ROOMS["scores"].make(kind).build(shape) for kind in ("power", "weighted", "weighted_power", "free")}
    with torch.no_grad():
        made["power"].a[1], made["power"].b[1] = 1.0, -1.0  # 1 / (4 * 1/2)
        made["weighted"].log_a[1][0] = math.log(4)  # 1 / (4 * 2)
        made["weighted_power"].log_a[1][0], made["weighted_power"].b[1][0] = math.log(4), 1.0  # 1 / (4 * 4)
        made["free"].log_a[1][0] = math.log(5)  # 1 / 5
    got = {kind: round(scores.weights(1)[0].item(), 6) for kind, scores in made.items()}
    assert got == {"power": 0.5, "weighted": 0.125, "weighted_power": 0.0625, "free": 0.2}


def test_sinusoidal_table() -> None:
    """Width 4: wavelengths 2π and 200π; sin and cos alternate."""
    position = ROOMS["position"].make("sinusoidal").build(ModelSpec(width=4, heads=1).shape)
    table = position.embed(torch.zeros(1, 4, 4, dtype=torch.float64), 0)[0]
    expected = [
        [0.0, 1.0, 0.0, 1.0],
        [0.841471, 0.540302, 0.01, 0.99995],
        [0.909297, -0.416147, 0.019999, 0.9998],
        [0.14112, -0.989992, 0.029996, 0.99955],
    ]
    assert [[round(x, 6) for x in row] for row in table.tolist()] == expected
    later = position.embed(torch.zeros(1, 2, 4, dtype=torch.float64), 2)[0]
    assert torch.equal(later, table[2:])
    half = ROOMS["position"].make("sinusoidal", scale=0.5).build(ModelSpec(width=4, heads=1).shape)
    assert torch.equal(half.embed(torch.zeros(1, 4, 4, dtype=torch.float64), 0)[0], 0.5 * table)


def test_rotation_by_hand() -> None:
    """Head width 4, position 1: the first pair turns by 1 rad, the second by 0.01."""
    rope = ROOMS["position"].make("rope").build(ModelSpec(width=4, heads=1).shape)
    q = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64).expand(1, 1, 2, 4)
    turned, _ = rope.rotate(q, q, rope.prepare(0, 2, q))
    assert turned[0, 0, 0].tolist() == [1.0, 0.0, 0.0, 1.0]
    assert [round(x, 6) for x in turned[0, 0, 1].tolist()] == [0.540302, 0.841471, -0.01, 0.99995]


def test_starts() -> None:
    """Deviations of the start: 0.02 everywhere, and GPT-2's 0.02 / sqrt(2 · 12) where a matrix writes to the stream."""
    model = preset("gpt2", vocab=512, hidden=1024, width=256, heads=4).build()
    body = model.layers[3].attention.body
    n = 256 * 256
    for weight, std in ((body.query.weight, 0.02), (body.output.weight, 0.02 / math.sqrt(24))):
        # The sample deviation of n normal numbers is off by std / sqrt(2 n); five of those.
        assert abs(weight.std().item() - std) < 5 * std / math.sqrt(2 * n)
        assert abs(weight.mean().item()) < 5 * std / math.sqrt(n)
    assert not torch.cat([p.flatten() for name, p in model.named_parameters() if name.endswith("bias")]).any()


def test_a_first_weight_of_seed_0_never_moves() -> None:
    """Starts are part of a run's identity: torch's generator, or the way a seed becomes one, must not change unseen."""
    spec = replace(preset("base"), vocab=4, width=4, heads=1, kv_heads=1, depth=1, hidden=4)
    model = spec.build(seed=0)
    assert [round(x, 6) for x in model.embedding.weight[0].tolist()] == [-0.011561, -0.049141, 0.01648, 0.00314]
    query = model.layers[0].attention.body.query.weight
    assert [round(x, 6) for x in query[0].tolist()] == [
        -0.001475,
        -0.001616,
        0.006553,
        -0.007932,
    ]
