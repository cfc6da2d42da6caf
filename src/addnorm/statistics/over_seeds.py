"""Means and intervals over the seeds of one variant, each by itself: descriptions, not verdicts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64
from scipy.special import stdtrit

CONFIDENCE = 0.95
MATRICES = ("weights", "shares", "relative")
"""Fields of a recorded depth matrix that are compared with the start."""


@dataclass(frozen=True, kw_only=True)
class MeanOverSeeds:
    """A mean with Student's interval."""

    mean: float
    low: float | None
    """Ends of the interval; None with one seed."""
    high: float | None
    seeds: int


def half_interval(values: Sequence[float] | Float64[np.ndarray, " value"], confidence: float = CONFIDENCE) -> float:
    """Half of Student's interval of the mean of at least two values."""
    # For this mean alone, without a family: it describes one variant and must not be read as a test between two.
    return (
        float(stdtrit(len(values) - 1, (1 + confidence) / 2)) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    )


def mean_over_seeds(values: Sequence[float]) -> MeanOverSeeds:
    """Average one value per seed, with the interval of 95 % for that mean alone.

    Example:
        >>> mean_over_seeds([1.0, 2.0, 3.0]).low
        -0.48...
    """
    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return MeanOverSeeds(mean=mean, low=None, high=None, seeds=count)
    reach = half_interval(values)
    return MeanOverSeeds(mean=mean, low=mean - reach, high=mean + reach, seeds=count)


@dataclass(frozen=True, kw_only=True)
class MatrixOverSeeds:
    """One kind of depth matrix of one room: means over the seeds of a variant."""

    start: Float64[np.ndarray, "read source"] | None
    """None of a model without a start, such as a checkpoint."""
    end: Float64[np.ndarray, "read source"]
    difference: Float64[np.ndarray, "read source"] | None
    sd: Float64[np.ndarray, "read source"] | None
    """Standard deviation over seeds of the difference, or of the end where there is no start; None with one seed."""

    def plain(self) -> dict[str, Any]:
        """The same as lists."""
        return {
            name: None if value is None else value.tolist()
            for name, value in (
                ("start", self.start),
                ("end", self.end),
                ("difference", self.difference),
                ("sd", self.sd),
            )
        }


@dataclass(frozen=True, kw_only=True)
class DepthOverSeeds:
    """The depth matrices of one room of one variant."""

    room: str
    kind: str
    reads: tuple[str, ...]
    sources: tuple[str, ...]
    seeds: int
    matrices: Mapping[str, MatrixOverSeeds]
    """By name, see `MATRICES`."""
    varies: bool
    """True if weights depend on the tokens."""

    def plain(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "room": self.room,
            "kind": self.kind,
            "reads": list(self.reads),
            "sources": list(self.sources),
            "seeds": self.seeds,
            "varies": self.varies,
        } | {name: matrix.plain() for name, matrix in self.matrices.items()}


def depth_over_seeds(contents: Sequence[Mapping[str, Any]]) -> list[DepthOverSeeds]:
    """Average the depth matrices of several runs of one variant, by room.

    Args:
        contents: of the runs' `insight.json`; those without depth matrices are left out.
    """
    # Runs without depth matrices are not counted as zero: `seeds` is the number of runs that were averaged.
    known = [content for content in contents if content["end"].get("depth")]
    return [_room(known, room) for room in (known[0]["end"]["depth"] if known else ())]


def _room(contents: Sequence[Mapping[str, Any]], room: str) -> DepthOverSeeds:
    first = contents[0]["end"]["depth"][room]

    def matrices(moment: str) -> list[Mapping[str, Any]]:
        made = [content.get(moment, {}).get("depth", {}).get(room) for content in contents]
        return [each for each in made if each and all(each[name] == first[name] for name in ("reads", "sources"))]

    # A stream that is followed through a pass has the sources of that pass: with other ones, rows and columns do not match.
    ends, starts = matrices("end"), matrices("start")
    starts = starts if len(starts) == len(ends) else []
    return DepthOverSeeds(
        room=room,
        kind=first["kind"],
        reads=tuple(first["reads"]),
        sources=tuple(first["sources"]),
        seeds=len(ends),
        matrices={name: _matrix([start[name] for start in starts], [end[name] for end in ends]) for name in MATRICES},
        varies=any(np.max(end["spread"]) > 0 for end in ends),
    )


def _matrix(starts: Sequence[Any], ends: Sequence[Any]) -> MatrixOverSeeds:
    # Differences are taken per seed before they are averaged. The start differs between seeds, and the spread of the move is
    # the quantity whose noise matters; sd(end) and sd(start) together would count the start's spread twice.
    end = np.asarray(ends, dtype=np.float64)
    if not starts:
        return MatrixOverSeeds(start=None, end=end.mean(0), difference=None, sd=_sd(end))
    start = np.asarray(starts, dtype=np.float64)
    moved = end - start
    return MatrixOverSeeds(start=start.mean(0), end=end.mean(0), difference=moved.mean(0), sd=_sd(moved))


def _sd(values: Float64[np.ndarray, "seed read source"]) -> Float64[np.ndarray, "read source"] | None:
    return values.std(axis=0, ddof=1) if len(values) > 1 else None
