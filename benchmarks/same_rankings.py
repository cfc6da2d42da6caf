"""A digest of the ranking of every published table and of simulated ones, to compare two versions byte by byte.

    python benchmarks/same_rankings.py > now.txt
    PYTHONPATH=../earlier/src python benchmarks/same_rankings.py > earlier.txt && diff now.txt earlier.txt

A change that is to make `rank` faster must leave every line as it is. Published: the studies in `docs/studies/data` and
Kuang's table. Simulated: every feature that decides how a pair is tested, with and without missing runs.
"""

import argparse
import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from addnorm.statistics import Result, rank, ranking_of_published
from addnorm.statistics.measure import measure_of
from addnorm.statistics.seeds_in_stages import SeedsInStages

DATA = Path(__file__).parent.parent / "docs/studies/data"
FEATURES = (
    "missing", "noisy_variant", "noisy_reference", "seeds_differ", "stuck", "diverged", "repeats", "digits", "level",
    "constant", "unpaired", "effects", "quiet", "higher", "parts",
)  # fmt: skip


def simulated(rng: np.random.Generator, variants: int, seeds: int, features: tuple[str, ...]) -> list[Result]:
    """Runs of one table."""
    noise = 0.01 * np.ones((variants, 1))
    if "noisy_variant" in features:
        noise[-1] *= 40
    if "noisy_reference" in features:
        noise[:2] *= 6
    losses = 2.5 + noise * rng.normal(size=(variants, seeds)) + 0.05 * rng.normal(size=seeds)
    if "seeds_differ" in features:
        losses[:3] += 0.05 * rng.normal(size=seeds)
    if "effects" in features:
        losses += 0.02 * rng.normal(size=(variants, 1))
    if "quiet" in features:
        losses[-1] = losses[0] - 0.003 + 1e-4 * rng.normal(size=seeds)
    if "stuck" in features:
        losses[variants // 2, :: max(seeds // 2, 2)] += 1.0
    if "level" in features:
        losses[variants // 2] = 2.52
    losses = losses.round(3 if "digits" in features else 12)
    runs = [
        Result(
            variant=f"v{v}",
            seed=int(s + 1000 * v * ("unpaired" in features)),
            loss=float(loss),
            accuracy=float(0.5 - loss / 10),
            part_losses=tuple(loss + rng.normal(size=8)) if "parts" in features else (),
            part_tokens=(10,) * 8 if "parts" in features else (),
        )
        for (v, s), loss in np.ndenumerate(losses)
    ]
    if "missing" in features:
        runs = [run for run in runs if rng.random() > 0.15 or run.seed % 1000 < 2]
    if "diverged" in features:
        runs[-1] = replace(runs[-1], state="diverged", loss=None, accuracy=None, part_losses=(), part_tokens=())
        runs[1] = replace(
            runs[1], state="failed", loss=None, accuracy=None, part_losses=(), part_tokens=(), reason="out of memory"
        )
    if "repeats" in features:
        runs = [replace(run, content_hash=f"{run.variant}/{run.seed}") for run in runs]
        runs += [replace(run, variant="copy", content_hash=run.content_hash) for run in runs if run.variant == "v1"]
        runs.append(replace(runs[0], seed=77))
    if "constant" in features:
        runs += [
            Result(variant="constant", seed=s, loss=2.6, accuracy=0.2, trained=False, content_hash="c")
            for s in range(seeds)
        ]
    return runs


def rankings() -> Iterator[tuple[str, Any]]:
    """Name and ranking of each table."""
    for path in sorted(DATA.glob("*.json")):
        if "runs" in json.loads(path.read_text()):
            yield path.name, ranking_of_published(path)
    yield "kuang-2025", ranking_of_published(Path("kuang-2025"))
    rng = np.random.default_rng(0)
    chosen = [(), *((one,) for one in FEATURES), *itertools.combinations(FEATURES, 2)]
    for features, (variants, seeds) in itertools.product(chosen, ((4, 3), (7, 5), (25, 10))):
        runs = simulated(rng, variants, seeds, features)
        measure = {"measure": measure_of("accuracy", "higher", None)} if "higher" in features else {}
        for references in (["v0"], ["v0", "v1", "v2"], [f"v{v}" for v in range(variants)]):
            name = f"{variants} × {seeds} {'+'.join(features)} against {len(references)}"
            yield name, rank(runs, references=references, margin=0.01, **measure)
        if not {"unpaired", "missing"} & set(features):
            pairs = [("v1", "v0"), ("v3", "v0"), ("v3", "v2")]
            yield f"{name}, pairs", rank(runs, references=["v0", "v2"], pairs=pairs)
            if seeds == 10 and "repeats" not in features:
                stages = SeedsInStages(looks=(3, 5, 10), seeds=tuple(range(10)))
                yield f"{name}, stages", rank(runs, references=["v0"], design=stages)
                yield f"{name}, second", rank(runs, references=["v0"], second=(7, 8, 9))
    for features in ((), ("effects",), ("effects", "noisy_reference"), ("effects", "unpaired"), ("digits", "stuck")):
        yield f"200 × 8 {features}", rank(simulated(rng, 200, 8, features), references=["v0", "v1"], margin=0.01)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    for name, ranking in rankings():
        print(hashlib.sha256(json.dumps(ranking.to_json()).encode()).hexdigest()[:16], repr(ranking), name, flush=True)


if __name__ == "__main__":
    main()
