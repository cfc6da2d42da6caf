"""Reproduction of a study's results: its frozen plan as a study file, and the commands that run it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot, TableSource
from addnorm.reporting.view import View
from addnorm.version import __version__
from addnorm.words import command_line

STUDY_FILE = "study.yaml"
"""The study file's name, in the folder of the report."""


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """Everything needed to run the study again."""

    file: str
    """Text of the study file; empty if the plan does not say what its runs train."""
    commands: tuple[tuple[str, str], ...]
    """Command, and the key of the phrase that names its purpose."""
    plan_hashes: tuple[str, ...]
    """Of the plan, and of the plan after each extension by seeds; a repetition must have the same."""
    plugins: tuple[str, ...]
    """Files of the user's own mechanisms, which are needed too."""
    hash: str | None = None
    """SHA-256 of a table of runs."""


class ReproduceSection(Section):
    """The study file, the commands and the plan's hashes."""

    order = 200
    in_report = "end"
    sources = frozenset({"study", "table"})

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        if view.report is None:
            raise ValueError("the section names files of a report, and no report is being written.")
        return {"reproduction": reproduction(snapshot, view.report.html), "study_file": STUDY_FILE}


def reproduction(snapshot: Snapshot, report: Path) -> Reproduction:
    """The study file and the commands.

    Args:
        snapshot: the study.
        report: the report's HTML file; the study file is in the same folder.
    """
    if snapshot.table is not None:
        return _of_table(snapshot.table)
    plan = snapshot.plan
    content = study_content(plan)
    again = Path("runs") / f"{snapshot.study}-again"
    file = report.parent / STUDY_FILE
    run: list[str | Path] = ["addnorm", "run", file, "--out", again]
    versions = plan.get("addnorm_version")
    commands = [(f"addnorm {versions}", "reproduce.needs")] if versions else []
    design = plan.get("design")
    if design is not None:  # one command adds all stages
        run += ["--until", "decided", "--most", str(len(design["seeds"]))]
    commands.append((command_line(*run), "reproduce.run"))
    seeds = list(plan.get("seeds", []))
    extensions = plan.get("extensions", [])
    for extension in extensions:
        if "stage" in extension:
            continue
        seeds += extension["seeds"]
        text = f"seeds=[{','.join(map(str, seeds))}]"
        commands.append((command_line(*run, "--set", text), "reproduce.extend"))
    commands.append((command_line("addnorm", "rank", again), "reproduce.rank"))
    commands.append((command_line("addnorm", "report", again), "reproduce.report"))
    return Reproduction(
        file="" if content is None else yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100),
        commands=tuple(commands) if content is not None else (),
        plan_hashes=(str(plan["plan_hash"]), *(str(extension["plan_hash"]) for extension in extensions)),
        plugins=tuple(content.get("plugins", ())) if content is not None else (),
    )


def _of_table(table: TableSource) -> Reproduction:
    """The commands that read the table again; none for one in memory."""
    words = table.words
    # --posterior of `addnorm rank` prints the probabilities too, so that all take the same options.
    commands = [(command_line("addnorm", name, *words), f"reproduce.{name}") for name in ("rank", "report", "watch")]
    needs = [(f"addnorm {__version__}", "reproduce.needs")]
    return Reproduction(
        file="", commands=(*needs, *commands) if words else (), plan_hashes=(), plugins=(), hash=table.hash
    )


def _training(spec: Mapping[str, Any], budget: Mapping[str, int | float] | None) -> dict[str, Any]:
    """A run's training as in the study file: with the budget that its steps follow from, if any."""
    settings = dict(spec["training"])
    if budget:
        del settings["steps"]
    return {**settings, **(budget or {})}


def _tuning(plan: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """`tune` of the study file, and of each variant; nothing for a plan without it."""
    if "tune" not in plan:
        return {}, {}
    seeds, over = plan["tune"]["seeds"], plan["tune"]["over"]
    return {"tune": {"seeds": seeds}}, {name: {"tune": {"over": axes}} for name, axes in over.items()}


def study_content(plan: Mapping[str, Any]) -> dict[str, Any] | None:
    """The first plan as a study file's content, every field written out; None if the plan does not hold all that it takes."""
    specs = {entry["variant"]: entry.get("spec") for entry in plan["runs"]}
    budgets = dict(plan.get("budgets", {}))
    tune, axes = _tuning(plan)
    for name in axes:  # its first point stands for a variant: the axes replace whatever it has there
        point = next(iter(plan["tune"]["points"][name]))
        specs[name], budgets[name] = specs.get(point), budgets.get(point)
    if not specs or not all(isinstance(spec, dict) and "model" in spec for spec in specs.values()):
        return None
    first = next(iter(specs.values()))
    if not {"references", "margin", "seeds"} <= plan.keys() or not {"corpus", "tokenizer", "training"} <= first.keys():
        return None
    plugins = list(dict.fromkeys(path for spec in specs.values() for path in spec.get("plugins", ())))
    titles = plan.get("titles", {})
    names = list(plan.get("variants", specs))
    training = {name: _training(specs[name], budgets.get(name)) for name in names}
    shared = training[names[0]]
    content = {
        "name": plan["study"],
        "about": plan.get("about", ""),
        "references": plan["references"],
        "margin": plan["margin"],
        "seeds": plan["seeds"],
        **tune,
        "corpus": first["corpus"],
        "tokenizer": first["tokenizer"],
        "training": shared,
        "plugins": plugins,
        "variants": {
            name: specs[name]["model"]
            | ({"title": titles[name]} if name in titles else {})
            | ({} if training[name] == shared else {"training": training[name]})
            | axes.get(name, {})
            for name in names
        },
    }
    return content if plugins else {name: value for name, value in content.items() if name != "plugins"}
