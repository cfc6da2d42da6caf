"""Coverage of the intervals of `addnorm rank --as downstream`, beside lm-eval's unpaired z: items, documents, seeds.

    python benchmarks/item_scores.py [TABLES]

Right answers follow a logistic model: the ability of a run (a level of the model plus noise of its seed) less the difficulty of
the item (with a part that its document shares), plus a part of the model on the item, so that models differ in what they know.
Graded scores are those probabilities with noise. The truth is the expected difference over items, and over seeds where the
answer is about ways to train.

The tests run the same functions with fewer tables.
"""

import sys
from dataclasses import dataclass

import numpy as np

from addnorm.statistics.effects.downstream import compare_items


@dataclass(frozen=True)
class Setting:
    items: int
    per_document: int = 1
    seeds: int = 1
    shared: bool = False
    seed_sd: float = 0.0
    own_sd: float = 0.7
    """Of a model's own part on an item, in logits."""
    run_sd: float = 0.0
    """Of a run's own part on an item, in logits."""
    lead: float = 0.2
    graded: bool = False


def scores(setting: Setting, rng: np.random.Generator, items: int, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of two models: model × seed × item; and the expected ones."""
    documents = np.repeat(np.arange(-(-items // setting.per_document)), setting.per_document)[:items]
    shared = 0.8 if setting.per_document > 1 else 0.0
    part = rng.normal(size=(2, documents.max() + 1)) * setting.own_sd
    difficulty = rng.normal(size=documents.max() + 1)[documents] * 1.2 + rng.normal(size=items) * 0.6
    own = np.sqrt(shared) * part[:, documents] + np.sqrt(1 - shared) * rng.normal(size=(2, items)) * setting.own_sd
    ability = np.array([setting.lead, 0.0])[:, None, None] + rng.normal(size=(2, seeds, 1)) * setting.seed_sd
    if setting.shared:
        ability = ability + rng.normal(size=(1, seeds, 1)) * setting.seed_sd
    logits = ability + own[:, None] - difficulty + rng.normal(size=(2, seeds, items)) * setting.run_sd
    right = 1 / (1 + np.exp(-logits))
    if setting.graded:
        return np.clip(right + 0.1 * rng.normal(size=right.shape), 0, 1), documents
    return (rng.random(size=right.shape) < right).astype(float), documents


def truth(setting: Setting) -> float:
    made, _ = scores(setting, np.random.default_rng(123), 400, 20_000)
    many = [made[0].mean() - made[1].mean()]
    for seed in range(60):
        made, _ = scores(setting, np.random.default_rng(seed), 40_000, 40)
        many.append(made[0].mean() - made[1].mean())
    return float(np.mean(many[1:]))


def coverage(setting: Setting, tables: int) -> tuple[float, float, float]:
    """Shares of tables whose interval, and whose unpaired z interval, hold the truth; and the ratio of their widths."""
    exact = truth(setting)
    rng = np.random.default_rng([setting.items, setting.seeds, setting.per_document])
    held, plain, wide = 0, 0, 0.0
    for _ in range(tables):
        made, documents = scores(setting, rng, setting.items, setting.seeds)
        compared = compare_items(
            made[0], made[1], documents if setting.per_document > 1 else None, shared_seeds=setting.shared
        )
        held += compared.interval[0] <= exact <= compared.interval[1]
        plain += compared.unpaired_z[0] <= exact <= compared.unpaired_z[1]
        wide += np.ptp(compared.interval) / np.ptp(compared.unpaired_z)
    return held / tables, plain / tables, wide / tables


SETTINGS = {
    "right or wrong, 100 items, one checkpoint each": Setting(100),
    "right or wrong, 1000 items": Setting(1000),
    "right or wrong, 1000 items, models that know nearly the same": Setting(1000, own_sd=0.2),
    "right or wrong, 600 items in documents of 6": Setting(600, per_document=6, own_sd=1.5),
    "graded, 300 items": Setting(300, graded=True),
    "graded, 600 items in documents of 6": Setting(600, per_document=6, graded=True, own_sd=1.5),
    "1000 items, 3 seeds each": Setting(1000, seeds=3, seed_sd=0.15, run_sd=0.5),
    "1000 items, 5 seeds each": Setting(1000, seeds=5, seed_sd=0.15, run_sd=0.5),
    "1000 items, 3 seeds that both share": Setting(1000, seeds=3, shared=True, seed_sd=0.1, run_sd=0.5),
    "1000 items, 3 seeds without an effect": Setting(1000, seeds=3, run_sd=0.5),
    "600 items in documents of 6, 5 seeds": Setting(600, per_document=6, seeds=5, seed_sd=0.1, run_sd=0.5, own_sd=1.5),
    "graded, 300 items, 5 seeds": Setting(300, seeds=5, seed_sd=0.15, run_sd=0.5, graded=True),
}


def main() -> None:
    tables = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    print(
        f"coverage of 95 % intervals, {tables} tables: addnorm, unpaired z, width of the first relative to the second"
    )
    for name, setting in SETTINGS.items():
        own, plain, wide = coverage(setting, tables)
        print(f"{name}: {100 * own:.1f} %, {100 * plain:.1f} %, {wide:.2f}", flush=True)


if __name__ == "__main__":
    main()
