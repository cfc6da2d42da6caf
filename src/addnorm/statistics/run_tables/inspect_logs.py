"""Logs of Inspect: JSON files, and `.eval` files, which are zip archives of JSON.

A JSON log is one object: `status`, `eval` with `task` and `model`, and `samples` with `id`, `epoch` and `scores`. An `.eval`
file holds the same without the samples as `header.json`, which is written when the evaluation ends, and each sample as
`samples/ID_epoch_EPOCH.json`; what an evaluation begins with is `_journal/start.json`. Its members are compressed by deflate,
or in newer versions by Zstandard (method 93), which Python reads from 3.14 on, and before with the package zstandard.

Source: Inspect, `inspect_ai/log/_recorders/eval.py`.
Differs from the source: nothing.
"""

import importlib
import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from addnorm.errors import InputError
from addnorm.statistics.run_tables.files import decoded, read_text

_EVAL = ".eval"
_ZSTANDARD = 93
_LOCAL_HEADER = struct.Struct("<26xHH")
"""Ends with the lengths of a member's name and of its extra field."""


def is_inspect_log(path: Path) -> bool:
    """True for an `.eval` file, and for a JSON file that begins as a log does."""
    if path.suffix.lower() == _EVAL:
        return zipfile.is_zipfile(path)
    if path.suffix.lower() != ".json":
        return False
    begin = path.read_bytes()[:2000].decode("utf-8", errors="replace")
    return re.search(r'^\s*\{\s*"version"\s*:\s*\d+\s*,', begin) is not None and '"status"' in begin


def read_inspect_log(path: Path) -> tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]:
    """Read the account of an evaluation, and the place and content of every sample.

    Raises:
        InputError: the file cannot be read, or its evaluation has not ended well.
    """
    if path.suffix.lower() == _EVAL:
        about, samples = _of_archive(path)
    else:
        about = decoded(read_text(path), str(path))
        samples = [(f"{path}, $.samples[{place}]", each) for place, each in enumerate(about.get("samples") or [])]
    status = about.get("status")
    if status != "success":
        raise InputError(
            f"{path}: expected a log of status success, got {status!r}: not every item was scored. Run the evaluation again, "
            "or remove the log."
        )
    return about, samples


def _of_archive(path: Path) -> tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
            if "header.json" not in members:
                return {"status": "started"}, []
            about = decoded(_member(archive, "header.json", path), f"{path}, header.json")
            names = sorted(name for name in members if name.startswith("samples/") and name.endswith(".json"))
            places = [(f"{path}, {name}", name) for name in names]
            return about, [(where, decoded(_member(archive, name, path), where)) for where, name in places]
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}. Leave it out.") from error
    except (zipfile.BadZipFile, zlib.error, struct.error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected a whole log of Inspect, got an error: {error}. Copy it anew.") from error


def _member(archive: zipfile.ZipFile, name: str, path: Path) -> str:
    member = archive.getinfo(name)
    try:
        return archive.read(member).decode()
    except NotImplementedError:
        if member.compress_type != _ZSTANDARD:
            raise zipfile.BadZipFile(f"compression {member.compress_type} of {name}") from None
    with path.open("rb") as file:
        file.seek(member.header_offset)
        skipped = sum(_LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size)))
        file.seek(skipped, io.SEEK_CUR)
        data = file.read(member.compress_size)
    return b"".join(_decompressed(data, path)).decode()


def _decompressed(data: bytes, path: Path) -> Iterator[bytes]:
    """A member that Zstandard compressed; long ones have several frames."""
    try:
        zstandard = importlib.import_module("zstandard")
    except ModuleNotFoundError as error:
        if error.name != "zstandard":
            raise
        raise InputError(
            f"{path}: expected the package zstandard, with which this log is compressed, got none. Install it with: pip "
            "install 'addnorm[inspect]', or write JSON with: inspect log convert --to json."
        ) from None
    try:
        yield zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
    except zstandard.ZstdError as error:
        raise zipfile.BadZipFile(str(error)) from error
