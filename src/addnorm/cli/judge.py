"""Keep or discard proposals, one after another and without an end, with one error rate for ever.

The ledger is a file that is only ever added to. Give it the baseline's runs first; then run each proposal at one seed, give its
runs, and add seeds as long as it is open. Among all keeps, the expected share of false ones is at most 5 %.

For example:
    addnorm judge stream.jsonl --propose runs.csv --baseline base
    addnorm judge stream.jsonl --propose idea-17.csv
    addnorm judge stream.jsonl --json
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any, Literal

import tyro

from addnorm.cli._text import page_width, print_json
from addnorm.reporting.formats.table import Column, ResultTable, dashed


@dataclass(frozen=True)
class Options:
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
    from addnorm.statistics.run_tables import columns_from

    content = addnorm.judge(
        options.ledger,
        options.propose,
        baseline=options.baseline or None,
        alpha=options.alpha,
        baseline_runs=options.baseline_runs,
        most_runs=options.most_runs,
        columns=columns_from(options.columns) if options.columns else None,
        direction=options.direction,
        unit=options.unit or None,
    ).to_json()
    if options.json:
        print_json(content)
    else:
        print(_text(content, page_width()))
    return 0


_SHOWN = 20
"""Newest proposals that the text shows; the JSON has all."""
_NOTES = 6
"""Notes that the text shows."""


def _text(content: Mapping[str, Any], width: int) -> str:
    proposals = content["proposals"]
    kept = sum(proposal["verdict"] == "keep" for proposal in proposals)
    unit = f" {content['unit']}" if content["unit"] else ""
    noise = "" if content["noise_sd"] is None else f" One run's standard deviation: {content['noise_sd']:.3g}{unit}."
    summary = (
        f"{content['ledger']}: proposals {len(proposals)}, kept {kept}. Among all keeps, the expected share of false ones is "
        f"at most {100 * content['rule']['alpha']:g} %. Baseline {content['baseline']}, runs {content['baseline_runs']}.{noise}"
    )
    lines = [fill(summary, width)]
    if proposals:
        shown = f"the newest {_SHOWN} of {len(proposals)}" if len(proposals) > _SHOWN else ""
        about = f"{content['metric']}{unit}, {content['better']} is better; evidence as powers of ten"
        lines += ["", fill(f"Proposals{f', {shown}' if shown else ''} ({about}):", width), ""]
        lines.append(_table(proposals[-_SHOWN:]).text(width).rstrip("\n"))
    lines += ["", fill(f"Next: {content['next']}", width)]
    notes = content["notes"]
    lines += [fill(f"! {note}", width, subsequent_indent="  ") for note in notes[:_NOTES]]
    lines += [f"! and {len(notes) - _NOTES} more notes, which --json lists."] if len(notes) > _NOTES else []
    return "\n".join(lines)


_WHY = {"evidence": "evidence", "futile": "no promise", "most_runs": "out of runs", "diverged": "diverged", None: "-"}


def _table(proposals: list[Mapping[str, Any]]) -> ResultTable:
    return ResultTable(
        [
            Column("number", "no."),
            Column("proposal", side="l"),
            Column("baseline", "against", side="l"),
            Column("runs"),
            Column("difference", form=dashed("+.4g")),
            Column("log10_evidence", "evidence", form=dashed(".1f")),
            Column("log10_needed", "needed", form=dashed(".1f")),
            Column("verdict", side="l"),
            Column("why", "reason", form=lambda why: _WHY[why], side="l"),
        ],
        proposals,
    )
