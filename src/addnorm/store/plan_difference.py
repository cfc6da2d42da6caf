"""Differences between two plans of a study in words, such as `training.steps: 240 → 5`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from addnorm.store.extension import all_runs

_MOST = 6
"""Differences that a message lists; the others are counted."""
_SHARED = ("study", "about", "references", "compare", "pairs", "margin", "design")
"""Fields of a plan that concern no single run."""
_NOT_COMPARED = frozenset({"study", "variant", "seed", "data_hash"})
"""Fields of a run's spec that are named otherwise here, or follow from others."""
_ABSENT = object()

Changes = tuple[tuple[str, Any, Any], ...]
Runs = Mapping[tuple[str, int], Mapping[str, Any]]


def plan_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Describe how the plan `new` differs from `old`: fields with both values, then variants and seeds.

    A change that all common variants share is given once, others with the variant's name.
    """
    parts = [*_shared_fields(old, new), *_variants_and_seeds(old, new)]
    more = len(parts) - _MOST
    return "; ".join(parts[:_MOST]) + (f"; and {more} more" if more > 0 else "")


def _shared_fields(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    one, other = _shared(old), _shared(new)
    yield from _lines("", tuple(_changes(one, other)))
    old_runs, new_runs = _by_variant_and_seed(old), _by_variant_and_seed(new)
    changes = {key: _changes_of_run(old_runs[key], new_runs[key]) for key in old_runs if key in new_runs}
    by_variant: dict[str, Changes] = {}
    for (variant, _), changed in changes.items():
        by_variant.setdefault(variant, changed)
    # A change that all variants share stands once, without a name: changed steps of the study are one change, not
    # eighteen.
    common = [
        change for change in next(iter(by_variant.values()), ()) if all(change in each for each in by_variant.values())
    ]
    yield from _lines("", common)
    for variant, changed in by_variant.items():
        yield from _lines(f"variants.{variant}.", [change for change in changed if change not in common])
    text_changed = old.get("data_hash") != new.get("data_hash")
    if text_changed and not any(path.startswith(("corpus", "tokenizer")) for path, _, _ in common):
        yield "the text of the corpus, or its tokens, have changed"
    elif not any(changes.values()) and any(old_runs[key]["run"] != new_runs[key]["run"] for key in changes):
        yield "the code of a plugin has changed"


def _shared(plan: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: plan[name] for name in _SHARED if name in plan}
    if "tune" in plan:  # its runs have the tuning seeds alone; its points are compared as their variants
        fields |= {"seeds": plan["seeds"], "tune": {"seeds": plan["tune"]["seeds"]}}
    return fields


def _variants_and_seeds(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    before, after = _by_variant_and_seed(old), _by_variant_and_seed(new)
    for place, word in ((0, "variant"), (1, "seed")):
        had, has = (list(dict.fromkeys(key[place] for key in runs)) for runs in (before, after))
        for kind, names in (("no longer", [n for n in had if n not in has]), ("new", [n for n in has if n not in had])):
            if names:
                yield f"{kind}: {word}{'s' if len(names) > 1 else ''} {', '.join(map(str, names))}"


def _by_variant_and_seed(plan: Mapping[str, Any]) -> Runs:
    # Later stages of a design (the runs after tuning, further looks) are planned by `run` from what the first found: a
    # plan that is compared before it has begun does not have them, and that is no change of it.
    planned = [extension for extension in plan.get("extensions", ()) if "stage" not in extension]
    return {(entry["variant"], entry["seed"]): entry for entry in all_runs({**plan, "extensions": planned})}


def _changes_of_run(old: Mapping[str, Any], new: Mapping[str, Any]) -> Changes:
    one, other = (
        {name: value for name, value in entry.get("spec", {}).items() if name not in _NOT_COMPARED}
        for entry in (old, new)
    )
    changes = tuple(_changes(one, other))
    return changes or tuple(_changes({"steps": old["steps"]}, {"steps": new["steps"]}))


def _changes(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Path, old and new value of everything that differs."""
    if isinstance(old, Mapping) and isinstance(new, Mapping) and old.get("kind") == new.get("kind"):
        for name in dict.fromkeys((*old, *new)):
            yield from _changes(old.get(name, _ABSENT), new.get(name, _ABSENT), f"{path}.{name}" if path else str(name))
    elif old != new:
        yield path, old, new


def _lines(prefix: str, changes: Sequence[tuple[str, Any, Any]]) -> Iterator[str]:
    for path, old, new in changes:
        yield f"{prefix}{path}: {_shown(old)} → {_shown(new)}"


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "not set"
    if value is None:
        return "none"
    if isinstance(value, Mapping) and "kind" in value:  # a mechanism whose kind has changed
        settings = {name: setting for name, setting in value.items() if name != "kind"}
        return value["kind"] + (f" {json.dumps(settings, ensure_ascii=False)}" if settings else "")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
