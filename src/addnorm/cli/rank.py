"""Rank a study's variants, and show which differences are more than noise.

For example:
    addnorm rank runs/first
    addnorm rank runs/first --reference base --margin 0.01
    addnorm rank runs/first --exclude post
    addnorm rank kuang-2025
    addnorm rank results.csv --reference base --columns variant=model,loss=val_loss
    addnorm rank results.csv --columns loss=accuracy --direction higher --unit % --margin 0.2
    addnorm rank results.csv --metric loss --metric accuracy,direction=higher,margin=0.2,unit=%
    addnorm rank results.csv --rule modded-nanogpt
    addnorm rank sizes.csv --as speedup --columns compute=flops
    addnorm rank runs/w24 --size runs/w32 --size runs/w48 --as speedup
    addnorm rank runs/first --as steps
    addnorm rank lm_eval_output --as downstream --columns document=doc.text_id
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from addnorm.cli._rank.choices import TableOptions
from addnorm.cli._text import page_width, paragraph, print_json, print_message, refuse
from addnorm.errors import InputError
from addnorm.reporting.formats.table import Column, ResultTable
from addnorm.words import Phrases, command_line, phrases, plugin_options, point_name, spoken

Answer = tuple[dict[str, Any], Callable[[Mapping[str, Any], Phrases], "WrittenAnswer"]]
"""The JSON of another question, and what writes it in words."""

if TYPE_CHECKING:
    from addnorm.reporting.questions import WrittenAnswer
    from addnorm.statistics import Ranking


@dataclass(frozen=True)
class Options(TableOptions):
    dir: Annotated[Path, tyro.conf.Positional]
    """Folder of a study's runs; a JSON file of published results; `kuang-2025` for the table that Kuang (2025) prints; or runs
    that other code trained, with a variant, a seed and a loss each: CSV, JSON lines, a JSON list, a folder of TensorBoard
    events."""
    question: Annotated[Literal["ranking", "speedup", "time", "steps", "downstream"], tyro.conf.arg(name="as")] = (
        "ranking"
    )
    """Another question of the same runs. `speedup`: compute that the reference needs for a variant's loss, from runs at two
    sizes or more (column `compute`; the counted FLOPs of studies). `time`: the same in measured seconds, of studies. `steps`:
    steps to equal loss, from curves (column `step`), of a study also in its compute and time. `downstream`: scores of items
    (samples of lm-evaluation-harness, logs of Inspect, or a table with a row per item), over items, documents and seeds."""
    size: Annotated[tuple[Path, ...], tyro.conf.UseAppendAction] = ()
    """With --as speedup or time: folder of a study of the same variants in another size. May be given more than once."""
    rule: str = ""
    """Ask instead whether the table satisfies a written rule, and how often chance alone does: a YAML file, or one of
    modded-nanogpt, modded-nanogpt-medium, modded-nanogpt-optimization, parameter-golf, parameter-golf-average, marin-gate-1,
    marin-gate-2."""
    limit: float | None = None
    """With --as speedup: loss that no compute goes below; fitted unless given."""
    exponent: float | None = None
    """With --as speedup: exponent of the law of the loss; fitted unless given."""
    noise: float | None = None
    """With --rule: standard deviation of one run in its simulation; estimated from the table unless given."""
    csv: bool = False
    """Print comma-separated values."""
    latex: bool = False
    """Print a LaTeX table (booktabs)."""


def command(options: Options) -> int:
    import addnorm
    from addnorm.reporting.formats import ranking_latex
    from addnorm.reporting.formats.text_table import filled
    from addnorm.reporting.questions import in_latex
    from addnorm.reporting.sections import ranking as tables
    from addnorm.reporting.sections import tuning as tuning_tables
    from addnorm.statistics.conclusion import conclusion
    from addnorm.statistics.effects.next_step import next_step
    from addnorm.statistics.effects.posterior import posteriors

    if options.rule:
        return _print(options, *_rule(options))
    if options.question == "downstream":
        return _print(options, *_downstream(options))
    if options.question != "ranking":
        return _print(options, *_speedup(options, options.question))
    if options.csv:
        refuse(options, "--csv", "posterior", "latex")
    if options.noise is not None or options.limit is not None or options.exponent is not None or options.size:
        raise InputError(
            "--noise, --limit, --exponent, --size: expected only with --rule or --as speedup, got one. Leave it out."
        )
    choices = options.choices()
    ranked = addnorm.rank(options.dir, **choices.of_ranking, say=print_message)
    ranking = _answered(ranked, options.posterior)
    if options.json:
        print_json(ranking)
    elif options.csv:
        print(tables.csv(ranking), end="")
    elif options.latex:
        of_metrics = [
            latex for each in (ranking, *ranking.get("others", ())) for latex in ranking_latex.latex(each).values()
        ]
        t = phrases("en")
        if options.posterior:
            of_metrics += [
                in_latex(_posterior_table(posteriors(each), t), t("text.probabilities"))
                for each in (ranked, *ranked.others)
            ]
        print("\n".join(of_metrics), end="")
    else:
        for each in (ranked, *ranked.others):
            print(tables.text(each.to_json(), page_width(), spoken()))
            if options.posterior:
                print(filled(spoken()("text.probabilities"), page_width()))
                print("\n" + _posterior_table(posteriors(each), spoken()).text(page_width()))
        if ranking["tuning"] is not None:
            print(tuning_tables.text(ranking["tuning"], page_width(), spoken()))
        if (options.dir / "study.json").exists():
            print(_next_commands(options.dir))
        of_others = (sentence for each in ranked.others for sentence in conclusion(each))
        print("\n".join(("", *map(paragraph, (*conclusion(ranked), *of_others, next_step(ranked).sentence)))))
    return 0


def _answered(ranked: "Ranking", posterior: bool) -> dict[str, Any]:
    """The JSON of a ranking with its answer in words, the next step, and the same of its other metrics."""
    from addnorm.statistics.conclusion import conclusion
    from addnorm.statistics.effects.next_step import next_step
    from addnorm.statistics.effects.posterior import posteriors

    ranking = {
        **ranked.to_json(),
        "answer": [str(sentence) for sentence in conclusion(ranked)],
        "next": next_step(ranked).to_json(),
    }
    probable = posteriors(ranked) if posterior else {}
    for row in ranking["variants"] if posterior else ():
        for reference, versus in row["versus"].items():
            probability = probable.get((row["variant"], reference))
            versus["posterior"] = None if probability is None else probability.to_json()
    if ranked.others:
        ranking["others"] = [_answered(of, posterior) for of in ranked.others]
    return ranking


def _posterior_table(probable: Mapping[tuple[str, str], Any], t: Phrases) -> ResultTable:
    rows = [{"variant": name, "versus": other, **each.to_json()} for (name, other), each in probable.items()]
    shares = [
        Column(name, t(f"verdict.{name}"), lambda share: f"{share:.3f}") for name in ("better", "equivalent", "worse")
    ]
    names = [Column("variant", t("head.variant"), point_name, side="l"), Column("versus", t("head.other"), side="l")]
    return ResultTable([*names, *shares], rows)


def _print(
    options: Options, content: dict[str, Any], answer: Callable[[Mapping[str, Any], Phrases], "WrittenAnswer"]
) -> int:
    if options.json:
        print_json(content)
    elif options.latex:
        print(answer(content, phrases("en")).latex(), end="")
    else:
        print(answer(content, spoken()).text(page_width()))
    return 0


def _one_reference(options: Options, question: str, *unread: str) -> str | None:
    """The reference, after options that the question does not read are refused.

    Raises:
        InputError: one of them is given, or two references.
    """
    refuse(options, question, "exclude", "csv", "posterior", "metric", "together", *unread)
    if len(options.reference) > 1:
        raise InputError(f"--reference: expected one with {question}, got {', '.join(options.reference)}. Give one.")
    return options.reference[0] if options.reference else None


def _rule(options: Options) -> Answer:
    import addnorm
    from addnorm.reporting.questions.rule import answer
    from addnorm.statistics.run_tables import columns_from

    if options.question != "ranking":
        raise InputError(f"--rule: expected a question of its own, got --as {options.question} too. Leave one out.")
    result = addnorm.rule(
        options.dir,
        options.rule,
        reference=_one_reference(options, "--rule", "margin", "limit", "exponent", "size"),
        variants=options.variant,
        noise=options.noise,
        columns=columns_from(options.columns) if options.columns else None,
        direction=options.direction,
        unit=options.unit or None,
    )
    return result.to_json(), answer


def _speedup(options: Options, question: Literal["speedup", "time", "steps"]) -> Answer:
    import addnorm
    from addnorm.reporting.questions.speedup import answer
    from addnorm.statistics.run_tables import columns_from

    result = addnorm.speedup(
        options.dir,
        of="compute" if question == "speedup" else question,
        sizes=options.size,
        reference=_one_reference(options, f"--as {question}", "margin", "direction", "noise"),
        variants=options.variant,
        limit=options.limit,
        exponent=options.exponent,
        columns=columns_from(options.columns) if options.columns else None,
        unit=options.unit or None,
        say=print_message,
    )
    return result.to_json(), answer


def _downstream(options: Options) -> Answer:
    import addnorm
    from addnorm.reporting.questions.downstream import answer
    from addnorm.statistics.run_tables import columns_from

    result = addnorm.downstream(
        options.dir,
        reference=_one_reference(options, "--as downstream", "unit", "noise", "limit", "exponent", "size"),
        variants=options.variant,
        margin=options.margin,
        columns=columns_from(options.columns) if options.columns else None,
        direction=options.direction,
    )
    return result.to_json(), answer


def _next_commands(folder: Path) -> str:
    from addnorm.store import StudyFolder
    from addnorm.store.extension import plugins_of
    from addnorm.store.remembered import to_give

    study = StudyFolder(folder)
    code = plugin_options(to_give(folder, plugins_of(study.plan)))
    # One is enough, and the status of a run costs several reads.
    finished = next((run.path for run in study.runs() if run.status().state == "finished"), None)
    commands: list[tuple[str, list[str | Path]]] = [
        ("next.status", ["status", folder]),
        ("next.explain", ["explain", folder, *code]),
        ("next.json", ["rank", folder, "--json"]),
    ]
    if finished is not None:
        commands.insert(2, ("next.export", ["export", finished, *code]))
    t = spoken()
    lines = (f"\n  {t('text.heading', text=t(key))}\n    {command_line('addnorm', *words)}" for key, words in commands)
    return t("next.title") + "".join(lines)
