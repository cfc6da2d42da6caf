"""Random small modules: no claimed direction may move the output, and most measured directions are explained.

`benchmarks/symmetry_fuzz.py` runs as many modules as are asked for.
"""

from collections.abc import Sequence

import pytest
from random_modules import inputs, module

import addnorm


@pytest.mark.parametrize(
    "seeds",
    [
        (*range(6), 80_002),  # the last has a direction that a depthwise kernel keeps to first order alone
        pytest.param(range(100, 160), marks=pytest.mark.thorough),
        pytest.param(range(60_000, 60_500), marks=pytest.mark.soak),
    ],
    ids=["few", "many", "ten thousand claims"],
)
def test_no_claim_moves_the_output(seeds: Sequence[int]) -> None:
    measured = explained = 0
    for seed in seeds:
        found = addnorm.symmetries(module(seed), inputs(seed), points=1)
        assert not found.refuted, (seed, found.refuted)
        assert found.explained + sum(each.size for each in found.unexplained) == found.redundant, seed
        measured += found.redundant
        explained += found.explained
    assert measured > 2 * len(seeds)
    assert explained > 0.7 * measured
    assert len(seeds) < 500 or explained > 10_000
