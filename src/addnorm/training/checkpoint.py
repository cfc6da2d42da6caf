"""Checkpoints with a digest, so that a damaged file is detected before it is used.

    <run>/checkpoints/step-00000100.pt

A checkpoint is a `torch.save` file whose zip comment holds the SHA-256 of everything before it. A truncated file, or one with
a changed bit, is therefore detected, and `torch.load` still opens an intact one. Checkpoints are loaded on the CPU and with
`weights_only=True`, which refuses a file that would run code. The newest two are kept; if the newer one is damaged, the older
one is used and the caller is informed.
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
from addnorm.store.files import disk_error, make_inner_folder, sync

KEPT = 2
"""Number of checkpoints in a run's folder."""

_NAME = re.compile(r"step-(\d{8,})\.pt")
_MARK = b"addnorm sha256 "
_COMMENT_BYTES = len(_MARK) + 64
_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True, kw_only=True)
class LoadedCheckpoint:
    """An intact checkpoint and its content."""

    path: Path
    step: int
    state: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """A checkpoint that is damaged, or whose steps are not on record."""

    path: Path
    reason: str


@dataclass(frozen=True, kw_only=True)
class Latest:
    """The newest checkpoint that can be used, and the newer ones that cannot."""

    checkpoint: LoadedCheckpoint | None
    """None if there is none; the run then starts from the beginning."""
    rejected: tuple[Rejected, ...]
    """Newest first; recorded in the run's events."""


def save(path: Path, state: Mapping[str, Any]) -> None:
    """Write a checkpoint atomically.

    Args:
        path: the file; its folder exists.
        state: tensors, numbers, texts and None in dicts, lists and tuples.

    Raises:
        InputError: the state contains a value that `weights_only` would not load.
        DiskFull, JobError: the file cannot be written; earlier checkpoints are intact.
    """
    # Before anything is written. `weights_only` would refuse the value when the run resumes, and by then the steps are
    # lost.
    _check(state, "$")
    with atomic(path) as file:
        # The digest is taken while torch writes. `_Hashing` cannot seek, so torch writes the archive from front to
        # back, and the bytes pass in the order in which they are on disk.
        hashing = _Hashing(file)
        torch.save(state, hashing)  # type: ignore[arg-type]  # it calls write and flush only
        hashing.close()
        # The archive ends with the length of its comment, two bytes that are 0 until now and in the digest.
        file.seek(-2, 2)
        file.write(_COMMENT_BYTES.to_bytes(2, "little") + _MARK + hashing.digest.hexdigest().encode())


def save_step(folder: Path, step: int, state: Mapping[str, Any]) -> Path:
    """Write the checkpoint of a step into a run's `checkpoints/` and remove older ones beyond the newest two.

    The folder is made in that of the run, which is not made again if it was removed.

    Checkpoints of later steps were rejected when this attempt started, and are removed too.

    Returns:
        The path of the new checkpoint.

    Raises:
        InputError, DiskFull, JobError: as `save`; nothing is removed then.
    """
    make_inner_folder(folder)
    path = folder / f"step-{step:08d}.pt"
    save(path, state)
    # Only now, when the new file is durable. Two are kept, so that one stays if the newer turns out to be damaged.
    keep = [other for other, other_step in _by_step(folder) if other_step <= step][:KEPT]
    remove = [*(other for other, _ in _by_step(folder) if other not in keep), *folder.glob(".*.tmp")]
    try:
        for old in remove:
            old.unlink(missing_ok=True)
        sync(folder)
    except OSError as error:
        raise disk_error(error, folder) from error
    return path


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint without running code from the file.

    Raises:
        InputError: no such file.
        Damaged: the file has changed since it was written, or was not written by `save`.
        JobError: the file cannot be read.
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
            f"{path}: expected tensors and plain values only, got other objects. The file is not opened, as it could run code."
        ) from error
    if not isinstance(state, dict):
        raise Damaged(f"{path}: expected a dict, got {type(state).__name__}. The file was not written by addnorm.")
    return state


def latest(folder: Path, recorded: int | None = None) -> Latest:
    """Read the newest intact checkpoint of a run. Changes nothing on disk.

    Args:
        folder: the run's `checkpoints/`.
        recorded: number of steps that the run's events record without a gap. A run that continued after a later one would
            finish without the record of the steps between.

    Raises:
        JobError: a checkpoint cannot be read, which is no reason to use an older one.
    """
    rejected: list[Rejected] = []
    for path, step in _by_step(folder):
        if recorded is not None and step > recorded:
            reason = f"{path}: expected events of its {step} steps, got those of the first {recorded}."
            rejected.append(Rejected(path=path, reason=reason))
            continue
        try:
            return Latest(checkpoint=LoadedCheckpoint(path=path, step=step, state=load(path)), rejected=tuple(rejected))
        # Only damage leads to the older checkpoint. A disk that cannot be read now may be readable in a minute: with
        # the older one, `save_step` would remove an intact newer one as a rejected one.
        except Damaged as damage:
            rejected.append(Rejected(path=path, reason=str(damage)))
    return Latest(checkpoint=None, rejected=tuple(rejected))


def save_final(path: Path, state_dict: Mapping[str, Any]) -> None:
    """Write the final weights as safetensors, atomically. Tied weights are written once per name.

    Raises:
        InputError: an entry is not a tensor.
        DiskFull, JobError: the file cannot be written.
    """
    seen: set[int] = set()
    tensors: dict[str, Tensor] = {}
    for name, tensor in state_dict.items():
        if not isinstance(tensor, Tensor):
            raise InputError(f"final weights: {name}: expected a tensor, got {type(tensor).__name__}.")
        tensor = tensor.detach().cpu().contiguous()
        storage = tensor.untyped_storage().data_ptr()
        # safetensors refuses tensors that share memory.
        tensors[name] = tensor.clone() if storage in seen else tensor
        seen.add(storage)
    write_atomic(path, safetensors.torch.save(tensors, metadata={"format": "pt"}))


class _Hashing:
    """A file that computes the digest of what is written to it.

    An exception in torch's writer would end the process during its cleanup. The first error is therefore stored, the further
    bytes are dropped, and `close` raises it.
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
    # A zip archive ends with the length of its comment and the comment, which readers skip. So the digest travels
    # inside the file, and the file stays one that `torch.load` opens.
    size = file.seek(0, 2)
    archive_bytes = size - _COMMENT_BYTES
    if archive_bytes > 2:
        file.seek(archive_bytes - 2)
        length, mark, digest = file.read(2), file.read(len(_MARK)), file.read()
        if mark == _MARK and int.from_bytes(length, "little") == _COMMENT_BYTES:
            if _digest(file, archive_bytes - 2) == digest:
                return
            raise Damaged(f"{path} is damaged: its content does not match its digest.")
    raise Damaged(
        f"{path} is damaged: expected a digest at the end of its {size} bytes. It was truncated, or not written by addnorm."
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
    # The length of the comment was zero when the digest was taken.
    digest.update(b"\0\0")
    return digest.hexdigest().encode()


def _by_step(folder: Path) -> list[tuple[Path, int]]:
    """Checkpoints of the folder with their steps, newest first."""
    checkpoints = [(path, int(match[1])) for path in folder.glob("step-*.pt") if (match := _NAME.fullmatch(path.name))]
    return sorted(checkpoints, key=lambda entry: entry[1], reverse=True)


def _check(value: Any, where: str) -> None:
    # Exact types. A numpy.float64 is a float to isinstance, but is stored as an object of numpy, which `weights_only`
    # refuses.
    if value is None or type(value) in (Tensor, nn.Parameter, bool, int, float, str):
        return
    if type(value) in (dict, OrderedDict):
        for name, item in value.items():
            _check(name, f"a key of {where}")
            _check(item, f"{where}.{name}")
    elif type(value) in (list, tuple):
        for index, item in enumerate(value):
            _check(item, f"{where}[{index}]")
    else:
        raise InputError(
            f"checkpoint: {where}: expected a tensor or a plain value, got {type(value).__name__}. "
            "Convert it to a tensor or a number."
        )
