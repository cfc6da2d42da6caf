"""Text of `addnorm trend --predict`: what is expected of the largest size, and how it turned out."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.formats.measured import thousandths
from addnorm.reporting.formats.table import Column, ResultTable, dashed
from addnorm.reporting.formats.text_table import filled
from addnorm.words import point_name, spoken


def text(content: Mapping[str, Any], width: int) -> str:
    """The prediction, and its score if there is one, in the terminal's language.

    Args:
        content: `Prediction.to_json()`.
        width: columns of the page.
    """
    t, score = spoken(), content["score"]

    def told(key: str, **values: Any) -> str:
        return filled(t(f"question.prediction.{key}", **values), width)

    def table(rows: str, number: Any, *further: Column) -> str:
        names = [Column("variant", t("head.variant"), point_name, side="l")]
        shown = [
            Column("value", t(f"question.prediction.{rows}"), form=number),
            Column("interval", t("question.interval"), form=dashed(lambda e: f"[{number(e[0])}, {number(e[1])}]")),
            *further,
            *([Column("observed", t("question.prediction.observed"), form=number)] if score else []),
            *([Column("observed_verdict", t("question.prediction.found"), verdict, "l")] if score and further else []),
        ]
        between = [Column("reference", t("head.other"), point_name, side="l")] if further else []
        return ResultTable([*names, *between, *shown], content[rows]).text(width)

    verdict = dashed(lambda word: t(f"verdict.{word}"))
    expected = Column("verdict", t("question.prediction.expected"), verdict, side="l")
    naive = Column("naive", t("question.prediction.naive"), form=thousandths)
    parts = [
        told(
            "about",
            largest=content["largest"],
            sizes=", ".join(content["sizes"]),
            law="{limit:.4g} + {coefficient:.4g} C^-{exponent:.3g}".format(**content["law"]),
            reference=content["references"][0],
            percent=f"{100 * content['confidence']:g}",
            margin=f"{1000 * content['margin']:g}",
            seeds=content["seeds"],
        ),
        table("losses", "{:.4f}".format),
        table("differences", thousandths, expected, naive),
    ]
    parts += [told("left_out", variants=", ".join(content["left_out"]))] if content["left_out"] else []
    parts += [told("two_sizes")] if len(content["sizes"]) == 2 else []
    if score is None:
        return "\n\n".join([*parts, told("frozen", largest=content["largest"])])
    errors = {name: f"{1000 * score[name]:.1f}" for name in ("error", "naive_error")}
    parts.append(told("score", **{name: value for name, value in score.items() if name != "decisions"} | errors))
    for key, each in zip(("order", "naive_order"), score["decisions"], strict=False):
        parts.append(told(key, kept=each["kept"], pairs=each["pairs"], chance="{:.2f}–{:.2f}".format(*each["chance"])))
    return "\n\n".join(parts)
