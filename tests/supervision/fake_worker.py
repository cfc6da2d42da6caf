"""A worker that trains nothing: it keeps the run folder's protocol, and misbehaves as its spec's `fault` says."""

import os
import signal
import sys
import time
from typing import Any

from addnorm.store import EventWriter, NotClaimed, RunFolder, read_json, write_json
from addnorm.training.exit_code import ExitCode


def main() -> int:
    run = RunFolder(sys.argv[1])
    fault = run.spec.get("fault", {})
    stops: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stops.append(number))
    if fault.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(f"worker {os.getpid()} begins", flush=True)
    if "exit_unclaimed" in fault:
        return int(fault["exit_unclaimed"])
    while os.environ.get("FAKE_WAITS_FOR_A_RIVAL") and not run.is_held():
        time.sleep(0.01)
    try:
        with run.claim() as events:
            return work(run, fault, events, stops)
    except NotClaimed as error:
        return ExitCode.of(error.state)


def work(run: RunFolder, fault: dict[str, Any], events: EventWriter, stops: list[int]) -> int:
    run.write_env({name: value for name, value in os.environ.items() if "THREADS" in name or "CUDA" in name})
    kept = run.checkpoints_path / "step.json"
    run.checkpoints_path.mkdir(exist_ok=True)
    done = read_json(kept)["step"] if kept.exists() else 0
    events.write("start", step=done, resumed_from=done or None)
    for step in range(done + 1, run.spec["steps"] + 1):
        time.sleep(run.spec.get("pace_s", 0.002))
        events.write("train", step=step, loss=run.spec["seed"] + 1 / step)
        if step % 5 == 0:
            events.sync()
            write_json(kept, {"step": step})
        if stops:
            events.write("end", step=step, reason="stopped")
            write_json(kept, {"step": step})
            return 75
        if step == fault.get("at") and not (fault.get("once") and events.attempt > 1):
            return misbehave(run, fault, step)
    events.write("eval", step=run.spec["steps"], loss=0.5, accuracy=0.25, perplexity=1.6, final=True)
    run.mark("finished", step=run.spec["steps"])
    return 0


def misbehave(run: RunFolder, fault: dict[str, Any], step: int) -> int:
    print("about to misbehave", flush=True)
    if "mark" in fault:
        run.mark(fault["mark"], reason="a reason", step=step, **fault.get("values", {}))
    if "signal" in fault:
        os.kill(os.getpid(), fault["signal"])
    if fault.get("raise"):
        raise RuntimeError("the loss is a cabbage")
    return int(fault["exit"])


if __name__ == "__main__":
    sys.exit(main())
