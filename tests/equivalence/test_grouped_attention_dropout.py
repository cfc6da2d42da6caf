"""The dropout mask: uniform, independent of its neighbours, and a function of place and seed alone."""

import math
from functools import cache

import pytest
import torch
from grouped_attention_cases import Case

from addnorm.kernels.grouped_attention import attend
from addnorm.kernels.grouped_attention.dropout import block, keep

SIDE = slice(0, 2), slice(0, 4), slice(0, 256)
# Six standard deviations: a correct generator leaves them once in 500 million draws, and the draws here are fixed.
SIGMAS = 6


@cache  # read only
def mask(seed: int, dropout: float = 0.5, columns: int = 256) -> torch.Tensor:
    batch, heads, rows = SIDE
    return block(torch.tensor(seed), batch=batch, heads=heads, rows=rows, columns=slice(0, columns), dropout=dropout)


@pytest.mark.parametrize("dropout", [0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("seed", [0, 1, -1, 2**31, 2**62 + 12345])
def test_the_share_kept_is_the_share_asked_for(dropout: float, seed: int) -> None:
    kept = mask(seed, dropout).double()
    for axis in range(4):
        along = kept.movedim(axis, 0).flatten(1).mean(1)
        error = math.sqrt(dropout * (1 - dropout) * kept.shape[axis] / kept.numel())
        assert (along - (1 - dropout)).abs().max() < SIGMAS * error


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("shift", [1, 2, 3, 16, 64])
def test_places_are_uncorrelated_along_every_axis(axis: int, shift: int) -> None:
    sign = mask(7).double() * 2 - 1
    if shift >= sign.shape[axis]:
        shift = sign.shape[axis] - 1
    near = sign.narrow(axis, 0, sign.shape[axis] - shift) * sign.narrow(axis, shift, sign.shape[axis] - shift)
    assert near.mean().abs() < SIGMAS / math.sqrt(near.numel())


@pytest.mark.parametrize("other", [8, 7 + 2**32, 7 - 2**40, -7])
def test_seeds_are_uncorrelated(other: int) -> None:
    near = (mask(7).double() * 2 - 1) * (mask(other).double() * 2 - 1)
    assert near.mean().abs() < SIGMAS / math.sqrt(near.numel())


def test_no_two_rows_share_a_mask() -> None:
    rows = mask(3, columns=64).flatten(0, 2)
    assert len(rows.unique(dim=0)) == len(rows)


def test_a_block_is_a_part_of_the_whole() -> None:
    part = block(
        torch.tensor(7), batch=slice(1, 2), heads=slice(2, 4), rows=slice(30, 50), columns=slice(0, 90), dropout=0.5
    )
    assert torch.equal(part, mask(7)[1:2, 2:4, 30:50, :90])


def test_the_words_are_those_of_32_bit_arithmetic() -> None:
    """The same formula on Python's integers, as another language would write it."""

    def mix(x: int, key: int = 0) -> int:
        x = (x ^ x >> 16) * 0x7FEB352D % 2**32
        x = (x ^ x >> 15 ^ key) * 0x846CA68B % 2**32
        return x ^ x >> 16

    seed, batch, head, row = 2**40 + 5, 1, 3, 70
    word = mix(mix(seed % 2**32) ^ seed >> 32)
    first = mix(mix(mix((word + batch) % 2**32) + head) + row)
    words = [mix((first + column * 0x9E3779B9) % 2**32, mix(first ^ 0x68E31DA4)) for column in range(300)]
    found = keep(torch.tensor(seed), batch, head, row, torch.arange(300), dropout=0.3)
    assert found.tolist() == [word >= round(0.3 * 2**32) for word in words]


@pytest.mark.parametrize("impl", ["reference", "streaming"])
def test_probabilities_drop_and_the_kept_ones_grow(impl: str) -> None:
    arguments = Case(padded=False, causal=False, kv_heads=4).arguments()
    arguments |= {"value": torch.eye(7, dtype=torch.float64).expand(2, 4, 7, 7), "seed": torch.tensor(5)}
    full = attend(**arguments, impl=impl)
    dropped = attend(**{**arguments, "dropout": 0.25}, impl=impl)
    kept = block(
        torch.tensor(5), batch=slice(0, 2), heads=slice(0, 4), rows=slice(0, 7), columns=slice(0, 7), dropout=0.25
    )
    torch.testing.assert_close(dropped, full * kept / 0.75)


def test_without_a_seed_the_global_generator_decides() -> None:
    arguments = Case(dropout=0.5).arguments() | {"seed": None}
    draws = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        draws.append(attend(**arguments))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
