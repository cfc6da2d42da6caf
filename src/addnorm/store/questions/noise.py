"""`addnorm.noise`: how noisy one run is, and what a number of seeds can decide."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from addnorm.errors import InputError
from addnorm.statistics.measure import Direction
from addnorm.statistics.run_noise import SEEDS, RunNoise, run_noise
from addnorm.statistics.run_tables import Source
from addnorm.store.questions.source import read_source


def noise(
    *sources: Source,
    seeds: Sequence[int] = SEEDS,
    differences: Sequence[float] = (),
    comparisons: int = 1,
    confidence: float = 0.95,
    columns: Mapping[str, str] | None = None,
    direction: Direction | None = None,
    unit: str | None = None,
) -> RunNoise:
    """Estimate the standard deviation of one run, and plan numbers of seeds by it.

    It compares no variants, so it is not recorded as a look at results. The command is `addnorm noise`.

    Args:
        sources: as for `rank`; several are pooled, such as past studies of one model on one text.
        seeds: numbers of seeds per variant whose smallest differences are wanted.
        differences: wanted differences, positive, in the unit of the metric, whose numbers of seeds are wanted.
        comparisons: variants that are to be compared with one reference.
        confidence: of every interval by itself, and of the planned comparisons together.
        columns: names of the columns `variant`, `seed` and `loss` in tables of runs.
        direction: the better direction of the column `loss`; needed for a column such as accuracy.
        unit: of that column, for what is shown.

    Raises:
        InputError: no source, sources of different metrics, no variant with two runs that differ, or a number out of its range.
        Damaged: a file of a study is damaged.

    Example:
        >>> rows = [{"variant": "base", "seed": s, "loss": x} for s, x in enumerate((2.50, 2.52, 2.51, 2.49))]
        >>> noise = addnorm.noise(rows, differences=[0.02])
        >>> round(noise.one_run.sd, 4), noise.needed(0.02).unpaired
        (0.0129, 8)
    """
    if not sources:
        raise InputError("noise: expected at least one source of runs, got none.")
    read = [read_source(source, columns, direction, unit) for source in sources]
    metrics = {(runs.measure.name, runs.measure.unit) for runs in read}
    if len(metrics) > 1:
        raise InputError(
            f"noise: expected one metric in all sources, got {' and '.join(sorted(name for name, _ in metrics))}. Estimate "
            "their noise apart."
        )
    estimate = run_noise(
        [(runs.name, runs.results) for runs in read],
        measure=read[0].measure,
        seeds=seeds,
        differences=differences,
        comparisons=comparisons,
        confidence=confidence,
    )
    of_sources = [warning for runs in read for warning in runs.warnings]
    return replace(estimate, warnings=tuple(dict.fromkeys((*of_sources, *estimate.warnings))))
