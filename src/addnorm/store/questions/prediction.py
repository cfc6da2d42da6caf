"""`addnorm.predict`: the largest size of a ladder, predicted before it is trained, frozen, and scored afterwards.

LARGEST/prediction.json holds the prediction, the hash of the plan it is of, and hashes of the results that it is made from.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from addnorm.errors import InputError, UnknownName, warn
from addnorm.statistics.effects.prediction import LadderSize, Prediction, predict, scored
from addnorm.statistics.result import Result
from addnorm.store.files import Damaged, read_json, write_json
from addnorm.store.questions.source import record_peek, run_flops
from addnorm.store.results import ranking, results
from addnorm.store.study import PREDICTION, StudyFolder
from addnorm.version import __version__

_FORMAT = 1


def predict_largest(
    paths: Sequence[str | Path],
    largest: str | Path,
    *,
    references: Sequence[str] | None = None,
    margin: float | None = None,
    exclude: Sequence[str] = (),
    say: Callable[[str], None] = warn,
) -> Prediction:
    """Predict the largest size of a ladder from the smaller ones; after its training, score what was predicted.

    The command is `addnorm trend SMALL MIDDLE --predict LARGEST`. The first call freezes the prediction in
    LARGEST/prediction.json, which no later call changes. When all runs of the largest size have ended, the same call scores it.

    Args:
        paths: folders of the studies of the smaller sizes.
        largest: folder of the largest one, with a plan and no run that has begun (`addnorm run STUDY --freeze`).
        references: variants that the others are compared with; those of the largest study if not given.
        margin: largest difference that counts as equivalent; that of the largest study if not given.
        exclude: variants that take no part.
        say: receives a message if the look cannot be recorded; by default a Python warning.

    Raises:
        InputError: one size alone, sizes of other data, a prediction after runs of the largest have begun, or runs, a plan or
            choices that are not those of the frozen prediction.
        UnknownName: a reference or a variant to leave out that the largest study does not have.
        Damaged: a file of a study is damaged.

    Example:
        >>> addnorm.predict_largest(["runs/first"], "runs/first")
        Traceback (most recent call last):
        addnorm.errors.InputError: runs/first: expected the largest size apart from the smaller ones, got it among them.
    """
    target = StudyFolder(largest)
    folders = [StudyFolder(path) for path in paths]
    if any(folder.path.resolve() == target.path.resolve() for folder in folders):
        raise InputError(f"{largest}: expected the largest size apart from the smaller ones, got it among them.")
    known = list(dict.fromkeys(run.spec["variant"] for run in target.runs()))
    compared = tuple(references) if references is not None else target.references
    for name in (*compared, *exclude):
        if name not in known:
            raise UnknownName("variant", name, known)
    for folder in folders:
        for what in ("data_hash", "tokenizer_hash"):
            if folder.plan.get(what) != target.plan.get(what):
                raise InputError(
                    f"{folder.path}: expected the data of {target.path}, got another {what}: losses are not comparable."
                )
    by_folder = [results(folder) for folder in folders]
    sizes = [_size(folder, results(folder, batch="first"), exclude) for folder in folders]
    of_largest = results(target, batch="first")
    made = predict(
        sizes,
        _size(target, of_largest, exclude),
        seeds=len({result.seed for result in of_largest}),
        references=compared,
        margin=float(target.plan["margin"]) if margin is None else margin,
    )
    for folder in folders:
        record_peek(folder, say)
    frozen = {
        "format": _FORMAT,
        "plan_hash": target.plan_hash,
        "data": {str(folder.path): _fingerprint(folder, of) for folder, of in zip(folders, by_folder, strict=True)},
        "prediction": made.to_json(),
    }
    path = target.path / PREDICTION
    if not path.exists():
        _require_unseen(target)
        write_json(path, {**frozen, "time": time.time(), "addnorm_version": __version__})
        return made
    _require_frozen(path, read_json(path), frozen)
    if not all(result.ended for result in of_largest):
        return made
    ranked = ranking(target, {"references": compared, "margin": made.margin, "left_out": tuple(exclude)})
    comparisons = {(row.variant, name): each for row in ranked.variants for name, each in row.versus.items()}
    last = max(sizes, key=lambda size: max(size.compute.values()))
    record_peek(target, say)
    return scored(made, _size(target, of_largest, exclude).losses, comparisons, last)


def _size(folder: StudyFolder, ended: Sequence[Result], exclude: Sequence[str]) -> LadderSize:
    return LadderSize(
        name=str(folder.path),
        losses={
            (run.variant, run.seed): run.finished_loss
            for run in ended
            if run.state == "finished" and run.variant not in exclude
        },
        compute={name: flops for name, flops in run_flops(folder).items() if name not in exclude},
    )


def _fingerprint(folder: StudyFolder, ended: Sequence[Result]) -> str:
    """Hash of a size's plan and of every finished run in it, by name, weights and loss."""
    runs = sorted((run.name, run.content_hash, run.loss) for run in ended if run.state == "finished")
    return hashlib.sha256(json.dumps([folder.plan_hash, runs]).encode()).hexdigest()


def _require_unseen(target: StudyFolder) -> None:
    begun = [run.name for run in target.all_runs() if run.status().state != "queued"]
    if begun:
        raise InputError(
            f"{target.path}: expected a largest size of which no run has begun, got {len(begun)} that have: a prediction after "
            "the fact predicts nothing. Freeze the plan of a larger size with addnorm run STUDY --freeze, and predict that."
        )


def _require_frozen(path: Path, content: Any, frozen: Mapping[str, Any]) -> None:
    """Refuse results, a plan or choices that are not those of the prediction in the file."""
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise Damaged(f"{path} is damaged: expected a prediction of format {_FORMAT}. Restore it from a copy.")
    first, now = (content.get("data") or {}), frozen["data"]
    if sorted(first.values()) != sorted(now.values()):
        changed = sorted(name for name in {*first, *now} if first.get(name) != now.get(name))
        raise InputError(
            f"{path}: expected the results that it was made from, got others in {', '.join(changed)}: runs were added or "
            "trained anew since. Give the sizes as they were."
        )
    if content.get("plan_hash") != frozen["plan_hash"]:
        raise InputError(f"{path}: expected the plan that it was made for, got another one in this folder.")
    if _rounded(content.get("prediction")) != _rounded(frozen["prediction"]):
        raise InputError(
            f"{path}: expected the prediction that these results give with these references, margin and variants, got another "
            "one. Give the choices that it was made with; a file that was edited is no prediction."
        )


def _rounded(content: Any) -> Any:
    """Numbers without the last digits, which another machine may compute otherwise, and without names of folders
    and the law, which may be badly determined where what follows from it is not."""
    if isinstance(content, Mapping):
        return {name: _rounded(each) for name, each in content.items() if name not in ("sizes", "largest", "law")}
    if isinstance(content, list | tuple):
        return [_rounded(each) for each in content]
    return round(content, 6) if isinstance(content, float) else content
