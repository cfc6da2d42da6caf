"""Measure gradients, the stream, attention, scores and early exit of a trained run, layer by layer.

The measures are taken before the first step and after training, on held-out text of the run's own data, and are written to
insight.json in the run's folder. With --terms, the four terms of a score with rotary position and q/k biases are measured
instead (Su, 2023), of a run or of a folder with a Transformers checkpoint; those of a run are written to terms.json.

For example:
    addnorm inspect runs/first/base-s0-1a2b3c4d
    addnorm inspect runs/first --sequences 32
    addnorm inspect runs/first/biased-s0-1a2b3c4d --terms --beside runs/first/base-s0-1a2b3c4d --plot terms.svg
    addnorm inspect ~/models/Qwen2.5-0.5B --terms --text book.txt
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from addnorm.cli._score_terms import FourTerms, require_unused, show_terms
from addnorm.cli._text import page_width, print_json, print_line


@dataclass(frozen=True)
class Options:
    target: Annotated[Path, tyro.conf.Positional]
    """Folder of a run, or of a study to inspect all of its runs; with --terms of a run or of a Transformers checkpoint."""
    sequences: int = 16
    """Held-out sequences for gradients, the stream and early exit."""
    map_sequences: int = 4
    """Held-out sequences for attention and scores."""
    four_terms: FourTerms = field(default_factory=FourTerms)
    plugin: tuple[str, ...] = ()
    """Files with mechanisms of your own that the runs use."""
    json: bool = False
    """Print JSON."""


def command(options: Options) -> int:
    import addnorm
    from addnorm.reporting.sections.insight import table

    if options.four_terms.terms:
        from addnorm.study.plugins import load_plugins

        load_plugins(options.plugin, Path.cwd())
        return show_terms(options.target, options.four_terms, json=options.json)
    require_unused(options.four_terms)
    measured = addnorm.inspect(
        options.target,
        sequences=options.sequences,
        map_sequences=options.map_sequences,
        plugins=options.plugin,
        say=print_line,
    )
    print_json(measured) if options.json else print(table.text(measured, page_width()))
    return 0
