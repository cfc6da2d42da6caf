"""The record of one run's evaluations: `extrapolation.json` in its folder, written whole or not at all. No torch here.

The file belongs to the weights, the text and the settings that it was made with. An evaluation with others replaces it; one
with further switches or lengths on the same text adds to it.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from addnorm.errors import InputError
from addnorm.insight.extrapolation.lengths import Lengths
from addnorm.store import Damaged, RunFolder, read_json, write_json
from addnorm.store.files import disk_error

NAME = "extrapolation.json"
FORMAT = 1
"""Version of the file."""


@dataclass(frozen=True, kw_only=True)
class Basis:
    """Everything that determines a run's numbers, apart from the switch and the length."""

    weights: str
    """SHA-256 of the weights' file."""
    data_hash: str
    objective: str
    trained: int
    """Train length in tokens."""
    segment_tokens: int
    num_segments: int

    def to_json(self) -> dict[str, Any]:
        """The basis as the file holds it."""
        return {
            "weights": self.weights,
            "data_hash": self.data_hash,
            "objective": self.objective,
            "trained": self.trained,
            "stretch": self.segment_tokens,
            "stretches": self.num_segments,
        }


@dataclass(frozen=True, kw_only=True)
class EvaluationRequest:
    """The evaluations that a call asks for."""

    lengths: Lengths
    windows: int
    """Windows of the longest length that are evaluated, where the text has as many."""
    switches: tuple[tuple[Any, ...], ...]
    """Combinations of switches (`SwitchSpec`); the empty one is the unchanged model."""


def digest_of(path: Path) -> str:
    """SHA-256 of a file, as hex digits.

    Raises:
        JobError: the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise disk_error(error, path) from error


def read_record(run: RunFolder) -> dict[str, Any] | None:
    """Read a run's record; None if there is none that this version can read, so that it is computed again."""
    path = run.path / NAME
    if not path.exists():
        return None
    try:
        record = read_json(path)
    except Damaged:
        return None
    readable = (
        isinstance(record, dict) and record.get("format") == FORMAT and isinstance(record.get("evaluations"), list)
    )
    return record if readable else None


def recorded_evaluations(run: RunFolder, basis: Basis) -> list[dict[str, Any]]:
    """Evaluations of a run with the same basis that are recorded already."""
    record = read_record(run)
    if record is None or record.get("basis") != basis.to_json():
        return []
    evaluations: list[dict[str, Any]] = record["evaluations"]
    return evaluations


def find_evaluation(
    evaluations: Sequence[dict[str, Any]], switch: str, settings: list[Any], length: int
) -> dict[str, Any] | None:
    """Find the evaluation of a switch with given settings at a length; None if it is not there."""
    for evaluation in evaluations:
        if (evaluation["switch"], evaluation["settings"], evaluation["length"]) == (switch, settings, length):
            return evaluation
    return None


def write_record(run: RunFolder, basis: Basis, evaluations: Sequence[dict[str, Any]]) -> None:
    """Replace the record of a run.

    Raises:
        DiskFull, JobError: the disk refused; the previous record is unchanged.
    """
    spec = run.spec
    write_json(
        run.path / NAME,
        {
            "format": FORMAT,
            "run": run.name,
            "variant": spec["variant"],
            "seed": spec["seed"],
            "basis": basis.to_json(),
            "evaluations": list(evaluations),
        },
    )


def settings_of(combination: Sequence[Any]) -> list[Any]:
    """The fields of each switch, as JSON holds them."""
    return [asdict(switch) for switch in combination]


def require_finished(run: RunFolder) -> None:
    """Require a run with final weights.

    Raises:
        InputError: the run has none.
    """
    if not run.final_path.exists():
        state = run.status().state
        why = "has lost its final weights" if state == "finished" else f"is {state}"
        raise InputError(f"{run.path} {why}: only a finished run's model can be evaluated on longer text.")
