"""Plant ten small faults, one at a time, in a copy of the sources, and say which test of their room catches each.

    python benchmarks/planted_faults.py [NAME ...]

A change of the suite must leave every fault caught by `make test` alone. A fault is a text that stands once in `src`, so that
it survives a move.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Fault:
    """One line of the sources, what it becomes, and the tests that are to notice."""

    name: str
    right: str
    wrong: str
    tests: str


FAULTS = (
    Fault(
        "a gradient of the kernels is halved",
        "d_query[batch, heads] = of_term * panel.scale",
        "d_query[batch, heads] = of_term * panel.scale / 2",
        "tests/equivalence/test_grouped_attention.py",
    ),
    Fault(
        "the start of the branches forgets the factor 2",
        "std / outputs**0.5 if",
        "std / (outputs / 2) ** 0.5 if",
        "tests/golden/test_mechanisms.py",
    ),
    Fault(
        "the cache is off by one position",
        "self._buffer[..., self._length : end, :] = new",
        "self._buffer[..., self._length : end, :] = new.roll(1, dims=-2)",
        "tests/contracts/test_combinations.py",
    ),
    Fault(
        "the decay forgets the learning rate",
        'return float(group["lr"] * group["weight_decay"])',
        'return float(group["weight_decay"])',
        "tests/optimization",
    ),
    Fault(
        "Holm's steps are one too few",
        "steps = family - np.arange(known.shape[-1])",
        "steps = family - 1 - np.arange(known.shape[-1])",
        "tests/statistics tests/laws/test_statistics_laws.py",
    ),
    Fault(
        "a torn last line is kept",
        "self._torn = self._end != size",
        "self._torn = False",
        "tests/store/test_events.py",
    ),
    Fault(
        "a run goes on from the oldest checkpoint",
        "key=lambda entry: entry[1], reverse=True)",
        "key=lambda entry: entry[1])",
        "tests/training/test_checkpoint.py",
    ),
    Fault(
        "the slopes of ALiBi begin at 1",
        "own = [2 ** (-8 * (h + 1) / power) for h in range(power)]",
        "own = [2 ** (-8 * h / power) for h in range(power)]",
        "tests/golden/test_positions.py",
    ),
    Fault(
        "the table's interval is twice as wide",
        "reach = (row.interval[1] - row.interval[0]) / 2 if",
        "reach = (row.interval[1] - row.interval[0]) if",
        "tests/reporting/test_ranking_table.py",
    ),
    Fault(
        "the audit takes any shift before a softmax for harmless",
        "call.demand_unchanged(value) if value.seen_by_softmax else call.demand_constant_value(value, [dim])",
        "call.demand_unchanged(value) if value.seen_by_softmax else None",
        "tests/redundancy/test_rules.py",
    ),
)


def plant(fault: Fault, sources: Path) -> Path:
    """Write the fault into the copy, and return the file.

    Raises:
        SystemExit: its text does not stand exactly once in the sources.
    """
    files = [path for path in sorted(sources.rglob("*")) if path.suffix in (".py", ".toml", ".html")]
    holders = [path for path in files if fault.right in path.read_text(encoding="utf-8")]
    if len(holders) != 1 or holders[0].read_text(encoding="utf-8").count(fault.right) != 1:
        raise SystemExit(f"{fault.name}: expected one place with {fault.right!r}, got {list(map(str, holders))}.")
    text = holders[0].read_text(encoding="utf-8")
    holders[0].write_text(text.replace(fault.right, fault.wrong), encoding="utf-8")
    return holders[0].relative_to(sources)


def caught_by(fault: Fault, folder: Path) -> tuple[Path, str]:
    """The file with the fault, and the first test that fails; an empty text if none does."""
    sources = folder / "src"
    shutil.rmtree(sources, ignore_errors=True)
    shutil.copytree(ROOT / "src", sources, ignore=shutil.ignore_patterns("__pycache__"))
    place = plant(fault, sources)
    options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not gpu and not soak and not thorough"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *fault.tests.split()],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(sources), "JAXTYPING_DISABLE": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{fault.name}: pytest ended with {done.returncode}.\n{done.stdout}{done.stderr}")
    match = re.search(r"^_+ (?:ERROR at setup of )?(.+?) _+$", done.stdout, re.MULTILINE)
    return place, match[1] if done.returncode and match else ""


def main(names: list[str]) -> int:
    """Print the table. Returns the number of faults that nothing caught."""
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for fault in FAULTS:
            if not names or any(name in fault.name for name in names):
                place, test = caught_by(fault, Path(folder))
                missed += not test
                print(f"| {fault.name} | {place} | {test or 'NOT CAUGHT'} |", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
