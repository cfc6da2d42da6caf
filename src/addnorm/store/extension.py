"""Seeds that were added to a frozen plan: what may be added, and what is kept of it.

The first plan and its hash stay in `study.json` as they were. An extension is an entry of its list `extensions`:

    {"plan_hash": of the whole new plan, "seeds": [the new ones], "time": …, "looked": whether a ranking with results
     had been shown before, "runs": [the new runs]}
"""

import time
from typing import Any

_MAY_DIFFER = frozenset({"format", "plan_hash", "seeds", "runs", "extensions", "addnorm_version"})


def all_runs(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """The first plan's runs, then those of each extension."""
    return [*plan["runs"], *(run for extension in plan.get("extensions", []) for run in extension["runs"])]


def hashes(plan: dict[str, Any]) -> list[str]:
    """The first plan's hash, then that of each extension."""
    return [plan["plan_hash"], *(extension["plan_hash"] for extension in plan.get("extensions", []))]


def only_adds_seeds(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether `new` holds every run of `old` unchanged, and beside them every variant at seeds of its own, no more."""
    if any(old.get(name) != new.get(name) for name in (old.keys() | new.keys()) - _MAY_DIFFER):
        return False
    before = {entry["run"]: entry for entry in all_runs(old)}
    now = {entry["run"]: entry for entry in new["runs"]}
    if any(now.get(name) != entry for name, entry in before.items()):
        return False
    added = [entry for name, entry in now.items() if name not in before]
    cells = sorted((entry["variant"], entry["seed"]) for entry in added)
    seeds = {seed for _, seed in cells}
    variants = {entry["variant"] for entry in before.values()}
    fresh = not seeds & {entry["seed"] for entry in before.values()}
    return bool(added) and fresh and cells == sorted((variant, seed) for variant in variants for seed in seeds)


def extended(old: dict[str, Any], new: dict[str, Any], *, looked: bool) -> dict[str, Any]:
    """What `study.json` holds once `new`, which only adds seeds, is taken in."""
    before = {entry["run"] for entry in all_runs(old)}
    added = [entry for entry in new["runs"] if entry["run"] not in before]
    extension = {
        "plan_hash": new["plan_hash"],
        "seeds": sorted({entry["seed"] for entry in added}),
        "time": time.time(),
        "looked": looked,
        "runs": added,
    }
    return {**old, "extensions": [*old.get("extensions", []), extension]}
