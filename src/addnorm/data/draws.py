"""Random numbers as a pure function of (seed, step), the same on every machine.

Philox 4x64 (Salmon et al. 2011, doi:10.1145/2063384.2063405) with key = (seed, stream) and counter = (0, 0, step, 0). Only its
raw 64-bit words are used, which numpy guarantees to be stable; their conversion to numbers is defined here.
"""

from typing import NewType

import numpy as np
import numpy.typing as npt
from jaxtyping import Float64, Int64, UInt64

from addnorm.errors import InputError

RandomStream = NewType("RandomStream", int)
"""A stream of random numbers for one purpose, independent of the other streams."""
POSITIONS = RandomStream(1)
MASKS = RandomStream(2)


def words(seed: int, step: int, stream: RandomStream, count: int) -> UInt64[np.ndarray, "{count}"]:
    """`count` random 64-bit words of a seed, step and stream.

    Raises:
        InputError: seed or step outside [0, 2**64).
    """
    for name, value in (("seed", seed), ("step", step)):
        if not 0 <= value < 2**64:
            raise InputError(f"{name}: expected a number in [0, 2**64), got {value}.")
    # The counter's low 128 bits count within a step, the step is above them: no number of words of one step reaches
    # into the next.
    generator = np.random.Philox(
        key=np.array([seed, stream], dtype=np.uint64), counter=np.array([0, 0, step, 0], dtype=np.uint64)
    )
    random: npt.NDArray[np.uint64] = generator.random_raw(count)
    return random


def unit(random: UInt64[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
    """Convert words to numbers in [0, 1), multiples of 2**-53."""
    return (random >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(random: UInt64[np.ndarray, " n"], bound: int) -> Int64[np.ndarray, " n"]:
    """Convert words to whole numbers in [0, bound), uniform up to a relative bias of bound / 2**53."""
    scaled: npt.NDArray[np.float64] = np.floor(unit(random) * bound)
    return scaled.astype(np.int64)
