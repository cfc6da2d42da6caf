"""Noise of one run under settings of training and of evaluation: what lowers it, and what does not.

    python benchmarks/run_noise.py                          # all settings, 3 models x 5 seeds: about three hours on one core
    python benchmarks/run_noise.py "batch 8" --seeds 4      # one of them

Each run is evaluated in several ways, so that these are compared on the same runs. The noise is the residual standard deviation
of one run after the effects of model and seed, in nats per token; docs/decisions/0038-less-noise.md has the table.
"""

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import addnorm
from addnorm.data import Dataset, prepare
from addnorm.study.definition import RunSpec
from addnorm.study.expansion import expand, fit_models
from addnorm.training.loop import Trainer

MODELS = ("base", "v2m3", "v4m1")
MUON = "{kind: muon, learning_rate: %g, adamw_learning_rate: %g, weight_decay: 0.1, decay_on: matrices}"
SETTINGS = {
    "batch 4": ["training.batch=4"],
    "batch 8": [],
    "batch 8, twice the rate": ["training.optimizer.learning_rate=1.2e-2"],
    "batch 8, half the rate": ["training.optimizer.learning_rate=3e-3"],
    "batch 8, half the rate, warm-up 0.2": ["training.optimizer.learning_rate=3e-3", "training.schedule.warmup=0.2"],
    "batch 8, a quarter of the rate": ["training.optimizer.learning_rate=1.5e-3"],
    "batch 8, warm-up 0.2": ["training.schedule.warmup=0.2"],
    "batch 8, half the initial scale": ["model.init_std=0.1"],
    "batch 16, half the steps": ["training.batch=16", "training.steps=120"],
    "batch 8, twice the steps": ["training.steps=480"],
    "batch 8, Muon": [f"training.optimizer={MUON % (0.02, 6e-3)}"],
    "batch 8, Muon at half the rates": [f"training.optimizer={MUON % (0.01, 3e-3)}"],
    "batch 8, Muon at a quarter of the rates": [f"training.optimizer={MUON % (0.005, 1.5e-3)}"],
}
"""Changes to `BUDGET`."""
BUDGET = ["model.width=32", "model.hidden=64", "model.init_std=0.177", "training.batch=8", "references=[base]"]
"""Changes to the quick profile of residual-scores: half the width and twice the batch."""
AVERAGED = (0.1, 0.2, 0.4)
"""Shares of the run, at its end, whose weights are averaged (LAWA)."""
EMA = 0.95
"""Decay per step of the exponential moving average."""


def losses(spec: RunSpec, dataset: Dataset) -> dict[str, float]:
    """Train one run, and evaluate it in every way."""
    trainer = Trainer(spec, dataset, torch.device("cpu"))
    weights = list(trainer.model.parameters())
    moving = [weight.detach().clone() for weight in weights]
    sums = {share: [torch.zeros_like(weight) for weight in weights] for share in AVERAGED}
    steps, evaluations = spec.training.steps, []
    count = {share: round(share * steps) for share in AVERAGED}
    for step in range(steps):
        trainer.train_step()
        present = [weight.detach() for weight in weights]
        torch._foreach_lerp_(moving, present, 1 - EMA)
        for share, total in sums.items():
            if step >= steps - count[share]:
                torch._foreach_add_(total, present)
        if step + 1 in (round(0.9 * steps), round(0.95 * steps), steps):
            evaluations.append(trainer.evaluate()["loss"])
    found = {"last weights": evaluations[-1], "mean of the last 3 evaluations": float(np.mean(evaluations))}
    trainer.training = replace(spec.training, eval_sequences=4 * spec.training.eval_sequences)
    found["on 4 times the text"] = trainer.evaluate()["loss"]
    trainer.training = spec.training
    averages = {
        f"EMA {EMA}": moving,
        **{f"mean of the last {share:.0%}": [part / count[share] for part in sums[share]] for share in AVERAGED},
    }
    for name, average in averages.items():
        with torch.no_grad():
            for weight, value in zip(weights, average, strict=True):
                weight.copy_(value)
        found[name] = trainer.evaluate()["loss"]
    return found


def residual_sd(table: np.ndarray) -> float:
    """Residual standard deviation of a table of model x seed."""
    residual = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    return float(np.sqrt((residual**2).sum() / ((table.shape[0] - 1) * (table.shape[1] - 1))))


def rows(settings: list[str], seeds: int, folder: Path) -> Iterator[str]:
    chosen = [f"variants=[{','.join(MODELS)}]", f"seeds={list(range(seeds))}", *BUDGET, *settings]
    study = addnorm.load_study("residual-scores", settings=chosen)
    dataset = prepare(study.corpus, study.tokenizer, folder)
    found: dict[str, list[float]] = {}
    for spec in expand(fit_models(study, dataset.vocab), dataset.hash):
        for name, loss in losses(spec, dataset).items():
            found.setdefault(name, []).append(loss)
    for name, values in found.items():
        table = np.array(values).reshape(seeds, len(MODELS)).T
        means = " / ".join(f"{mean:.3f}" for mean in table.mean(axis=1))
        yield f"{name} | {residual_sd(table):.4f} | {means}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", choices=[[], *SETTINGS], help="names of settings; all if none is given")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"| setting | evaluated | noise, nats | {' / '.join(MODELS)} |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.settings or SETTINGS:
            for row in rows(SETTINGS[name], options.seeds, Path(folder)):
                print(f"| {name} | {row} |", flush=True)


if __name__ == "__main__":
    main()
