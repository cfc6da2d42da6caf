"""Measure several functions in turn, round after round, so that a slow minute hits all of them."""

import statistics
import time
from collections.abc import Callable, Mapping


def interleaved(sides: Mapping[str, Callable[[], object]], *, rounds: int, warm_up: int = 2) -> dict[str, float]:
    """Median seconds of each function.

    Args:
        sides: what to measure, by name.
        rounds: measurements of each.
        warm_up: calls of each before the first measurement.
    """
    for _ in range(warm_up):
        for call in sides.values():
            call()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, call in sides.items():
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}
