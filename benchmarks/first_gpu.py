"""What to do first on a GPU: the library's checks and benchmarks there, the most telling ones first.

    make gpu                                        all, in about 30 minutes; writes docs/benchmarks-gpu.md after each step
    python benchmarks/first_gpu.py --minutes 10     those that end within 10 minutes

1. `addnorm doctor`: the card, and the ways that attention takes.
2. Correctness: every kernel against the reference, compiled instead of interpreted.
3. Speed of grouped attention: achieved FLOP/s, and whole models' attention against the running sum.
4. Training throughput against other libraries.

A step that fails is written down with its last lines, and the next one begins.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks-gpu.md"
KERNELS = ("tests/equivalence/test_grouped_attention_kernels.py", "tests/equivalence/test_running_kernels.py")
STEPS = {
    "The machine": ["-m", "addnorm", "doctor"],
    "Kernels against the reference": ["-m", "pytest", "-q", "-n", "0", *KERNELS],
    "Attention over a running sum": ["benchmarks/score_residuals_gpu.py", "--only", "layers"],
    "Attention by length": ["benchmarks/score_residuals_gpu.py"],
    "Training throughput": ["benchmarks/training_throughput.py"],
}
LINES = 60
"""Of a step's output on the page, from its end."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="time for all steps")
    limit = parser.parse_args().minutes * 60
    if not torch.cuda.is_available():
        print("expected a CUDA device, got none. `make gpu-check` checks what can be checked without one.")
        return 2
    began, parts = time.monotonic(), [_heading()]
    for title, command in STEPS.items():
        left = limit - (time.monotonic() - began)
        if left <= 0:
            parts.append(f"## {title}\n\nNot reached within {limit / 60:g} minutes.\n")
        else:
            parts.append(_part(title, command, left))
        PAGE.write_text("\n".join(parts), encoding="utf-8")
        print(parts[-1], flush=True)
    return 0


def _heading() -> str:
    card = torch.cuda.get_device_properties(0)
    memory, capability = card.total_memory / 2**30, f"{card.major}.{card.minor}"
    about = f"torch {torch.__version__}, {memory:.0f} GiB, compute capability {capability}"
    return f"# Measured on {card.name}\n\nWritten by `make gpu`: {about}.\n"


def _part(title: str, command: list[str], left: float) -> str:
    began = time.monotonic()
    try:
        run = subprocess.run(
            [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=left, check=False
        )
        ended = "" if run.returncode == 0 else f", exit code {run.returncode}"
        printed = run.stdout + (run.stderr if run.returncode else "")
    except subprocess.TimeoutExpired as error:
        ended, printed = ", stopped: no time was left", (error.stdout or b"").decode(errors="replace")
    seconds = time.monotonic() - began
    last = "\n".join(printed.rstrip().splitlines()[-LINES:])
    return f"## {title}\n\n`python {' '.join(command)}`, {seconds:.0f} s{ended}\n\n```\n{last}\n```\n"


if __name__ == "__main__":
    sys.exit(main())
