"""Checkpoints that are either whole or refused.

    <run>/checkpoints/step-00000100.pt

A checkpoint is a `torch.save` file whose zip comment holds the SHA-256 of everything before it, so a file that was cut
short or changed by one bit is told from a good one before anything in it is used, and `torch.load` still opens it. It
is loaded on the CPU (what loads it copies the tensors to where they belong) and with `weights_only=True`: a file made
to run code is refused. Two are kept; if the newer is damaged, the older serves, and the caller is told.
"""

import hashlib
import pickle
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import safetensors.torch
import torch
from torch import Tensor, nn

from addnorm.errors import InputError, JobError
from addnorm.store import Damaged, atomic, write_atomic
from addnorm.store.files import disk_error, make_folder, sync

KEPT = 2
"""Checkpoints that stay in a run's folder."""

_NAME = re.compile(r"step-(\d{8,})\.pt")
_MARK = b"addnorm sha256 "
_COMMENT_BYTES = len(_MARK) + 64
_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint that was read and found whole."""

    path: Path
    step: int
    state: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """A checkpoint that was not fit to resume from."""

    path: Path
    reason: str


@dataclass(frozen=True, kw_only=True)
class Latest:
    """The newest checkpoint that can be used, and the newer ones that cannot."""

    found: Checkpoint | None
    """None if there is no good one: start from the beginning."""
    rejected: tuple[Rejected, ...]
    """Newest first. To be told to the user and written into the run's events."""


def save(path: Path, state: Mapping[str, Any]) -> None:
    """Write a checkpoint, wholly or not at all.

    Args:
        path: where it goes; its folder exists.
        state: tensors, numbers, texts and None in dicts, lists and tuples.

    Raises:
        InputError: the state holds something that `weights_only` would not load again.
        DiskFull, JobError: the disk refused; the checkpoints that were there are whole.
    """
    _check(state, "$")
    with atomic(path) as file:
        hashing = _Hashing(file)
        torch.save(state, hashing)  # type: ignore[arg-type]  # write and flush are all that it calls
        hashing.close()
        # The archive ends with the length of its comment, two bytes that are 0 so far. The digest is of that form.
        file.seek(-2, 2)
        file.write(_COMMENT_BYTES.to_bytes(2, "little") + _MARK + hashing.digest.hexdigest().encode())


def save_step(folder: Path, step: int, state: Mapping[str, Any]) -> Path:
    """Write the checkpoint of a step into a run's `checkpoints/` and remove those no longer needed.

    What is of a later step than this one was rejected when this attempt began, and goes too.

    Returns:
        The new checkpoint's path.

    Raises:
        InputError, DiskFull, JobError: as `save`; nothing is removed then.
    """
    make_folder(folder)
    path = folder / f"step-{step:08d}.pt"
    save(path, state)
    keep = [place for place, at in _by_step(folder) if at <= step][:KEPT]
    left = [*(place for place, _ in _by_step(folder) if place not in keep), *folder.glob(".*.tmp")]
    try:
        for old in left:
            old.unlink(missing_ok=True)
        sync(folder)
    except OSError as error:
        raise disk_error(error, folder) from error
    return path


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint. Nothing in the file is run.

    Raises:
        InputError: there is no such file.
        Damaged: it is not what was written, or was not written by `save`.
        JobError: the system does not let us read it.
    """
    try:
        with open(path, "rb") as file:
            _verify(file, path)
            file.seek(0)
            state = torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such checkpoint.") from error
    except OSError as error:
        raise JobError(f"could not read {path} ({error.strerror}).") from error
    except pickle.UnpicklingError as error:
        raise Damaged(
            f"{path} holds more than tensors and plain values, and is not opened: it could run code."
        ) from error
    if not isinstance(state, dict):
        raise Damaged(f"{path} must hold a dict, got {type(state).__name__}. It was not written by addnorm.")
    return state


def latest(folder: Path) -> Latest:
    """The newest good checkpoint of a run, and what was wrong with any newer one. Changes nothing on disk.

    Raises:
        JobError: the system does not let us read one; that is no reason to fall back to an older one.
    """
    rejected: list[Rejected] = []
    for path, step in _by_step(folder):
        try:
            return Latest(found=Checkpoint(path=path, step=step, state=load(path)), rejected=tuple(rejected))
        except Damaged as damage:
            rejected.append(Rejected(path=path, reason=str(damage)))
    return Latest(found=None, rejected=tuple(rejected))


def save_final(path: Path, state_dict: Mapping[str, Any]) -> None:
    """Write the result's weights as safetensors, wholly or not at all. Tied weights are written once per name.

    Raises:
        InputError: an entry is not a tensor.
        DiskFull, JobError: the disk refused.
    """
    seen: set[int] = set()
    tensors: dict[str, Tensor] = {}
    for name, tensor in state_dict.items():
        if not isinstance(tensor, Tensor):
            raise InputError(f"final weights must be tensors, but {name!r} is of type {type(tensor).__name__}.")
        tensor = tensor.detach().cpu().contiguous()
        storage = tensor.untyped_storage().data_ptr()
        tensors[name] = tensor.clone() if storage in seen else tensor
        seen.add(storage)
    write_atomic(path, safetensors.torch.save(tensors, metadata={"format": "pt"}))


class _Hashing:
    """A file to write to that computes the digest on the way.

    torch's writer cannot pass on an error of the disk: it ends the process while it tidies up. So the first error is
    kept, the rest of the bytes are dropped, and `close` raises it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._error: OSError | None = None
        self.digest = hashlib.sha256()

    def write(self, data: Any) -> int:
        if self._error is None:
            try:
                self._file.write(data)
                self.digest.update(data)
            except OSError as error:
                self._error = error
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        if self._error is not None:
            raise self._error


def _verify(file: BinaryIO, path: Path) -> None:
    size = file.seek(0, 2)
    archive_bytes = size - _COMMENT_BYTES
    if archive_bytes > 2:
        file.seek(archive_bytes - 2)
        length, mark, digest = file.read(2), file.read(len(_MARK)), file.read()
        if mark == _MARK and int.from_bytes(length, "little") == _COMMENT_BYTES:
            if _digest(file, archive_bytes - 2) == digest:
                return
            raise Damaged(f"{path} is damaged: its content does not agree with its digest.")
    raise Damaged(
        f"{path} is damaged: {size} bytes that do not end with a digest. It was cut short, or not written by addnorm."
    )


def _digest(file: BinaryIO, length: int) -> bytes:
    digest = hashlib.sha256()
    file.seek(0)
    while length > 0:
        chunk = file.read(min(_CHUNK_BYTES, length))
        if not chunk:
            break
        digest.update(chunk)
        length -= len(chunk)
    digest.update(b"\0\0")
    return digest.hexdigest().encode()


def _by_step(folder: Path) -> list[tuple[Path, int]]:
    """Checkpoints of the folder with their steps, newest first."""
    found = [(path, int(match[1])) for path in folder.glob("step-*.pt") if (match := _NAME.fullmatch(path.name))]
    return sorted(found, key=lambda entry: entry[1], reverse=True)


def _check(value: Any, where: str) -> None:
    if value is None or type(value) in (Tensor, nn.Parameter, bool, int, float, str):
        return
    if type(value) in (dict, OrderedDict):
        for name, item in value.items():
            _check(name, f"a key of {where}")
            _check(item, f"{where}.{name}")
    elif type(value) in (list, tuple):
        for place, item in enumerate(value):
            _check(item, f"{where}[{place}]")
    else:
        raise InputError(
            f"a checkpoint holds tensors and plain values, but {where} is of type {type(value).__name__}. "
            "Turn it into a tensor or a number first."
        )
