"""What to do first on a GPU: the library's checks and benchmarks there, the most telling ones first.

    make gpu                                        all, in about 30 minutes; writes docs/benchmarks-gpu.md after each step
    python benchmarks/first_gpu.py --minutes 10     those that end within 10 minutes
    python benchmarks/first_gpu.py --toy --page FILE  every step at sizes at which it ends at once, to see that it runs

1. `addnorm doctor`: the card, the ways that attention takes, and their values and times beside each other.
2. Sums of scores beside plain attention, at 8 sequences of 4096: is one of 8 layers within 1.3 of own scores?
3. Correctness: every kernel against the reference, compiled instead of interpreted.
4. A GPT of width 2048 against one written by hand and x-transformers: within 0.95? Utilisation 40 %?
5. The attention of whole models against the running sum; joints at Kuang (2025)'s size; attention by length.
6. One run of `residual-scores` at its source's size, until the time is over. It resumes where it stopped:

    addnorm run residual-scores --profile paper … (the command is on the page)

A step that fails is written down with its last lines, and the next one begins.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks-gpu.md"
KERNELS = ("tests/equivalence/test_grouped_attention_kernels.py", "tests/equivalence/test_running_kernels.py")
LINES = 60
"""Of a step's output on the page, from its end."""
GRACE_S = 60
"""For a step that is asked to stop, such as a run that writes its checkpoint."""


@dataclass(frozen=True)
class Step:
    """A command of this interpreter."""

    title: str
    command: tuple[str, ...]
    toy: tuple[str, ...]
    """Further arguments with which it ends at once."""
    longest_minutes: float
    """It is stopped then, so that one step cannot take the time of all others."""


def steps(runs: Path) -> tuple[Step, ...]:
    """All steps, the most telling ones first."""
    source = (
        "corpus={kind: stdlib}",
        "variants=[base]",
        "references=[base]",
        "seeds=[0]",
        "training.precision=bfloat16",
    )
    small = (
        *(
            "training.steps=2",
            "training.seq=32",
            "model={width: 64, heads: 2, kv_heads: 2, hidden: 64}",
            "tokenizer=bytes",
        ),
        *("corpus={kind: stdlib, max_bytes: 4000000}", "training.eval_sequences=2"),
    )
    trained = ("-m", "addnorm", "run", "residual-scores", "--profile", "paper", "--out", str(runs), *_settings(source))
    training, scores = "benchmarks/training_gpu.py", "benchmarks/score_residuals_gpu.py"
    toy, lengths = ("--toy", "--rounds", "2"), ("--lengths", "64", "--depths", "4", "--rounds", "2")
    return (
        Step("The machine", ("-m", "addnorm", "doctor"), (), 3),
        Step("Training with sums of scores", (training, "--only", "sums"), toy, 3),
        # A GPU of paper computes nothing, so there the tests are collected and not run.
        Step("Kernels against the reference", ("-m", "pytest", "-q", "-n", "0", *KERNELS), ("--collect-only",), 8),
        Step("Training of a GPT", (training, "--only", "gpts"), toy, 4),
        Step("Attention over a running sum", (scores, "--only", "layers"), lengths, 4),
        Step("Training with joints", (training, "--only", "joints"), toy, 4),
        Step("Attention by length", (scores, "--only", "layer"), lengths, 4),
        Step("A run at the size of Kuang (2025)", trained, _settings(small), 60 * 24),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="time for all steps")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "first-gpu", help="folder of the last step's run")
    parser.add_argument("--toy", action="store_true")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("expected a CUDA device, got none. `make gpu-check` checks what can be checked without one.")
        return 2
    end, parts, failed = time.monotonic() + options.minutes * 60, [_heading()], False
    for step in steps(options.runs):
        left = end - time.monotonic()
        if left <= 0:
            parts.append(f"## {step.title}\n\nNot reached within {options.minutes:g} minutes.\n")
        else:
            command = [*step.command, *step.toy] if options.toy else [*step.command]
            part, good = _part(step.title, command, min(left, step.longest_minutes * 60))
            parts.append(part)
            failed |= not good
        options.page.write_text("\n".join(parts), encoding="utf-8")
        print(parts[-1], flush=True)
    return int(failed)


def _settings(settings: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part for setting in settings for part in ("--set", setting))


def _heading() -> str:
    card = torch.cuda.get_device_properties(0)
    memory, capability = card.total_memory / 2**30, f"{card.major}.{card.minor}"
    about = f"torch {torch.__version__}, {memory:.0f} GiB, compute capability {capability}"
    return f"# Measured on {card.name}\n\nWritten by `make gpu`: {about}.\n"


def _part(title: str, command: list[str], left: float) -> tuple[str, bool]:
    """A step's part of the page, and whether it ended well or only for want of time."""
    began = time.monotonic()
    # A session of its own: what the step started, such as a run's workers, is stopped with it.
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=left)
        ended, good = ("", True) if process.returncode == 0 else (f", exit code {process.returncode}", False)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        try:
            printed, _ = process.communicate(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
        ended, good = ", stopped: no time was left", True
    seconds = time.monotonic() - began
    last = "\n".join(printed.rstrip().splitlines()[-LINES:])
    return f"## {title}\n\n`python {' '.join(command)}`, {seconds:.0f} s{ended}\n\n```\n{last}\n```\n", good


if __name__ == "__main__":
    sys.exit(main())
