"""What goes wrong in a run is said, kept to that run, and can be tried again."""

import pickle
import shutil
from pathlib import Path

import pytest
import torch
from kills import events, prepared, same_weights, wait_until
from warm import CALM, Trouble, begin_run, begin_worker

from addnorm.cli import main
from addnorm.store import RunFolder, StudyFolder
from addnorm.store.files import write_json
from addnorm.store.lines import encode
from addnorm.training import checkpoint
from addnorm.training.checkpoint import load, save
from addnorm.training.exit_code import ExitCode


@pytest.fixture(scope="module")
def died(calm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a study with a run that died some steps after the checkpoints of its steps 10 and 15."""
    copy = tmp_path_factory.mktemp("died") / "study"
    shutil.copytree(calm, copy)
    found = StudyFolder(copy).runs()[0]
    for name in ("DONE", "final.safetensors"):
        (found.path / name).unlink()
    shutil.rmtree(found.path / "checkpoints")
    found.events_path.unlink()
    process = begin_worker(found.path, Trouble(befalls={found.name: "dies"}, at=18))
    process.join()
    assert process.exitcode == -9
    assert steps_kept(found) == [10, 15]
    return copy


@pytest.fixture
def run(died: Path, tmp_path: Path) -> RunFolder:
    """A copy of the run that died, to be harmed and resumed."""
    return StudyFolder(shutil.copytree(died, tmp_path / "study")).runs()[0]


def steps_kept(run: RunFolder) -> list[int]:
    return sorted(int(path.stem[5:]) for path in run.checkpoints_path.glob("*.pt"))


def go(run: RunFolder, **more: object) -> int | None:
    process = begin_worker(run.path, **more)  # type: ignore[arg-type]
    process.join()
    return process.exitcode


def study_run(calm: Path, out: Path, trouble: Trouble, *more: str) -> tuple[int | None, str]:
    log = out.with_suffix(".txt")
    if not out.exists():
        prepared(calm, out)
    process = begin_run(log, trouble, str(calm.parent / "storm.yaml"), "--out", str(out), *more)
    process.join()
    return process.exitcode, log.read_text()


ONE_SEED = ("--set", "seeds=[0]")
"""Two runs instead of four, where each run has the same trouble."""


def of_one_seed(calm: Path) -> list[str]:
    return [run.name for run in StudyFolder(calm).runs() if run.spec["seed"] == 0]


def test_a_killed_run_goes_on_and_compares_what_it_repeats(calm: Path, run: RunFolder) -> None:
    assert go(run) == ExitCode.DONE
    assert same_weights(calm, run.path.parent, run.name)
    (replayed,) = events(run, "replayed")
    assert (replayed["first"], replayed["last"], replayed["equal"]) == (16, 16, True)
    assert events(run, "start")[1]["replays"] == 1  # steps 17 and 18 were not written down yet


@pytest.mark.parametrize("name", ["losses", "grad_norms"])
def test_a_recorded_number_that_does_not_come_again_ends_the_run(run: RunFolder, name: str) -> None:
    lines = run.events_path.read_bytes().splitlines(keepends=True)
    place, old = [(n, event) for n, event in enumerate(events_of(run)) if event["type"] == "train"][-1]
    old[name][-1] += 2e-7
    lines[place] = encode(old)
    run.events_path.write_bytes(b"".join(lines))
    assert go(run) == ExitCode.FAILED
    status = run.status()
    assert status.state == "diverged"
    assert "diverged on resume: step 16 first gave loss" in str(status.reason)
    assert not run.final_path.exists()


def events_of(run: RunFolder) -> list[dict[str, object]]:
    from addnorm.store import read_events

    return read_events(run.events_path)[0]


def test_weights_that_were_changed_are_noticed(run: RunFolder) -> None:
    path = run.checkpoints_path / "step-00000015.pt"
    state = load(path)
    next(iter(state["model"].values())).mul_(1.001)
    save(path, state)
    assert go(run) == ExitCode.FAILED
    assert run.status().state == "diverged"
    assert events(run, "diverged")[0]["step"] == 16
    run.retry()
    assert go(run) == ExitCode.FAILED  # the first attempt's numbers stay the measure, whoever asks again
    path.unlink()
    run.retry()
    assert go(run) == ExitCode.DONE


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


def turn_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


class Evil:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> object:
        return Path.touch, (self.mark,)


def evil(path: Path) -> None:
    path.write_bytes(pickle.dumps(Evil(path.parents[1] / "executed")))


def evil_and_signed(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "_check", lambda value, where: None)
        save(path, {"step": 15, "model": Evil(path.parents[1] / "executed")})


@pytest.mark.parametrize("harm", [cut, turn_a_bit, empty, evil, evil_and_signed])
def test_a_harmed_checkpoint_is_refused_and_the_one_before_serves(calm: Path, run: RunFolder, harm) -> None:  # type: ignore[no-untyped-def]
    harm(run.checkpoints_path / "step-00000015.pt")
    assert go(run) == ExitCode.DONE
    assert same_weights(calm, run.path.parent, run.name)
    assert not (run.path / "executed").exists()
    (rejected,) = events(run, "rejected")
    assert rejected["checkpoint"] == "step-00000015.pt"
    assert "damaged" in rejected["reason"] or "could run code" in rejected["reason"]
    assert events(run, "start")[1]["resumed_from"] == 10


def test_the_evil_file_would_work(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    path = tmp_path / "checkpoints" / "step-00000015.pt"
    evil_and_signed(path)
    torch.load(path, weights_only=False)
    assert (tmp_path / "executed").exists()


def test_a_copied_run_cannot_name_code_to_run(calm: Path, tmp_path: Path) -> None:
    """Its `spec.json` names a plugin, and its folder's name agrees with that spec."""
    from addnorm.study.decoding import decode
    from addnorm.study.definition import RunSpec
    from addnorm.study.expansion import run_name

    plugin, mark = tmp_path / "stranger.py", tmp_path / "executed"
    plugin.write_text(f"open({str(mark)!r}, 'w').close()\n")
    entry = dict(StudyFolder(calm).runs()[0].spec)
    entry["spec"] = {**entry["spec"], "plugins": [str(plugin)]}
    entry["run"] = run_name(decode(RunSpec, entry["spec"]))
    out = tmp_path / "copied"
    shutil.copytree(calm / "data", out / "data")
    run = RunFolder(out / entry["run"])
    run.path.mkdir()
    write_json(run.path / "spec.json", entry)
    assert go(run) == ExitCode.DONE
    assert not mark.exists()
    (run.path / "DONE").unlink()
    go(run, options=[str(plugin)])
    assert mark.exists()  # so the plugin does what it says, where the user gives it


def test_what_fails_says_why_and_is_ranked_as_failed(calm: Path, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    names = [run.name for run in StudyFolder(calm).runs()]
    out = tmp_path / "out"
    befalls = dict(zip(names, ("nan", "memory", "allocator", "dies"), strict=True))
    code, told = study_run(calm, out, Trouble(befalls=befalls, retries=1))
    assert code == 1
    assert " --retry\n" in told
    assert main(["status", str(out)]) == 0
    text = capsys.readouterr().out
    for reason in (
        "failed: the loss became nan at step 5",
        "failed: out of memory\n",
        "failed: out of memory: ",
        "allocate memory",
        "failed: the worker ended early (signal 9), 2 times in a row without getting further",
        "its log ends: the worker's last words",
        "  | the worker's last words",
        "bytearray(1 << 62)",
    ):
        assert reason in text, text
    assert [entry["state"] for entry in StudyFolder(out).status()["runs"]] == ["failed"] * 4
    main(["rank", str(out)])
    text = capsys.readouterr().out
    assert "base" in text
    assert "v4m5" in text
    assert "failed" in text
    again, _ = study_run(calm, out, CALM)
    assert again == 1
    assert [entry["state"] for entry in StudyFolder(out).status()["runs"]] == ["failed"] * 4
    again, _ = study_run(calm, out, CALM, "--retry")
    assert again == 1
    states = [entry["state"] for entry in StudyFolder(out).status()["runs"]]
    assert states == ["diverged", *["finished"] * 3]  # the NaN is written down, and this time it did not come
    assert all(same_weights(calm, out, name) for name in names[1:])


def test_a_learning_rate_beyond_reason_ends_as_failed(calm: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    settings = (
        *ONE_SEED,
        "--set",
        "training.optimizer.kind=adamw",
        "--set",
        "training.optimizer.learning_rate=1e30",
        "--set",
        "training.clip=null",
    )
    assert study_run(calm, out, CALM, *settings)[0] == 1
    for entry in StudyFolder(out).status()["runs"]:
        assert entry["state"] == "failed"
        assert "became" in str(entry["reason"])
        assert 1 < entry["step"] < 32


def test_an_infinite_loss_ends_as_failed(calm: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    study_run(calm, out, Trouble(befalls=dict.fromkeys(of_one_seed(calm), "infinite")), *ONE_SEED)
    assert [e["reason"] for e in StudyFolder(out).status()["runs"]] == ["the loss became inf at step 5"] * 2


def test_a_full_disk_blocks_its_run_alone_and_the_next_call_finishes_it(calm: Path, tmp_path: Path) -> None:
    names = [run.name for run in StudyFolder(calm).runs()]
    out = tmp_path / "out"
    code, told = study_run(calm, out, Trouble(befalls={names[0]: "small disk"}, retries=1))
    assert code == 1
    assert "Some are blocked" in told
    assert [entry["state"] for entry in StudyFolder(out).status()["runs"]] == ["blocked", *["finished"] * 3]
    ending = StudyFolder(out).runs()[0].ending()
    assert ending is not None
    assert ending["cause"] == "disk"
    assert "no room left to write" in ending["reason"]
    assert study_run(calm, out, CALM)[0] == 0
    assert all(same_weights(calm, out, name) for name in names)


def test_a_clock_that_jumps_back_changes_nothing_but_the_times(calm: Path, tmp_path: Path) -> None:
    names = of_one_seed(calm)
    out = tmp_path / "out"
    assert study_run(calm, out, Trouble(befalls=dict.fromkeys(names, "clock")), *ONE_SEED)[0] == 0
    assert all(same_weights(calm, out, name) for name in names)
    for run in StudyFolder(out).runs():
        times = [event["time"] for event in events_of(run)]
        assert times == sorted(times, reverse=True)  # type: ignore[type-var]
        assert all(0 < event["tokens_per_s"] < 1e7 for event in events(run, "train"))
    wait_until(lambda: not any(run.is_held() for run in StudyFolder(out).runs()))
