"""The frozen plan: hashes, sizes, references, extensions by seeds, the settings that all runs share, and those that differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.formats.spec import differing, flat
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import View


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The frozen plan."""

    study: str
    about: str
    plan_hash: str
    addnorm: str
    data_hash: str
    tokenizer_hash: str
    margin: float | None
    references: tuple[str, ...]
    seeds: tuple[int, ...]
    budgets: tuple[tuple[str, int | float], ...]
    """Different budgets that the steps of the runs follow from: name and value."""
    variants: int
    runs: int
    extensions: tuple[tuple[str, tuple[int, ...], float | None, bool], ...]
    """Plan hash, seeds, time, whether results had been looked at."""
    shared: tuple[tuple[str, str], ...]
    """Settings that all runs share (training, corpus, tokenizer), as path and value."""
    own: Mapping[str, Mapping[str, str]]
    """Settings of the training that differ between variants: path, variant, value."""


class PlanSection(Section):
    """The plan."""

    order = 140
    absence = "record"
    pages = ("record",)
    in_report = "end"

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        return {"plan": plan(snapshot)}


def own_training(snapshot: Snapshot) -> dict[str, dict[str, str]]:
    """Settings of the training that differ between variants: path, variant, value."""
    specs = {name: snapshot.spec(name) for name in snapshot.variants}
    return differing({name: {"training": spec["training"]} for name, spec in specs.items() if "training" in spec})


def plan(snapshot: Snapshot) -> Plan:
    """The frozen plan, with the seeds that were added to it."""
    content = snapshot.plan
    spec = snapshot.spec(snapshot.variants[0]) if snapshot.variants else {}
    shared = flat({name: spec[name] for name in ("training", "corpus", "tokenizer") if name in spec})
    own = own_training(snapshot)
    margin = content.get("margin")
    return Plan(
        study=snapshot.study,
        about=str(content.get("about", "")),
        plan_hash=str(content["plan_hash"]),
        addnorm=str(content.get("addnorm_version", "")),
        data_hash=str(content.get("data_hash", "")),
        tokenizer_hash=str(content.get("tokenizer_hash", "")),
        margin=float(margin) if isinstance(margin, int | float) else None,
        references=snapshot.references,
        seeds=tuple(content.get("seeds", ())),
        budgets=tuple(dict.fromkeys(item for of in content.get("budgets", {}).values() for item in of.items())),
        variants=len(snapshot.variants),
        runs=len(snapshot.runs),
        extensions=tuple(
            (str(e["plan_hash"]), tuple(e["seeds"]), e.get("time"), bool(e.get("looked")))
            for e in content.get("extensions", [])
        ),
        shared=tuple((path, value) for path, value in shared.items() if path not in own),
        own=own,
    )
