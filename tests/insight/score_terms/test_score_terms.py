"""The four terms by an independent calculation with explicit rotation matrices, on every model that has them."""

import math

import numpy as np
import pytest
import torch

import addnorm
from addnorm.catalogue import ROOMS
from addnorm.errors import InputError
from addnorm.insight.flow.attention import mean_direction
from addnorm.insight.score_terms import ours
from addnorm.insight.score_terms.measured import isotropy, measure
from addnorm.insight.score_terms.terms import TERMS, terms_of

SIZES = {"vocab": 13, "width": 16, "depth": 2, "heads": 2, "kv_heads": 1, "hidden": 16, "max_seq": 24, "init_std": 0.3}
SEQ = 24


def model(**changes):
    built = addnorm.preset("base", **(SIZES | {"bias": {"q": True, "k": True}} | changes)).build(5).eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in built.named_parameters():
            if "qk_bias" in name:  # biases start at zero
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return built


def tokens(samples: int = 3, seq: int = SEQ) -> torch.Tensor:
    return torch.randint(13, (samples, seq), generator=torch.Generator().manual_seed(1))


def rotation(distance: int, width: int, rotated: int, theta: float = 10_000.0) -> np.ndarray:
    """R_{n-m} written out as a matrix: neighbouring pairs turn by (n - m) theta^{-2j/r}."""
    found = np.eye(width)
    for pair in range(rotated // 2):
        angle = -distance * theta ** (-2 * pair / rotated)  # distance = m - n
        cos, sin = math.cos(angle), math.sin(angle)
        found[2 * pair : 2 * pair + 2, 2 * pair : 2 * pair + 2] = [[cos, -sin], [sin, cos]]
    return found


@pytest.mark.parametrize("objective", ["causal", "masked"])
@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_terms_by_hand(fraction: float, objective: str) -> None:
    causal = objective == "causal"
    built = model(position={"kind": "rope", "fraction": fraction}, objective=objective)
    for parts in ours.parts_of(built, tokens()):
        found = terms_of(parts, causal=causal)
        distances = range(SEQ) if causal else range(1 - SEQ, SEQ)
        assert found.first == distances[0]
        for sample in range(3):
            for head in range(2):
                q, k = parts.query[sample, head].numpy(), parts.key[sample, 0].numpy()
                a, b = parts.query_bias[head].numpy(), parts.key_bias[0].numpy()
                for place, d in enumerate(distances):
                    R = rotation(d, 8, int(8 * fraction))
                    pairs = [(m, m - d) for m in range(SEQ) if 0 <= m - d < SEQ]
                    lefts, rights = (q, np.tile(a, (SEQ, 1))), (k, np.tile(b, (SEQ, 1)))
                    expected = [
                        np.mean([left[m] @ R @ right[n] for m, n in pairs]) / math.sqrt(8)
                        for right in rights
                        for left in lefts
                    ]
                    # float64, sums of up to 24 scores near 1 of 8 products each.
                    np.testing.assert_allclose(
                        found.terms[sample, :, head, place].numpy(), expected, rtol=0, atol=1e-11
                    )


CASES = [
    *({"qk_bias": shape} for shape in ROOMS["bias"].kinds()),
    {"bias": {"q": True, "k": False}},
    {"bias": {"q": False, "k": True}},
    {"bias": {"q": False, "k": False}},
    {"position": "xpos"},
    *({"scores": kind} for kind in ROOMS["scores"].kinds()),
    {"gau": {"key_dim": 8}, "heads": 1, "kv_heads": None},
    {"gau": {"key_dim": 8, "normalisation": "squared_relu"}, "heads": 1, "kv_heads": None},
    {"placement": "post", "norm": "layer"},
    {"residual": "replay"},
]


@pytest.mark.parametrize("changes", CASES, ids=str)
def test_the_sum_is_the_model_s_score_at_every_pair(changes) -> None:
    measured = measure(ours.parts_of(model(**changes), tokens()), causal=True)
    assert len(measured["rows"]) == 4
    # The bound on rounding is itself small, or being within it would say nothing: scores are near 1.
    assert measured["largest_error"] <= measured["rounding"] < 1e-10
    for row in measured["rows"]:
        terms = row["terms"]
        total = np.sum([terms[name]["mean"] for name in TERMS], axis=0)
        np.testing.assert_allclose(
            total, terms["sum"]["mean"], rtol=0, atol=5e-5 * np.abs(total).max()
        )  # six digits kept


def test_the_bound_on_rounding_stays_small_where_a_rotation_stretches() -> None:
    """xPos with span 2 at 24 positions: keys grow by 3.5^12, three million, queries shrink as much, scores stay near 1."""
    measured = measure(ours.parts_of(model(position={"kind": "xpos", "span": 2.0}), tokens()), causal=True)
    assert measured["largest_error"] <= measured["rounding"] < 1e-10


@pytest.mark.parametrize("every", [1, 2, 3])
def test_layers_with_positions_and_without_have_their_own_rotation(every: int) -> None:
    built = model(position={"kind": "interleaved_rope", "every": every}, depth=3)
    measured = measure(ours.parts_of(built, tokens()), causal=True)
    assert measured["largest_error"] <= measured["rounding"] < 1e-10
    for layer, parts in enumerate(ours.parts_of(built, tokens())):
        turned, _ = parts.rotate(parts.query, parts.key)
        assert torch.equal(turned, parts.query) == ((layer + 1) % every == 0)


def test_the_sum_is_what_softmax_is_taken_of() -> None:
    """Independent of any hook: the attention of the first layer, from the model's own attend."""
    built = model(depth=1).double()
    (parts,) = ours.parts_of(built, tokens())
    (query, a), (key, b) = parts.turned()
    scores = ((query + a) @ (key + b).mT) / math.sqrt(8)
    future = torch.ones(SEQ, SEQ, dtype=torch.bool).triu(1)
    attention = scores.masked_fill(future, -torch.inf).softmax(-1)
    body = built.layers[0].attention.body
    x = built.layers[0].attention.input_norm(built.embedding(tokens()))
    value = body.split(body.value(x))
    expected = body.output(body.join(attention @ value))
    seen = []
    handle = body.register_forward_hook(lambda module, inputs, output: seen.append(output))
    built(tokens())
    handle.remove()
    torch.testing.assert_close(seen[0], expected, rtol=1e-12, atol=1e-13)


def test_a_missing_bias_is_noticed() -> None:
    (parts, _) = ours.parts_of(model(), tokens())
    wrong = dict(vars(parts)) | {"key_bias": parts.key_bias * (1 + 1e-6)}
    with pytest.raises(InputError, match=r"in layer 0 they differ by .*, rounding explains"):
        terms_of(type(parts)(**wrong), causal=True)


def test_the_model_stays_as_it_is() -> None:
    built = model()
    before = built(tokens())
    list(ours.parts_of(built, tokens()))
    assert torch.equal(built(tokens()), before)
    assert {p.dtype for p in built.parameters()} == {torch.float32}


def test_the_fourth_term_needs_no_text_and_the_others_do() -> None:
    measured = measure(ours.parts_of(model(), tokens()), causal=True)
    for row in measured["rows"]:
        fourth, first = row["terms"]["aRb"], row["terms"]["qRk"]
        np.testing.assert_allclose(fourth["low"], fourth["high"], rtol=0, atol=1e-5 * np.abs(fourth["mean"]).max())
        assert np.max(np.subtract(first["high"], first["low"])) > 0.01


def test_without_biases_only_the_first_term_is_left() -> None:
    measured = measure(ours.parts_of(model(bias=False), tokens()), causal=True)
    for row in measured["rows"]:
        assert not any(np.any(row["terms"][name]["mean"]) for name in ("aRk", "qRb", "aRb"))
        assert row["terms"]["sum"] == row["terms"]["qRk"]


def test_the_band_is_that_of_the_samples() -> None:
    """Of eleven samples the 0.1 and 0.9 quantiles are the second lowest and the second highest."""
    (parts,) = ours.parts_of(model(depth=1), tokens(11))
    by_sample = terms_of(parts, causal=True).terms[:, 0, 1].numpy()
    (first, second) = measure([parts], causal=True)["rows"]
    band = second["terms"]["qRk"]
    np.testing.assert_allclose(band["mean"], by_sample.mean(axis=0), rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(band["low"], np.sort(by_sample, axis=0)[1], rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(band["high"], np.sort(by_sample, axis=0)[-2], rtol=1e-5, atol=1e-9)
    assert first["head"] == 0


def test_long_texts_are_averaged_over_neighbouring_distances() -> None:
    built = model(depth=1)
    measured = measure(ours.parts_of(built, tokens(1, 600)), causal=True)
    (parts,) = ours.parts_of(built, tokens(1, 600))
    whole = terms_of(parts, causal=True).terms[0, 3, 0].numpy()
    row = measured["rows"][0]
    assert len(row["distances"]) == len(row["terms"]["aRb"]["mean"]) == 256
    edges = np.unique(np.linspace(0, 600, 257).round().astype(int))
    for low, high, distance, value in zip(
        edges, edges[1:], row["distances"], row["terms"]["aRb"]["mean"], strict=False
    ):
        assert distance == pytest.approx((low + high - 1) / 2)
        assert value == pytest.approx(whole[low:high].mean(), rel=1e-5, abs=1e-6)


def test_isotropy() -> None:
    generator = torch.Generator().manual_seed(0)
    everywhere = torch.randn(4, 1, 500, 8, generator=generator)
    # 2000 isotropic vectors: the squared norm has mean 1/2000; six times the root of it is far out.
    assert float(mean_direction(everywhere)[0]) < 6 / math.sqrt(2000)
    one_way = torch.tensor([0.0, 3.0, 0.0, 4.0]).expand(2, 1, 5, 4) * torch.arange(1.0, 6.0)[:, None]
    assert float(mean_direction(one_way)[0]) == pytest.approx(1)
    half = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).view(1, 1, 2, 2)
    assert float(mean_direction(half)[0]) == pytest.approx(math.sqrt(0.5))
    assert float(mean_direction(torch.zeros(1, 1, 3, 2))[0]) == 0.0
    (parts, _) = ours.parts_of(model(), tokens())
    found = isotropy(parts)
    assert [set(row) for row in found] == [{"query", "key", "query_biased", "key_biased", "chance"}] * 2
    assert found[0]["chance"] == pytest.approx(1 / math.sqrt(3 * SEQ))
    plain = [isotropy(parts)[0] for parts in ours.parts_of(model(bias=False), tokens())]
    assert all(row["query"] == row["query_biased"] and row["key"] == row["key_biased"] for row in plain)


@pytest.mark.parametrize("position", sorted(set(ROOMS["position"].kinds()) - {"rope", "interleaved_rope", "xpos"}))
def test_a_position_that_does_not_rotate_is_refused(position: str) -> None:
    with pytest.raises(InputError, match=f"the four terms: expected a rotary position, got '{position}'"):
        list(ours.parts_of(model(position=position), tokens()))
