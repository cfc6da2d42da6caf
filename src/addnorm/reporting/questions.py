"""Answers of `addnorm.noise` and `addnorm.judge` in sentences and tables, for a terminal and for a notebook."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from addnorm.reporting.formats.table import Column, ResultTable, dashed
from addnorm.reporting.formats.text_table import filled
from addnorm.statistics.measure import NATS
from addnorm.words import Phrases, phrases, spoken, translated

_SHOWN = 20
"""Newest proposals that the text shows; the JSON has all."""
_NOTES = 6
"""Notes that the text shows."""


def warnings_text(warnings: Sequence[str], width: int, t: Phrases) -> list[str]:
    """Lines of the warnings of an answer, behind an empty one if there are any."""
    lines = [filled(f"! {translated(warning, t)}", width, subsequent_indent="  ") for warning in warnings]
    return ["", *lines] if lines else []


def unit_of(unit: str, t: Phrases) -> str:
    """A unit in words."""
    return t("text.nats") if unit == NATS else translated(unit, t)


@dataclass(frozen=True)
class WrittenAnswer:
    """Sentences and tables in their order, and what a reader has to know about them."""

    parts: Sequence[Sequence[str] | ResultTable]
    notes: Sequence[str]

    def text(self, width: int) -> str:
        """For a terminal of that many columns, in its language."""
        blocks = [
            part.text(width).rstrip("\n")
            if isinstance(part, ResultTable)
            else "\n".join(filled(each, width) for each in part)
            for part in self.parts
        ]
        return "\n".join(["\n\n".join(blocks), *warnings_text(self.notes, width, spoken())])

    def html(self) -> str:
        """For a notebook, in English."""
        blocks = [
            part.html() if isinstance(part, ResultTable) else f"<p>{'<br>'.join(map(escape, part))}</p>"
            for part in self.parts
        ]
        notes = "".join(f"<li>{escape(translated(note, phrases('en')))}</li>" for note in self.notes)
        return "".join([*blocks, f"<ul>{notes}</ul>" if notes else ""])


def noise_answer(content: Mapping[str, Any], t: Phrases) -> WrittenAnswer:
    """The noise of one run in sentences and tables.

    Args:
        content: `RunNoise.to_json()`.
        t: of the language.
    """
    unit = t("question.noise.of_metric", metric=content["metric"])
    if content["unit"]:
        unit = f" {unit_of(content['unit'], t)}"
    percent = f"{100 * content['confidence']:g}"
    first = [t("question.noise.one_run", sd=_sd(content["one_run"]), unit=unit, percent=percent)]
    if content["paired"] is not None:
        first.append(t("question.noise.paired", sd=_sd(content["paired"]), unit=unit))
    rows = ResultTable(
        [
            Column("variant", t("head.variant"), side="l"),
            Column("runs", t("question.runs")),
            Column("mean", t("question.mean"), form="{:.6g}".format),
            Column("sd", t("question.sd"), dashed(lambda sd: f"{sd['sd']:.3g}")),
            Column("interval", t("question.interval"), dashed(_ends), value=lambda row: row["sd"]),
        ],
        content["variants"],
    )
    count = content["comparisons"]
    family = t("question.noise.one_variant") if count == 1 else t("question.noise.several_variants", count=count)
    units = unit if content["unit"] else t("question.noise.units")
    power = f"{content['power']:g}"
    kinds = [("paired", t("question.noise.same_seeds"))] if content["paired"] is not None else []
    kinds.append(("unpaired", t("question.noise.other_seeds")))
    columns = [Column("seeds", t("question.noise.seeds_each"))]
    columns += [
        Column(kind, words, form=lambda size: f"{size['difference']:.3g} {_ends(size)}") for kind, words in kinds
    ]
    smallest = t("question.noise.smallest", family=family, power=power, unit=units)
    needed = [[_needed(each, content["paired"] is not None, unit, t)] for each in content["needed"]]
    parts: list[Sequence[str] | ResultTable] = [
        first,
        [t("question.noise.each")],
        rows,
        [smallest],
        ResultTable(columns, content["smallest"]),
        *needed,
    ]
    return WrittenAnswer(parts, content["warnings"])


def _needed(needed: Mapping[str, Any], paired: bool, unit: str, t: Phrases) -> str:
    kinds = ["paired", "unpaired"] if paired else ["unpaired"]
    keys = {"paired": "question.noise.with_same", "unpaired": "question.noise.with_other"}
    words = []
    for kind in kinds:
        low, high = (t("question.noise.million") if n is None else str(n) for n in needed[f"{kind}_range"])
        seeds = needed[kind]
        count = t("question.noise.million_seeds") if seeds is None else t("question.noise.seeds", count=seeds)
        words.append(t(keys[kind], count=count, low=low, high=high))
    difference = f"{needed['difference']:g}"
    return t("question.noise.needed", difference=difference, unit=unit, seeds=t("joint.comma").join(words))


def _sd(content: Mapping[str, Any]) -> str:
    return f"{content['sd']:.3g} {_ends(content)}"


def _ends(content: Mapping[str, Any]) -> str:
    low, high = content["interval"]
    return f"[{low:.3g}, {high:.3g}]"


def judge_answer(content: Mapping[str, Any], t: Phrases) -> WrittenAnswer:
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
