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
from typing import Annotated, Any, Literal

import tyro

from addnorm.cli._rank import unit_of, warnings_text
from addnorm.cli._text import page_width, print_json
from addnorm.reporting.formats.table import Column, ResultTable, dashed
from addnorm.reporting.formats.text_table import filled
from addnorm.words import Phrases, spoken, translated


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
    t = spoken()
    proposals = content["proposals"]
    unit = f" {unit_of(content['unit'], t)}" if content["unit"] else ""
    summary = t(
        "question.judge.summary",
        ledger=content["ledger"],
        count=len(proposals),
        kept=sum(proposal["verdict"] == "keep" for proposal in proposals),
        percent=f"{100 * content['rule']['alpha']:g}",
        baseline=content["baseline"],
        runs=content["baseline_runs"],
    )
    if content["noise_sd"] is not None:
        summary += " " + t("question.judge.noise", sd=f"{content['noise_sd']:.3g}", unit=unit)
    lines = [filled(summary, width)]
    if proposals:
        about = t(f"question.judge.about_{content['better']}", metric=content["metric"], unit=unit)
        count = len(proposals)
        heading = (
            t("question.judge.newest", shown=_SHOWN, count=count, about=about)
            if count > _SHOWN
            else t("question.judge.proposals", about=about)
        )
        lines += ["", filled(heading, width), "", _table(proposals[-_SHOWN:], t).text(width).rstrip("\n")]
    lines += ["", filled(t("question.judge.next", step=translated(content["next"], t)), width)]
    notes = content["notes"]
    lines += warnings_text(notes[:_NOTES], width, t)[1:]
    lines += [t("question.judge.more_notes", count=len(notes) - _NOTES)] if len(notes) > _NOTES else []
    return "\n".join(lines)


def _table(proposals: list[Mapping[str, Any]], t: Phrases) -> ResultTable:
    return ResultTable(
        [
            Column("number", t("question.judge.number")),
            Column("proposal", t("question.judge.proposal"), side="l"),
            Column("baseline", t("question.judge.against"), side="l"),
            Column("runs", t("question.runs")),
            Column("difference", t("question.difference"), form=dashed("+.4g")),
            Column("log10_evidence", t("question.judge.evidence"), form=dashed(".1f")),
            Column("log10_needed", t("question.judge.needed"), form=dashed(".1f")),
            Column(
                "verdict", t("question.judge.verdict"), form=lambda verdict: t(f"question.judge.{verdict}"), side="l"
            ),
            Column("why", t("question.judge.reason"), dashed(lambda why: t(f"question.judge.{why}")), side="l"),
        ],
        proposals,
    )
