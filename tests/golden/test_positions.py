"""Positions against their papers' definitions: numbers worked out by hand, published code as a peer, formulas."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from addnorm.catalogue import ROOMS
from addnorm.errors import InputError
from addnorm.model.spec import ModelSpec
from addnorm.position import Position
from addnorm.shape import Shape

SEQ = 7


def shape(heads: int = 2, head_dim: int = 4, depth: int = 2) -> Shape:
    return ModelSpec(width=heads * head_dim, heads=heads, depth=depth).shape


def build(kind: str, sizes: Shape | None = None, **fields: Any) -> Position:
    return ROOMS["position"].make(kind, **fields).build(sizes or shape()).double()


def by_distance(position: Position, seq: int = SEQ, layer: int = 0) -> dict[int, Tensor]:
    """The bias of every head at each distance from 1 - seq to seq - 1."""
    bias = position.score_bias(layer, position.prepare(0, seq, torch.zeros(1, dtype=torch.float64)))
    return {bias.first + i: bias.values[:, i] for i in range(bias.values.shape[1])}


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (1, [2**-8]),
        (2, [2**-4, 2**-8]),
        (8, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]),  # the paper's own list
        (3, [2**-4, 2**-8, 2**-2]),
        (6, [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]),
        (12, [*(2.0**-h for h in range(1, 9)), *(2 ** -(h + 0.5) for h in range(4))]),
        (16, [2 ** (-h / 2) for h in range(1, 17)]),
    ],
)
def test_alibi_slopes(heads: int, slopes: list[float]) -> None:
    bias = by_distance(build("alibi", shape(heads)))
    assert (-bias[1]).tolist() == slopes
    for distance, values in bias.items():
        assert values.tolist() == [-slope * abs(distance) for slope in slopes]


@pytest.mark.plain  # transformers takes seconds to load, and the other session does it anyway
@pytest.mark.parametrize("sides", ["past", "both"])
@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (32, 256), (8, 20), (12, 100)])
def test_t5_buckets_are_those_of_transformers(sides: str, buckets: int, farthest: int) -> None:
    modeling = pytest.importorskip("transformers.models.t5.modeling_t5")
    position = build("t5", buckets=buckets, farthest=farthest, sides=sides)
    distance = torch.arange(-1000, 1001)
    theirs = modeling.T5Attention._relative_position_bucket(
        -distance, bidirectional=sides == "both", num_buckets=buckets, max_distance=farthest
    )
    if sides == "both":  # theirs has the later keys in the upper half, as ours has
        assert (theirs[distance < 0] >= buckets // 2).all()
    assert torch.equal(position.measure(distance), theirs)


def test_t5_buckets_by_hand() -> None:
    """Eight buckets to distance 32: 0, 1, 2, 3 alone, then edges at 4 · 8^{k/4}: 4, 6.7, 11.3, 19.03."""
    position = build("t5", buckets=8, farthest=32)
    found = position.measure(torch.tensor([-5, 0, 1, 2, 3, 4, 6, 7, 11, 12, 19, 20, 31, 32, 33, 10**6])).tolist()
    assert found == [0, 0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7, 7, 7, 7]


def test_a_t5_distance_on_an_edge_is_on_its_far_side() -> None:
    """Eight exact buckets of sixteen to 128: edges at 8 · 16^{k/8} = 8 · 2^{k/2}, whole numbers for even k."""
    position = build("t5", buckets=16, farthest=128)
    assert position.measure(torch.tensor([15, 16, 31, 32, 63, 64])).tolist() == [9, 10, 11, 12, 13, 14]


def test_t5_gives_every_layer_the_same_numbers_of_its_table() -> None:
    position = build("t5", buckets=8, farthest=32)
    table = torch.arange(16, dtype=torch.float64).view(8, 2)
    with torch.no_grad():
        position.table.copy_(table)
    for layer in range(2):
        bias = by_distance(position, layer=layer)
        assert [bias[d].tolist() for d in (-3, 0, 3, 6)] == [[0, 1], [0, 1], [6, 7], [8, 9]]


def test_t5_starts_with_deviation_of_its_source() -> None:
    """Width 256: 1/16. The sample deviation of n normal numbers is off by std / sqrt(2 n); five of those."""
    position = ROOMS["position"].make("t5", buckets=64).build(shape(heads=64))
    position.initialise("table", torch.Generator().manual_seed(0))
    assert abs(position.table.std().item() - 1 / 16) < 5 / 16 / math.sqrt(2 * 64 * 64)


@pytest.mark.parametrize("kernel", ["log", "power"])
def test_kerple_by_its_formula(kernel: str) -> None:
    """r_1 = 2, r_2 = 3 (log) or 1.5 (power) in head 1, something else in head 0; the same in every layer."""
    position = build("kerple", kernel=kernel)
    for name, _ in position.named_parameters():
        with torch.no_grad():
            position.initialise(name, torch.Generator().manual_seed(1))
    with torch.no_grad():
        position.log_r1[1] = math.log(2)
        if kernel == "log":
            position.log_r2[1] = math.log(3)
        else:
            position.logit_r2[1] = math.log(3)  # 2 sigmoid(ln 3) = 2 · 3/4
    bias = by_distance(position, layer=1)
    for d in (-6, -1, 0, 1, 2, 6):
        expected = -2 * math.log(1 + 3 * abs(d)) if kernel == "log" else -2 * abs(d) ** 1.5
        assert bias[d][1].item() == pytest.approx(expected, rel=1e-15)
        assert bias[d][0] != bias[d][1] or d == 0
    assert all(torch.equal(values, bias[d]) for d, values in by_distance(position, layer=0).items())


@pytest.mark.parametrize(
    ("kernel", "ranges"),
    [("log", {"log_r1": (0.01, 2), "log_r2": (0.01, 1)}), ("power", {"log_r1": (0.01, 1), "logit_r2": (0.01, 2)})],
)
def test_kerple_starts_within_its_sources_ranges(kernel: str, ranges: dict[str, tuple[float, float]]) -> None:
    position = build("kerple", shape(heads=512, head_dim=2), kernel=kernel)
    for name, (least, most) in ranges.items():
        with torch.no_grad():
            position.initialise(name, torch.Generator().manual_seed(0))
        raw = position.get_parameter(name)
        values = 2 * raw.sigmoid() if name == "logit_r2" else raw.exp()
        assert least * (1 - 1e-12) <= values.min()
        assert values.max() <= most
        # 512 uniform numbers: the mean is off by (most - least) / sqrt(12 · 512); five of those.
        assert abs(values.mean().item() - (least + most) / 2) < 5 * (most - least) / math.sqrt(12 * 512)


def test_kerple_power_with_exponent_one_is_alibi() -> None:
    position, alibi = build("kerple", shape(heads=8), kernel="power"), build("alibi", shape(heads=8))
    with torch.no_grad():
        position.logit_r2.zero_()
        position.log_r1.copy_((-by_distance(alibi)[1]).log())
    for one, other in zip(by_distance(position).values(), by_distance(alibi).values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-15, atol=0)


def test_sandwich_by_hand() -> None:
    """Head width 4: lambda (cos d + cos d/100)."""
    bias = by_distance(build("sandwich", scale=0.5))
    assert bias[0].tolist() == [1.0]
    for d in range(-6, 7):
        assert bias[d].item() == pytest.approx(0.5 * (math.cos(d) + math.cos(d / 100)), rel=1e-15)


def test_sandwich_is_the_inner_product_of_sinusoidal_positions() -> None:
    """What the paper derives it from: p_m . p_n of the table that `sinusoidal` adds to embeddings."""
    sizes = shape(heads=1, head_dim=8)
    table = build("sinusoidal", sizes).embed(torch.zeros(1, SEQ, 8, dtype=torch.float64), 0)[0]
    bias = by_distance(build("sandwich", sizes))
    for m in range(SEQ):
        for n in range(SEQ):
            torch.testing.assert_close(table[m] @ table[n], bias[m - n][0], rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_gau_additive_with_a_and_b_on_the_first_of_each_pair_is_sandwich(scale: float) -> None:
    """a = b = [sqrt(λ), 0, sqrt(λ), 0, …], Su (2023); the roots are exact in binary, so only the sum's order rounds."""
    sizes = shape(heads=3, head_dim=8)
    additive, sandwich = build("gau_additive", sizes), build("sandwich", sizes, scale=scale)
    with torch.no_grad():
        for vector in (additive.a, additive.b):
            vector.zero_()
            vector[..., ::2] = math.sqrt(scale)
    one = torch.stack(list(by_distance(additive, seq=600).values()))
    other = torch.stack(list(by_distance(sandwich, seq=600).values()))
    # Four waves of at most `scale`: three additions, each off by half a unit of a number of at most 4 · scale.
    assert (one - other).abs().max() <= 2 * 3 * 4 * scale * 2**-53


def test_gau_additive_is_the_score_of_two_rotated_vectors() -> None:
    """a^T R_m^T R_n b through `rope`, which turns queries and keys."""
    sizes = shape(heads=1, head_dim=8)
    additive, rope = build("gau_additive", sizes), build("rope", sizes)
    with torch.no_grad():
        for name, parameter in additive.named_parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(ord(name)))
    a, b = (vector[1, 0].expand(1, 1, SEQ, 8) for vector in (additive.a, additive.b))
    query, key = rope.rotate(a, b, rope.prepare(0, SEQ, torch.zeros(1, dtype=torch.float64)))
    scores, bias = (query @ key.mT)[0, 0], by_distance(additive, layer=1)
    for m in range(SEQ):
        for n in range(SEQ):
            torch.testing.assert_close(scores[m, n], bias[m - n][0], rtol=1e-13, atol=1e-13)
    assert abs(bias[3][0] - bias[-3][0]) > 1e-2  # a and b differ, so before and after differ


def xpos(x: Tensor, start: int = 0, **fields: float) -> tuple[Tensor, Tensor]:
    """One vector of head width as query and as key at SEQ positions."""
    position = build("xpos", shape(heads=1, head_dim=len(x)), **fields)
    spread = x.expand(1, 1, SEQ, len(x)).contiguous()
    query, key = position.rotate(spread, spread, position.prepare(start, SEQ, x))
    return query[0, 0], key[0, 0]


def test_xpos_scales_by_its_papers_definition() -> None:
    """Head width 4, gamma 0.4: zeta = 0.4 / 1.4 and 0.9 / 1.4; at position t, zeta^{t/512} on queries, its inverse on keys."""
    x = torch.tensor([1.0, 0.0, 0.0, 2.0], dtype=torch.float64)
    query, key = xpos(x, start=512)
    plain = build("rope", shape(heads=1))
    turned, _ = plain.rotate(*[x.expand(1, 1, SEQ, 4)] * 2, plain.prepare(512, SEQ, x))
    for row in range(SEQ):
        t = 512 + row
        zeta = torch.tensor([0.4 / 1.4, 0.4 / 1.4, 0.9 / 1.4, 0.9 / 1.4], dtype=torch.float64) ** (t / 512)
        torch.testing.assert_close(query[row], turned[0, 0, row] * zeta, rtol=1e-14, atol=1e-15)
        torch.testing.assert_close(key[row], turned[0, 0, row] / zeta, rtol=1e-14, atol=1e-15)
    assert query[0].norm() < x.norm() < key[0].norm()


@pytest.mark.parametrize("start", [0, 5000])
def test_xpos_scores_depend_on_the_distance_alone_and_fade(start: int) -> None:
    x = torch.tensor([1.0, 0.5, -0.3, 2.0, 0.1, 0.2, 0.7, -1.0], dtype=torch.float64)
    query, key = xpos(x, start, span=4.0 if start == 0 else 512.0)
    scores = query @ key.T
    for distance in range(-SEQ + 1, SEQ):
        diagonal = scores.diagonal(distance)
        # Angles and exponents of size t are products in float64: off by t units of rounding.
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-11, atol=1e-11)
    if start == 0:
        expected = [0.0] * SEQ
        for d in range(SEQ):
            for j in range(4):
                zeta = ((2 * j / 8 + 0.4) / 1.4) ** (d / 4)
                size = (x[2 * j] ** 2 + x[2 * j + 1] ** 2).item()
                expected[d] += zeta * size * math.cos(d * 10_000 ** (-j / 4))
        torch.testing.assert_close(scores[:, 0], torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)


def test_xpos_refuses_positions_that_its_numbers_cannot_hold() -> None:
    """0.9 ln(3.4e38) · 512 / ln(1.4 / 0.4) = 32 634 positions in float32, and all of those are finite."""
    position = build("xpos")
    known = 32_634
    like = torch.zeros(1)
    turns = position.prepare(known - 1, 1, like)
    assert all(table.isfinite().all() and (table != 0).all() for pair in turns for table in pair)
    with pytest.raises(
        InputError, match=f"xpos with gamma 0.4 and span 512 knows {known} positions in float32, .* 32635"
    ):
        position.prepare(known, 1, like)
    position.prepare(known, 1, like.double())


@pytest.mark.parametrize(
    ("room", "kind", "fields", "message"),
    [
        *(("position", kind, {"theta": theta}, rf"{kind}\.theta: expected a positive number, got {theta}")
          for kind in ("rope", "xpos", "sinusoidal", "sandwich", "gau_additive") for theta in (0.0, -1.0)),
        ("position", "rope", {"fraction": 0.0}, r"rope\.fraction: expected a positive number, got 0.0"),
        ("position", "xpos", {"gamma": 0.0}, r"xpos\.gamma: expected a positive number, got 0.0"),
        ("position", "xpos", {"span": -512.0}, r"xpos\.span: expected a positive number, got -512.0"),
        ("position", "sandwich", {"scale": 0.0}, r"sandwich\.scale: expected a positive number"),
        ("position", "gau_additive", {"init_std": 0.0}, r"gau_additive\.init_std: expected a positive number"),
        ("position", "learned", {"init_std": -0.1}, r"learned\.init_std: expected a positive number"),
        ("position", "t5", {"buckets": 0}, r"t5\.buckets: expected a positive multiple of 2 with sides 'past', got 0"),
        ("position", "t5", {"buckets": 6, "sides": "both"}, r"t5\.buckets: expected a positive multiple of 4"),
        ("position", "t5", {"farthest": 16}, r"t5\.farthest: expected more than 16, .*, got 16"),
        ("norm", "rms", {"eps": 0.0}, r"rms\.eps: expected a positive number, got 0.0"),
        ("norm", "layer", {"eps": -1e-5}, r"layer\.eps: expected a positive number, got -1e-05"),
        ("norm", "batch", {"eps": -1e-5}, r"batch\.eps: expected a positive number"),
        ("norm", "batch", {"momentum": 2.0}, r"batch\.momentum: expected a number in \(0, 1\], got 2.0"),
    ],
)  # fmt: skip
def test_numbers_without_a_meaning_are_refused(room: str, kind: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ROOMS[room].make(kind, **fields)


@pytest.mark.parametrize("kind", ["rope", "xpos", "sandwich", "gau_additive"])
def test_pairs_need_an_even_head_width(kind: str) -> None:
    with pytest.raises(InputError, match="even"):
        build(kind, shape(head_dim=3))
