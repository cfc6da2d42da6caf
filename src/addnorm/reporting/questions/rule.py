"""Text of `addnorm rank --rule`: the answer per variant, and how often chance alone satisfies the rule."""

from collections.abc import Mapping, Sequence
from typing import Any

from addnorm.reporting.formats.table import Column, ResultTable, dashed
from addnorm.reporting.questions import WrittenAnswer, unit_of
from addnorm.words import Phrases

_MEANINGS = {
    "no improvement": "question.rule.nothing",
    "just not enough": "question.rule.not_enough",
    "as observed": "question.rule.observed",
    "power": "question.rule.power",
}
_VERDICTS = {
    "passes": "question.rule.passes",
    "fails": "question.rule.fails",
    "too few runs": "question.rule.too_few_runs",
    "too few sizes": "question.rule.too_few_sizes",
}
_CONDITIONS = {
    "below the target by": "question.rule.below_target",
    "smallest speedup": "question.rule.smallest_speedup",
    "smallest lead of the projection": "question.rule.smallest_lead",
}
"""Names of conditions in words; the others are formulas."""


def answer(content: Mapping[str, Any], t: Phrases) -> WrittenAnswer:
    """The answers in words and tables.

    Args:
        content: `RuleResult.to_json()`.
        t: of the language.
    """
    parts: list[Sequence[str] | ResultTable] = [[_heading(content, t)], _answers(content["variants"], t)]
    for row in content["variants"]:
        parts += [[_about(row, content, t)], *([_rates(row, content, t)] if row["rates"] else [])]
    return WrittenAnswer(parts, content["warnings"])


def _heading(content: Mapping[str, Any], t: Phrases) -> str:
    rule = content["rule"]
    heading = t("question.rule.rule", name=rule["name"], source=f" ({rule['source']})" if rule["source"] else "")
    if content["reference"] is None:
        return heading
    return f"{heading} {t('question.rule.reference', name=content['reference'])}"


def _answers(rows: Sequence[Mapping[str, Any]], t: Phrases) -> ResultTable:
    flat = [
        {**row, **(condition or {"name": "-", "statistic": None, "needed": None}), "first": place == 0}
        for row in rows
        for place, condition in enumerate(row["conditions"] or [None])
    ]
    return ResultTable(
        [
            Column("variant", t("head.variant"), side="l", value=lambda row: row["variant"] if row["first"] else ""),
            Column(
                "runs",
                t("question.runs"),
                value=lambda row: "+".join(map(str, row["runs"])) if row["first"] else "",
            ),
            Column("name", t("question.rule.asked_of"), form=lambda name: _named(name, t), side="l"),
            Column("statistic", t("question.rule.is"), form=dashed(".4g")),
            Column("needed", t("question.rule.limit"), form=dashed(".4g")),
            Column(
                "verdict",
                t("question.rule.verdict"),
                value=lambda row: t(_VERDICTS[row["verdict"]]) if row["first"] else "",
                side="l",
            ),
        ],
        flat,
    )


def _named(name: str, t: Phrases) -> str:
    return t(_CONDITIONS[name]) if name in _CONDITIONS else name


def _about(row: Mapping[str, Any], content: Mapping[str, Any], t: Phrases) -> str:
    """Return the sentence about a variant's rates, or why there are none."""
    unit = f" {unit_of(content['unit'], t)}" if content["unit"] else ""
    if not row["rates"]:
        return t("question.rule.no_noise", variant=row["variant"])
    noise = t("question.rule.not_repeated") if row["noise_sd"] is None else f"{row['noise_sd']:.3g}{unit}"
    if row["noise_interval"] is not None:
        low, high = row["noise_interval"]
        noise = t("question.rule.noise", sd=noise, low=f"{low:.3g}", high=f"{high:.3g}")
    runs = "+".join(map(str, row["design"]["runs"]))
    others = "+".join(map(str, row["design"]["reference_runs"]))
    of = (
        t("question.rule.own_runs", runs=runs)
        if content["reference"] is None
        else t("question.rule.both_runs", runs=runs, others=others)
    )
    return t("question.rule.chance", runs=of, tables=row["tables"], noise=noise)


def _rates(row: Mapping[str, Any], content: Mapping[str, Any], t: Phrases) -> ResultTable:
    most = row["design"]["added_up_to"]
    better_by = t("question.rule.better_by", variant=row["variant"])
    columns = [
        Column("about", better_by, form=lambda about: t(_MEANINGS[about]), side="l"),
        Column("effect", unit_of(content["unit"], t) if content["unit"] else content["metric"], form=dashed(".3g")),
        Column("rate", t("question.rule.satisfied"), form=_percent),
    ]
    if most is not None:
        columns.append(Column("rate_when_added", t("question.rule.adding", most=most), form=dashed(_percent)))
    return ResultTable(columns, row["rates"])


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"
