"""Kill -9 of workers and supervisors, again and again: what is left of the study, against one that nothing disturbed."""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "supervision"))

from kills import Survivors, calm_weather, storm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found: list[Survivors] = []
    where: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        calm = calm_weather(Path(folder))
        while where.total() < options.kills:
            seed = options.seed + len(found)
            found.append(storm(calm, Path(folder) / f"storm-{seed}", seed, min(40, options.kills - where.total())))
            where.update(found[-1].kills)
    print(
        "| studies | kills | resumed | runs | finished | bit-identical | steps doubled or lost | stale states or files |"
    )
    print("|---|---|---|---|---|---|---|---|")
    sums = [
        sum(getattr(one, name) for one in found)
        for name in ("resumed", "runs", "finished", "identical", "doubled", "stale")
    ]
    print(f"| {len(found)} | {where.total()} | " + " | ".join(map(str, sums)) + " |\n")
    print("| killed | times |\n|---|---|")
    for name, times in where.most_common():
        print(f"| {name} | {times} |")
    sys.exit(0 if all(one.all_well for one in found) else 1)


if __name__ == "__main__":
    main()
