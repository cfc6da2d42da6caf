"""Check whether the sizes in a model, and what steps change of them, stay the same over widths or depths.

Small models of several widths take a few steps on one batch of random tokens; about a minute on one core, nothing is written.
The growth exponent of every site, of the stream and of the logits is printed with its interval. It is 0 under a parametrisation
whose learning rates carry over from small to large models (`scaling` in a model, muP).

For example:
    addnorm scale-check residual-scores
    addnorm scale-check mine.yaml --variant v2m3 --widths 32,64,128,256
    addnorm scale-check mine.yaml --set 'model.scaling={width: 32}'
    addnorm scale-check mine.yaml --depths 2,4,8,16
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

from addnorm.cli._text import StudyOptions, page_width, print_json
from addnorm.errors import InputError
from addnorm.reporting.formats.table import Column, ResultTable
from addnorm.words import Phrases, spoken


@dataclass(frozen=True)
class Options(StudyOptions):
    variant: str | None = None
    """Variant whose model is checked; the first one if not given."""
    widths: str = ""
    """At least three widths, such as 32,64,128; half, once, twice and four times the variant's own if not given."""
    depths: str = ""
    """At least three depths, to check the depth in place of the width."""
    steps: int = 4
    """Steps of the optimizer."""
    seeds: int = 3
    """Seeds of every size."""


def command(options: Options) -> int:
    import addnorm

    if options.widths and options.depths:
        raise InputError("--widths and --depths: expected one of them, got both. Check one after the other.")
    over = "depth" if options.depths else "width"
    content = addnorm.scale_check(
        options.study,
        variant=options.variant,
        profile=options.profile,
        settings=options.set,
        over="depth" if options.depths else "width",
        values=_numbers(over, options.depths or options.widths),
        steps=options.steps,
        seeds=options.seeds,
    ).to_json()
    print_json(content) if options.json else print(_text(content, spoken(), page_width()))
    return 0


def _numbers(over: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")] if text else []
    except ValueError:
        raise InputError(f"--{over}s: expected whole numbers such as 32,64,128, got {text!r}.") from None


def _text(content: Mapping[str, Any], t: Phrases, width: int) -> str:
    over = t(f"scale_check.{content['over']}")
    columns = [
        Column("place", t("scale_check.place"), _place(t), side="l"),
        Column("what", t("scale_check.what"), lambda what: t(f"scale_check.{what}"), side="l"),
        Column("slope", t("scale_check.slope"), lambda slope: f"{slope:+.2f}"),
        Column("interval", t("scale_check.interval"), _interval),
        Column("growth", t("scale_check.growth"), lambda growth: t(f"scale_check.{growth}"), side="l"),
        *(
            Column(f"size {place}", f"{over} {value}", "{:.3g}".format, value=_size(place))
            for place, value in enumerate(content["values"])
        ),
    ]
    about = t(
        "scale_check.about",
        study=content["study"],
        variant=content["variant"],
        over=over,
        steps=content["steps"],
        seeds=content["seeds"],
        rate=f"{content['learning_rate']:g}",
        band=f"{content['band']:g}",
    )
    verdict = "steady" if content["steady"] else "not_steady"
    closing = [fill(t(f"scale_check.{verdict}", over=over), width)]
    if not content["steady"] and not content["scaled"]:
        closing.append(fill(t("scale_check.advice", setting="model.scaling={width: W}"), width))
    table = ResultTable(columns, content["places"]).text(width).rstrip("\n")
    return "\n\n".join([fill(about, width), table, "\n".join(closing)])


def _place(t: Phrases) -> Any:
    def named(place: str) -> str:
        index, _, role = place.partition(" ")
        return f"{index} {t(f'scale_check.{role}')}" if role else t(f"scale_check.{place}")

    return named


def _size(place: int) -> Any:
    return lambda row: row["sizes"][place]


def _interval(ends: Sequence[float]) -> str:
    return f"[{ends[0]:+.2f}, {ends[1]:+.2f}]"
