"""Fuzzer of `addnorm.symmetries`: claims over random small modules that move the output, and the share of explained directions.

    python benchmarks/symmetry_fuzz.py 2000 --first 1000

Every module of tests/symmetry/random_modules.py is analysed by both methods; a claimed direction that the Jacobian or a finite
move refutes is printed with the module's seed.
"""

import argparse
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "symmetry"))

from random_modules import inputs, module

import addnorm
from addnorm.errors import AddnormError


def main() -> None:
    """Run the modules and print the sums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", type=int)
    parser.add_argument("--first", type=int, default=1000)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    claimed = refuted = measured = explained = skipped = 0
    for seed in range(given.first, given.first + given.modules):
        try:
            found = addnorm.symmetries(module(seed), inputs(seed), points=1)
        except AddnormError as error:
            skipped += 1
            print(f"module {seed}: {error}")
            continue
        refuted += len(found.refuted)
        claimed += found.explained + len(found.refuted)
        measured += found.redundant
        explained += found.explained
        for each in found.refuted:
            print(f"module {seed}: {each}", flush=True)
        if found.unexplained:
            rest = "; ".join(f"{each.size}: {', '.join(each.parameters)}" for each in found.unexplained)
            print(f"module {seed}: gap {found.gap:.0e}, unexplained {rest}")
    print(
        f"{given.modules} modules ({skipped} skipped), {claimed} claimed directions, {refuted} of them moved the output; "
        f"{explained} of {measured} measured directions explained ({explained / max(1, measured):.1%})"
    )


if __name__ == "__main__":
    main()
