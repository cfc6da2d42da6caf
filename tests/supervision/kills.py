"""A storm of kill -9 over a study, and whether what comes out is what an undisturbed study gives."""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from warm import CALM, Trouble, begin_run

from addnorm.store import Index, RunFolder, StudyFolder, read_events

STUDY = """
name: storm
references: [base]
seeds: [0, 1]
corpus: {kind: synthetic, task: induction}
tokenizer: bytes
training: {steps: 32, batch: 2, seq: 16, log_every: 4, eval_every: 9, eval_sequences: 4, checkpoint_every: 5}
model: {preset: base, width: 16, depth: 2, heads: 2, kv_heads: 1, hidden: 16, max_seq: 16, dropout: 0.1}
variants:
  base: {}
  v4m5: {preset: v4m5}
"""


@dataclass(frozen=True, kw_only=True)
class Survivors:
    """What a storm left."""

    kills: dict[str, int]
    """By what was killed."""
    resumed: int
    """Attempts that went on from a checkpoint; the others began anew."""
    runs: int
    finished: int
    identical: int
    """Runs whose weights, recorder and curves are those of the undisturbed study, to the last bit."""
    doubled: int
    """Steps that a curve's points stand for twice, or not at all."""
    stale: int
    """Times that a run was said to be running when its processes were dead, or a temporary file was left."""

    @property
    def all_well(self) -> bool:
        return self.finished == self.identical == self.runs and not self.doubled and not self.stale


def wait_until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Wait for something that has to come."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("what was waited for did not come")
        time.sleep(0.005)


def calm_weather(folder: Path) -> Path:
    """Folder of a study that nothing disturbed."""
    file = folder / "storm.yaml"
    file.write_text(STUDY, encoding="utf-8")
    out = folder / "calm"
    process = begin_run(folder / "calm.txt", CALM, str(file), "--out", str(out), "--workers", "2")
    process.join()
    assert process.exitcode == 0, (folder / "calm.txt").read_text()
    return out


def prepared(calm: Path, out: Path) -> Path:
    """A folder with what `addnorm run` makes before the first step and what is the same in every one of these tests."""
    out.mkdir()
    shutil.copytree(calm / "data", out / "data")
    shutil.copy(calm / "costs.json", out)
    return out


def storm(calm: Path, out: Path, seed: int, kills: int) -> Survivors:
    """Kill workers from within their writes and from without, supervisors, and both, until there were `kills` (a study
    that ends before has fewer); then give `addnorm run` once more and look at what there is."""
    chance = random.Random(seed)
    prepared(calm, out)
    inner = out.with_suffix(".kills")
    count = {"a worker": 0, "the supervisor": 0, "both": 0}
    stale = 0
    trouble = Trouble(kills=inner, seed=seed)
    arguments = (str(calm.parent / "storm.yaml"), "--out", str(out), "--workers", "2")
    while sum(count.values()) + len(_lines(inner)) < kills:
        process = begin_run(out.with_suffix(".txt"), trouble, *arguments)
        wait_until(lambda: (out / "study.json").exists() or not process.is_alive())  # noqa: B023
        while process.is_alive() and sum(count.values()) + len(_lines(inner)) < kills:
            # Not after a time: on a busy machine nothing would have begun by then.
            due = _progress(out, inner) + chance.randint(0, 6)
            wait_until(lambda: _progress(out, inner) >= due or not process.is_alive())  # noqa: B023
            what = chance.choice(("a worker", "the supervisor", "both"))
            worker = chance.choice([pid for _, pid in _living(out)] or [None])
            if what != "the supervisor" and (worker is None or not _kill(worker)):
                continue
            if what != "a worker" and process.is_alive():
                process.kill()
            count[what] += 1
        if process.is_alive():
            process.kill()
            count["the supervisor"] += 1
        process.join()
        if process.exitcode == 0:
            break
    for run, pid in _living(out):
        _kill(pid)
        count["a worker"] += 1
        wait_until(lambda run=run: not run.is_held())  # type: ignore[misc]
    stale += sum(entry["state"] == "running" for entry in StudyFolder(out).status()["runs"])
    process = begin_run(out.with_suffix(".txt"), CALM, *arguments)
    process.join()
    names = [run.name for run in StudyFolder(calm).runs()]
    states = [entry["state"] for entry in StudyFolder(out).status()["runs"]]
    within = _lines(inner)
    return Survivors(
        kills=count | {f"amid {where}": within.count(where) for where in sorted(set(within))},
        resumed=sum(event["resumed_from"] > 0 for name in names for event in events(RunFolder(out / name), "start")),
        runs=len(names),
        finished=states.count("finished"),
        identical=sum(
            state == "finished" and _same(calm, out, name) for state, name in zip(states, names, strict=True)
        ),
        doubled=sum(_doubled(out, name) for name in names),
        stale=stale + len(list(out.glob("*/.*.tmp")) + list(out.glob("*/checkpoints/.*.tmp"))),
    )


def same_weights(calm: Path, out: Path, name: str) -> bool:
    """Whether a run gave the very bytes of the undisturbed one."""
    a, b = RunFolder(calm / name), RunFolder(out / name)
    endings = [run.ending() or {} for run in (a, b)]
    return (
        a.final_path.read_bytes() == b.final_path.read_bytes()
        and endings[0]["content_hash"] == endings[1]["content_hash"] is not None
    )


def _same(calm: Path, out: Path, name: str) -> bool:
    metrics = ("train.loss", "train.grad_norm", "eval.loss", "eval.accuracy")
    curves = [[Index(folder).curve(name, metric) for metric in metrics] for folder in (calm, out)]
    return same_weights(calm, out, name) and curves[0] == curves[1] and _scalars(calm / name) == _scalars(out / name)


def _scalars(run: Path) -> dict[str, list[float]]:
    with safe_open(run / "scalars.safetensors", "pt") as file:
        return {name: file.get_tensor(name).tolist() for name in file.keys()}  # noqa: SIM118  it is no dict


def _doubled(out: Path, name: str) -> int:
    """Steps that the curve's points do not stand for exactly once."""
    windows = {
        event["step"]: event for event in events(RunFolder(out / name), "train")
    }  # of each step the newest, as in a curve
    steps = [s for step, _ in Index(out).curve(name, "train.loss") for s in range(windows[step]["first"], step + 1)]
    return len(set(range(1, max(steps, default=0) + 1)).symmetric_difference(steps)) + len(steps) - len(set(steps))


def _progress(out: Path, inner: Path) -> int:
    """Lines that the workers have written, and their deaths."""
    return sum(len(_lines(path)) for path in (*out.glob("*/events.jsonl"), inner))


def _living(out: Path) -> list[tuple[RunFolder, int]]:
    found = [(run := RunFolder(lock.parent), run.worker()) for lock in sorted(out.glob("*/lock"))]
    return [(run, pid) for run, pid in found if pid is not None]


def _kill(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.exists() else []


def events(run: RunFolder, kind: str) -> list[dict[str, Any]]:
    """A run's events of one type."""
    return [event for event in read_events(run.events_path)[0] if event["type"] == kind]
