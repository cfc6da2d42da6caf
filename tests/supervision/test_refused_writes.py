"""A disk that refuses: full, over quota, read-only, forbidden or failing. The run is blocked, with the reason.

The reason is stored where that is possible and said in any case; the same command goes on to the weights of an undisturbed
study.
"""

import builtins
import errno
import io
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from small_study import SMALL_STUDY

from addnorm.cli import main
from addnorm.data import prepare
from addnorm.errors import JobError
from addnorm.store import RunFolder, StudyFolder
from addnorm.store.files import DiskFull
from addnorm.study.loading import load_study
from addnorm.training.exit_code import ExitCode
from pairwise import pairwise
from sampled import sampled
from train_here import work_here, workers_here

NUMBERS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO)
PLACES = ("lock", "claims", ".reserve", "events.jsonl", "env.json", ".pt", "scalars", "final", "DONE")


@pytest.fixture
def study(calm_small: Path, tmp_path: Path) -> StudyFolder:
    """A copy whose runs have not begun."""
    folder = StudyFolder(shutil.copytree(calm_small, tmp_path / "out"))
    for run in folder.runs():
        shutil.rmtree(run.path)
        run.path.mkdir()
        run.write_spec()
    return folder


@contextmanager
def refusing(number: int, *places: str, within: Path) -> Iterator[None]:
    """Within a folder, writing to files whose path has one of these parts fails; reading goes on."""
    real_open, real_os_open, real_write, real_io = builtins.open, os.open, os.write, io.open

    def is_refused(path: Any) -> bool:
        text = str(path)
        return text.startswith(str(within)) and any(place in text[len(str(within)) :] for place in places)

    def refuse(path: Any) -> None:
        raise OSError(number, os.strerror(number), str(path))

    def opened(real: Any) -> Any:
        def open_file(file: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
            if set(mode) & set("wxa+") and isinstance(file, str | Path) and is_refused(file):
                refuse(file)
            return real(file, mode, *more, **named)

        return open_file

    def os_open(path: Any, flags: int, *more: Any, **named: Any) -> int:
        # An open file of which only the writes fail: what a full disk does.
        if flags & os.O_CREAT and is_refused(path) and "events" not in str(path):
            refuse(path)
        return real_os_open(path, flags, *more, **named)

    def write(handle: int, data: Any) -> int:
        path = os.readlink(f"/proc/self/fd/{handle}")
        if is_refused(path):
            refuse(path)
        return real_write(handle, data)

    with (
        patch.object(builtins, "open", opened(real_open)),
        patch.object(io, "open", opened(real_io)),
        patch.object(os, "open", os_open),
        patch.object(os, "write", write),
    ):
        yield


@pytest.mark.parametrize(("number", "place"), sampled(3, pairwise(NUMBERS, PLACES)))
def test_a_run_that_cannot_be_written_is_blocked_and_goes_on(
    study: StudyFolder, calm_small: Path, number: int, place: str
) -> None:
    run = study.runs()[0]
    with refusing(number, place, within=run.path):
        assert work_here(run.path) == ExitCode.BLOCKED
    status = StudyFolder(study.path).run(run.name).status()
    assert status.state == "blocked", status
    assert os.strerror(number) in str(status.reason)
    assert (run.ending() or {})["cause"] == ("disk" if number in (errno.ENOSPC, errno.EDQUOT) else "write")
    assert "Traceback" not in "".join(run.last_words())
    run.retry()
    assert work_here(run.path) == ExitCode.DONE
    assert run.final_path.read_bytes() == (calm_small / run.name / "final.safetensors").read_bytes()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_has_room_for_the_reason(study: StudyFolder, number: int) -> None:
    """Nothing can be written but what has its room already."""
    run = study.runs()[0]
    with refusing(number, "events.jsonl", "BLOCKED", ".pt", within=run.path):
        assert work_here(run.path) == ExitCode.BLOCKED
    assert run.status().state == "blocked"
    assert os.strerror(number) in str(run.status().reason)
    run.retry()
    assert (run.path / ".reserve").stat().st_size == 4096  # the reason's room, for the next one
    assert work_here(run.path) == ExitCode.DONE
    assert not (run.path / ".reserve").exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_reason_that_cannot_be_stored_is_said(
    study: StudyFolder, calm_small: Path, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    run, other = study.runs()
    command = ["run", str(calm_small.parent / "s.yaml"), "--out", str(study.path)]
    with workers_here(), refusing(number, "events.jsonl", "BLOCKED", ".reserve", within=run.path):
        assert main(command) == 1
    text, error = capsys.readouterr()
    assert f"{run.name} is blocked: " in text
    assert os.strerror(number) in text
    assert "Traceback" not in error
    assert run.ending() is None
    assert other.status().state == "finished"
    with workers_here(), refusing(number, "events.jsonl", "BLOCKED", ".reserve", within=run.path):
        assert main([*command, "--json"]) == 1
    entry = json.loads(capsys.readouterr().out)["runs"][0]
    assert entry["state"] == "blocked"
    assert os.strerror(number) in entry["reason"]
    with workers_here():
        assert main(command) == 0
    assert run.final_path.read_bytes() == (calm_small / run.name / "final.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("number", "place"), pairwise(NUMBERS, ("study.json", "costs.json", "supervisor.lock", "data", "spec.json"))[::2]
)
def test_a_study_that_cannot_be_written_says_so_and_goes_on(
    calm_small: Path, tmp_path: Path, number: int, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ["run", str(calm_small.parent / "s.yaml"), "--out", str(out)]
    with workers_here(), refusing(number, place, within=out), patch("addnorm.supervision.run.supervise", _nothing):
        assert main(command) == 1
    error = capsys.readouterr().err
    assert error.startswith("addnorm: ")
    assert error.count("\n") == 1
    assert os.strerror(number) in error


def _nothing(*arguments: Any, **named: Any) -> list[Any]:
    return []


@pytest.mark.parametrize("number", NUMBERS[:2])
def test_an_index_or_log_that_cannot_be_written_stops_nothing(
    study: StudyFolder, calm_small: Path, number: int
) -> None:
    with (
        workers_here(),
        patch("addnorm.store.index.sqlite3.connect", side_effect=OSError(number, os.strerror(number))),
        patch("addnorm.supervision.supervisor.SupervisorLog._write_pending", side_effect=JobError("no room")),
    ):
        assert main(["run", str(calm_small.parent / "s.yaml"), "--out", str(study.path)]) == 0


def test_data_that_do_not_fit_leave_a_folder_that_the_same_command_continues(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SMALL_STUDY)
    study = load_study(str(tmp_path / "s.yaml"))
    out = tmp_path / "out"
    with refusing(errno.ENOSPC, "tokens", within=out), pytest.raises(DiskFull, match="No space left"):
        prepare(study.corpus, study.tokenizer, out / "data")
    with workers_here():
        assert main(["run", str(tmp_path / "s.yaml"), "--out", str(out)]) == 0


def test_marks_of_a_run_that_cannot_be_read_are_its_own_trouble(
    study: StudyFolder, calm_small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, other = study.runs()
    for name in ("STOP", "FAILED", "lock"):
        shutil.rmtree(run.path / name, ignore_errors=True)
        (run.path / name).mkdir()  # for root too, a folder in the place of a file cannot be read or removed
        assert run.status().state in ("queued", "blocked")
        with workers_here():
            assert main(["run", str(calm_small.parent / "s.yaml"), "--out", str(study.path)]) == 1
        assert run.name in capsys.readouterr().out
        assert other.status().state == "finished"
        (run.path / name).rmdir()
    assert isinstance(RunFolder(run.path).status().state, str)
