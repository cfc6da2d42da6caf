"""Many short runs on a real two-node Slurm against this machine alone, and one run on two ranks against one.

    python benchmarks/throughput.py                     # both, about half an hour on two cores
    python benchmarks/throughput.py --only ranks --rounds 2 --steps 4

Runs: as many workers at a time on both sides, one for each core, with the real worker command; the Slurm is that of the tests,
two nodes that share this machine. Its own start of a job is what an array of as many jobs takes whose step is `true`.

Ranks: `tokens_per_s` of the worker's own events without the first window, one rank and two in turn, one thread each, at width
256 with eight shards on both sides.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "supervision"))

import pytest
from slurm_cluster import Cluster, packages

from addnorm.store import RunFolder, StudyFolder, read_events
from addnorm.supervision.executors import THREADS

MANY = """
name: many
seeds: [{seeds}]
corpus: {{kind: synthetic, task: induction}}
tokenizer: bytes
training: {{steps: {steps}, batch: 8, seq: 64, log_every: 20, eval_every: 100000, eval_sequences: 8, checkpoint_every: 100000}}
model: {{preset: base, width: 64, depth: 4, heads: 4, kv_heads: 2, hidden: 128, max_seq: 64}}
variants: {{base: {{}}}}
"""
WIDE = """
name: wide
seeds: [0]
corpus: {{kind: synthetic, task: induction}}
tokenizer: bytes
training: {{steps: {steps}, batch: 16, shards: 8, seq: 128, log_every: 1, eval_every: 100000, eval_sequences: 8,
  checkpoint_every: 100000}}
model: {{preset: base, width: 256, depth: 6, heads: 8, kv_heads: 4, hidden: 512, max_seq: 128}}
variants: {{base: {{}}}}
"""
RUN = (sys.executable, "-m", "addnorm", "run")
ONE_THREAD = {**os.environ, **dict.fromkeys(THREADS, "1")}


def trained(study: Path, out: Path, *options: str) -> float:
    """Seconds that `addnorm run` takes."""
    start = time.perf_counter()
    subprocess.run([*RUN, str(study), "--out", str(out), "--json", *options], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def speed(run: RunFolder) -> float:
    """Tokens per second of a run, the median of its windows without the first."""
    windows = [event["tokens_per_s"] for event in read_events(run.events_path)[0] if event["type"] == "train"]
    return statistics.median(windows[1:])


def steps_of(seconds: float, folder: Path) -> int:
    """Steps of a run that trains for so long here."""
    file = folder / "trial.yaml"
    file.write_text(MANY.format(seeds=0, steps=100))
    trained(file, folder / "trial", "--workers", "1")
    (run,) = StudyFolder(folder / "trial").runs()
    return max(1, round(seconds * speed(run) / (8 * 64)))


def empty_jobs(folder: Path, jobs: int, at_once: int) -> float:
    """Seconds that Slurm takes for an array of jobs with nothing in them."""
    script = folder / "empty.sh"
    script.write_text(f"#!/bin/sh\n#SBATCH --array=0-{jobs - 1}%{at_once} --output=/dev/null\nsrun true\n")
    start = time.perf_counter()
    subprocess.run(["sbatch", "--wait", str(script)], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def many_runs(options: argparse.Namespace, folder: Path) -> bool:
    """Measure runs on Slurm and here. True if the goal is reached."""
    kept = Path(__file__).parents[1] / ".pytest_cache" / "d" / "slurm-packages"
    kept.mkdir(parents=True, exist_ok=True)
    cores = len(os.sched_getaffinity(0))
    steps = steps_of(options.seconds, folder)
    file = folder / "many.yaml"
    file.write_text(MANY.format(seeds=", ".join(map(str, range(options.runs))), steps=steps))
    cluster = Cluster(packages(kept), folder / "slurm")
    os.environ.update(cluster.environment)
    here, there, empty = [], [], []
    try:
        for number in range(options.rounds):
            workers = ("--workers", str(cores))
            here.append(trained(file, folder / f"here-{number}", *workers))
            there.append(trained(file, folder / f"slurm-{number}", *workers, "--executor", "slurm"))
            empty.append(empty_jobs(folder, options.runs, cores))
            for out in (folder / f"here-{number}", folder / f"slurm-{number}"):
                shutil.rmtree(out)
    finally:
        cluster.stop()
    print(f"{options.runs} runs of {steps} steps ({options.seconds:g} s here, alone), {cores} at a time\n")
    print("| side | seconds (median) |\n|---|---|")
    for name, times in (("local", here), ("slurm", there), ("slurm, empty jobs", empty)):
        print(f"| {name} | {statistics.median(times):.1f} |")
    ratios = [(b - c) / a for a, b, c in zip(here, there, empty, strict=True)]
    plain = [b / a for a, b in zip(here, there, strict=True)]
    print(f"\n(slurm - empty) / local: {told(ratios)}; slurm / local: {told(plain)}. Wanted: the first at most 1.3.\n")
    return statistics.median(ratios) <= 1.3


def ranks(options: argparse.Namespace, folder: Path) -> bool:
    """Measure one rank and two. True if the goal is reached."""
    file = folder / "wide.yaml"
    file.write_text(WIDE.format(steps=options.steps))
    found: dict[int, list[float]] = {1: [], 2: []}
    for number in range(options.rounds):
        for devices, speeds in found.items():
            out = folder / f"wide-{number}-{devices}"
            trained(file, out, "--set", f"training.devices={devices}", "--workers", "1")
            (run,) = StudyFolder(out).runs()
            speeds.append(speed(run))
            shutil.rmtree(out)
    print("| ranks | tokens/s (median) |\n|---|---|")
    for devices, speeds in found.items():
        print(f"| {devices} | {statistics.median(speeds):,.0f} |")
    ratios = [b / a for a, b in zip(found[1], found[2], strict=True)]
    print(f"\ntwo / one: {told(ratios)}. Wanted: at least 1.7.")
    return statistics.median(ratios) >= 1.7


def told(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} (rounds: {', '.join(f'{ratio:.2f}' for ratio in ratios)})"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=["runs", "ranks"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=1.0, help="of training in each of the short runs")
    parser.add_argument("--steps", type=int, default=16, help="of the run on one rank and on two")
    options = parser.parse_args()
    os.environ.update(ONE_THREAD)
    good = True
    with tempfile.TemporaryDirectory() as folder:
        if options.only != "ranks":
            try:
                good = many_runs(options, Path(folder))
            except pytest.skip.Exception as reason:
                print(f"{reason}\n")
                good = False
        if options.only != "runs":
            good = ranks(options, Path(folder)) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
