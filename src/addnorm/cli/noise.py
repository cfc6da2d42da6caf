"""Show how noisy one run is, and which differences a number of seeds decides.

For example:
    addnorm noise runs/first
    addnorm noise results.csv --difference 0.01 --comparisons 4
    addnorm noise runs/first runs/second --seeds 3,5,10
    addnorm noise scores.csv --columns loss=accuracy --direction higher --unit %
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any, Literal

import tyro

from addnorm.cli._text import page_width, print_json
from addnorm.errors import InputError
from addnorm.reporting.formats.table import Column, ResultTable


@dataclass(frozen=True)
class Options:
    paths: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of studies, JSON files of published results, `kuang-2025`, or tables of runs that other code trained. Several are
    pooled."""
    seeds: str = ""
    """Numbers of seeds per variant whose smallest differences are shown, such as `3,5,10`."""
    difference: Annotated[tuple[float, ...], tyro.conf.UseAppendAction] = ()
    """A difference to be decided; shows how many seeds per variant it takes. May be given more than once."""
    comparisons: int = 1
    """Variants that will be compared with one reference."""
    columns: str = ""
    """Columns of runs that other code trained, such as `variant=model,loss=val_loss`."""
    direction: Literal["lower", "higher"] | None = None
    """The better direction in the column `loss` of such runs; needed for a column such as accuracy."""
    unit: str = ""
    """Unit of that column, for what is shown."""
    json: bool = False
    """Print JSON."""


def command(options: Options) -> int:
    import addnorm
    from addnorm.statistics.run_noise import SEEDS
    from addnorm.statistics.run_tables import columns_from

    content = addnorm.noise(
        *options.paths,
        seeds=_numbers(options.seeds) if options.seeds else SEEDS,
        differences=options.difference,
        comparisons=options.comparisons,
        columns=columns_from(options.columns) if options.columns else None,
        direction=options.direction,
        unit=options.unit or None,
    ).to_json()
    if options.json:
        print_json(content)
    else:
        print(_text(content, page_width()))
    return 0


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--seeds: expected whole numbers such as 3,5,10, got {text!r}.") from None


def _text(content: Mapping[str, Any], width: int) -> str:
    unit = f" {content['unit']}" if content["unit"] else f" of {content['metric']}"
    percent = f"{100 * content['confidence']:g} %"
    lines = [
        fill(f"Standard deviation of one run: {_sd(content['one_run'])}{unit} ({percent} interval).", width),
    ]
    if content["paired"] is not None:
        text = f"Beside runs of other variants at its seed, without the seed's effect: {_sd(content['paired'])}{unit}."
        lines.append(fill(text, width))
    rows = ResultTable(
        [
            Column("variant", side="l"),
            Column("runs"),
            Column("mean", form=_digits(6)),
            Column("sd", value=lambda row: row["sd"], form=lambda sd: "-" if sd is None else f"{sd['sd']:.3g}"),
            Column("interval", value=lambda row: row["sd"], form=lambda sd: "-" if sd is None else _ends(sd)),
        ],
        content["variants"],
    )
    lines += ["", "Each variant by itself:", "", rows.text(width).rstrip("\n"), ""]
    family = "one variant" if content["comparisons"] == 1 else f"each of {content['comparisons']} variants"
    about = f"Smallest difference of {family} from a reference that is decided with probability {content['power']:g}"
    lines += [fill(f"{about}, in{unit or ' units'}; in brackets for the ends of the interval above:", width), ""]
    kinds = [("paired", "same seeds")] if content["paired"] is not None else []
    kinds.append(("unpaired", "other seeds"))
    columns = [Column("seeds", "seeds each")]
    columns += [
        Column(kind, words, form=lambda size: f"{size['difference']:.3g} {_ends(size)}") for kind, words in kinds
    ]
    lines.append(ResultTable(columns, content["smallest"]).text(width).rstrip("\n"))
    for needed in content["needed"]:
        lines += ["", fill(_needed(needed, content["paired"] is not None, unit), width)]
    lines += [""] if content["warnings"] else []
    lines += [fill(f"! {warning}", width, subsequent_indent="  ") for warning in content["warnings"]]
    return "\n".join(lines)


def _needed(needed: Mapping[str, Any], paired: bool, unit: str) -> str:
    words = [f"with other seeds {_count(needed['unpaired'])} {_range(needed['unpaired_range'])}"]
    if paired:
        words.insert(0, f"with the same seeds {_count(needed['paired'])} {_range(needed['paired_range'])}")
    return f"A difference of {needed['difference']:g}{unit} takes, per variant: {', '.join(words)}."


def _count(seeds: int | None) -> str:
    return "more than a million seeds" if seeds is None else f"{seeds} seeds"


def _range(ends: Sequence[int | None]) -> str:
    low, high = ("over a million" if end is None else str(end) for end in ends)
    return f"({low} to {high})"


def _sd(content: Mapping[str, Any]) -> str:
    return f"{content['sd']:.3g} {_ends(content)}"


def _ends(content: Mapping[str, Any]) -> str:
    low, high = content["interval"]
    return f"[{low:.3g}, {high:.3g}]"


def _digits(number: int) -> Callable[[float], str]:
    return lambda value: f"{value:.{number}g}"
