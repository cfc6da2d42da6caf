"""Random small modules, each audited by the static method and counted by the null space of its float64 Jacobian.

Modules come from tests/redundancy/grammar.py: linear maps, norms, softmax over any axis, masks, gathers, residual wiring,
tied weights, several outputs, several precisions. A claim that the Jacobian or a move refutes is a false proof; the script
then prints the module's number and ends with 1.

With --ledger, every hundred modules are one line of a file, with the range of their numbers. The same command goes on behind
the largest number in it, so that ranges never overlap, and prints the sums of the whole file. Lines of another grammar or of
other sources of the static method are summed apart: they are other modules, or other proofs.

    python benchmarks/audit_fuzz.py                                              ten minutes
    python benchmarks/audit_fuzz.py --minutes 1 --first 5000
    python benchmarks/audit_fuzz.py --ledger fuzz.jsonl --modules 10000          until the file has so many
"""

import argparse
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HOME = Path(__file__).parents[1]
sys.path.insert(0, str(HOME / "tests" / "redundancy"))

PER_LINE = 100


@dataclass(kw_only=True)
class Range:
    """The comparisons of modules number `first` to `end` - 1: one line of the ledger."""

    grammar: str
    """Digest of the grammar: which module a number is."""
    method: str
    """Digest of the static method's sources: what is proved of it."""
    first: int
    end: int
    false: list[int] = field(default_factory=list)
    """Numbers of the modules with a false proof."""
    equal: int = 0
    """Modules whose freedom is proved completely."""
    proved: int = 0
    """Directions proved, of all modules together."""
    truth: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    present: Counter[str] = field(default_factory=Counter)
    """Modules with a step of this kind."""
    missed: Counter[str] = field(default_factory=Counter)
    """Those of them with some freedom unproved."""

    @property
    def compared(self) -> int:
        """Number of modules that were compared."""
        return self.end - self.first - self.skipped.total()


def digest(files: Iterable[Path]) -> str:
    """Digest of the contents of files."""
    found = hashlib.sha256()
    for path in sorted(files):
        found.update(path.read_bytes())
    return found.hexdigest()[:12]


def sources() -> tuple[str, str]:
    """Digests of the grammar and of the static method."""
    method = HOME / "src" / "addnorm" / "redundancy"
    files = [path for folder in ("graph", "algebra") for path in (method / folder).rglob("*.py")]
    return digest([HOME / "tests" / "redundancy" / "grammar.py"]), digest(files)


def compare_range(first: int, count: int, ends: float) -> Range:
    """Compare modules until the count or the time is reached."""
    from grammar import drawn
    from grammar_truth import compared

    grammar, method = sources()
    line = Range(grammar=grammar, method=method, first=first, end=first)
    while line.end < first + count and time.monotonic() < ends:
        seed, found = line.end, compared(line.end)
        line.end += 1
        if found.skipped and not found.false:
            line.skipped[found.skipped] += 1
            continue
        if found.false:
            line.false.append(seed)
            print(f"module {seed}: proves {found.proved} of {found.truth}, changes {found.change:.1e}", flush=True)
        line.equal += found.proved == found.truth and not found.false
        line.proved, line.truth = line.proved + found.proved, line.truth + found.truth
        steps = {type(step).__name__ for step in drawn(seed)[0].steps}
        line.present.update(steps)
        line.missed.update(steps if found.proved < found.truth else ())
    return line


def read_ledger(path: Path | None) -> list[Range]:
    """Read the lines of a ledger; none if it does not exist."""
    if path is None or not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    counters = ("skipped", "present", "missed")
    return [Range(**{**row, **{name: Counter(row[name]) for name in counters}}) for row in rows]


def summary(lines: Sequence[Range]) -> str:
    """The sums of some lines."""
    count, equal = sum(each.compared for each in lines), sum(each.equal for each in lines)
    proved, truth = sum(each.proved for each in lines), sum(each.truth for each in lines)
    present, missed, skipped = Counter[str](), Counter[str](), Counter[str]()
    for each in lines:
        present, missed, skipped = present + each.present, missed + each.missed, skipped + each.skipped
    false = sum(len(each.false) for each in lines)
    said = [
        f"{count} modules compared (numbers {_numbers(lines)}): {false} false proofs; all freedom proved in {equal} "
        f"({equal / max(count, 1):.1%}), {proved} of {truth} directions ({proved / max(truth, 1):.1%}).",
        "Share of modules with some freedom unproved, by step:",
        "  " + ", ".join(f"{name} {missed[name] / present[name]:.0%}" for name in sorted(present)),
        *(f"{number} skipped: {reason}" for reason, number in skipped.most_common()),
    ]
    return "\n".join(said)


def _numbers(lines: Sequence[Range]) -> str:
    """Ranges of numbers, those that follow each other joined."""
    joined: list[list[int]] = []
    for line in sorted(lines, key=lambda each: each.first):
        if joined and joined[-1][1] == line.first:
            joined[-1][1] = line.end
        else:
            joined.append([line.first, line.end])
    return ", ".join(f"{first} to {end - 1}" for first, end in joined)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, help="10 if neither this nor --modules is given")
    parser.add_argument("--modules", type=int, help="stop when so many are compared, those in the ledger included")
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first module, if the ledger is not beyond it"
    )
    parser.add_argument("--ledger", type=Path, help="a file to append to and to go on from")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    minutes = options.minutes or (float("inf") if options.modules else 10.0)
    ends = time.monotonic() + 60 * minutes
    grammar, method = sources()
    lines = read_ledger(options.ledger)
    seed = max([options.first, *(each.end for each in lines if each.grammar == grammar)])
    while time.monotonic() < ends and not (options.modules and _compared(lines, grammar, method) >= options.modules):
        lines.append(compare_range(seed, PER_LINE, ends))
        seed = lines[-1].end
        if options.ledger is not None:
            with options.ledger.open("a", encoding="utf-8") as file:
                file.write(json.dumps(vars(lines[-1])) + "\n")
    same = [each for each in lines if (each.grammar, each.method) == (grammar, method)]
    others = [each for each in lines if each not in same]
    if others:
        print(f"With other sources of the grammar or of the static method: {summary(others)}\n")
    print(summary(same))
    return 1 if any(each.false for each in same) else 0


def _compared(lines: Sequence[Range], grammar: str, method: str) -> int:
    return sum(each.compared for each in lines if (each.grammar, each.method) == (grammar, method))


if __name__ == "__main__":
    raise SystemExit(main())
