"""Measure what flows through a trained run: gradients, the stream, attention, scores, early read-outs.

Every measure is taken at the start (before the first step) and at the end, on held-out text of the run's own data, and is
kept in the run's folder as insight.json. With --terms, the four terms of a score with rotary position and q/k biases instead
(Su, 2023), of a run or of a folder with a Transformers checkpoint; a run's are kept as terms.json.

For example:
    addnorm inspect runs/first/base-s0-1a2b3c4d
    addnorm inspect runs/first --sequences 32
    addnorm inspect runs/first/biased-s0-1a2b3c4d --terms --beside runs/first/base-s0-1a2b3c4d --plot terms.svg
    addnorm inspect ~/models/Qwen2.5-0.5B --terms --text book.txt
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from addnorm.cli._output import print_json
from addnorm.cli._terms import Terms, require_unused, show_terms


@dataclass(frozen=True)
class Options:
    target: Annotated[Path, tyro.conf.Positional]
    """Folder of a run, or of a study to inspect all of its runs; with --terms of a run or of a Transformers checkpoint."""
    sequences: int = 16
    """Held-out sequences for gradients, the stream and read-outs."""
    map_sequences: int = 4
    """Held-out sequences for attention and scores."""
    four_terms: Terms = field(default_factory=Terms)
    plugin: tuple[str, ...] = ()
    """Files with the mechanisms of your own that the runs use."""
    json: bool = False
    """Print JSON."""


def command(options: Options) -> int:
    from addnorm.insight.flow import Settings, inspect
    from addnorm.reporting.sections.insight import table
    from addnorm.study.plugins import load_plugins

    load_plugins(options.plugin, Path.cwd())
    if options.four_terms.terms:
        return show_terms(options.target, options.four_terms, json=options.json)
    require_unused(options.four_terms)
    settings = Settings(sequences=options.sequences, map_sequences=options.map_sequences)
    found = inspect(options.target, settings, say=lambda text: print(text, file=sys.stderr))
    print_json(found) if options.json else print(table.text(found))
    return 0
