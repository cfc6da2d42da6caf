"""Show how noisy one run is, and which differences a number of seeds decides.

For example:
    addnorm noise runs/first
    addnorm noise results.csv --difference 0.01 --comparisons 4
    addnorm noise runs/first runs/second --seeds 3,5,10
    addnorm noise scores.csv --columns loss=accuracy --direction higher --unit %
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from addnorm.cli._rank import unit_of, warnings_text
from addnorm.cli._text import page_width, print_json
from addnorm.errors import InputError
from addnorm.reporting.formats.table import Column, ResultTable
from addnorm.reporting.formats.text_table import filled
from addnorm.words import Phrases, spoken


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
    t = spoken()
    unit = t("question.noise.of_metric", metric=content["metric"])
    if content["unit"]:
        unit = f" {unit_of(content['unit'], t)}"
    percent = f"{100 * content['confidence']:g}"
    lines = [filled(t("question.noise.one_run", sd=_sd(content["one_run"]), unit=unit, percent=percent), width)]
    if content["paired"] is not None:
        lines.append(filled(t("question.noise.paired", sd=_sd(content["paired"]), unit=unit), width))
    rows = ResultTable(
        [
            Column("variant", t("head.variant"), side="l"),
            Column("runs", t("question.runs")),
            Column("mean", t("question.mean"), form=_digits(6)),
            Column("sd", t("question.sd"), lambda sd: "-" if sd is None else f"{sd['sd']:.3g}"),
            Column(
                "interval",
                t("question.interval"),
                value=lambda row: row["sd"],
                form=lambda sd: "-" if sd is None else _ends(sd),
            ),
        ],
        content["variants"],
    )
    lines += ["", t("question.noise.each"), "", rows.text(width).rstrip("\n"), ""]
    count = content["comparisons"]
    family = t("question.noise.one_variant") if count == 1 else t("question.noise.several_variants", count=count)
    units = unit if content["unit"] else t("question.noise.units")
    power = f"{content['power']:g}"
    lines += [filled(t("question.noise.smallest", family=family, power=power, unit=units), width), ""]
    kinds = [("paired", t("question.noise.same_seeds"))] if content["paired"] is not None else []
    kinds.append(("unpaired", t("question.noise.other_seeds")))
    columns = [Column("seeds", t("question.noise.seeds_each"))]
    columns += [
        Column(kind, words, form=lambda size: f"{size['difference']:.3g} {_ends(size)}") for kind, words in kinds
    ]
    lines.append(ResultTable(columns, content["smallest"]).text(width).rstrip("\n"))
    for needed in content["needed"]:
        lines += ["", filled(_needed(needed, content["paired"] is not None, unit, t), width)]
    return "\n".join([*lines, *warnings_text(content["warnings"], width, t)])


def _needed(needed: Mapping[str, Any], paired: bool, unit: str, t: Phrases) -> str:
    kinds = ["paired", "unpaired"] if paired else ["unpaired"]
    keys = {"paired": "question.noise.with_same", "unpaired": "question.noise.with_other"}
    words = []
    for kind in kinds:
        low, high = (t("question.noise.million") if n is None else str(n) for n in needed[f"{kind}_range"])
        words.append(t(keys[kind], count=_count(needed[kind], t), low=low, high=high))
    difference = f"{needed['difference']:g}"
    return t("question.noise.needed", difference=difference, unit=unit, seeds=t("joint.comma").join(words))


def _count(seeds: int | None, t: Phrases) -> str:
    return t("question.noise.million_seeds") if seeds is None else t("question.noise.seeds", count=seeds)


def _sd(content: Mapping[str, Any]) -> str:
    return f"{content['sd']:.3g} {_ends(content)}"


def _ends(content: Mapping[str, Any]) -> str:
    low, high = content["interval"]
    return f"[{low:.3g}, {high:.3g}]"


def _digits(number: int) -> Callable[[float], str]:
    return lambda value: f"{value:.{number}g}"
