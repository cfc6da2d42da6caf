"""Text of `addnorm rank --as speedup` and `--as steps`: the factor with its interval, in words and as a table."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.formats.table import Column, ResultTable, at, dashed
from addnorm.reporting.questions import WrittenAnswer, percent_of
from addnorm.words import Phrases

_VERDICTS = {
    "worth more": "question.speedup.worth_more",
    "worth less": "question.speedup.worth_less",
    "undecided": "question.speedup.undecided",
}
_SENTENCES = {name: f"question.speedup.{name}" for name in ("compute", "time", "steps")}


def answer(content: Mapping[str, Any], t: Phrases) -> WrittenAnswer:
    """The answers in words and tables.

    Args:
        content: `Worths.to_json()`.
        t: of the language.
    """
    return WrittenAnswer([_sentences(content, t), _table(content, t)], content["warnings"])


def _sentences(content: Mapping[str, Any], t: Phrases) -> list[str]:
    rows = content["variants"]
    together = "" if len(rows) == 1 else t("question.together", count=len(rows))
    sentences = [
        t(
            _SENTENCES[content["of"]],
            variant=row["variant"],
            worth=f"{row['worth']:.3g}",
            interval=_ends(row["interval"], " "),
            reference=content["reference"],
            verdict=t(_VERDICTS[row["verdict"]]),
        )
        for row in rows
    ]
    for row in rows:
        if (again := row.get("again")) is not None:
            verdict = t(f"question.speedup.{'found_again' if again['found'] else 'not_found_again'}")
            interval = _ends(again["interval"], " ")
            worth = f"{again['worth']:.3g}"
            sentences.append(
                t("question.speedup.again", variant=row["variant"], worth=worth, interval=interval, verdict=verdict)
            )
    return [*sentences, t("question.intervals", percent=percent_of(content), together=together)]


def _table(content: Mapping[str, Any], t: Phrases) -> ResultTable:
    rows, reference = content["variants"], content["reference"]
    columns = [
        Column("variant", t("head.variant"), side="l"),
        Column("worth", t("question.speedup.worth"), form=lambda value: f"{value:.3f}"),
        Column("interval", t("question.interval"), form=dashed(_ends)),
    ]
    if content["of"] == "steps":
        columns += [
            Column("loss", t("question.speedup.equal_loss"), form=lambda value: f"{value:.4f}"),
            Column("steps", t("head.steps"), form=lambda value: f"{value:.0f}"),
            Column(
                "reference_steps", t("question.speedup.steps_of", name=reference), form=lambda value: f"{value:.0f}"
            ),
        ]
        known = [cost for cost in ("compute", "time") if any(cost in row.get("costs", {}) for row in rows)]
        columns += [
            Column(cost, t(f"question.speedup.worth_in_{cost}"), form=dashed(_worth), value=at("costs", cost))
            for cost in known
        ]
    else:
        shared = len(rows[0]["by_size"])
        if all(len(row["by_size"]) == shared for row in rows) and shared == len(content["sizes"]):
            columns += [_at(place, size, t) for place, size in enumerate(content["sizes"])]
        columns.append(Column("law", t("question.speedup.loss_of", name=reference), form=dashed(_law), side="l"))
    return ResultTable(columns, rows)


def _at(place: int, size: str, t: Phrases) -> Column:
    heading = t("question.speedup.at", size=size)
    return Column(f"at {size}", heading, value=lambda row: row["by_size"][place], form=dashed(".3f"))


def _worth(cost: Mapping[str, Any]) -> str:
    return f"{cost['worth']:.3f}{_ends(cost['interval'], ' ')}"


def _ends(interval: tuple[float, float] | None, before: str = "") -> str:
    return "" if interval is None else f"{before}[{interval[0]:.3f}, {interval[1]:.3f}]"


def _law(law: Mapping[str, float]) -> str:
    return f"{law['limit']:.3g} + {law['coefficient']:.4g} C^-{law['exponent']:.3g}"
