"""How far redundant and useful biases walk: on pure noise at several precisions, and in the runs of a study.

benchmarks/bias_drift.py                     on noise
benchmarks/bias_drift.py runs/bias-ablation  in a study's finished runs, and what zeroing the key bias does to their loss
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import cast

import torch
from bias_walk import Precision, Walk, walk_on_noise, walks
from safetensors.torch import load_file

import addnorm
from addnorm.data import Dataset
from addnorm.optimization.optimizers.adamw import AdamW
from addnorm.store import RunFolder, StudyFolder
from addnorm.study.decoding import decode
from addnorm.study.definition import RunSpec
from addnorm.training.loop import Trainer

KINDS = ("k", "q", "v", "o", "up", "down", "norm")
Table = dict[str, list[list[str]] | list[str]]


def on_noise(seeds: int, steps: int) -> Table:
    """Root mean square of each kind of bias after training on noise; the mean over seeds."""
    spec = addnorm.preset(
        "gpt2", vocab=256, width=64, depth=4, heads=4, hidden=128, max_seq=64, init_std=0.125, dropout=0.0
    )
    rows = []
    for precision, eps in (
        ("float64", 1e-8),
        ("float32", 1e-8),
        ("float32", 1e-15),
        ("bfloat16 autocast", 1e-8),
        ("bfloat16", 1e-8),
    ):
        optimizer = AdamW(learning_rate=1e-3, weight_decay=0.0, betas=(0.9, 0.95), eps=eps)
        found = [
            walk_on_noise(
                spec,
                optimizer=optimizer,
                precision=cast(Precision, precision),
                steps=steps,
                batch=4,
                seq=64,
                seed=seed,
            )
            for seed in range(seeds)
        ]
        rows.append([precision, f"{eps:.0e}", *cells(found)])
    return {"columns": ["precision", "eps of AdamW", *KINDS], "rows": rows}


def in_runs(folder: Path, variants: list[str]) -> Table:
    """The same in a study's finished runs, and the change of the held-out loss when the key biases are set to zero."""
    by_variant: dict[str, list[RunFolder]] = defaultdict(list)
    for run in StudyFolder(folder).runs():
        variant = run.spec["spec"]["variant"]
        if run.final_path.exists() and (not variants or variant in variants):
            by_variant[variant].append(run)
    rows = []
    for variant, runs in by_variant.items():
        found = [walks(load_file(run.final_path)) for run in runs]
        specs = [decode(RunSpec, run.spec["spec"]) for run in runs]
        changes = [zeroed(run) for run in runs] if specs[0].model.bias.k else []
        change = f"{max(map(abs, changes)):.1e}" if changes else "-"
        rows.append([variant, specs[0].training.precision, *cells(found), change])
    return {"columns": ["variant", "precision", *KINDS, "largest loss change, k set to 0"], "rows": rows}


def zeroed(run: RunFolder) -> float:
    """Held-out loss with the key biases at zero, less the loss as trained."""
    spec = decode(RunSpec, run.spec["spec"])
    trainer = Trainer(spec, Dataset.load(run.path.parent / "data"), torch.device("cpu"))
    trainer.model.load_state_dict(load_file(run.final_path))
    before = trainer.evaluate()["loss"]
    with torch.no_grad():
        for name, parameter in trainer.model.named_parameters():
            if name.endswith("qk_bias.k"):
                parameter.zero_()
    return trainer.evaluate()["loss"] - before


def cells(found: list[tuple[Walk, ...]]) -> list[str]:
    rms = [{walk.bias: walk.rms for walk in one} for one in found]
    return [f"{mean(one[kind] for one in rms):.1e}" if kind in rms[0] else "-" for kind in KINDS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path, nargs="*")
    parser.add_argument("--variant", action="append", default=[], help="of the runs; all if not given")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tables = [in_runs(folder, options.variant) for folder in options.dir] or [on_noise(options.seeds, options.steps)]
    rows = [row for table in tables for row in table["rows"]]
    print(json.dumps({"columns": tables[0]["columns"], "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
