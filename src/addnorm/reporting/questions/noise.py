"""The noise of one run in sentences and tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from addnorm.reporting.formats.table import Column, ResultTable, dashed
from addnorm.reporting.questions import WrittenAnswer, percent_of, unit_of
from addnorm.words import Phrases


def answer(content: Mapping[str, Any], t: Phrases) -> WrittenAnswer:
    """The noise of one run in sentences and tables.

    Args:
        content: `RunNoise.to_json()`.
        t: of the language.
    """
    unit = t("question.noise.of_metric", metric=content["metric"])
    if content["unit"]:
        unit = f" {unit_of(content['unit'], t)}"
    first = [t("question.noise.one_run", sd=_sd(content["one_run"]), unit=unit, percent=percent_of(content))]
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
