"""Runs the checks for GPUs on a machine without one: `make gpu-check`.

Makes an environment of its own, .venv-gpu beside the project's: torch's CUDA build, the Triton that it names, and the GPU of
paper (paper/). All other packages are the project's. Nothing of NVIDIA's is needed. Then runs the tests marked `paper` in it.

    python tests/gpu_check/run.py [--all] [ARGUMENT of pytest …]
    python tests/gpu_check/run.py --write

With --all also the tests marked `thorough`: every kernel for every card. With --write no tests: the table paths.json is written
anew.
"""

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ENVIRONMENT = ROOT / ".venv-gpu"
PAPER = ENVIRONMENT / "paper"
PYTHON = ENVIRONMENT / "bin" / "python"

TESTS = "import os, sys, pytest; code = pytest.main(sys.argv[1:]); sys.stdout.flush(); os._exit(code)"
"""pytest in a process that ends at once. torch's backward thread of a device may still hold an object of Python's; if it frees
it while the interpreter is being taken down, the process is aborted (torch 2.13, Python 3.11)."""


class Missing(Exception):
    """Something that this machine does not have; the checks are skipped."""


def main(arguments: list[str]) -> int:
    """Make the environment and run the tests in it. Returns pytest's exit code, or 0 where they are skipped."""
    try:
        prepare()
    except Missing as reason:
        print(f"gpu-check skipped: {reason}")
        return 0
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "JAXTYPING_DISABLE": "1", "PAPER_NAMES": "1"}
    environment.setdefault("OMP_NUM_THREADS", "1")  # nothing is computed; threads would only wait for each other
    if arguments == ["--write"]:
        return subprocess.run(
            [PAPER / "run", PYTHON, HERE / "paths.py"], cwd=ROOT, env=environment, check=False
        ).returncode
    tier = "paper" if "--all" in arguments else "paper and not thorough"
    options = [option for option in arguments if option != "--all"] or ["--durations", "10"]
    command = [PAPER / "run", PYTHON, "-c", TESTS, "-n", "0", "-m", tier, HERE, *options]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def prepare() -> None:
    """Bring the environment up to date.

    Raises:
        Missing: no compiler, or no wheel of torch's CUDA build.
    """
    if sys.platform != "linux" or shutil.which("gcc") is None:
        raise Missing("expected gcc on Linux, which builds the GPU of paper. Install it (`apt-get install gcc`).")
    wanted = importlib.metadata.version("torch").partition("+")[0]
    _install(wanted)
    sources = sorted((HERE / "paper").glob("*.[cp]*"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    stamp = PAPER / "sources"
    if not stamp.exists() or stamp.read_text() != digest:
        shutil.rmtree(PAPER, ignore_errors=True)
        subprocess.run([PYTHON, HERE / "paper/build.py", PAPER], check=True)
        stamp.write_text(digest)


def _install(version: str) -> None:
    """Install torch's CUDA build of a version, and what of it is no NVIDIA package."""
    stamp = ENVIRONMENT / "torch"
    if stamp.exists() and stamp.read_text() == version:
        return
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    venv.create(ENVIRONMENT, with_pip=False, symlinks=True)
    # Three equals signs: two would take a wheel of the CPU build, 2.13.0+cpu, for 2.13.0.
    _pip(f"torch==={version}")
    site = next((ENVIRONMENT / "lib").glob("python*")) / "site-packages"
    metadata = next(site.glob("torch-*.dist-info/METADATA")).read_text()
    triton = re.search(r"^Requires-Dist: (triton==[\w.]+)", metadata, re.MULTILINE)
    if triton is None:
        raise Missing(f"torch {version} names no version of triton.")
    _pip(triton[1])
    # After the environment's own packages, so that its torch and Triton come first.
    (site / "shared.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    stamp.write_text(version)


def _pip(requirement: str) -> None:
    options = ["--quiet", "--no-deps", "--no-compile", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "--python", PYTHON, "install", *options, requirement]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        last = made.stderr.strip().rpartition("\n")[2]
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        raise Missing(f"expected a wheel of {requirement}, got from pip: {last}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
