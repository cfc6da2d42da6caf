"""Evaluate a study's models on longer texts than they were trained on, with verdicts at each length.

Every model reads the same held-out text, cut into windows of each length. Results are written to the runs' folders, so the
same command continues after an interruption and computes nothing twice. A Transformers checkpoint (Llama, Qwen2, GPT-2, BERT,
GPT-NeoX, or an exported run) is evaluated on the text of --text, and nothing is written.

For example:
    addnorm extrapolate runs/first
    addnorm extrapolate runs/first --lengths 1x,2x,4x --with log_n,yarn,yarn+local_window --plot lengths.svg
    addnorm extrapolate ~/models/Qwen2.5-0.5B --text book.txt --trained 2048 --lengths 1x,2x
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from addnorm.cli._text import PluginOption, page_width, print_json
from addnorm.errors import InputError
from addnorm.words import spoken


@dataclass(frozen=True)
class Options(PluginOption):
    dir: Annotated[Path, tyro.conf.Positional]
    """Folder of a study's runs, or of a Transformers checkpoint."""
    lengths: str = "1x,2x,4x,8x"
    """Test lengths as multiples of the train length, increasing."""
    with_: Annotated[str | None, tyro.conf.arg(name="with")] = None
    """Switches to evaluate beside the unchanged models, without retraining: `log_n,yarn`; `+` combines switches. `addnorm list
    switch` describes them."""
    scoring: Literal["window", "ending"] = "window"
    """Losses that are shown and ranked: of every position of a window, as in Su (2023), or of the same last targets at every
    length."""
    windows: int = 24
    """Number of windows of the longest length."""
    variant: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Variants to evaluate; all if not given. May be given more than once."""
    reference: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Variants to compare with, in place of the study's own. May be given more than once."""
    margin: float | None = None
    """Nats per token below which a difference counts as none, in place of the study's own."""
    workers: int | None = None
    """Runs at the same time; one per CPU core if not given."""
    text: Path | None = None
    """A UTF-8 text file, or a JSON list of token ids in a .json file; for a checkpoint only."""
    trained: int | None = None
    """Train length in tokens, for a checkpoint only; the length in config.json if not given."""
    plot: Path | None = None
    """Also draw a figure into this file (.svg, .pdf, .png)."""
    csv: bool = False
    """Print comma-separated values, one line per variant and length."""


def command(options: Options) -> int:
    import addnorm
    from addnorm.cli._progress import ProgressReport
    from addnorm.cli._text import require_figure_file
    from addnorm.insight.checkpoint_text import require_no_text
    from addnorm.outside.hugging_face.checkpoint import is_checkpoint

    require_figure_file(options.plot)
    if is_checkpoint(options.dir):
        return _show(_of_checkpoint(options), options)
    require_no_text(options.dir, text=options.text, trained=options.trained)
    with ProgressReport("runs", shown=not (options.json or options.csv)) as progress:
        result = addnorm.extrapolate(
            options.dir,
            lengths=options.lengths,
            windows=options.windows,
            switches=options.with_ if options.with_ is not None else (),
            scoring=options.scoring,
            references=options.reference or None,
            margin=options.margin,
            variants=options.variant,
            workers=options.workers,
            plugins=options.plugin,
            on_done=lambda run, outcome, done, total: progress.done(done, total, run.name),
        )
    return _show(result, options)


def _of_checkpoint(options: Options) -> dict[str, Any]:
    from addnorm.insight.extrapolation.checkpoint import extrapolate_checkpoint

    for name in ("variant", "reference", "margin", "workers", "plugin"):
        if getattr(options, name) not in (None, ()):
            raise InputError(
                f"--{name}: expected a study as target, got the checkpoint {options.dir}. Leave --{name} out."
            )
    return extrapolate_checkpoint(
        options.dir,
        options.text,
        trained=options.trained,
        lengths=options.lengths,
        windows=options.windows,
        switches=options.with_ if options.with_ is not None else (),
        scoring=options.scoring,
    )


def _show(result: dict[str, Any], options: Options) -> int:
    from addnorm.cli._text import write_figure
    from addnorm.reporting.sections.lengths import table as tables

    if options.plot is not None:
        from addnorm.reporting.sections.lengths.figure import figure

        write_figure(figure([{**row, "unit": result["unit"]} for row in result["rows"]]), options.plot)
    if options.json:
        print_json(result)
    elif options.csv:
        print(tables.csv(result), end="")
    else:
        print(tables.text(result, page_width()), end="")
        if options.plot is not None:
            print("\n" + spoken()("printed.drawn", path=options.plot))
    return 0
