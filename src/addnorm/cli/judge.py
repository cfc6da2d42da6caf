"""Keep or discard proposals, one after another and without an end, with one error rate for ever.

The ledger is a file that is only ever added to. Give it the baseline's runs first; then run each proposal at one seed, give its
runs, and add seeds as long as it is open. Among all keeps, the expected share of false ones is at most 5 %.

For example:
    addnorm judge stream.jsonl --propose runs.csv --baseline base
    addnorm judge stream.jsonl --propose idea-17.csv
    addnorm judge stream.jsonl --json
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from addnorm.cli._rank.choices import ColumnOptions
from addnorm.cli._text import page_width, print_json
from addnorm.errors import InputError
from addnorm.reporting.questions.judge import answer
from addnorm.words import spoken


@dataclass(frozen=True)
class Options(ColumnOptions):
    ledger: Annotated[Path, tyro.conf.Positional]
    """File of the stream; made by the first call."""
    propose: Path | None = None
    """Runs of the baseline and of proposals: a table or folder as for `addnorm rank`. Recorded runs are passed over."""
    baseline: str = ""
    """The first baseline, when the ledger is made; by default the first variant of the table."""
    alpha: float | None = None
    """Expected share of false keeps among all keeps, when the ledger is made; 0.05 unless given."""
    baseline_runs: int | None = None
    """Runs of a baseline before the first proposal against it, when the ledger is made; 12 unless given."""
    most_runs: int | None = None
    """Runs after which a proposal is discarded, when the ledger is made; 20 unless given."""


def command(options: Options) -> int:
    import addnorm

    if options.propose is None:
        for name in ("columns", "direction", "unit"):
            if getattr(options, name):
                raise InputError(f"--{name}: expected together with --propose. Add --propose, or leave --{name} out.")
    content = addnorm.judge(
        options.ledger,
        options.propose,
        baseline=options.baseline or None,
        alpha=options.alpha,
        baseline_runs=options.baseline_runs,
        most_runs=options.most_runs,
        **options.of_runs(),
    ).to_json()
    print_json(content) if options.json else print(answer(content, spoken()).text(page_width()))
    return 0
