"""Logs of training scripts that print their evaluations: modded-nanogpt and those made from it, nanochat, and nanoGPT.

    step:1390/1390 val_loss:3.2775 train_time:79532ms step_avg:57.22ms        modded-nanogpt, parameter-golf
    Step 05000 | Validation bpb: 0.812345                                     nanochat; with `step 05000/05000 (100.00%) | …`
    step 2000: train loss 1.7648, val loss 1.8857                             nanoGPT

A folder has one file per run. Numbers are named as the line names them (`val_loss`, `train_time`), those of nanochat `val/bpb`
and `core_metric`, as it names them for W&B. The last value counts. A run whose last evaluation is before the last step that the
log announces has not ended; where it announces none, as that of nanoGPT, the last steps of all runs are compared.

Source: KellerJordan/modded-nanogpt, `train_gpt.py`; karpathy/nanochat, `scripts/base_train.py`; karpathy/nanoGPT, `train.py`.
Differs from the source: nothing.
"""

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from addnorm.errors import InputError, did_you_mean
from addnorm.statistics.run_tables.files import read_text

_EVALUATED = re.compile(r"^step:(?P<step>\d+)/(?P<steps>\d+)\s(?P<rest>.*\bval_\w+:.*)$", re.MULTILINE)
_NUMBER = re.compile(r"\b([a-z]\w*):(-?(?:\d+\.?\d*(?:e[+-]?\d+)?|nan|inf))(?:ms|s)?(?=\s|$)", re.IGNORECASE)
_NANOGPT = re.compile(r"^step (?P<step>\d+): train loss (?P<train>\S+), val loss (?P<val>\S+)$", re.MULTILINE)
_NANOCHAT = re.compile(r"^Step (?P<step>\d+) \| (?P<name>Validation bpb|CORE metric): (?P<value>\S+)$", re.MULTILINE)
_NANOCHAT_STEPS = re.compile(r"^step \d+/(?P<steps>\d+) \(", re.MULTILINE)
_CRASHED = re.compile(
    r"^(?:Traceback \(most recent call last\)|slurmstepd: error:|Killed$|(?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b)"
    r"|CUDA out of memory|Segmentation fault|core dumped",
    re.MULTILINE,
)
"""The text that a process which died leaves behind its last evaluation."""
_NOT_A_NUMBER = re.compile(r"\bloss:?\s*[-+]?nan\b", re.IGNORECASE)
_NAMES = {"Validation bpb": "val/bpb", "CORE metric": "core_metric"}
_SUFFIXES = (".txt", ".log")


def log_files(folder: Path) -> list[Path]:
    """Files below a folder that may be logs."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES and path.is_file())


def holds_logs(folder: Path) -> bool:
    """True if one of the files below a folder is a log that is read here."""
    return folder.is_dir() and any(_evaluations(_text(path)) for path in log_files(folder)[:20])


def read_logs(folder: Path, metric: str, is_run: Callable[[str], object]) -> list[tuple[str, dict[str, Any]]]:
    """The last evaluation of every log: its place, and the cells `run_name`, `state`, `step` and one per number.

    Files without an evaluation (readmes, scripts) are passed over; one that is named as a run, or tells of a crash, is a run
    that has not ended. Where no last step is announced, so is one that crashed behind its last evaluation.

    Args:
        folder: of the logs.
        metric: as the lines name it.
        is_run: whether a name without suffix is that of a run.

    Raises:
        InputError: no log has the metric, or one holds two runs.
    """
    rows, known = [], set()
    for path in log_files(folder):
        text = _text(path)
        evaluations = _evaluations(text)
        name = path.relative_to(folder).with_suffix("").as_posix()
        known |= {each for _, _, values in evaluations for each in values}
        with_metric = [each for each in evaluations if metric in each[2]]
        if not evaluations:
            if is_run(name) or _CRASHED.search(text):
                rows.append((str(path), {"run_name": name, "step": None, metric: None, "state": "unfinished"}))
            continue
        for (before, steps, _), (after, *_) in pairwise(evaluations):
            # A resumed run goes on from its checkpoint; where no last step is announced, one that begins at the first again
            # is another run, or the same one begun anew.
            if before > after and (before >= steps if steps is not None else after <= evaluations[0][0]):
                raise InputError(
                    f"{path}: expected one run, got a second one: step {after} behind step {before}. Give each run a file of "
                    "its own."
                )
        step, steps, values = (with_metric or evaluations)[-1]
        state = _end_of(text) if steps is None else "finished" if step >= steps else "unfinished"
        cells: dict[str, Any] = {"run_name": name, "step": step, metric: None, **values}
        rows.append((str(path), {**cells, "state": state}))
    if metric not in known:
        raise InputError(
            f"{folder}: expected a number {metric!r} in the logs, got {', '.join(sorted(known)) or 'none'}."
            f"{did_you_mean(metric, known)} Name one with --columns loss=NAME."
        )
    return rows


def _end_of(text: str) -> str | None:
    """The state that a log tells behind its last evaluation."""
    behind = text[max(line.end() for line in _NANOGPT.finditer(text)) :]
    if _NOT_A_NUMBER.search(behind):
        return "diverged"
    return "unfinished" if _CRASHED.search(behind) else None


def _text(path: Path) -> str:
    try:
        return read_text(path).replace("\r\n", "\n")
    except InputError:
        return ""  # no text: not a log


def _evaluations(text: str) -> list[tuple[int, int | None, dict[str, str]]]:
    """Step, last step and numbers of every evaluation, in the order of the log."""
    evaluations: list[tuple[int, int | None, dict[str, str]]] = [
        (int(line["step"]), int(line["steps"]), dict(_NUMBER.findall(line["rest"])))
        for line in _EVALUATED.finditer(text)
    ]
    evaluations += [
        (int(line["step"]), None, {"train_loss": line["train"], "val_loss": line["val"]})
        for line in _NANOGPT.finditer(text)
    ]
    steps = [int(line["steps"]) for line in _NANOCHAT_STEPS.finditer(text)]
    last = steps[-1] if steps else None
    return evaluations + [
        (int(line["step"]), last, {_NAMES[line["name"]]: line["value"]}) for line in _NANOCHAT.finditer(text)
    ]
