"""A stream of proposals in sentences and a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from addnorm.reporting.formats.table import Column, ResultTable, dashed
from addnorm.reporting.questions import WrittenAnswer, unit_of
from addnorm.words import Phrases, translated

_SHOWN = 20
"""Newest proposals that the text shows; the JSON has all."""
_NOTES = 6
"""Notes that the text shows."""


def answer(content: Mapping[str, Any], t: Phrases) -> WrittenAnswer:
    """A stream of proposals in sentences and a table.

    Args:
        content: `Judgement.to_json()`.
        t: of the language.
    """
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
    parts: list[Sequence[str] | ResultTable] = [[summary]]
    if proposals:
        about = t(f"question.judge.about_{content['better']}", metric=content["metric"], unit=unit)
        count = len(proposals)
        heading = (
            t("question.judge.newest", shown=_SHOWN, count=count, about=about)
            if count > _SHOWN
            else t("question.judge.proposals", about=about)
        )
        parts += [[heading], _proposals(proposals[-_SHOWN:], t)]
    parts.append([t("question.judge.next", step=translated(content["next"], t))])
    notes = content["notes"]
    more = [t("question.judge.more_notes", count=len(notes) - _NOTES)] if len(notes) > _NOTES else []
    return WrittenAnswer(parts, [*notes[:_NOTES], *more])


def _proposals(proposals: list[Mapping[str, Any]], t: Phrases) -> ResultTable:
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
