"""Files of a study that vanish or are cut short, in every state of a run and while it is trained.

No command ends with a traceback, no run is finished without its record, other runs are not affected, and the same `addnorm
run` trains what can be trained, to the weights of an undisturbed study.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from addnorm.cli import main
from addnorm.reporting.reader import Reader
from addnorm.store import Lock, RunFolder, StudyFolder
from addnorm.training.exit_code import ExitCode
from addnorm.training.loop import Trainer
from sampled import sampled
from train_here import work_here, workers_here


@pytest.fixture
def study(calm_small: Path, tmp_path: Path) -> StudyFolder:
    return StudyFolder(shutil.copytree(calm_small, tmp_path / "out"))


def go_on(calm: Path, out: Path, *more: str) -> int:
    with workers_here():
        return main(["run", str(calm.parent / "s.yaml"), "--out", str(out), *more])


def same(calm: Path, run: RunFolder) -> bool:
    return run.final_path.read_bytes() == (calm / run.name / "final.safetensors").read_bytes()


def _queued(run: RunFolder) -> None:
    for path in run.path.iterdir():
        if path.name != "spec.json":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _interrupted(run: RunFolder) -> None:
    """As after a kill behind the checkpoint of step 4."""
    for name in ("DONE", "final.safetensors"):
        (run.path / name).unlink()
    lines = run.events_path.read_bytes().splitlines(keepends=True)
    kept = next(place for place, line in enumerate(lines) if b'"checkpoint"' in line and b'"step":4' in line)
    run.events_path.write_bytes(b"".join(lines[: kept + 1]))


def _ended(state: str) -> Callable[[RunFolder], None]:
    def end(run: RunFolder) -> None:
        _interrupted(run)
        run.mark(state, reason="a reason", step=4)  # type: ignore[arg-type]

    return end


def _stopped(run: RunFolder) -> None:
    _interrupted(run)
    run.request_stop()


STATES: dict[str, Callable[[RunFolder], None]] = {
    "queued": _queued,
    "interrupted": _interrupted,
    "stopped": _stopped,
    "blocked": _ended("blocked"),
    "failed": _ended("failed"),
    "diverged": _ended("diverged"),
    "finished": lambda run: None,
}
OF_A_RUN = (
    *("", "spec.json", "env.json", "events.jsonl", "log.txt", "lock", "claims", "scalars.safetensors", "checkpoints"),
    *("checkpoints/step-00000004.pt", "final.safetensors", "DONE", "FAILED", "BLOCKED", "STOP"),
)
OF_A_STUDY = (
    *("study.json", "costs.json", "index.db", "supervisor.lock", "supervisor.jsonl", "supervisor-claims"),
    *("data", "data/dataset.json", "data/train.tokens", "data/held.tokens", "data/tokenizer.json"),
)


def gone(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def empty(path: Path) -> None:
    for file in [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]:
        file.write_bytes(b"")


def half(path: Path) -> None:
    for file in [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


HARMS = (gone, empty, half)


def has_record(run: RunFolder) -> bool:
    """Independently of the store: DONE is whole, and the events hold the last evaluation."""
    try:
        done = json.loads((run.path / "DONE").read_text())
        events = [json.loads(line) for line in run.events_path.read_text().splitlines()]
    except (OSError, ValueError):
        return False
    return done["state"] == "finished" and any(event["type"] == "eval" and event["step"] == 6 for event in events)


CASES = [
    (state, HARMS[(place + turn) % len(HARMS)], turn)
    for turn in range(len(HARMS))
    for place, state in enumerate(STATES)
]
"""In each turn a state meets every file, with harms in turn; three turns are all combinations."""


@pytest.mark.parametrize(("state", "first", "turn"), sampled(6, CASES))
def test_every_file_may_vanish_and_every_state_stays_true(
    study: StudyFolder,
    calm_small: Path,
    capsys: pytest.CaptureFixture[str],
    state: str,
    first: Callable[[Path], None],
    turn: int,
) -> None:
    out = study.path
    for place, name in enumerate((*OF_A_RUN, *OF_A_STUDY), start=HARMS.index(first)):
        harm = HARMS[place % len(HARMS)]
        shutil.rmtree(out)
        shutil.copytree(calm_small, out)
        run, other = StudyFolder(out).runs()
        STATES[state](run)
        harm(out / name if name in OF_A_STUDY else run.path / name)
        where = f"{state}, {harm.__name__} {name or 'the folder'}"
        command = ("status", "rank", "reindex")[(place + turn) % 3]
        assert main([command, str(out)]) in (0, 1, 2), where
        error = capsys.readouterr().err
        assert "Traceback" not in error
        assert error.count("addnorm: ") <= 1, (where, error)
        if name == "study.json":
            assert main(["status", str(out)]) in (1, 2)
            assert capsys.readouterr().err.startswith("addnorm: ")
            continue
        seen = {status.run: status for status in StudyFolder(out).statuses()}
        assert seen[other.name].state == "finished", where
        assert (seen[run.name].state == "finished") == has_record(run), (where, seen[run.name])
        assert {view.run: view.state for view in Reader(out).look().all_runs}[other.name] == "finished", where


RESUMED = sampled(
    7,
    [
        (state, name, harm)
        for state, name, harm in product(("queued", "interrupted", "blocked", "finished"), OF_A_RUN, (gone, half))
        if not (state == "finished" and name in ("events.jsonl", ""))
    ],
)


@pytest.mark.parametrize(("state", "name", "harm"), RESUMED)
def test_the_same_command_trains_what_is_left_to_the_same_weights(
    study: StudyFolder, calm_small: Path, state: str, name: str, harm: Callable[[Path], None]
) -> None:
    run = study.runs()[0]
    STATES[state](run)
    harm(run.path / name)
    code = go_on(calm_small, study.path)
    status, beside = StudyFolder(study.path).statuses()
    assert beside.state == "finished"
    if status.state == "blocked":  # a half of events.jsonl ends within a line, or in one that is no event
        assert harm is half
        assert "events.jsonl" in str(status.reason)
        assert code == 1
        return
    assert (code, status.state) == (0, "finished"), status
    assert has_record(run)
    if state != "finished" or "final" not in name:
        assert same(calm_small, run)


@pytest.mark.parametrize("name", sampled(3, [name for name in OF_A_STUDY if name != "study.json"]))
def test_the_same_command_makes_the_study_s_files_again(study: StudyFolder, calm_small: Path, name: str) -> None:
    run = study.runs()[0]
    _interrupted(run)
    half(study.path / name)
    assert go_on(calm_small, study.path) == 0
    assert same(calm_small, run)


def test_a_finished_run_without_its_events_says_how_to_train_it_again(
    study: StudyFolder, calm_small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = study.runs()[0]
    run.events_path.unlink()
    assert go_on(calm_small, study.path) == 1
    text = capsys.readouterr().out
    assert f"remove the folder {run.path}" in text
    shutil.rmtree(run.path)
    assert go_on(calm_small, study.path) == 0
    assert same(calm_small, run)


def test_folders_of_runs_that_were_swapped_or_copied_are_told(study: StudyFolder, calm_small: Path) -> None:
    """Their numbers would count for the other variant."""
    one, other, *_ = (run.path for run in study.runs())
    before = [run.status() for run in study.runs()]
    aside = one.with_name("aside")
    for old, new in ((one, aside), (other, one), (aside, other)):
        old.rename(new)
    for run in StudyFolder(study.path).runs()[:2]:
        status = run.status()
        assert (status.state, status.run) == ("blocked", run.name)
        assert f"expected the folder of run {run.name}, got that of" in str(status.reason)
    shutil.rmtree(other)
    shutil.copytree(one, other)  # now it is the other's own, and the first is a copy of it
    states = [run.status().state for run in StudyFolder(study.path).runs()[:2]]
    assert states == ["blocked", "finished"]
    shutil.rmtree(one)
    assert go_on(calm_small, study.path) == 0
    assert [run.status().loss for run in StudyFolder(study.path).runs()] == [status.loss for status in before]


def test_a_run_without_its_weights_says_how_to_make_them_again(study: StudyFolder, calm_small: Path) -> None:
    run = study.runs()[0]
    run.final_path.unlink()
    status = run.status()
    assert status.state == "finished"  # its numbers are complete
    assert "remove DONE" in str(status.reason)
    (run.path / "DONE").unlink()
    assert go_on(calm_small, study.path) == 0
    assert same(calm_small, run)
    assert run.status().reason is None


def test_a_checkpoint_whose_steps_are_not_on_record_is_not_used(study: StudyFolder, calm_small: Path) -> None:
    run = study.runs()[0]
    _interrupted(run)
    lines = run.events_path.read_bytes().splitlines(keepends=True)
    run.events_path.write_bytes(b"".join(line for line in lines if b'"step":3' not in line))
    assert work_here(run.path) == ExitCode.DONE
    text = run.events_path.read_text()
    assert '"rejected"' in text
    assert "got those of the first 2" in text
    assert same(calm_small, run)


HARMED_WHILE_TRAINED = {
    "": (ExitCode.BLOCKED, "queued"),
    "lock": (ExitCode.STOPPED, "interrupted"),
    "events.jsonl": (ExitCode.BLOCKED, "blocked"),
    "checkpoints": (ExitCode.DONE, "finished"),
    "claims": (ExitCode.DONE, "finished"),
    "spec.json": (ExitCode.DONE, "finished"),
    "env.json": (ExitCode.DONE, "finished"),
    ".reserve": (ExitCode.DONE, "finished"),
}


@pytest.fixture
def at_step_3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Has something done once, amid the third step."""
    step = Trainer.train_step

    def begin(harm: Callable[[], None]) -> None:
        def train_step(self: Trainer) -> object:
            if self.step == 2:
                harm()
            return step(self)

        monkeypatch.setattr(Trainer, "train_step", train_step)

    yield begin
    monkeypatch.setattr(Trainer, "train_step", step)


@pytest.mark.parametrize(("name", "harm"), sampled(3, product(HARMED_WHILE_TRAINED, (gone, empty))))
def test_a_file_that_vanishes_while_its_run_is_trained(
    study: StudyFolder,
    calm_small: Path,
    at_step_3: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    harm: Callable[[Path], None],
) -> None:
    run = study.runs()[0]
    _queued(run)
    code, state = HARMED_WHILE_TRAINED[name]
    if harm is empty and name in ("", "lock"):  # what is written over is still there
        code, state = (ExitCode.BLOCKED, "blocked") if name == "" else (ExitCode.DONE, "finished")
    at_step_3(lambda: harm(run.path / name))
    assert work_here(run.path) == code
    assert run.path.exists() == (name != "" or harm is not gone)  # a removed folder is not made again
    assert "Traceback" not in "".join(run.last_words())
    assert StudyFolder(study.path).run(run.name).status().state == state
    monkeypatch.undo()
    if state == "blocked" or name == "":
        gone(run.path)
    assert go_on(calm_small, study.path) == 0
    assert same(calm_small, run)


def test_a_removed_folder_does_not_end_the_study(
    study: StudyFolder, calm_small: Path, at_step_3: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = study.runs()
    for run in (first, second):
        _queued(run)
    at_step_3(lambda: shutil.rmtree(first.path, ignore_errors=True))
    assert go_on(calm_small, study.path) == 1
    text = capsys.readouterr().out
    assert f"the folder {first.path} was removed while this command ran" in text
    assert "1 still to do" in text
    assert not first.path.exists()
    assert same(calm_small, second)
    at_step_3(lambda: None)
    assert go_on(calm_small, study.path) == 0
    assert same(calm_small, first)


def test_the_study_goes_on_without_its_index_log_and_lock(
    study: StudyFolder, calm_small: Path, at_step_3: Callable[..., None]
) -> None:
    for run in study.runs():
        _queued(run)

    def remove() -> None:
        for name in ("index.db", "supervisor.jsonl", "supervisor.lock", "supervisor-claims", "study.json"):
            gone(study.path / name)

    at_step_3(remove)
    assert go_on(calm_small, study.path) == 0
    assert all(same(calm_small, run) for run in study.runs())


def test_a_lock_on_a_removed_file_is_lost(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock")
    assert lock.try_acquire()
    assert not lock.is_lost()
    (tmp_path / "lock").rename(tmp_path / "elsewhere")
    assert lock.is_lost()
    (tmp_path / "lock").touch()
    assert lock.is_lost()  # another file of the name
    lock.release()
