"""Random small modules, each audited by the static method and counted by the null space of its float64 Jacobian.

Modules come from tests/redundancy/grammar.py: linear maps, norms, softmax over any axis, masks, gathers, residual wiring,
tied weights, several outputs, several precisions. A claim that the Jacobian or a move refutes is a false proof; the script
then prints the module's number and ends with 1.

    python benchmarks/audit_fuzz.py                          ten minutes
    python benchmarks/audit_fuzz.py --minutes 1 --first 5000
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "redundancy"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--first", type=int, default=0, help="number of the first module")
    options = parser.parse_args()
    import torch
    from grammar import drawn
    from grammar_truth import compared

    torch.set_num_threads(1)
    ends = time.monotonic() + 60 * options.minutes
    equal, false, skipped, seed = 0, list[int](), Counter[str](), options.first
    missed, present = Counter[str](), Counter[str]()
    while time.monotonic() < ends:
        found = compared(seed)
        steps = {type(step).__name__ for step in drawn(seed)[0].steps}
        if found.skipped:
            skipped[found.skipped] += 1
        elif found.false:
            false.append(seed)
            print(f"module {seed}: proves {found.proved} of {found.truth}, changes {found.change:.1e}", flush=True)
        else:
            equal += found.proved == found.truth
            present.update(steps)
            missed.update(steps if found.proved < found.truth else ())
        seed += 1
    count = seed - options.first - skipped.total()
    print(
        f"{count} modules compared: {len(false)} false proofs; all freedom proved in {equal} ({equal / max(count, 1):.1%})."
    )
    print("Share of modules with some freedom unproved, by step:")
    print("  " + ", ".join(f"{name} {missed[name] / present[name]:.0%}" for name in sorted(present)))
    for reason, number in skipped.most_common():
        print(f"{number} skipped: {reason}")
    return 1 if false else 0


if __name__ == "__main__":
    raise SystemExit(main())
