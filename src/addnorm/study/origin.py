"""Variants `from` a run of ours: the run's own model as a spec, which `training.init_from` gives the run's weights.

What joins the layers of our own models is a field of their specs, so that a patch becomes such fields, and every analysis of a
run works on the variant.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from addnorm.errors import InputError
from addnorm.store.files import read_json
from addnorm.study.overlay import lay_over
from addnorm.study.problems import Problems
from addnorm.study.variants import NOT_OF_MODEL, read_patch, unfolded, whose

_RUN, _EXPORT, _TOKENIZER = "spec.json", "model.json", "tokenizer.json"


def with_runs_as_specs(content: Mapping[str, Any], folder: Path, problems: Problems) -> dict[str, Any]:
    """The content of a study file in which every variant `from` a run of ours is the run's spec with its weights as the start.

    Args:
        content: the study file's content.
        folder: that paths are relative to.
        problems: receives the problems: a run of a model of others, a patch that cannot start neutral.
    """
    shared, variants = content.get("model"), content.get("variants")
    if not isinstance(variants, Mapping):
        return dict(content)
    from_shared = shared if isinstance(shared, Mapping) and run_folder(shared.get("from"), folder) else None
    made, origins = {}, list[Path]()
    for name, entry in variants.items():
        path = f"$.variants.{name}"
        own = unfolded({} if entry is None else entry, path, problems)
        if not isinstance(own, Mapping):
            made[name] = entry
            continue
        # A variant with a preset or an origin of its own does not begin from the shared run, as it would not take
        # fields of a shared preset either.
        if from_shared is not None and whose(own) is None and "preset" not in own:
            own = lay_over(from_shared, own)
        origin = run_folder(own.get("from"), folder)
        made[name] = entry if origin is None else _as_spec(own, origin, path, problems)
        origins += [] if origin is None else [origin]
    changed = {**content, "variants": made}
    if from_shared is not None:
        del changed["model"]
    if origins and "tokenizer" not in content:
        changed["tokenizer"] = _tokenizer(origins[0])
    return changed


def run_folder(name: object, folder: Path) -> Path | None:
    """The folder of a run of ours, or of its export, that `from` names; None if it names something else."""
    if not isinstance(name, str):
        return None
    path = (folder / Path(name).expanduser()).resolve()
    return path if any((path / file).is_file() for file in (_RUN, _EXPORT)) else None


def _as_spec(own: Mapping[str, Any], origin: Path, path: str, problems: Problems) -> dict[str, Any]:
    known = ("from", "patch", *NOT_OF_MODEL)
    unknown = next((name for name in own if name not in known), None)
    if unknown is not None:
        problems.add(
            path, f"expected no {unknown!r} beside 'from', got it. The run has a model of its own. Known: from, patch."
        )
    patch = read_patch(own.get("patch"), f"{path}.patch", problems)
    if "norm" in patch:
        problems.add(
            f"{path}.patch.norm", "expected none for a run of addnorm, which computes its norms already, got one."
        )
    model = _model(origin, path, problems)
    rest = {name: value for name, value in own.items() if name not in ("from", "patch")}
    return {**model, **patch, **rest, "training": {**(own.get("training") or {}), "init_from": str(origin)}}


def _model(origin: Path, path: str, problems: Problems) -> dict[str, Any]:
    file = origin / (_RUN if (origin / _RUN).is_file() else _EXPORT)
    try:
        content = read_json(file)
        model = (content["spec"] if file.name == _RUN else content)["model"]
    except (InputError, KeyError, TypeError) as error:
        problems.add(
            f"{path}.from", f"{file}: expected the spec of a run, got an error: {error}. Restore it from a copy."
        )
        return {}
    if "kind" in model:
        problems.add(
            f"{path}.from",
            f"{origin}: expected a run of a model of addnorm, got one of others. Give its export (addnorm export), or what it "
            "was made from.",
        )
        return {}
    return dict(model)


def _tokenizer(origin: Path) -> dict[str, Any]:
    """The tokenizer of a run's data, or of an export."""
    folder = origin.parent / "data" if (origin / _RUN).is_file() else origin
    try:
        is_bytes = json.loads((folder / _TOKENIZER).read_text(encoding="utf-8")).get("kind") == "bytes"
    except (OSError, ValueError):
        is_bytes = False  # the tokenizer itself says what is wrong
    return {"kind": "bytes"} if is_bytes else {"kind": "pretrained", "path": str(folder)}
