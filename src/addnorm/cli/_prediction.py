"""Text of `addnorm trend --predict`: what is expected of the largest size, and how it turned out."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.formats.measured import thousandths
from addnorm.reporting.formats.table import Column, ResultTable, at, dashed
from addnorm.reporting.formats.text_table import filled
from addnorm.words import Phrases, point_name, spoken


def text(content: Mapping[str, Any], width: int) -> str:
    """The prediction, and its score if there is one, in the terminal's language.

    Args:
        content: `Prediction.to_json()`.
        width: columns of the page.
    """
    t, law = spoken(), content["law"]
    about = t(
        "question.prediction.about",
        largest=content["largest"],
        sizes=", ".join(content["sizes"]),
        law=f"{law['limit']:.4g} + {law['coefficient']:.4g} C^-{law['exponent']:.3g}",
        reference=content["references"][0],
        percent=f"{100 * content['confidence']:g}",
        margin=f"{1000 * content['margin']:g}",
        seeds=content["seeds"],
    )
    parts = [filled(about, width), _losses(content, t).text(width), _differences(content, t).text(width)]
    if content["left_out"]:
        parts.append(filled("! " + t("question.prediction.left_out", variants=", ".join(content["left_out"])), width))
    if len(content["sizes"]) == 2:
        parts.append(filled("! " + t("question.prediction.two_sizes"), width))
    if (score := content["score"]) is None:
        parts.append(filled(t("question.prediction.frozen", largest=content["largest"]), width))
    else:
        numbers = {
            **score,
            "error": thousandths(score["error"]).lstrip("+"),
            "naive": thousandths(score["naive_error"]).lstrip("+"),
        }
        parts.append(filled(t("question.prediction.score", **{k: v for k, v in numbers.items() if k != "decisions"}), width))
        parts += [
            filled(
                t(
                    f"question.prediction.{key}",
                    kept=each["kept"],
                    pairs=each["pairs"],
                    chance="{:.2f}–{:.2f}".format(*each["chance"]),
                ),
                width,
            )
            for key, each in zip(("order", "naive_order"), score["decisions"], strict=False)
        ]
    return "\n\n".join(parts)


def _losses(content: Mapping[str, Any], t: Phrases) -> ResultTable:
    columns = [
        Column("variant", t("head.variant"), point_name, side="l"),
        Column("loss", t("question.prediction.loss"), form="{:.4f}".format),
        Column("interval", t("question.interval"), form=dashed(lambda ends: f"[{ends[0]:.4f}, {ends[1]:.4f}]")),
    ]
    if content["score"] is not None:
        columns.append(Column("observed", t("question.prediction.observed"), form="{:.4f}".format))
    return ResultTable(columns, content["losses"])


def _differences(content: Mapping[str, Any], t: Phrases) -> ResultTable:
    columns = [
        Column("variant", t("head.variant"), point_name, side="l"),
        Column("reference", t("head.other"), point_name, side="l"),
        Column("difference", t("question.difference"), form=thousandths),
        Column("interval", t("question.interval"), form=lambda ends: f"[{thousandths(ends[0])}, {thousandths(ends[1])}]"),
        Column("verdict", t("question.prediction.expected"), form=lambda word: t(f"verdict.{word}"), side="l"),
        Column("naive", t("question.prediction.naive"), form=thousandths),
    ]
    if content["score"] is not None:
        verdict = dashed(lambda word: t(f"verdict.{word}"))
        columns += [
            Column("observed", t("question.prediction.observed"), form=dashed(thousandths)),
            Column("observed_verdict", t("question.prediction.found"), form=verdict, value=at("observed_verdict"), side="l"),
        ]
    return ResultTable(columns, content["differences"])
