"""Show the state of every run of a study.

For example:
    addnorm status runs/first
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from addnorm.cli._text import JsonOption, on_screen, page_width, print_json
from addnorm.words import spoken, translated

if TYPE_CHECKING:
    from addnorm.store import RunStatus
    from addnorm.store.run import RunFolder


@dataclass(frozen=True)
class Options(JsonOption):
    dir: Annotated[Path, tyro.conf.Positional]
    """Folder of a study's runs."""


def command(options: Options) -> int:
    from addnorm.reporting.formats.table import Column, ResultTable, dashed
    from addnorm.store import StudyFolder
    from addnorm.store.tuning import status, tuning

    folder = StudyFolder(options.dir)
    if options.json:
        print_json(status(folder))
        return 0
    t = spoken()
    columns = (
        Column("run", t("head.run"), side="l"),
        Column("state", t("head.state"), lambda state: t(f"state.{state}"), "l"),
        Column("step", t("head.step"), value=lambda entry: f"{entry.step}/{entry.steps}"),
        Column("loss", t("head.loss"), dashed(".4f")),
        Column("accuracy", t("head.accuracy"), dashed(".2%")),
        Column("perplexity", t("head.perplexity"), dashed(".3f")),
        Column("attempts", t("head.attempts")),
        Column("reason", t("head.reason"), lambda reason: translated((reason or "").partition("\n")[0]), "l"),
    )
    statuses = folder.statuses()
    print(t("status.title", study=folder.name, hash=folder.plan_hash[:12]) + "\n")
    print(on_screen(ResultTable(columns, statuses)))
    if "tune" in folder.plan and (outcome := tuning(folder)) is not None:
        from addnorm.reporting.sections import tuning as tables

        print(f"\n{tables.text(outcome.to_json(), page_width(), t)}", end="")
    _print_attention(folder.all_runs())
    _print_uncompiled(statuses)
    for run in folder.all_runs():
        ending = run.ending() or {}
        if ending.get("state") in ("failed", "diverged"):
            state, reason = t(f"state.{ending['state']}"), translated(ending["reason"])
            print("\n" + t("status.ended", run=run.name, state=state, reason=reason))
            print("\n".join(f"  | {line}" for line in ending.get("log") or (t("status.log_is_empty"),)))
    return 0


def _print_attention(runs: Sequence["RunFolder"]) -> None:
    """Say which ways the attention of the runs takes on their devices, and why."""
    variants: dict[str, list[str]] = {}
    for run in runs:
        taken = (run.env or {}).get("attention")
        if isinstance(taken, str):
            variants.setdefault(taken, []).append(run.spec["variant"])
    for taken, names in variants.items():
        print("\n" + spoken()("status.attention", variants=", ".join(dict.fromkeys(names)), way=taken))


def _print_uncompiled(statuses: Sequence["RunStatus"]) -> None:
    """Say which runs train uncompiled although `training.compile` is set, and why."""
    by_reason: dict[str, list[str]] = {}
    for entry in statuses:
        if entry.uncompiled is not None:
            by_reason.setdefault(entry.uncompiled, []).append(entry.run)
    for reason, runs in by_reason.items():
        print(f"\n{spoken()('status.uncompiled', runs=', '.join(runs))}\n  | {reason}")
