"""Rebuild a study's index from its files. The index only makes reading faster; no result depends on it.

For example:
    addnorm reindex runs/first
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from addnorm.cli._text import JsonOption, print_json
from addnorm.words import translated


@dataclass(frozen=True)
class Options(JsonOption):
    dir: Annotated[Path, tyro.conf.Positional]
    """Folder of a study's runs."""


def command(options: Options) -> int:
    from addnorm.store import Index, StudyFolder

    runs = len(StudyFolder(options.dir).all_runs())
    damage = Index(options.dir).rebuild()
    if options.json:
        print_json({"runs": runs, "damaged": damage})
    else:
        print(translated(f"Indexed {runs} runs in {options.dir}."))
        for run, reason in damage.items():
            print(f"  {run}: {translated(reason)}")
    return 1 if damage else 0
