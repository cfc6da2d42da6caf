"""Show how noisy one run is, and which differences a number of seeds decides.

For example:
    addnorm noise runs/first
    addnorm noise results.csv --difference 0.01 --comparisons 4
    addnorm noise runs/first runs/second --seeds 3,5,10
    addnorm noise scores.csv --columns loss=accuracy --direction higher --unit %
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from addnorm.cli._rank.choices import ColumnOptions
from addnorm.cli._text import page_width, print_json
from addnorm.errors import InputError
from addnorm.reporting.questions.noise import answer
from addnorm.words import spoken


@dataclass(frozen=True)
class Options(ColumnOptions):
    paths: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of studies, JSON files of published results, `kuang-2025`, or tables of runs that other code trained. Several are
    pooled."""
    seeds: str = ""
    """Numbers of seeds per variant whose smallest differences are shown, such as `3,5,10`."""
    difference: Annotated[tuple[float, ...], tyro.conf.UseAppendAction] = ()
    """A difference to be decided; shows how many seeds per variant it takes. May be given more than once."""
    comparisons: int = 1
    """Variants that will be compared with one reference."""


def command(options: Options) -> int:
    import addnorm
    from addnorm.statistics.run_noise import SEEDS

    content = addnorm.noise(
        *options.paths,
        seeds=_numbers(options.seeds) if options.seeds else SEEDS,
        differences=options.difference,
        comparisons=options.comparisons,
        **options.of_runs(),
    ).to_json()
    print_json(content) if options.json else print(answer(content, spoken()).text(page_width()))
    return 0


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--seeds: expected whole numbers such as 3,5,10, got {text!r}.") from None
