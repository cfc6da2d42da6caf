"""Rank a study's variants, and show which differences are more than noise.

For example:
    addnorm rank runs/first
    addnorm rank runs/first --reference base --margin 0.01
    addnorm rank runs/first --exclude post
    addnorm rank kuang-2025
    addnorm rank results.csv --reference base --columns variant=model,loss=val_loss
    addnorm rank results.csv --columns loss=accuracy --direction higher --unit % --margin 0.2
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from addnorm.cli._text import page_width, paragraph, print_json, print_message
from addnorm.words import command_line, plugin_options, spoken


@dataclass(frozen=True)
class Options:
    dir: Annotated[Path, tyro.conf.Positional]
    """Folder of a study's runs; a JSON file of published results; `kuang-2025` for the table that Kuang (2025) prints; or runs
    that other code trained, with a variant, a seed and a loss each: CSV, JSON lines, a JSON list, a folder of TensorBoard
    events."""
    reference: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Variants to compare with, in place of the study's own. May be given more than once."""
    margin: float | None = None
    """Nats per token, or the unit of the column, below which a difference counts as none, in place of the study's own."""
    variant: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Rank only these variants and the references. May be given more than once. Counts as a look at results."""
    exclude: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Leave out this variant. May be given more than once. Counts as a look at results."""
    columns: str = ""
    """Columns of runs that other code trained, such as `variant=model,loss=val_loss`, also `state` and `step`; for a folder of
    TensorBoard events `run={variant}_{seed}`."""
    direction: Literal["lower", "higher"] | None = None
    """The better direction in the column `loss` of such runs; needed for a column such as accuracy."""
    unit: str = ""
    """Unit of that column, for what is shown."""
    json: bool = False
    """Print JSON."""
    csv: bool = False
    """Print comma-separated values."""
    latex: bool = False
    """Print a LaTeX table (booktabs)."""


def command(options: Options) -> int:
    import addnorm
    from addnorm.reporting.formats import ranking_latex
    from addnorm.reporting.sections import ranking as tables
    from addnorm.reporting.sections import tuning as tuning_tables
    from addnorm.statistics.conclusion import conclusion
    from addnorm.statistics.run_tables import columns_from

    ranked = addnorm.rank(
        options.dir,
        references=options.reference or None,
        margin=options.margin,
        variants=options.variant,
        exclude=options.exclude,
        columns=columns_from(options.columns) if options.columns else None,
        direction=options.direction,
        unit=options.unit or None,
        say=print_message,
    )
    ranking = ranked.to_json()
    if options.json:
        print_json(ranking)
    elif options.csv:
        print(tables.csv(ranking), end="")
    elif options.latex:
        print("\n".join(ranking_latex.latex(ranking).values()), end="")
    else:
        print(tables.text(ranking, page_width(), spoken()))
        if ranking["tuning"] is not None:
            print(tuning_tables.text(ranking["tuning"], page_width(), spoken()))
        if (options.dir / "study.json").exists():
            print(_next_commands(options.dir))
            print("\n".join(("", *map(paragraph, conclusion(ranked)))))
    return 0


def _next_commands(folder: Path) -> str:
    from addnorm.store import StudyFolder
    from addnorm.store.extension import plugins_of

    study = StudyFolder(folder)
    code = plugin_options(plugins_of(study.plan))
    finished = [run.path for run in study.runs() if run.status().state == "finished"]
    commands: list[tuple[str, list[str | Path]]] = [
        ("next.status", ["status", folder]),
        ("next.explain", ["explain", folder, *code]),
        ("next.json", ["rank", folder, "--json"]),
    ]
    if finished:
        commands.insert(2, ("next.export", ["export", finished[0], *code]))
    t = spoken()
    lines = (f"\n  {t('text.heading', text=t(key))}\n    {command_line('addnorm', *words)}" for key, words in commands)
    return t("next.title") + "".join(lines)
