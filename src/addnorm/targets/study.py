"""The models of a study that is there already: each variant's bias scalars that cannot matter, kept beside the plan.

    {"addnorm": VERSION, "plan_hash": HASH, "variants": {NAME: {"size", "joint_null", "redundant"} or {"reason", "note"}}}

A note is the reason as a sentence of `addnorm.words`, for pages in other languages.

They follow from the plan alone, so runs are not touched, and need not have started.
"""

from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from addnorm.errors import AddnormError
from addnorm.model.spec import ModelSpec
from addnorm.redundancy.graph.export import NotExported
from addnorm.store import Damaged, RunFolder, StudyFolder, read_json, write_json
from addnorm.study.plugins import load_plugins
from addnorm.targets.variant import audit_variant
from addnorm.training.export import run_spec
from addnorm.words import Sentence, say

NAME = "audit.json"


def audit_study(
    folder: Path,
    *,
    plugins: Sequence[str] = (),
    on_done: Callable[[str, int, int], None] = lambda variant, done, total: None,
) -> dict[str, Any]:
    """Audit every variant of the frozen plan by the static method at its real size. What is known already is not done again.

    Args:
        folder: of the study.
        plugins: files of the user's own mechanisms.
        on_done: called after each variant with its name, and how many of how many are done.

    Returns:
        What `audit.json` holds, which is written after each variant. A variant that cannot be audited has a `reason`, and is
        tried again the next time.

    Raises:
        InputError, Damaged: the folder holds no study, or a damaged one.
        DiskFull, JobError: the file cannot be written.
    """
    study = StudyFolder(folder)
    load_plugins(plugins, Path.cwd())
    runs = {run.spec["variant"]: run for run in reversed(study.runs())}
    named = [name for name in study.plan.get("variants", ()) if name in runs]
    found: dict[str, Any] = {"addnorm": version("addnorm"), "plan_hash": study.plan_hash, "variants": {}}
    before = _kept(folder / NAME, found)
    names = list(dict.fromkeys([*named, *runs]))
    for done, name in enumerate(names, start=1):
        if name in before:
            found["variants"][name] = before[name]
            continue
        found["variants"][name] = _audited(runs[name])
        rest = {later: before[later] for later in names[done:] if later in before}
        write_json(folder / NAME, {**found, "variants": found["variants"] | rest})
        on_done(name, done, len(names))
    return found


def audit_or_reason(model: ModelSpec) -> dict[str, Any]:
    """What `audit_variant` finds of a variant's model, or the `reason` why it cannot be audited, with its `note`."""
    try:
        return audit_variant(model)
    except AddnormError as error:  # a model that does not export hides no other
        return _unaudited(error)


def _audited(run: RunFolder) -> dict[str, Any]:
    try:
        model = run_spec(run).model
    except Damaged:
        raise
    except AddnormError as error:  # a model whose plugin was not given hides no other
        return _unaudited(error)
    return audit_or_reason(model)


def _unaudited(error: AddnormError) -> dict[str, Any]:
    reason = _why(error)
    return {"reason": str(reason), "note": reason.note}


def _why(error: AddnormError) -> Sentence:
    said = error.args[0] if error.args else ""
    if isinstance(said, Sentence):
        return said
    if isinstance(error, NotExported):
        # The error's own text begins as the sentence does.
        return say("not_exported", reason=str(error).removeprefix("torch.export cannot follow this model: "))
    return say("not_audited", reason=str(error))


def _kept(path: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """Audits of this very plan by this very version."""
    if not path.exists():
        return {}
    try:
        content = read_json(path)
    except Damaged:
        return {}  # nothing but a result that is computed again
    if not isinstance(content, dict) or any(content.get(name) != wanted[name] for name in ("addnorm", "plan_hash")):
        return {}
    variants = content.get("variants")
    audits = variants.items() if isinstance(variants, dict) else ()
    return {name: audit for name, audit in audits if isinstance(audit, dict) and "size" in audit}
