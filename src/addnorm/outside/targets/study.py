"""The audits of a study's variants, written to `audit.json` beside the plan.

    {"addnorm": VERSION, "plan_hash": HASH, "variants": {NAME: {"size", "joint_null", "redundant"} or {"reason", "note"}}}

A note is the reason as a sentence of `addnorm.words`, for pages in other languages.

They follow from the plan alone: runs need not have started and are not changed.
"""

from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from addnorm.errors import AddnormError
from addnorm.model.spec import ModelSpec
from addnorm.outside.targets.run import random_tokens
from addnorm.redundancy import audit
from addnorm.redundancy.graph.export import NotExported
from addnorm.store import Damaged, RunFolder, StudyFolder, read_json, write_json
from addnorm.study.definition import AnyModel
from addnorm.study.foreign import ForeignSpec
from addnorm.study.plugins import load_plugins
from addnorm.training.run_spec import run_spec
from addnorm.words import Sentence, say

NAME = "audit.json"


def audit_study(
    folder: Path,
    *,
    plugins: Sequence[str] = (),
    on_done: Callable[[str, int, int], None] = lambda variant, done, total: None,
) -> dict[str, Any]:
    """Audit every variant of the frozen plan at full size by the static method. Earlier results are not computed again.

    Args:
        folder: of the study.
        plugins: files with the user's own mechanisms.
        on_done: called after each variant with its name, the number of finished audits and their total.

    Returns:
        The content of `audit.json`, which is written after each variant. A variant that cannot be audited has a `reason`, and
        is tried again by the next call.

    Raises:
        InputError, Damaged: the folder is not a study, or is damaged.
        DiskFull, JobError: the file cannot be written.
    """
    study = StudyFolder(folder)
    load_plugins(plugins, Path.cwd())
    runs = {run.spec["variant"]: run for run in reversed(study.runs())}
    planned = [name for name in study.plan.get("variants", ()) if name in runs]
    content: dict[str, Any] = {"addnorm": version("addnorm"), "plan_hash": study.plan_hash, "variants": {}}
    earlier = _earlier_audits(folder / NAME, content)
    names = list(dict.fromkeys([*planned, *runs]))
    for done, name in enumerate(names, start=1):
        if name in earlier:
            content["variants"][name] = earlier[name]
            continue
        content["variants"][name] = _audited(runs[name])
        # After each variant, with the earlier results of those still to come: an audit that is stopped loses nothing.
        rest = {later: earlier[later] for later in names[done:] if later in earlier}
        write_json(folder / NAME, {**content, "variants": content["variants"] | rest})
        on_done(name, done, len(names))
    return content


def audit_or_reason(model: AnyModel) -> dict[str, Any]:
    """Audit a variant's model, or give the `reason` why it cannot be audited, with its `note`."""
    if isinstance(model, ForeignSpec):
        reason = say("audit_of_others")
        return {"reason": str(reason), "note": reason.note}
    try:
        return audit_variant(model)
    except AddnormError as error:  # the other variants are still audited
        return _unaudited(error)


def audit_variant(spec: ModelSpec) -> dict[str, Any]:
    """Audit a variant's model at full size in evaluation mode, by the static method alone.

    Returns:
        `size` (number of bias scalars), `joint_null` (how many of them can be removed together) and `redundant` (names of the
        parameters that are redundant alone).

    Raises:
        InputError: the model cannot be audited.
        AddnormError: the model does not export.
    """
    model = spec.build().eval()
    audited = audit(model, random_tokens(model), methods="static")
    redundant = [finding.parameter for finding in audited.findings if finding.verdict == "redundant"]
    return {"size": audited.size, "joint_null": audited.joint_null, "redundant": redundant}


def _audited(run: RunFolder) -> dict[str, Any]:
    try:
        model = run_spec(run).model
    except Damaged:
        raise
    except AddnormError as error:  # a plugin was not given; the other variants are still audited
        return _unaudited(error)
    return audit_or_reason(model)


def _unaudited(error: AddnormError) -> dict[str, Any]:
    reason = _reason(error)
    return {"reason": str(reason), "note": reason.note}


def _reason(error: AddnormError) -> Sentence:
    content = error.args[0] if error.args else ""
    if isinstance(content, Sentence):
        return content
    if isinstance(error, NotExported):
        # The error's text has the same beginning as the sentence.
        return say("not_exported", reason=str(error).removeprefix("torch.export cannot follow this model: "))
    return say("not_audited", reason=str(error))


def _earlier_audits(path: Path, expected: dict[str, Any]) -> dict[str, Any]:
    """Audits of the same plan by the same version that were written earlier."""
    if not path.exists():
        return {}
    try:
        content = read_json(path)
    except Damaged:
        return {}  # the audits are computed again
    if not isinstance(content, dict) or any(content.get(name) != expected[name] for name in ("addnorm", "plan_hash")):
        return {}
    variants = content.get("variants")
    audits = variants.items() if isinstance(variants, dict) else ()
    return {name: audit for name, audit in audits if isinstance(audit, dict) and "size" in audit}
