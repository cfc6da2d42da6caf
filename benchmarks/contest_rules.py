"""How often the shipped rules are satisfied by chance, and the power that they have: the table of docs/guide/own-results.md.

    python benchmarks/contest_rules.py

The noise of one run is that of the contests: 0.0013 nats in modded-nanogpt (what its rule of the optimization track assumes),
0.0007 in parameter-golf (three runs of the record of 2026-04-29), and 0.003 for marin, whose noise nobody has published; the
rates of passing without an effect do not depend on it there.
"""

import numpy as np

from addnorm.statistics.rules import RuleCheck, SizeLosses, check_rule, read_rule

SCALES = {"d512": (3.82e17, 3.5422), "d768": (2.81e18, 3.2219), "d1024": (1.16e19, 3.0194), "d1280": (3.46e19, 2.8807)}
"""FLOPs and the baseline's loss."""


def simulated(name: str, runs: int, sd: float) -> RuleCheck:
    """A rule at that noise, for a variant at the reference's level."""
    rule = read_rule(name)
    if rule.sizes > 1:
        sizes = [
            SizeLosses(
                size=scale,
                variant=np.array([loss]),
                reference=np.array([loss]),
                variant_compute=compute,
                reference_compute=compute,
            )
            for scale, (compute, loss) in list(SCALES.items())[: rule.sizes]
        ]
    else:
        level = np.full(runs, 3.28)
        sizes = [SizeLosses(size="", variant=level, reference=level if rule.compares else None)]
    return check_rule(rule, sizes, noise=sd)


def main() -> None:
    print("rule, runs: satisfied without an effect, just below what it demands, with runs added (up to); 80 % power at")
    for name, runs, sd in (
        ("modded-nanogpt", 4, 0.0013),
        ("modded-nanogpt", 10, 0.0013),
        ("modded-nanogpt", 20, 0.0013),
        ("modded-nanogpt-optimization", 4, 0.0013),
        ("modded-nanogpt-optimization", 20, 0.0013),
        ("parameter-golf", 3, 0.0007),
        ("parameter-golf-average", 3, 0.0007),
        ("marin-gate-1", 1, 0.003),
        ("marin-gate-2", 1, 0.003),
    ):
        checked = simulated(name, runs, sd)
        by_name = {each.about: each for each in checked.rates}
        cells = []
        for about in ("no improvement", "just not enough"):
            each = by_name.get(about)
            added = "" if each is None or each.rate_when_added is None else f" ({100 * each.rate_when_added:.2g} %)"
            cells.append("-" if each is None else f"{100 * each.rate:.2g} %{added}")
        most = checked.design.added_up_to
        print(f"{name}, {runs}: {', '.join(cells)} (up to {most}); {by_name['power'].effect:.2g} nats")


if __name__ == "__main__":
    main()
