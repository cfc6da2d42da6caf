"""Extension of a frozen plan by further seeds.

The first plan and its hash stay unchanged in `study.json`. Each extension is an entry of its list `extensions`:

    {"plan_hash": hash of the extended plan, "seeds": [added seeds], "time": …, "looked": true if a ranking with results
     had been shown before, "runs": [added runs]}

A plan with a `design` adds its seeds in stages. It names every seed and every look beforehand; which variants a stage trains
follows from the runs of the stages before it. A stage is an extension too, with its number as `stage`; its seeds are planned,
and whether a ranking had been shown changes nothing.

A plan with `replicate` names the seeds of a second batch. When the first batch has ended, one stage adds the variants of its
found verdicts with these seeds. No other seeds are added to it: the found verdicts would change after a look.

A plan with `tune` begins with the tuning runs alone. Its one stage adds every variant at its chosen point, and records as
`chosen` which point that is.
"""

import hashlib
import json
import re
import time
from collections.abc import Mapping
from typing import Any

_MAY_DIFFER = frozenset({"format", "plan_hash", "seeds", "runs", "extensions", "addnorm_version"})


def all_runs(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Runs of the first plan, then those of each extension."""
    return [*plan["runs"], *(run for extension in plan.get("extensions", []) for run in extension["runs"])]


def references_of(plan: Mapping[str, Any]) -> tuple[str, ...]:
    """The variants that all others are compared with: those that the plan names, or else its first variant."""
    named = tuple(plan.get("references", ()))
    variants = plan.get("variants") or [run["variant"] for run in plan["runs"]]
    return named or tuple(variants[:1])


def pairs_of(plan: Mapping[str, Any]) -> tuple[tuple[str, str], ...] | None:
    """The pairs (variant, reference) that are compared; None for every variant with every reference."""
    pairs = plan.get("pairs")
    return None if pairs is None else tuple((str(name), str(other)) for name, other in pairs)


def seeds_again(plan: Mapping[str, Any]) -> tuple[int, ...]:
    """The seeds of a plan's second batch; none for a plan without one."""
    return tuple(plan.get("replicate", ()))


def plugins_of(plan: Mapping[str, Any]) -> tuple[str, ...]:
    """Files and functions of the user's own that the runs of a plan use, each once."""
    specs = (run.get("spec") for run in all_runs(plan))
    return tuple(dict.fromkeys(path for spec in specs if isinstance(spec, dict) for path in spec.get("plugins", ())))


def hashes(plan: dict[str, Any]) -> list[str]:
    """Hash of the first plan, then that of each extension."""
    return [plan["plan_hash"], *(extension["plan_hash"] for extension in plan.get("extensions", []))]


def content_hash(plan: Mapping[str, Any]) -> str:
    """Hash that a first plan of this content was frozen with."""
    later = ("format", "plan_hash", "addnorm_version", "extensions")
    content = {name: value for name, value in plan.items() if name not in later}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()


def was_edited(plan: Mapping[str, Any]) -> bool:
    """True for a first plan whose hash, a SHA-256 as addnorm writes it, is that of another content."""
    return re.fullmatch("[0-9a-f]{64}", plan["plan_hash"]) is not None and plan["plan_hash"] != content_hash(plan)


def only_adds_seeds(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """True if `new` contains every run of `old` unchanged and, beyond those, exactly every variant at each added seed."""
    if "replicate" in old or any(old.get(name) != new.get(name) for name in (old.keys() | new.keys()) - _MAY_DIFFER):
        return False
    old_runs = {entry["run"]: entry for entry in all_runs(old)}
    new_runs = {entry["run"]: entry for entry in new["runs"]}
    # Not only must every old run be in the new plan, its entry must be equal, specification and all: a run of the same
    # name with other settings has another hash in its name, but a damaged or edited plan could say otherwise.
    if any(new_runs.get(name) != entry for name, entry in old_runs.items()):
        return False
    added = [entry for name, entry in new_runs.items() if name not in old_runs]
    cells = sorted((entry["variant"], entry["seed"]) for entry in added)
    seeds = {seed for _, seed in cells}
    variants = {entry["variant"] for entry in old_runs.values()}
    seeds_are_new = not seeds & {entry["seed"] for entry in old_runs.values()}
    # Every variant at every new seed. A single variant with more seeds would compare means over different seeds, and a
    # chosen one would be chosen after its results were seen.
    return bool(added) and seeds_are_new and cells == sorted((variant, seed) for variant in variants for seed in seeds)


def tuning_runs(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs on which a plan with `tune` chooses; none for any other."""
    return list(plan["runs"]) if "tune" in plan else []


def chosen_points(plan: dict[str, Any]) -> dict[str, str] | None:
    """The point of each variant that the compared runs have; None before the choice, and for a plan without `tune`."""
    return next((extension["chosen"] for extension in plan.get("extensions", []) if "chosen" in extension), None)


def with_stage(
    old: dict[str, Any], stage: int, runs: list[dict[str, Any]], chosen: dict[str, str] | None = None
) -> dict[str, Any]:
    """Content of `study.json` with the runs of a further stage of its design.

    Args:
        old: present content.
        stage: number of the stage, from 1; the first plan is stage 0.
        runs: entries of the runs that the stage trains.
        chosen: for a plan with `tune`, the name of each variant's chosen point.
    """
    content = json.dumps([old["plan_hash"], stage, [run["run"] for run in runs]])
    plan_hash = hashlib.sha256(content.encode()).hexdigest()
    of_stage = {"stage": stage} if chosen is None else {"stage": stage, "chosen": chosen}
    return _with_extension(old, plan_hash, runs, looked=False, **of_stage)


def stages(plan: dict[str, Any]) -> int:
    """Number of stages that have been planned in full, the first one included."""
    return 1 + sum("stage" in extension for extension in plan.get("extensions", []))


def extended(old: dict[str, Any], new: dict[str, Any], *, looked: bool) -> dict[str, Any]:
    """Content of `study.json` after `new`, which only adds seeds, has been accepted.

    Args:
        old: present content.
        new: the plan with further seeds.
        looked: true if results had been seen before.
    """
    old_runs = {entry["run"] for entry in all_runs(old)}
    added = [entry for entry in new["runs"] if entry["run"] not in old_runs]
    return _with_extension(old, new["plan_hash"], added, looked=looked)


def _with_extension(
    old: dict[str, Any], plan_hash: str, runs: list[dict[str, Any]], *, looked: bool, **of_stage: Any
) -> dict[str, Any]:
    seeds = sorted({run["seed"] for run in runs})
    extension = {
        "plan_hash": plan_hash,
        "seeds": seeds,
        "time": time.time(),
        "looked": looked,
        **of_stage,
        "runs": runs,
    }
    return {**old, "extensions": [*old.get("extensions", []), extension]}
