"""Extension of a frozen plan by further seeds.

The first plan and its hash stay unchanged in `study.json`. Each extension is an entry of its list `extensions`:

    {"plan_hash": hash of the extended plan, "seeds": [added seeds], "time": …, "looked": true if a ranking with results
     had been shown before, "runs": [added runs]}
"""

import time
from typing import Any

_MAY_DIFFER = frozenset({"format", "plan_hash", "seeds", "runs", "extensions", "addnorm_version"})


def all_runs(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Runs of the first plan, then those of each extension."""
    return [*plan["runs"], *(run for extension in plan.get("extensions", []) for run in extension["runs"])]


def hashes(plan: dict[str, Any]) -> list[str]:
    """Hash of the first plan, then that of each extension."""
    return [plan["plan_hash"], *(extension["plan_hash"] for extension in plan.get("extensions", []))]


def only_adds_seeds(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """True if `new` contains every run of `old` unchanged and, beyond those, exactly every variant at each added seed."""
    if any(old.get(name) != new.get(name) for name in (old.keys() | new.keys()) - _MAY_DIFFER):
        return False
    old_runs = {entry["run"]: entry for entry in all_runs(old)}
    new_runs = {entry["run"]: entry for entry in new["runs"]}
    if any(new_runs.get(name) != entry for name, entry in old_runs.items()):
        return False
    added = [entry for name, entry in new_runs.items() if name not in old_runs]
    cells = sorted((entry["variant"], entry["seed"]) for entry in added)
    seeds = {seed for _, seed in cells}
    variants = {entry["variant"] for entry in old_runs.values()}
    seeds_are_new = not seeds & {entry["seed"] for entry in old_runs.values()}
    return bool(added) and seeds_are_new and cells == sorted((variant, seed) for variant in variants for seed in seeds)


def extended(old: dict[str, Any], new: dict[str, Any], *, looked: bool) -> dict[str, Any]:
    """Content of `study.json` after `new`, which only adds seeds, has been accepted.

    Args:
        old: present content.
        new: the plan with further seeds.
        looked: true if results had been seen before.
    """
    old_runs = {entry["run"] for entry in all_runs(old)}
    added = [entry for entry in new["runs"] if entry["run"] not in old_runs]
    extension = {
        "plan_hash": new["plan_hash"],
        "seeds": sorted({entry["seed"] for entry in added}),
        "time": time.time(),
        "looked": looked,
        "runs": added,
    }
    return {**old, "extensions": [*old.get("extensions", []), extension]}
