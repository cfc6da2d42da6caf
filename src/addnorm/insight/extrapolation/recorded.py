"""What is kept of one run's evaluation: `extrapolation.json` in its folder, written whole or not at all. No torch here.

The file belongs to the weights, the text and the settings that made it. An evaluation with other ones replaces it; one
that asks for more switches or lengths on the same text adds to it.
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
_CHUNK_BYTES = 2**22


@dataclass(frozen=True, kw_only=True)
class Basis:
    """What decides a run's numbers, beside the switch and the length. Compared field by field with what is kept."""

    weights: str
    """SHA-256 of the weights' file."""
    data_hash: str
    objective: str
    trained: int
    stretch: int
    """Tokens of one stretch of text."""
    stretches: int
    """How many of them."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked for."""

    lengths: Lengths
    windows: int
    """Windows of the longest length that are evaluated, where the text has as many."""
    switches: tuple[tuple[Any, ...], ...]
    """Combinations of switches (`SwitchSpec`); the empty one is the model as it is."""


def digest_of(path: Path) -> str:
    """SHA-256 of a file, as hex digits.

    Raises:
        JobError: the system does not let us read it.
    """
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    except OSError as error:
        raise disk_error(error, path) from error
    return digest.hexdigest()


def read(run: RunFolder) -> dict[str, Any] | None:
    """What is kept of the run; None if there is nothing, or nothing that this version can use."""
    path = run.path / NAME
    if not path.exists():
        return None
    try:
        found = read_json(path)
    except Damaged:
        return None  # nothing but a result that is computed again
    usable = isinstance(found, dict) and found.get("format") == FORMAT and isinstance(found.get("evaluations"), list)
    return found if usable else None


def kept(run: RunFolder, basis: Basis) -> list[dict[str, Any]]:
    """Evaluations of this very basis that are there already."""
    found = read(run)
    if found is None or found.get("basis") != asdict(basis):
        return []
    evaluations: list[dict[str, Any]] = found["evaluations"]
    return evaluations


def find(evaluations: Sequence[dict[str, Any]], switch: str, settings: list[Any], length: int) -> dict[str, Any] | None:
    """The evaluation of that switch with those settings at that length."""
    for entry in evaluations:
        if (entry["switch"], entry["settings"], entry["length"]) == (switch, settings, length):
            return entry
    return None


def write(run: RunFolder, basis: Basis, evaluations: Sequence[dict[str, Any]]) -> None:
    """Keep the evaluations of a run, in place of what was kept.

    Raises:
        DiskFull, JobError: the disk refused; what was there is whole.
    """
    spec = run.spec
    write_json(
        run.path / NAME,
        {
            "format": FORMAT,
            "run": run.name,
            "variant": spec["variant"],
            "seed": spec["seed"],
            "basis": asdict(basis),
            "evaluations": list(evaluations),
        },
    )


def settings_of(combination: Sequence[Any]) -> list[Any]:
    """The fields of each switch, as JSON keeps them."""
    return [asdict(switch) for switch in combination]


def require_finished(run: RunFolder) -> None:
    """Raises:
    InputError: the run has no final weights.
    """
    if not run.final_path.exists():
        state = run.status().state
        why = "has lost its final weights" if state == "finished" else f"is {state}"
        raise InputError(f"{run.path} {why}: only a finished run's model can be evaluated on longer text.")
