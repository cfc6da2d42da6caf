"""Compare how differences in loss change with the size of the models.

Every path has the runs of one size: a study's folder, a JSON file of results, or a table of runs that other code trained. A
difference that becomes more negative as the models grow `falls`; one that stays within the margin is `level`.

With --predict, the largest size is predicted before it is trained, and scored afterwards: losses by a law of compute that is
fitted to the smaller sizes, differences and verdicts with intervals. The prediction is frozen in the folder of the largest.

For example:
    addnorm trend runs/small runs/middle runs/large
    addnorm trend runs/small runs/middle --predict runs/large
    addnorm trend runs/small runs/large --reference base --plot trend.svg
    addnorm trend small.csv large.csv --parameters 124e6,355e6 --columns variant=model,loss=val_loss
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from addnorm.cli._text import JsonOption, page_width, print_json, print_message, refuse
from addnorm.errors import InputError
from addnorm.words import spoken


@dataclass(frozen=True)
class Options(JsonOption):
    paths: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Two paths or more, one per size, in any order."""
    reference: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Variants to compare with, in place of those of the first path. May be given more than once."""
    parameters: str = ""
    """Parameters of a model of each size, in the order of the paths, such as `124e6,355e6`; counted for a study's folder."""
    margin: float | None = None
    """Largest change per doubling that is called level, in nats per token or the column's unit; the study's if not given."""
    exclude: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Leave out this variant. May be given more than once."""
    predict: Path | None = None
    """Folder of a study of the largest size, whose plan is frozen (`addnorm run STUDY --freeze`) and none of whose runs has
    begun. The paths are then folders of the smaller sizes. Once its runs have ended, the same command scores the prediction."""
    columns: str = ""
    """Columns of runs that other code trained, such as `variant=model,loss=val_loss`."""
    plot: Path | None = None
    """Also draw a figure into this file (.svg, .pdf, .png)."""
    csv: bool = False
    """Print comma-separated values, one line per variant, reference and size."""


def command(options: Options) -> int:
    import addnorm
    from addnorm.cli._text import require_figure_file, write_figure
    from addnorm.reporting.formats import trend_table as tables
    from addnorm.statistics.run_tables import columns_from

    if options.predict is not None:
        return _predict(options, options.predict)
    require_figure_file(options.plot)
    trend = addnorm.trend(
        options.paths,
        references=options.reference or None,
        parameters=_numbers(options.parameters),
        margin=options.margin,
        exclude=options.exclude,
        columns=columns_from(options.columns) if options.columns else None,
        say=print_message,
    ).to_json()
    if options.plot is not None:
        from addnorm.reporting.drawing.trend import figure

        if all(row["variant"] == trend["references"][0] for row in trend["variants"]):
            raise InputError(
                f"--plot: expected a variant besides {trend['references'][0]!r} with a seed at every size, got none. Train the "
                "missing runs, or leave --plot out."
            )
        write_figure(figure(trend), options.plot)
    if options.json:
        print_json(trend)
    elif options.csv:
        print(tables.csv(trend), end="")
    else:
        print(tables.text(trend, page_width()), end="")
        if options.plot is not None:
            print("\n" + spoken()("printed.drawn", path=options.plot))
    return 0


def _predict(options: Options, largest: Path) -> int:
    import addnorm
    from addnorm.cli._rank.prediction import text

    refuse(options, "--predict", "parameters", "columns", "plot", "csv")
    prediction = addnorm.predict_largest(
        options.paths,
        largest,
        references=options.reference or None,
        margin=options.margin,
        exclude=options.exclude,
        say=print_message,
    ).to_json()
    print_json(prediction) if options.json else print(text(prediction, page_width()))
    return 0


def _numbers(text: str) -> list[float] | None:
    if not text:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--parameters: expected numbers such as 124e6,355e6, got {text!r}.") from None
