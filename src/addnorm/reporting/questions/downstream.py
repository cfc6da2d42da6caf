"""Text of `addnorm rank --as downstream`: scores of items, with the interval beside the unpaired one."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.formats.table import Column, ResultTable, at
from addnorm.reporting.questions import WrittenAnswer, percent_of
from addnorm.words import Phrases

_METHODS = {
    "mcnemar": "question.downstream.mcnemar",
    "items": "question.downstream.items",
    "items and seeds": "question.downstream.items_and_seeds",
}


def answer(content: Mapping[str, Any], t: Phrases) -> WrittenAnswer:
    """The answers in words and tables.

    Args:
        content: `Downstream.to_json()`.
        t: of the language.
    """
    heading, rows, names = [_heading(content, t)], content["rows"], _names(content, t)
    return WrittenAnswer(
        [heading, ResultTable([*names, *_levels(content, t), *_answer(t), *_about(t)], rows)],
        content["warnings"],
        [
            heading,
            ResultTable([*names, *_answer(t)], rows),
            ResultTable([*names, *_levels(content, t), *_about(t)[:-1]], rows),
        ],
    )


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
