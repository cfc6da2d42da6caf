"""A study of eight runs that is trained on a cluster, and whether what comes out is what this machine alone gives."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kills import events, same_weights

from addnorm.store import RunFolder, StudyFolder, read_events
from addnorm.study.loading import load_study
from train_here import train_here

STUDY = """
name: eight
references: [base]
seeds: [0, 1, 2, 3]
corpus: {kind: synthetic, num_documents: 20}
tokenizer: bytes
training: {steps: 40, batch: 2, seq: 16, log_every: 4, eval_every: 20, eval_sequences: 4, checkpoint_every: 10}
model: {preset: base, width: 16, depth: 2, heads: 2, kv_heads: 1, hidden: 16, max_seq: 16, dropout: 0.1}
variants:
  base: {}
  v4m5: {preset: v4m5}
"""


def trained_calmly(folder: Path) -> Path:
    """Folder of the study as the local supervisor trains it; the study's file is beside it."""
    (folder / "eight.yaml").write_text(STUDY)
    train_here(load_study(folder / "eight.yaml"), folder / "calm")
    return folder / "calm"


def study_file(folder: Path, executor: str) -> str:
    """A file of the study with an executor."""
    file = folder / "eight.yaml"
    file.write_text(f"{STUDY}executor: {executor}\n")
    return str(file)


@contextmanager
def warm_server(folder: Path) -> Iterator[str]:
    """Socket of a process that forks workers and supervisors; see `warm_jobs`."""
    path = str(folder / "socket")
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("warm_jobs.py")), path], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield path
    finally:
        process.terminate()
        process.communicate()


def wait_until(condition: Callable[[], bool], timeout_s: float = 180.0) -> None:
    """Wait for something that has to come."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "what was waited for did not come"
        time.sleep(0.1)


def recorded_losses(run: RunFolder) -> dict[int, float]:
    """Loss of every step, which all attempts must have recorded alike."""
    losses: dict[int, float] = {}
    for event in events(run, "train"):
        for step, loss in enumerate(event["losses"], start=event["first"]):
            assert losses.setdefault(step, loss) == loss
    return losses


def assert_one_at_a_time(run: RunFolder) -> None:
    """Each attempt's events stand together in the file and begin after those of the one before."""
    attempts = [event["attempt"] for event in read_events(run.events_path)[0]]
    assert attempts == sorted(attempts)
    assert len(events(run, "start")) == len(set(attempts))


def assert_as_calm(calm: Path, out: Path) -> None:
    """Nothing is lost, nothing was trained twice at once, and every bit is that of the calm study."""
    runs = StudyFolder(out).runs()
    assert [run.name for run in runs] == [run.name for run in StudyFolder(calm).runs()]
    for run in runs:
        assert same_weights(calm, out, run.name)
        assert recorded_losses(run) == recorded_losses(RunFolder(calm / run.name))
        assert sorted(recorded_losses(run)) == list(range(1, run.spec["steps"] + 1))
        assert_one_at_a_time(run)
