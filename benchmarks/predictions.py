"""How often predictions of the largest size of a ladder hold what comes: `python benchmarks/predictions.py [TABLES]`.

Simulated ladders of five variants at four sizes, a reference among them; the largest is predicted from the other three. The
losses follow the law that the prediction fits, or their differences stay what they are, or fade faster. Printed per setting:
share of ladders in which all intervals of the differences, and of the losses, hold the means that come; mean absolute error of
the differences and of the naive prediction that nothing changes, and mean width of an interval, in thousandths of a nat.
"""

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from addnorm.statistics.effects.prediction import LadderSize, predict

FACTORS = np.array([1, 0.97, 1.02, 1, 0.99])
EXPONENT, LIMIT = 0.25, 1.2
EVEN: Mapping[str, Any] = {
    "compute": (1, 3, 9, 27), "seeds": (12, 10, 8, 6), "sd": (0.01, 0.01, 0.01, 0.01), "differences": "law",
}  # fmt: skip
SETTINGS: dict[str, Mapping[str, Any]] = {
    "even": EVEN,
    "noise 4 : 3 : 2 : 1": {**EVEN, "sd": (0.04, 0.03, 0.02, 0.01)},
    "noise 1 : 2 : 3 : 4": {**EVEN, "sd": (0.01, 0.02, 0.03, 0.04)},
    "three seeds": {**EVEN, "seeds": (3, 3, 3, 3)},
    "two sizes": {**EVEN, "compute": (1, 4, 16), "seeds": (8, 8, 6), "sd": (0.01, 0.01, 0.01)},
    "differences stay": {**EVEN, "differences": "constant"},
    "differences fade": {**EVEN, "differences": "fading"},
    "little noise, differences stay": {**EVEN, "differences": "constant", "sd": (0.003,) * 4},
}


def held(setting: Mapping[str, Any], tables: int, rng: np.random.Generator) -> dict[str, float | None]:
    """Shares and errors over simulated ladders of a setting."""
    names = [f"v{place}" for place in range(FACTORS.size)]
    rows = []
    for _ in range(tables):
        sizes = []
        for compute, seeds, sd in zip(setting["compute"], setting["seeds"], setting["sd"], strict=True):
            left, moved = compute**-EXPONENT, FACTORS - 1
            away = {"law": left * moved, "constant": moved, "fading": compute ** (-3 * EXPONENT) * moved}
            level = LIMIT + left + away[setting["differences"]]
            noise = 0.02 * rng.normal(size=seeds) + sd * rng.normal(size=(FACTORS.size, seeds))
            losses = {
                (name, seed): level[place] + noise[place, seed]
                for place, name in enumerate(names)
                for seed in range(seeds)
            }
            sizes.append(LadderSize(name=str(compute), losses=losses, compute=dict.fromkeys(names, float(compute))))
        last = sizes.pop()
        found = predict(sizes, last, seeds=setting["seeds"][-1], references=["v0"])
        mean = {name: np.mean([x for (v, _), x in last.losses.items() if v == name]) for name in names}
        came = [mean[each.variant] - mean["v0"] for each in found.differences]
        rows.append(
            [
                all(e.interval[0] <= x <= e.interval[1] for e, x in zip(found.differences, came, strict=True)),
                all(e.interval and e.interval[0] <= mean[e.variant] <= e.interval[1] for e in found.losses),
                *(
                    1000 * np.mean([abs(each - x) for each, x in zip(of, came, strict=True)])
                    for of in ([e.value for e in found.differences], [e.naive for e in found.differences])
                ),
                1000 * np.mean([e.interval[1] - e.interval[0] for e in found.differences]),
            ]
        )
    means = np.mean(np.array(rows, dtype=float), axis=0).tolist()
    found_means = dict(zip(("differences", "losses", "error", "naive", "width"), means, strict=True))
    return {**found_means, "losses": found_means["losses"] if len(setting["compute"]) > 3 else None}


if __name__ == "__main__":
    tables = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    print(f"{'setting':32} differences  losses  error  naive  width")
    for name, setting in SETTINGS.items():
        of = held(setting, tables, np.random.default_rng(0))
        losses = "     –" if of["losses"] is None else f"{100 * of['losses']:5.1f}%"
        shares = f"{100 * (of['differences'] or 0):10.1f}%  {losses}"
        print(f"{name:32} {shares}  {of['error']:5.1f}  {of['naive']:5.1f}  {of['width']:5.1f}", flush=True)
