"""Rotary positions and the biases of queries and keys: which of them can matter, in float64."""

import math
from typing import Any

import pytest
import torch
from comparing import gradients, make, tiny
from torch import Tensor

from addnorm.bias import Biases
from addnorm.catalogue import ROOMS
from addnorm.model.transformer import Transformer
from addnorm.position import Position
from addnorm.testing.laws import rounding, some_tokens, subject
from sampled import sampled

pytestmark = pytest.mark.plain  # shapes of the same models are checked in tests/contracts

SEQ, DIM = 7, 8


def rotated(x: Tensor, fraction: float = 1.0, start: int = 0) -> Tensor:
    """One vector of head width at every position: [seq, head_dim]."""
    rope = make("position", "rope", fraction=fraction).build(tiny().shape)
    like = torch.zeros(1, SEQ, 32, dtype=torch.float64)
    spread = x.expand(1, 1, SEQ, DIM).contiguous()
    query, key = rope.rotate(spread, spread, rope.prepare(start, SEQ, like))
    assert torch.equal(query, key)
    return query[0, 0]


def vectors(count: int) -> list[Tensor]:
    return list(torch.randn(count, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("fraction", [0.25, 0.5, 1.0])
def test_scores_depend_on_the_distance_alone(fraction: float) -> None:
    q, k = vectors(2)
    scores = rotated(q, fraction) @ rotated(k, fraction).T
    for distance in range(-SEQ + 1, SEQ):
        diagonal = scores.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-13, atol=1e-13)
    far = rotated(q, fraction, start=90_000) @ rotated(k, fraction, start=90_000).T
    # The angle t theta_j is a float64 product: at t = 90 000 it is off by up to 90 000 eps.
    torch.testing.assert_close(far, scores, rtol=0, atol=90_000 * 2.3e-16 * DIM * float(q.norm() * k.norm()))
    assert (scores[0] - scores[0, 0]).abs().max() > 1e-2  # and on the distance they do depend


def test_rotation_turns_neighbouring_pairs_by_t_theta_j() -> None:
    (q,) = vectors(1)
    angles = torch.arange(SEQ, dtype=torch.float64)[:, None] * 10_000.0 ** (-torch.arange(4, dtype=torch.float64) / 4)
    turned = torch.view_as_complex(q.view(4, 2)) * torch.polar(torch.ones_like(angles), angles)
    torch.testing.assert_close(rotated(q), torch.view_as_real(turned).flatten(1), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("fraction", [0.25, 0.5, 0.75])
def test_partial_rotation_leaves_the_rest(fraction: float) -> None:
    (q,) = vectors(1)
    cut = int(DIM * fraction)
    assert torch.equal(rotated(q, fraction)[:, cut:], q[cut:].expand(SEQ, -1))
    assert (rotated(q, fraction)[1:, :cut] != q[:cut]).any(dim=0).all()


def test_scores_with_biases_expand_into_four_terms() -> None:
    """(R_m (q + a)) . (R_n (k + b)) = q R k + a R k + q R b + a R b with R = R_{n-m}, Su (2023)."""
    q, k, a, b = vectors(4)
    whole = rotated(q + a) @ rotated(k + b).T
    terms = [rotated(left) @ rotated(right).T for left in (q, a) for right in (k, b)]
    torch.testing.assert_close(whole, sum(terms), rtol=1e-13, atol=1e-13)
    for m in range(SEQ):
        for n in range(SEQ):
            torch.testing.assert_close(terms[3][m, n], a @ rotation(n - m) @ b, rtol=1e-12, atol=1e-12)


def rotation(t: int) -> Tensor:
    """R_t as a matrix."""
    angles = [t * 10_000.0 ** (-j / 4) for j in range(4)]
    blocks = [[[math.cos(x), -math.sin(x)], [math.sin(x), math.cos(x)]] for x in angles]
    return torch.block_diag(*torch.tensor(blocks, dtype=torch.float64))


def biased(kind: str, position: Any, **changes: Any) -> Transformer:
    position = make("position", position) if isinstance(position, str) else position
    return subject(tiny(bias=Biases(q=True, k=True), qk_bias=make("bias", kind), position=position, **changes))


def key_bias_gradients(model: Transformer) -> list[Tensor]:
    found = gradients(model, model(some_tokens(model.spec)))
    return [value for name, value in found.items() if name.endswith("qk_bias.k")]


OWN_K = [kind for kind in ROOMS["bias"].kinds() if "shared_" not in kind]  # q and k have parameters of their own
POSITIONS = ROOMS["position"].kinds()
ROTARY = [
    kind
    for kind in POSITIONS
    for cls in [type(make("position", kind).build(tiny().shape))]
    if cls.rotate is not Position.rotate or cls.rotate_layer is not Position.rotate_layer
]


def test_rotary_positions_are_those_that_are_known() -> None:
    """The facts below are asked of every kind; which half a new one belongs to is read off its class."""
    assert ROTARY == ["interleaved_rope", "rope", "xpos"]


def key_biases(model: Transformer) -> list[Tensor]:
    return [value for name, value in model.named_parameters() if name.endswith("qk_bias.k")]


def assert_key_bias_cannot_matter(model: Transformer) -> None:
    """Exactly zero in exact arithmetic: the gradient is the sum over rows of (sum_j dS_rj) q_r, and a row of softmax's dS
    sums to sum_j P_j (dP_j - delta) = delta - delta = 0. In float64 the two deltas are rounded apart, so what is asserted is
    that no more than rounding is left, and that moving the bias moves no logit by more than that.
    """
    tokens = some_tokens(model.spec)
    with torch.no_grad():
        before, allowed = model(tokens), rounding(model, tokens)
    # A sum of terms of the loss's own size, one per position and logit, each rounded.
    for gradient in key_bias_gradients(model):
        assert gradient.abs().max() <= allowed * tokens.numel() * model.spec.vocab
    with torch.no_grad():
        for bias in key_biases(model):
            bias.add_(torch.linspace(-1, 2, len(bias)))
        assert (model(tokens) - before).abs().max() <= allowed + rounding(model, tokens)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("scores", ["own", "sum", "weighted"])
def test_without_rotation_the_key_bias_cannot_matter(kv_heads: int, scores: str) -> None:
    for kind in OWN_K:
        assert_key_bias_cannot_matter(biased(kind, "none", kv_heads=kv_heads, scores=make("scores", scores)))


@pytest.mark.parametrize("position", [kind for kind in POSITIONS if kind not in ROTARY])
@pytest.mark.parametrize("objective", sampled(2, ["causal", "masked"]))
def test_no_position_but_a_rotation_lets_it_matter(position: str, objective: str) -> None:
    for kind in OWN_K:
        assert_key_bias_cannot_matter(biased(kind, position, objective=objective, scores=make("scores", "sum")))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("kind", OWN_K)
@pytest.mark.parametrize("position", ROTARY)
def test_with_rotation_it_does_matter(position: str, kind: str, kv_heads: int) -> None:
    model = biased(kind, position, kv_heads=kv_heads)
    assert all(gradient.abs().max() > 1e-3 for gradient in key_bias_gradients(model))
    tokens = some_tokens(model.spec)
    with torch.no_grad():
        before = model(tokens)
        for bias in key_biases(model):
            bias.add_(1.0)
        assert (model(tokens) - before).abs().max() > 1e-3


@pytest.mark.parametrize("position", ROTARY)
def test_with_full_rotation_every_entry_matters(position: str) -> None:
    assert all(gradient.abs().min() > 1e-6 for gradient in key_bias_gradients(biased("linear", position)))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("kind", ["linear", "head_shared"])
def test_with_partial_rotation_only_the_rotated_part_matters(kind: str, kv_heads: int) -> None:
    model = biased(kind, make("position", "rope", fraction=0.5), kv_heads=kv_heads)
    tokens = some_tokens(model.spec)
    with torch.no_grad():
        before, allowed = model(tokens), rounding(model, tokens)
    for gradient in key_bias_gradients(model):
        by_head = gradient.view(-1, DIM)
        assert (by_head[:, : DIM // 2].abs().amax(dim=1) > 1e-4).all()
        assert by_head[:, DIM // 2 :].abs().max() <= allowed * tokens.numel() * model.spec.vocab

    def moved(part: slice) -> tuple[float, float]:
        with torch.no_grad():
            for bias in key_biases(model):
                bias.view(-1, DIM)[:, part] += 1.0
            result = (model(tokens) - before).abs().max().item(), allowed + rounding(model, tokens)
            for bias in key_biases(model):
                bias.view(-1, DIM)[:, part] -= 1.0
        return result

    gap, explained = moved(slice(DIM // 2, None))
    assert gap <= explained
    assert moved(slice(0, DIM // 2))[0] > 1e-3


@pytest.mark.parametrize("position", [*ROTARY, "partial"])
def test_one_number_for_all_entries_matters_as_soon_as_one_pair_is_rotated(position: str) -> None:
    rotation = make("position", "rope", fraction=0.25) if position == "partial" else position
    assert all(gradient.abs().max() > 1e-4 for gradient in key_bias_gradients(biased("scalar", rotation)))


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize(("shared", "apart"), [("shared_vector", "head_shared"), ("shared_scalar", "scalar")])
def test_a_bias_shared_by_q_and_k_is_one_of_q_alone_unless_keys_are_rotated(
    position: str, shared: str, apart: str
) -> None:
    """(q + a)(k + a) = qk + ak + qa + aa: the last two are the same for all keys of a row, so softmax takes them out and leaves
    what a bias on q alone gives, gradient included. The parameter is not redundant; its half on k is."""
    model = biased(shared, position)
    spec = tiny(bias=Biases(q=True), qk_bias=make("bias", apart), position=model.spec.position)
    alone = spec.build().double().eval()
    alone.load_state_dict(
        {name.replace("qk_bias.qk", "qk_bias.q"): value for name, value in model.state_dict().items()}
    )
    tokens = some_tokens(model.spec)
    with torch.no_grad():
        gap, allowed = (model(tokens) - alone(tokens)).abs().max().item(), rounding(model, tokens)
    assert (gap <= allowed) is (position not in ROTARY)
    assert gap <= allowed or gap > 1e-3
    mine, theirs = gradients(model, model(tokens)), gradients(alone, alone(tokens))
    for name, gradient in mine.items():
        if name.endswith("qk_bias.qk"):
            assert gradient.abs().max() > 1e-3
            rest = (gradient - theirs[name.replace("qk_bias.qk", "qk_bias.q")]).abs().max().item()
            assert (rest <= allowed * tokens.numel() * model.spec.vocab) is (position not in ROTARY)


def test_the_query_bias_matters_everywhere() -> None:
    for position in POSITIONS:
        model = biased("linear", position)
        found = gradients(model, model(some_tokens(model.spec)))
        assert all(value.abs().max() > 1e-3 for name, value in found.items() if name.endswith("qk_bias.q"))


@pytest.mark.parametrize(
    ("kind", "q", "k"),
    [
        ("linear", [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4]),
        ("head_shared", [1, 2, 1, 2, 1, 2, 1, 2], [1, 2, 1, 2]),
        ("scalar", [1] * 8, [1] * 4),
        ("shared_vector", [1, 2, 1, 2, 1, 2, 1, 2], [1, 2, 1, 2]),
        ("shared_scalar", [1] * 8, [1] * 4),
    ],
)
def test_bias_shapes_spread_as_defined(kind: str, q: list[int], k: list[int]) -> None:
    """Four query heads and two key heads of width 2; each parameter counts 1, 2, 3, …"""
    shape = tiny(width=8, kv_heads=2).shape
    bias = make("bias", kind).build(shape, q=True, k=True)
    with torch.no_grad():
        for parameter in bias.parameters():
            parameter.copy_(torch.arange(1, len(parameter) + 1))
    got_q, got_k = bias.vectors()
    assert got_q.tolist() == q
    assert got_k.tolist() == k
