"""Seconds until `import addnorm`, `addnorm --help` and other commands that need no torch are done."""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from interleaved import interleaved


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    addnorm = shutil.which("addnorm", path=str(Path(sys.executable).parent)) or "addnorm"
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import addnorm": [sys.executable, "-c", "import addnorm"],
        "addnorm --help": [addnorm, "--help"],
        "addnorm run --help": [addnorm, "run", "--help"],
        "addnorm list residual": [addnorm, "list", "residual"],
    }

    def call(command: list[str]) -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    sides = {name: (lambda command=command: call(command)) for name, command in commands.items()}
    seconds = interleaved(sides, rounds=options.rounds)
    print("| command | seconds (median) |\n|---|---|")
    for name, value in seconds.items():
        print(f"| `{name}` | {value:.2f} |")


if __name__ == "__main__":
    main()
