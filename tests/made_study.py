"""Studies made by hand, without training: any number of runs in any state, written by the store as workers write them."""

import math
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from addnorm.reporting.sections import pages as page_names
from addnorm.reporting.view import UNLISTED
from addnorm.store import EventWriter, RunFolder, StudyFolder
from addnorm.store.extension import content_hash

BLOCK = {
    "norm": {"kind": "rms", "eps": 1e-5},
    "placement": {"kind": "pre"},
    "position": {"kind": "rope", "theta": 10000.0, "fraction": 1.0},
    "qk_bias": {"kind": "linear"},
    "width": 32,
    "depth": 4,
}


NOT_PLAIN = (*UNLISTED, "checkpoints")
OF_CHECKPOINTS = ("/checkpoints", "/checkpoint?variant=mine")
"""The further pages of a study with a measured checkpoint `mine`."""


def addresses(*variants: str) -> tuple[str, ...]:
    """Every page of a study's site; the page of one model once for each of these variants, and the log of the first run."""
    plain = ("/" if name == "overview" else f"/{name}" for name in page_names() if name not in NOT_PLAIN)
    return (*plain, "/log?run=base0-s0", *(f"/model?variant={variant}" for variant in variants))


def model_spec(residual: str = "add", scores: str = "own") -> dict[str, Any]:
    """What a plan writes of a model."""
    return {**BLOCK, "residual": {"kind": residual}, "scores": {"kind": scores}}


MODELS = {"base": model_spec(), "v2m1": model_spec("cumulative"), "v4m5": model_spec(scores="weighted")}


def plan(
    models: Mapping[str, Mapping[str, Any]] = MODELS,
    seeds: Sequence[int] = (0, 1, 2),
    steps: int = 40,
    references: Sequence[str] = ("base",),
) -> dict[str, Any]:
    """A frozen plan."""
    content = {
        "study": "made",
        "about": "Made by hand.",
        "references": list(references),
        "margin": 0.005,
        "seeds": list(seeds),
        "variants": list(models),
        "data_hash": "d" * 64,
        "tokenizer_hash": "t" * 64,
        "addnorm_version": "0.1.0",
        "runs": [
            {
                "run": f"{'r' if not name.isalnum() else name}{place}-s{seed}",
                "variant": name,
                "seed": seed,
                "steps": steps,
                "spec": {
                    "model": dict(model),
                    "training": {"batch": 4, "seq": 16, "steps": steps},
                    "corpus": {"kind": "stdlib"},
                    "tokenizer": {"kind": "bytes"},
                },
            }
            for seed in seeds
            for place, (name, model) in enumerate(models.items())
        ],
    }
    return {**content, "plan_hash": content_hash(content)}


def make(out: Path, **parts: Any) -> StudyFolder:
    """An empty study."""
    return StudyFolder.create(out, plan(**parts))


def train(run: RunFolder, events: EventWriter, first: int, last: int, *, every: int = 2, level: float = 2.4) -> None:
    """Training and evaluation events for the steps after `first` up to `last`."""
    noise = random.Random(run.name)
    for step in range(first + every, last + 1, every):
        loss = level + 3 * math.exp(-step / 8) + noise.gauss(0, 0.02)
        events.write(
            "train",
            step=step,
            loss=loss,
            grad_norm=1.0,
            learning_rate=1e-3,
            tokens_per_s=640.0,
            first=step - every + 1,
            losses=[loss] * every,
            grad_norms=[1.0] * every,
        )
        if step % (5 * every) == 0:
            events.write("eval", step=step, final=False, loss=loss, accuracy=0.4, perplexity=math.exp(loss))


def finish(
    run: RunFolder, *, level: float = 2.4, attempts: int = 1, kept: float | None = None, accuracy: float | None = None
) -> None:
    """Bring a run to its end, in as many attempts; each after the first goes on from half-way and repeats four steps."""
    steps = run.spec["steps"]
    half = steps // 4 * 2
    for attempt in range(1, attempts + 1):
        with run.claim() as events:
            at = 0 if attempt == 1 else half - 4
            events.write("start", step=at, resumed_from=at, replays=0 if attempt == 1 else 4)
            train(run, events, at, steps if attempt == attempts else half, level=level)
            if attempt > 1:
                events.write("replayed", step=half, first=half - 3, last=half, equal=True)
            if attempt == attempts:
                seed, place = run.spec["seed"], sum(map(ord, run.spec["variant"]))
                loss = kept if kept is not None else level + 0.01 * seed + random.Random(run.name).gauss(0, 0.001)
                events.write(
                    "eval",
                    step=steps,
                    final=True,
                    loss=loss,
                    accuracy=0.4 + 1e-4 * place % 0.1 if accuracy is None else accuracy,
                    perplexity=math.exp(loss),
                )
                events.write("end", step=steps, reason="finished")
                run.mark("finished", step=steps, content_hash=f"{run.name}-{loss}", peak_bytes=400 * 2**20)


def fail(
    run: RunFolder,
    *,
    reason: str = "the loss became nan at step 8",
    state: str = "failed",
    log: Sequence[str] = ("Traceback", "boom"),
) -> None:
    """End a run early."""
    with run.claim() as events:
        events.write("start", step=0, resumed_from=0, replays=0)
        train(run, events, 0, 8)
        run.mark(state, step=8, reason=reason, log=list(log), attempts=1)


def finished(out: Path) -> StudyFolder:
    """Every run finished; the second variant better than the reference, one run resumed."""
    study = make(out)
    levels = {"base": 2.42, "v2m1": 2.38, "v4m5": 2.421}
    for run in study.runs():
        finish(run, level=levels[run.spec["variant"]], attempts=2 if run.spec["seed"] == 1 else 1)
    return study


def half_done(out: Path) -> StudyFolder:
    """The first seed finished, one run at work in the file's own words only (nobody holds its lock), the rest waiting."""
    study = make(out)
    for run in study.runs()[:3]:
        finish(run)
    with study.runs()[3].claim() as events:
        events.write("start", step=0, resumed_from=0, replays=0)
        train(study.runs()[3], events, 0, 20)
    return study


def failed(out: Path) -> StudyFolder:
    """One variant lost at every seed, one diverged once, one blocked."""
    study = make(out)
    for run in study.runs():
        if run.spec["variant"] == "v4m5":
            fail(run)
        elif run.spec["variant"] == "v2m1" and run.spec["seed"] == 0:
            fail(run, state="diverged", reason="diverged on resume: step 3 first gave loss 2.0, now 2.1")
        elif run.spec["variant"] == "v2m1" and run.spec["seed"] == 1:
            fail(run, state="blocked", reason="the disk was full")
        else:
            finish(run)
    return study


def wait_until(is_true: Any, seconds: float = 20.0) -> None:
    """Wait for something that another thread does.

    Raises:
        AssertionError: it did not happen.
    """
    end = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > end:
            raise AssertionError("it did not happen in time")
        time.sleep(0.02)
