import errno
import os
from pathlib import Path
from typing import Any

import pytest

from addnorm.errors import InputError, JobError
from addnorm.store import Damaged, DiskFull, atomic, read_json, write_atomic, write_json
from addnorm.store.files import make_folder


def refuse(monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, name, refused)


def test_content_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"name": "ä中文", "n": 1})
    write_json(path, {"n": 2})
    assert read_json(path) == {"n": 2}
    assert os.listdir(tmp_path) == ["a.json"]


def test_the_order_is_write_fsync_rename_fsync_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def spy_fsync(handle: int) -> None:
        is_folder = os.path.isdir(f"/proc/self/fd/{handle}")
        calls.append("fsync folder" if is_folder else f"fsync {os.fstat(handle).st_size} bytes")
        fsync(handle)

    def spy_replace(old: Path, new: Path) -> None:
        calls.append("rename")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(os, "replace", spy_replace)
    write_atomic(tmp_path / "a", b"12345")
    assert calls == ["fsync 5 bytes", "rename", "fsync folder"]


def test_an_error_in_the_block_leaves_the_old_content(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a", b"old")
    with pytest.raises(ZeroDivisionError), atomic(tmp_path / "a") as file:
        file.write(b"new" * (1 // 0))
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_content_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "a"
    write_atomic(path, b"old")
    refuse(monkeypatch, call, errno.ENOSPC)
    with pytest.raises(DiskFull, match="free some space") as caught:
        write_atomic(path, b"new")
    assert str(path) in str(caught.value)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_read_only_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, "replace", errno.EROFS)
    with pytest.raises(JobError, match=r"not allowed to write .*a \(Read-only file system\).*--out") as caught:
        write_atomic(tmp_path / "a", b"")
    assert not isinstance(caught.value, DiskFull)


def test_damaged_and_missing_json_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_json(tmp_path / "a")
    for content in (b'{"a": 1', b"", b"\0" * 40, b'{"a": "\xff"}'):
        (tmp_path / "a").write_bytes(content)
        with pytest.raises(Damaged, match=f"a is damaged: expected JSON, got {len(content)} bytes"):
            read_json(tmp_path / "a")


def test_json_holds_no_nan_and_any_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected finite numbers"):
        write_json(tmp_path / "a", {"a": float("nan")})
    write_json(tmp_path / "a", {"a": "\udcff \u2028\n"})
    assert read_json(tmp_path / "a") == {"a": "\udcff \u2028\n"}


def test_a_file_in_the_way_of_a_folder_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(InputError, match="expected a folder, got a file"):
        make_folder(tmp_path / "a" / "b")
    with pytest.raises(InputError, match="expected a folder, got a file"):
        make_folder(tmp_path / "a")
