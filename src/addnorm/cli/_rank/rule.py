"""Text of `addnorm rank --rule`: the answer per variant, and how often chance alone satisfies the rule."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

from addnorm.reporting.formats.table import Column, ResultTable, dashed

_MEANINGS = {
    "no improvement": "nothing",
    "just not enough": "just not enough",
    "as observed": "what was observed",
    "power": "what passes in 80 %",
}


def text(content: Mapping[str, Any], width: int) -> str:
    """The answers in words and tables.

    Args:
        content: `RuleResult.to_json()`.
        width: columns of the page.
    """
    rule = content["rule"]
    source = f" ({rule['source']})" if rule["source"] else ""
    against = "" if content["reference"] is None else f" Reference: {content['reference']}."
    lines = [fill(f"Rule {rule['name']}{source}.{against}", width, break_long_words=False)]
    lines += ["", _answers(content["variants"]).text(width).rstrip("\n")]
    for row in content["variants"]:
        lines += ["", *_chance(row, content, width)]
    lines += [""] if content["warnings"] else []
    lines += [fill(f"! {warning}", width, subsequent_indent="  ") for warning in content["warnings"]]
    return "\n".join(lines)


def _answers(rows: Sequence[Mapping[str, Any]]) -> ResultTable:
    flat = [
        {**row, **(condition or {"name": "-", "statistic": None, "needed": None}), "first": place == 0}
        for row in rows
        for place, condition in enumerate(row["conditions"] or [None])
    ]
    return ResultTable(
        [
            Column("variant", side="l", value=lambda row: row["variant"] if row["first"] else ""),
            Column("runs", value=lambda row: "+".join(map(str, row["runs"])) if row["first"] else ""),
            Column("name", "asked of", side="l"),
            Column("statistic", "is", form=dashed(".4g")),
            Column("needed", "limit", form=dashed(".4g")),
            Column("verdict", value=lambda row: row["verdict"] if row["first"] else "", side="l"),
        ],
        flat,
    )


def _chance(row: Mapping[str, Any], content: Mapping[str, Any], width: int) -> list[str]:
    unit = f" {content['unit']}" if content["unit"] else ""
    if not row["rates"]:
        return [fill(f"{row['variant']}: no noise is known, so no chance can be computed: give --noise SD.", width)]
    noise = "which no run repeats" if row["noise_sd"] is None else f"{row['noise_sd']:.3g}{unit}"
    if row["noise_interval"] is not None:
        low, high = row["noise_interval"]
        noise += f" (95 % interval {low:.3g} to {high:.3g})"
    number = "+".join(map(str, row["design"]["runs"]))
    others = "+".join(map(str, row["design"]["reference_runs"]))
    of = f"{number} runs" + (f" and {others} of the reference" if content["reference"] is not None else "")
    about = f"How often the rule is satisfied with {of} ({row['tables']} simulated tables; sd of one run: {noise})"
    most = row["design"]["added_up_to"]
    columns = [
        Column("about", f"if {row['variant']} is better by", form=_MEANINGS.__getitem__, side="l"),
        Column("effect", content["unit"] or content["metric"], form=dashed(".3g")),
        Column("rate", "satisfied", form=_percent),
    ]
    if most is not None:
        columns.append(Column("rate_when_added", f"adding runs until it is, up to {most}", form=dashed(_percent)))
    return [fill(f"{about}:", width), "", ResultTable(columns, row["rates"]).text(width).rstrip("\n")]


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"
