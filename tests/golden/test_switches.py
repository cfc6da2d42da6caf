"""Evaluation switches against their papers' formulas, written out here a second time with plain numbers."""

import math

import pytest
import torch

from addnorm.catalogue import ROOMS
from addnorm.insight.extrapolation.switches import Reach
from addnorm.model.spec import ModelSpec
from addnorm.position.rope import Rope

TRAINED = 64
WIDTH = 16
ROPE = Rope(theta=10_000.0)


def wrapped(kind: str, length: int, *, causal: bool = True, spec=ROPE, **fields):
    position = spec.build(ModelSpec(width=WIDTH, heads=1, hidden=16).shape)
    reach = Reach(trained=TRAINED, length=length, causal=causal)
    return ROOMS["switch"].make(kind, **fields).wrap(position, reach)


def angles(position, seq: int) -> list[list[float]]:
    """Angle of every position and pair, up to whole turns, from what the rotation does to (1, 0)."""
    one = torch.zeros(1, 1, seq, WIDTH, dtype=torch.float64)
    one[..., ::2] = 1.0
    _, key = position.rotate(one, one, position.prepare(0, seq, one))  # the query may be tempered
    return torch.atan2(key[0, 0, :, 1::2], key[0, 0, :, ::2]).tolist()


def same_angle(a: float, b: float) -> bool:
    # Angles up to 512 rad, each product rounded once: 512 * 2^-53 and the reduction by 2 pi.
    return abs(math.remainder(a - b, 2 * math.pi)) < 1e-12


def check(position, expected) -> None:
    for place, row in enumerate(angles(position, 512)):
        for pair, angle in enumerate(row):
            assert same_angle(angle, expected(place, pair)), (place, pair)


def theta(pair: int, base: float = 10_000.0) -> float:
    return base ** (-2 * pair / WIDTH)


def test_position_interpolation_is_equation_4() -> None:
    """f'(x, m) = f(x, m L / L')."""
    check(wrapped("position_interpolation", 512), lambda m, j: m * TRAINED / 512 * theta(j))


def test_ntk_is_definition_1() -> None:
    """b' = b s^{|D| / (|D| - 2)}: the first pair keeps its frequency, the last one's is divided by s exactly."""
    base = 10_000.0 * 8 ** (WIDTH / (WIDTH - 2))
    check(wrapped("ntk", 512), lambda m, j: m * theta(j, base))
    assert theta(7, base) == pytest.approx(theta(7) / 8, rel=1e-14)


def test_yarn_is_definitions_2_and_3() -> None:
    def frequency(pair: int) -> float:
        wavelength = 2 * math.pi / theta(pair)
        ratio = TRAINED / wavelength
        gamma = 0.0 if ratio < 1 else 1.0 if ratio > 32 else (ratio - 1) / (32 - 1)
        return (1 - gamma) * theta(pair) / 8 + gamma * theta(pair)

    position = wrapped("yarn", 512)
    check(position, lambda m, j: m * frequency(j))
    query = torch.ones(1, 1, 1, WIDTH, dtype=torch.float64)
    tempered, key = position.rotate(query, query, position.prepare(0, 1, query))
    inverse_temperature = (0.1 * math.log(8) + 1) ** 2  # sqrt(1/t) = 0.1 ln s + 1
    torch.testing.assert_close(tempered, inverse_temperature * query, rtol=1e-15, atol=0)
    assert torch.equal(key, query)


def test_yarn_s_ramp_has_all_three_parts_here() -> None:
    ratios = [TRAINED * theta(j) / (2 * math.pi) for j in range(WIDTH // 2)]
    assert ratios[0] < 32, "at this train length no pair turns 32 times"
    spec = ROPE
    # With beta = 5 the first pair is left alone, some are mixed, the last are interpolated.
    position = wrapped("yarn", 512, spec=spec, beta=5.0)
    found = angles(position, 2)[1]
    assert same_angle(found[0], theta(0))
    assert same_angle(found[-1], theta(7) / 8)
    assert theta(1) / 8 < found[1] < theta(1)


def test_partial_rotation_leaves_the_rest_alone() -> None:
    for kind in ("position_interpolation", "ntk"):
        position = wrapped(kind, 512, spec=Rope(fraction=0.5))
        x = torch.randn(1, 1, 9, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        query, _ = position.rotate(x, x, position.prepare(0, 9, x))
        assert torch.equal(query[..., 8:], x[..., 8:])
        assert not torch.equal(query[..., 1:, :8], x[..., 1:, :8])


@pytest.mark.parametrize("causal", [True, False])
def test_log_n_is_the_logarithm_to_the_base_of_the_train_length(causal: bool) -> None:
    position = wrapped("log_n", 512, causal=causal)
    x = torch.ones(1, 1, 512, WIDTH, dtype=torch.float64)
    plain, _ = position.inner.rotate_layer(0, x, x, position.inner.prepare(0, 512, x))
    query, _ = position.rotate_layer(0, x, x, position.prepare(0, 512, x))
    for row in (0, 3, 63, 64, 200, 511):
        n = row + 1 if causal else 512
        expected = max(1.0, math.log(n) / math.log(TRAINED))
        torch.testing.assert_close(query[..., row, :], expected * plain[..., row, :], rtol=1e-14, atol=0)


def test_local_window_is_the_last_train_length_of_keys() -> None:
    position = wrapped("local_window", 512)
    prepared = position.prepare(0, 512, torch.zeros(1, 1))
    assert position.window(prepared) == TRAINED
    assert position.layer_bias(0, torch.zeros(1, 512, 4), prepared) is None
    assert position.window(position.prepare(TRAINED - 1, 1, torch.zeros(1, 1))) is None
    assert position.window(position.prepare(TRAINED, 1, torch.zeros(1, 1))) == TRAINED


def test_local_window_of_a_masked_model_hides_what_lies_beyond_the_train_length() -> None:
    position = wrapped("local_window", 512, causal=False)
    like = torch.zeros(1, 1, dtype=torch.float64)
    x = torch.zeros(1, 512, 4)
    bias = position.layer_bias(0, x, position.prepare(0, 512, like)).matrix(512, 512)[0, 0]
    for m, n in ((0, 0), (63, 0), (64, 0), (64, 1), (511, 448), (511, 447), (0, 63), (0, 64)):
        assert bias[m, n] == (0.0 if abs(m - n) < TRAINED else float("-inf"))


@pytest.mark.parametrize("kind", ROOMS["switch"].kinds())
@pytest.mark.parametrize("causal", [True, False])
def test_nothing_changes_at_the_train_length(kind: str, causal: bool) -> None:
    """Bit for bit: rotation, scale and what joins the scores."""
    position = wrapped(kind, TRAINED, causal=causal)
    plain = ROPE.build(ModelSpec(width=WIDTH, heads=1, hidden=16).shape)
    x = torch.randn(1, 1, TRAINED, WIDTH, generator=torch.Generator().manual_seed(1))
    prepared = position.prepare(0, TRAINED, x)
    for mine, theirs in zip(
        position.rotate(x, x, prepared), plain.rotate(x, x, plain.prepare(0, TRAINED, x)), strict=True
    ):
        assert torch.equal(mine, theirs)
    assert position.layer_bias(0, torch.zeros(1, 512, 4), prepared) is None
    assert position.window(prepared) is None
