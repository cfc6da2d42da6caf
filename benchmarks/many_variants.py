"""Studies of many variants, generated without training, and the time in which their page reacts to a search.

The variants are a grid of joints, sizes and rates, named after their settings as grids of studies are; some are better than the
references, some worse, one fails.

    python benchmarks/many_variants.py make runs/many --variants 60 --seeds 3
    python benchmarks/many_variants.py search runs/many     # needs chromium and playwright
"""

import argparse
import itertools
import random
import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from page_scale import write

from addnorm.store import Index, StudyFolder, write_json
from addnorm.web.serve import page, serving

POINTS = 200
RESIDUALS = ("add", "rezero", "cumulative", "highway", "dense")
SCORES = ("own", "sum", "weighted", "running_mean")
PLACEMENTS = ("pre", "post", "sandwich")
RATES = (1e-3, 2e-3, 3e-3, 4e-3, 6e-3)
GAINS = {"rezero": -0.02, "dense": -0.03, "sum": -0.01, "weighted": -0.015, "post": 0.05}
"""Difference to the reference's loss of each setting that has one, in nats."""


def settings() -> Iterator[tuple[str, dict[str, Any], float]]:
    """Name, spec and loss of one variant after the other."""
    for rate, placement, scores, residual in itertools.product(RATES, PLACEMENTS, SCORES, RESIDUALS):
        name = f"residual={residual},scores={scores},placement={placement},rate={rate:g}"
        model = {
            "residual": {"kind": residual},
            "scores": {"kind": scores},
            "placement": {"kind": placement},
            "norm": {"kind": "rms", "eps": 1e-5},
            "width": 256,
            "depth": 6,
        }
        training = {"steps": POINTS, "batch": 8, "seq": 256, "learning_rate": rate}
        level = 2.5 + sum(GAINS.get(kind, 0.0) for kind in (residual, scores, placement)) + 2 * abs(rate - 3e-3)
        yield name, {"model": model, "training": training}, level


def make(out: Path, variants: int, seeds: int) -> StudyFolder:
    """A study of that many variants; the last has failed, its neighbour is at work."""
    chosen = list(itertools.islice(settings(), variants))
    names = [name for name, _, _ in chosen]
    plan = {
        "study": f"grid-{variants}",
        "about": "Which combinations of residual, scores, placement and learning rate beat the plain Transformer?",
        "references": names[:2], "margin": 0.005, "seeds": list(range(seeds)), "variants": names,
        "data_hash": "d" * 64, "tokenizer_hash": "t" * 64, "plan_hash": "made",
        "runs": [
            {"run": f"v{place:03}-s{seed}", "variant": name, "seed": seed, "steps": POINTS, "spec": spec}
            for seed in range(seeds) for place, (name, spec, _) in enumerate(chosen)
        ],
    }  # fmt: skip
    study = StudyFolder.create(out, plan)
    levels = {name: level for name, _, level in chosen}
    for run in study.runs():
        name, seed = run.spec["variant"], run.spec["seed"]
        if name == names[-1]:
            fail(run)
        else:
            noise = random.Random(f"{name} {seed}").gauss(0, 0.004)
            write(
                run, POINTS, level=levels[name] + 0.01 * seed + noise, is_last=name == names[-2] and seed == seeds - 1
            )
    write_json(out / "costs.json", {"variants": {n: {"parameters": 3_200_000, "flops_per_token": 2e7} for n in names}})
    Index(out).sync()
    return study


def fail(run: Any) -> None:
    """End a run with a reason, as its worker would."""
    with run.claim() as events:
        events.write("start", step=0, resumed_from=0, replays=0)
        events.write("train", step=10, loss=9.0, tokens_per_s=1e4)
        run.mark("failed", step=10, reason="the loss became nan at step 11", log=["step 11: loss nan"], attempts=1)


TYPE = """async (text) => {
  const box = document.querySelector("[data-search]");
  const began = performance.now();
  box.value = text;
  box.dispatchEvent(new Event("input", { bubbles: true }));
  document.body.getBoundingClientRect();  // forces the layout that the search has changed
  return performance.now() - began;
}"""


def search(folder: Path) -> None:
    """Print how long a page needs from a typed letter to its new layout."""
    from playwright.sync_api import sync_playwright

    ready = page(folder, port=0)
    with serving(ready), sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for path in ("", "ranking"):
            tab = browser.new_page(viewport={"width": 1280, "height": 900})
            tab.goto(ready.url + path)
            tab.wait_for_selector('[data-live-mark="live"]', state="attached")
            texts = ["r", "re", "rez", "rezero", "rezero weighted", "nothing-like-it", ""]
            found = [(text, tab.evaluate(TYPE, text)) for text in texts * 3]
            worst = max(found, key=lambda one: one[1])
            median = statistics.median(each[1] for each in found)
            print(f"/{path:<8} search: median {median:5.1f} ms, at most {worst[1]:5.1f} ms (for {worst[0]!r})")
            tab.close()
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "search"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--variants", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    if options.what == "make":
        make(options.folder, options.variants, options.seeds)
    else:
        search(options.folder)


if __name__ == "__main__":
    main()
