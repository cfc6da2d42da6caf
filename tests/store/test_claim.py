import json
import multiprocessing
import os
import time
from contextlib import suppress
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from addnorm.errors import InputError, JobError
from addnorm.store import Lock, NotClaimed, RunFolder
from addnorm.store.claim import Claim, Claims, InForce

SPEC = {"run": "add-0", "variant": "add", "seed": 0, "steps": 100}


@pytest.fixture(autouse=True)
def hosts(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """This process is on host A. Its beats are quick, yet four of them last longer than a busy machine lets a thread wait."""
    monkeypatch.setenv("ADDNORM_HEARTBEAT_S", "0.5")
    monkeypatch.setenv("ADDNORM_HOST", "A")
    return monkeypatch


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "claims"


@pytest.fixture
def quick(hosts: pytest.MonkeyPatch) -> None:
    """Quicker beats, for claims that are silent anyway."""
    hosts.setenv("ADDNORM_HEARTBEAT_S", "0.05")


def silence(claim: Claim) -> None:
    """What kill -9 of the holder leaves."""
    claim._over.set()


def test_a_claim_is_in_force_on_other_hosts_until_it_is_released(folder: Path, hosts: pytest.MonkeyPatch) -> None:
    claim = Claims(folder).acquire()
    hosts.setenv("ADDNORM_HOST", "B")
    reader = Claims(folder)
    assert reader.held_elsewhere() == claim.holder
    with pytest.raises(InForce) as caught:
        reader.acquire()
    assert (caught.value.holder.host, caught.value.holder.pid) == ("A", os.getpid())
    claim.release()
    assert reader.held_elsewhere() is None
    assert reader.acquire().number == 2


@pytest.mark.parametrize("skew_s", [-3600.0, 300.0])
def test_a_silent_claim_of_another_host_lapses_by_looks_and_not_by_clocks(
    folder: Path, hosts: pytest.MonkeyPatch, quick: None, skew_s: float
) -> None:
    claim = Claims(folder).acquire()
    silence(claim)
    os.utime(folder / "000001.beat", (time.time() + skew_s, time.time() + skew_s))
    hosts.setenv("ADDNORM_HOST", "B")
    began = time.monotonic()
    assert Claims(folder).acquire().number == 2
    assert time.monotonic() - began >= 4 * 0.05
    assert claim.is_superseded()


def test_a_claim_that_beats_is_never_taken_however_wrong_its_clock(folder: Path, hosts: pytest.MonkeyPatch) -> None:
    claim = Claims(folder).acquire()
    hosts.setenv("ADDNORM_HOST", "B")
    for _ in range(2):
        os.utime(folder / "000001.beat", (0, 0))
        with pytest.raises(InForce):
            Claims(folder).acquire()
    assert not claim.is_superseded()
    claim.release()


def test_a_reader_that_looks_again_and_again_sees_a_claim_lapse(
    folder: Path, hosts: pytest.MonkeyPatch, quick: None
) -> None:
    claim = Claims(folder).acquire()
    hosts.setenv("ADDNORM_HOST", "B")
    reader = Claims(folder)
    assert reader.held_elsewhere() is not None
    silence(claim)
    for _ in range(6):
        assert reader.held_elsewhere() is None or time.sleep(0.06) is None
    assert reader.held_elsewhere() is None


def test_a_folder_that_was_copied_with_an_open_claim_is_free_to_the_eye(
    folder: Path, hosts: pytest.MonkeyPatch
) -> None:
    silence(Claims(folder).acquire())
    hosts.setenv("ADDNORM_HOST", "B")
    assert Claims(folder).held_elsewhere() is not None
    os.utime(folder / "000001.beat", (time.time() - 700, time.time() - 700))
    assert Claims(folder).held_elsewhere() is None


def test_on_the_same_host_the_lock_decides(folder: Path) -> None:
    silence(Claims(folder).acquire())
    began = time.monotonic()
    assert Claims(folder).held_elsewhere() is None
    assert Claims(folder).acquire().number == 2  # the caller has the lock
    assert time.monotonic() - began < 4 * 0.05


def test_a_claim_without_content_is_somebody_elses(folder: Path) -> None:
    folder.mkdir()
    (folder / "000007").touch()
    assert Claims(folder).held_elsewhere() is not None


def test_old_claims_are_removed_and_numbers_go_on(folder: Path) -> None:
    for number in range(1, 6):
        claim = Claims(folder).acquire()
        assert claim.number == number
        claim.release()
    assert sorted(path.name for path in folder.glob("*") if path.suffix == "") == ["000004", "000005"]
    assert Claims(folder).acquire(least=9).number == 9


def contend(folder: str, host: str, won: str, begin: Barrier, end: Barrier) -> None:
    os.environ["ADDNORM_HOST"] = host
    begin.wait(60)
    with suppress(InForce):
        Path(won, f"{host}-{Claims(Path(folder)).acquire().number}").touch()
    end.wait(60)  # the winner lives until all have tried


def test_of_hosts_that_claim_at_the_same_moment_one_wins(folder: Path, tmp_path: Path) -> None:
    Claims(folder).acquire().release()
    won = tmp_path / "won"
    won.mkdir()
    context = multiprocessing.get_context("fork")
    barriers = context.Barrier(6), context.Barrier(6)
    hosts = [context.Process(target=contend, args=(str(folder), f"host{n}", str(won), *barriers)) for n in range(6)]
    for each in hosts:
        each.start()
    for each in hosts:
        each.join()
        assert each.exitcode == 0
    assert [path.name.partition("-")[2] for path in won.iterdir()] == ["2"]


def test_a_process_that_slept_does_not_take_a_number_that_was_used_and_removed(
    folder: Path, hosts: pytest.MonkeyPatch
) -> None:
    sleeper = Claims(folder)
    Claims(folder).acquire().release()
    stale = sleeper.newest()
    for _ in range(4):
        Claims(folder).acquire().release()
    holder = Claims(folder).acquire()
    hosts.setattr(sleeper, "newest", lambda: stale)  # what it saw before it slept: 2 is next, and 2 is gone
    with pytest.raises(InForce) as caught:
        sleeper.acquire()
    assert caught.value.holder == holder.holder
    assert not holder.is_superseded()


def test_a_run_of_another_host_is_running_and_not_claimed(tmp_path: Path, hosts: pytest.MonkeyPatch) -> None:
    (tmp_path / "add-0").mkdir()
    run = RunFolder(tmp_path / "add-0", SPEC)
    hosts.setenv("ADDNORM_WORKER", "slurm:12_3")
    claim = Claims(run.path / "claims").acquire()  # its lock is not seen here
    hosts.setenv("ADDNORM_HOST", "B")
    assert run.status().state == "running"
    holder = run.holder()
    assert holder is not None
    assert (holder.worker, holder.host) == ("slurm:12_3", "A")
    with pytest.raises(NotClaimed, match="is running by worker slurm:12_3 on A") as caught, run.claim():
        pass
    assert caught.value.state == "running"
    lock = Lock(run.path / "lock")
    assert lock.try_acquire()  # as if the file system showed the other host's lock, with its process id
    assert run.worker() is None
    lock.release()
    claim.release()
    with run.claim() as events:
        assert events.attempt == 2
        assert run.worker() == os.getpid()
        run.require_claim()
        (run.path / "claims" / "000003").write_text(json.dumps({}))
        end = time.monotonic() + 30
        while (claimed := run._claim) is not None and not claimed.lost and time.monotonic() < end:
            time.sleep(0.1)
        with pytest.raises(JobError, match="expected claim 2 to be the newest, got a newer one"):
            run.require_claim()


@pytest.mark.parametrize("value", ["soon", "0", "-1", "nan", "1e9"])
def test_a_heartbeat_is_a_number_of_seconds(folder: Path, hosts: pytest.MonkeyPatch, value: str) -> None:
    hosts.setenv("ADDNORM_HEARTBEAT_S", value)
    with pytest.raises(InputError, match="ADDNORM_HEARTBEAT_S: expected a number of seconds between 0 and 600"):
        Claims(folder).acquire()
    assert not folder.exists()
