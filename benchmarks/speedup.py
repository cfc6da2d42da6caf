"""Coverage of the intervals of `addnorm rank --as speedup`: three sizes × three seeds and others.

    python benchmarks/speedup.py [TABLES]

Losses follow limit + A C^-alpha with the limit and exponent of marin's baseline (1.6 and 0.0941), with noise of runs and of
seeds.

The tests run the same functions with fewer tables.
"""

import sys
from dataclasses import dataclass, field

import numpy as np

from addnorm.statistics.effects.speedup import SizeRuns, speedup


@dataclass(frozen=True)
class Setting:
    compute: tuple[float, ...] = (3.82e17, 2.81e18, 1.16e19)
    seeds: int = 3
    sd: tuple[float, ...] = (0.003,)
    """Of one run, at each size."""
    seed_sd: float = 0.0
    """What runs of one seed at one size have in common."""
    shared: bool = False
    worth: float = 1.04
    cost: float = 1.0
    """Compute of the variant over that of the reference at a size."""
    limit: float = 1.6
    exponent: float = 0.0941
    given: dict[str, float] = field(default_factory=dict)


def table(setting: Setting, rng: np.random.Generator) -> list[SizeRuns]:
    """One simulated table."""
    made = []
    for place, compute in enumerate(setting.compute):
        sd = setting.sd[min(place, len(setting.sd) - 1)]
        effect = setting.seed_sd * rng.normal(size=(2, setting.seeds))
        if setting.shared:
            effect[1] = effect[0]
        own = compute * setting.cost
        levels = [setting.limit + 88.32 * c**-setting.exponent for c in (compute, own * setting.worth)]
        losses = [level + e + sd * rng.normal(size=setting.seeds) for level, e in zip(levels, effect, strict=True)]
        made.append(
            SizeRuns(
                size=f"{compute:g}",
                reference=losses[0],
                variant=losses[1],
                reference_compute=compute,
                variant_compute=own,
                shared_seeds=setting.shared,
            )
        )
    return made


def coverage(setting: Setting, tables: int) -> tuple[float, float]:
    """Share of tables whose interval holds the worth, and the median ratio of its ends."""
    rng = np.random.default_rng([len(setting.compute), setting.seeds, int(1e4 * setting.sd[0])])
    held, widths = 0, []
    for _ in range(tables):
        found = speedup(table(setting, rng), **setting.given)
        assert found.interval is not None
        low, high = found.interval
        held += low <= setting.worth <= high
        widths.append(high / low)
    return held / tables, float(np.median(widths))


SETTINGS = {
    "3 sizes, 3 seeds": Setting(),
    "3 sizes, 3 seeds that both share, effect of a seed 3 times the noise": Setting(seed_sd=0.009, shared=True),
    "3 sizes, 3 seeds, ten times the noise": Setting(sd=(0.03,)),
    "3 sizes, 3 seeds, noise 4 : 2 : 1": Setting(sd=(0.012, 0.006, 0.003)),
    "3 sizes, 3 seeds, worth 1.5 at 1.1 times the compute": Setting(worth=1.5, cost=1.1),
    "3 sizes, 3 seeds, limit 0 and exponent 0.05": Setting(limit=0.0, exponent=0.05),
    "3 sizes, 3 seeds, limit and exponent given": Setting(given={"limit": 1.6, "exponent": 0.0941}),
    "2 sizes, 3 seeds": Setting(compute=(3.82e17, 2.81e18)),
    "4 sizes, 3 seeds": Setting(compute=(3.82e17, 2.81e18, 1.16e19, 3.46e19)),
    "3 sizes, 5 seeds": Setting(seeds=5),
}


def main() -> None:
    tables = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    print(f"coverage of 95 % intervals, {tables} tables, and the median ratio of their ends")
    for name, setting in SETTINGS.items():
        held, width = coverage(setting, tables)
        print(f"{name}: {100 * held:.1f} %, {width:.3f}", flush=True)


if __name__ == "__main__":
    main()
