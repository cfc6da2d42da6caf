"""Runs of other code: seconds to rank 10,000 rows, seconds to import, and false claims of groups without common seeds.

    python benchmarks/foreign_tables.py time            # nothing else running
    python benchmarks/foreign_tables.py unpaired [TABLES]

*Time*: whole commands in processes of their own, medians; `addnorm rank` reads the CSV file, ranks, and prints JSON. Wanted:
under 2 s for 10,000 rows, and 0.3 s for the import with what a ranking needs.

*Unpaired*: share of tables without any difference in which a variant is called better or worse, and the upper end of a 99.9 %
Clopper-Pearson interval. Wanted: at most 5 % for even noise and 10 % for uneven.
"""

import argparse
import contextlib
import io
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from interleaved import interleaved
from scipy.stats import beta

from addnorm.statistics import Result, rank

SHAPES = {
    "10 variants × 1000 seeds": (10, 1000, 1),
    "100 variants × 100 seeds": (100, 100, 1),
    "1000 variants × 10 seeds": (1000, 10, 1),
    "10 variants × 10 seeds × 100 steps": (10, 10, 100),
}


def write_table(path: Path, variants: int, seeds: int, steps: int) -> None:
    """A table of 10,000 rows with noise and no difference."""
    losses = 2.5 + 0.01 * np.random.default_rng(0).normal(size=(variants, seeds, steps))
    step = ",step" if steps > 1 else ""
    lines = [f"variant,seed{step},loss"]
    for (v, s, t), loss in np.ndenumerate(losses):
        lines.append(f"v{v},{s}{f',{t}' if step else ''},{loss:.5f}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def time(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "import addnorm, numpy": [sys.executable, "-c", "import addnorm, numpy"],
            "import of all that a ranking needs": [sys.executable, "-c", "import addnorm; addnorm.rank"],
        }
        for place, (name, shape) in enumerate(SHAPES.items()):
            path = Path(folder) / f"{place}.csv"
            write_table(path, *shape)
            commands[f"addnorm rank: {name}"] = [sys.executable, "-m", "addnorm", "rank", str(path), "--json"]

        def call(command: list[str]) -> None:
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

        sides = {name: (lambda command=command: call(command)) for name, command in commands.items()}
        for name, seconds in interleaved(sides, rounds=rounds).items():
            print(f"{name}: {seconds:.2f} s", flush=True)


@dataclass(frozen=True)
class Groups:
    """Runs of each variant, and its noise."""

    runs: tuple[int, ...]
    noise: tuple[float, ...]


EVEN = {
    "2 variants, 3 runs": Groups((3, 3), (1, 1)),
    "2 variants, 9 and 11 runs": Groups((9, 11), (1, 1)),
    "2 variants, 3 and 20 runs": Groups((3, 20), (1, 1)),
    "6 variants, 3 runs": Groups((3,) * 6, (1,) * 6),
    "6 variants, 5 runs": Groups((5,) * 6, (1,) * 6),
    "13 variants, 5 runs": Groups((5,) * 13, (1,) * 13),
}
UNEVEN = {
    "2 variants, 3 runs, one 3 times as noisy": Groups((3, 3), (1, 3)),
    "2 variants, 10 runs, and 3 of one 3 times as noisy": Groups((10, 3), (1, 3)),
    "2 variants, 10 runs of one 3 times as noisy, and 3": Groups((3, 10), (1, 3)),
    "6 variants, 3 runs, one 10 times as noisy": Groups((3,) * 6, (1, 1, 1, 1, 1, 10)),
    "6 variants, 5 runs, the reference 3 times as noisy": Groups((5,) * 6, (3, 1, 1, 1, 1, 1)),
    "6 variants, 5 runs, noise from 1 to 16": Groups((5,) * 6, (1, 1.7, 3, 5.3, 9.2, 16)),
}


def claims(groups: Groups, tables: int) -> int:
    """Tables with a false claim."""
    rng = np.random.default_rng([*groups.runs, *(int(10 * noise) for noise in groups.noise)])
    found = 0
    for _ in range(tables):
        runs = [
            Result(variant=f"v{v}", seed=1000 * v + s, loss=2.5 + 0.01 * noise * rng.normal())
            for v, (number, noise) in enumerate(zip(groups.runs, groups.noise, strict=True))
            for s in range(number)
        ]
        with contextlib.redirect_stdout(io.StringIO()):
            ranking = rank(runs, references=["v0"], margin=1e-9)
        found += any(row.versus and row.versus["v0"].verdict in ("better", "worse") for row in ranking.variants)
    return found


def unpaired(tables: int) -> None:
    for kind, settings in (("even", EVEN), ("uneven", UNEVEN)):
        for name, groups in settings.items():
            found = claims(groups, tables)
            upper = 100 * float(beta.ppf(0.9995, found + 1, tables - found))
            print(f"{kind}, {name}: {100 * found / tables:.1f} ({upper:.1f}) %", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("time", "unpaired"))
    parser.add_argument("tables", nargs="?", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.what == "time":
        time(options.rounds)
    else:
        unpaired(options.tables)


if __name__ == "__main__":
    main()
