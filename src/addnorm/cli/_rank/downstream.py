"""Text of `addnorm rank --as downstream`: scores of items, with the interval beside the unpaired one."""

from collections.abc import Mapping
from typing import Any

from addnorm.cli._rank import in_latex, percent_of, warnings_text
from addnorm.reporting.formats.table import Column, ResultTable, at
from addnorm.reporting.formats.text_table import filled
from addnorm.words import Phrases, phrases, spoken

_METHODS = {
    "mcnemar": "question.downstream.mcnemar",
    "items": "question.downstream.items",
    "items and seeds": "question.downstream.items_and_seeds",
}


def text(content: Mapping[str, Any], width: int) -> str:
    """The answers as a table, in the terminal's language.

    Args:
        content: `Downstream.to_json()`.
        width: columns of the page.
    """
    t = spoken()
    table = ResultTable([*_names(content, t), *_levels(content, t), *_answer(t), *_about(t)], content["rows"])
    lines = [filled(_heading(content, t), width), "", table.text(width).rstrip("\n")]
    return "\n".join([*lines, *warnings_text(content["warnings"], width, t)])


def latex(content: Mapping[str, Any]) -> str:
    """The answers as two LaTeX tables: the differences, and the means with what they rest on.

    Args:
        content: `Downstream.to_json()`.
    """
    t = phrases("en")
    names = _names(content, t)
    answers = ResultTable([*names, *_answer(t)], content["rows"])
    means = ResultTable([*names, *_levels(content, t), *_about(t)[:-1]], content["rows"])
    return in_latex(answers, *content["warnings"], _heading(content, t)) + "\n" + in_latex(means)


def _heading(content: Mapping[str, Any], t: Phrases) -> str:
    of = {row["about"] for row in content["rows"]}
    family = content["family"]
    heading = t(
        "question.downstream.about",
        reference=content["reference"],
        over=t("question.downstream.over_both" if "ways to train" in of else "question.downstream.over_items"),
        percent=percent_of(content),
        together="" if family == 1 else t("question.together", count=family),
    )
    return f"{heading} {t('question.downstream.checkpoints')}" if "checkpoints" in of else heading


def _names(content: Mapping[str, Any], t: Phrases) -> list[Column]:
    columns = [
        Column("task", t("question.task"), side="l"),
        Column("metric", t("question.metric"), side="l"),
        Column("variant", t("head.variant"), side="l"),
    ]
    return columns[1:] if all(row["task"] == "" for row in content["rows"]) else columns


def _levels(content: Mapping[str, Any], t: Phrases) -> list[Column]:
    return [
        Column("mean", t("question.mean"), form=_digits),
        Column("reference_mean", content["reference"], form=_digits),
    ]


def _answer(t: Phrases) -> list[Column]:
    difference = at("comparison", "difference")
    return [
        Column("difference", t("question.difference"), value=difference, form=lambda value: f"{value:+.4f}"),
        Column("interval", t("question.interval"), value=at("comparison", "interval"), form=_ends),
        Column("verdict", t("question.rule.verdict"), form=lambda verdict: t(f"verdict.{verdict}"), side="l"),
    ]


def _about(t: Phrases) -> list[Column]:
    return [
        Column("items", t("question.items"), value=at("comparison", "items")),
        Column("documents", t("question.documents"), value=at("comparison", "documents")),
        Column("seeds", t("head.seeds"), value=at("comparison", "seeds"), form=lambda seeds: "+".join(map(str, seeds))),
        Column(
            "method",
            t("question.over"),
            value=at("comparison", "method"),
            form=lambda method: t(_METHODS[method]),
            side="l",
        ),
        Column("unpaired_z", t("question.unpaired_z"), value=at("comparison", "unpaired_z"), form=_ends),
    ]


def _digits(value: float) -> str:
    return f"{value:.4f}"


def _ends(interval: tuple[float, float]) -> str:
    return f"[{interval[0]:+.4f}, {interval[1]:+.4f}]"
