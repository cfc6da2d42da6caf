"""Show the state of every run of a study.

For example:
    addnorm status runs/first
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from addnorm.cli._text import aligned, page_width, print_json

if TYPE_CHECKING:
    from addnorm.store import RunStatus


@dataclass(frozen=True)
class Options:
    dir: Annotated[Path, tyro.conf.Positional]
    """Folder of a study's runs."""
    json: bool = False
    """Print JSON."""


def command(options: Options) -> int:
    from addnorm.reporting.sections import tuning as tables
    from addnorm.store import StudyFolder
    from addnorm.store.tuning import status, tuning

    folder = StudyFolder(options.dir)
    if options.json:
        print_json(status(folder))
        return 0
    rows = [("run", "state", "step", "loss", "accuracy", "perplexity", "attempts", "reason")]
    statuses = folder.statuses()
    for entry in statuses:
        loss, accuracy, perplexity = entry.loss, entry.accuracy, entry.perplexity
        rows.append(
            (
                entry.run,
                entry.state,
                f"{entry.step}/{entry.steps}",
                "-" if loss is None else f"{loss:.4f}",
                "-" if accuracy is None else f"{accuracy:.2%}",
                "-" if perplexity is None else f"{perplexity:.3f}",
                str(entry.attempts),
                (entry.reason or "").partition("\n")[0],
            )
        )
    print(f"{folder.name}  (plan {folder.plan_hash[:12]})\n")
    print(aligned(rows, right="llrrrrr"))
    outcome = tuning(folder)
    if outcome is not None:
        print(f"\n{tables.text(outcome.to_json(), page_width())}", end="")
    _print_uncompiled(statuses)
    for run in folder.all_runs():
        ending = run.ending() or {}
        if ending.get("state") in ("failed", "diverged"):
            print(f"\n{run.name} {ending['state']}: {ending['reason']}")
            print("\n".join(f"  | {line}" for line in ending.get("log") or ("the log is empty",)))
    return 0


def _print_uncompiled(statuses: Sequence["RunStatus"]) -> None:
    """Say which runs train uncompiled although `training.compile` is set, and why."""
    by_reason: dict[str, list[str]] = {}
    for entry in statuses:
        if entry.uncompiled is not None:
            by_reason.setdefault(entry.uncompiled, []).append(entry.run)
    for reason, runs in by_reason.items():
        print(f"\ntraining.compile: trained uncompiled: {', '.join(runs)}\n  | {reason}")
