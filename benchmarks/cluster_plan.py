"""`addnorm plan --cluster` against what runs of two sizes really take on this machine.

    python benchmarks/cluster_plan.py                  # about five minutes on two cores
    python benchmarks/cluster_plan.py --rounds 1 --steps 4

The cluster is this machine: one device of the speed that `addnorm plan` measures for each size. Both sides have one thread, and
processor seconds are compared, so that other programs do not decide: the plan times its step in them, and the worker's events
have `tokens_per_s` and the cores that it had (median of the windows without the first). Storage: the files of `checkpoints/`
and the final weights. Rounds of both sizes in turn; medians. Memory is checked by
tests/supervision/test_cost_estimate_memory.py, bytes sent between ranks by tests/training/test_rank_sums.py.
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
from types import SimpleNamespace
from unittest.mock import patch

from addnorm.store import RunFolder, StudyFolder, read_events
from addnorm.study.expansion import fit_models
from addnorm.study.loading import load_study
from addnorm.supervision.cluster_estimate import Cluster, VariantOnCluster, estimate_on_cluster
from addnorm.supervision.cost_estimate import estimate_cost
from addnorm.supervision.executors import THREADS

STUDY = """
name: size
seeds: [0]
corpus: {{kind: synthetic, task: induction}}
tokenizer: bytes
training: {{steps: {steps}, batch: 8, seq: 128, log_every: 1, eval_every: 100000, eval_sequences: 8, checkpoint_every: {every}}}
model: {{preset: base, width: {width}, depth: {depth}, heads: 8, kv_heads: 4, hidden: {hidden}, max_seq: 128}}
variants: {{base: {{}}}}
"""
SIZES = {"small": (128, 4), "large": (512, 8)}
"""Width and depth."""
VOCABULARY = 258


def planned(file: Path) -> VariantOnCluster:
    """What the plan says of one run here, at the speed that it measures for this size."""
    study = fit_models(load_study(file), VOCABULARY)
    with patch("addnorm.supervision.cost_estimate.time", SimpleNamespace(perf_counter=time.process_time)):
        speed = estimate_cost(study, workers=1).flops_per_second
    return estimate_on_cluster(study, Cluster(gpus=1, flops_per_second=speed, memory_bytes=10**12)).variants[0]


def trained(file: Path, out: Path) -> tuple[float, int]:
    """Processor seconds of a run's training steps, and bytes of what it leaves."""
    command = [sys.executable, "-m", "addnorm", "run", str(file), "--out", str(out), "--workers", "1", "--json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (run,) = StudyFolder(out).runs()
    files = [run.final_path, *run.checkpoints_path.glob("*.pt")]
    left = sum(path.stat().st_size for path in files)
    return seconds(run), left


def seconds(run: RunFolder) -> float:
    training = run.spec["spec"]["training"]
    windows = [event for event in read_events(run.events_path)[0] if event["type"] == "train"]
    speeds = [event["tokens_per_s"] / event["uses"]["cpu_cores"] for event in windows[1:]]
    return float(training["steps"] * training["batch"] * training["seq"] / statistics.median(speeds))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    os.environ.update(dict.fromkeys(THREADS, "1"))
    found: dict[str, list[tuple[VariantOnCluster, float, int]]] = {name: [] for name in SIZES}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            for name, (width, depth) in SIZES.items():
                file, out = Path(folder) / f"{name}.yaml", Path(folder) / name
                file.write_text(
                    STUDY.format(
                        steps=options.steps,
                        every=max(1, options.steps // 3),
                        width=width,
                        depth=depth,
                        hidden=2 * width,
                    )
                )
                found[name].append((planned(file), *trained(file, out)))
                shutil.rmtree(out)
    print(
        "| width x depth | parameters | processor seconds of a run, plan | here | plan / here | MB of a run, plan | here |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, (width, depth) in SIZES.items():
        plans, times, sizes = zip(*found[name], strict=True)
        ratio = statistics.median(plan.seconds / time for plan, time in zip(plans, times, strict=True))
        print(
            f"| {width} x {depth} | {plans[0].parameters / 1e6:.1f} M | {statistics.median(p.seconds for p in plans):.2f} | "
            f"{statistics.median(times):.2f} | {ratio:.2f} | {plans[0].storage_bytes / 1e6:.1f} | {sizes[0] / 1e6:.1f} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
