"""Builds wheel and sdist and tries each in a clean environment: `python docs/try_release.py`, which `make dist` runs.

python docs/try_release.py                    wheel and sdist with the tested versions of constraints.txt
python docs/try_release.py wheel --oldest     the oldest versions that pyproject.toml allows
python docs/try_release.py sdist --newest     the newest that the package index has
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
STUDY = """
name: tried
model: {preset: base, width: 16, depth: 2, heads: 2, kv_heads: 2, hidden: 32, max_seq: 32}
corpus: {kind: stdlib, max_bytes: 200_000}
tokenizer: bytes
training: {steps: 4, batch: 2, seq: 16, eval_sequences: 4}
seeds: [0, 1]
variants: {base: {}, rezero: {residual: rezero}}
"""
RUNS = "variant,seed,loss\n" + "".join(f"{name},{seed},{2 + seed / 100}\n" for name in "ab" for seed in range(3))
AUDIT = """
import torch, addnorm
model = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0).eval()
findings = addnorm.audit(model, torch.randn(2, 5, 16)).findings
assert findings, "expected the key bias among the findings, got none"
assert "site-packages" in addnorm.__file__, addnorm.__file__
print(addnorm.__version__, len(findings), "findings")
"""


def main() -> int:
    """Build and try. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=[], metavar="wheel|sdist")
    versions = parser.add_mutually_exclusive_group()
    versions.add_argument("--oldest", action="store_const", const="oldest", dest="versions")
    versions.add_argument("--newest", action="store_const", const="newest", dest="versions")
    given = parser.parse_args()
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(DIST)], cwd=ROOT, check=True)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    files = {"wheel": DIST / f"addnorm-{version}-py3-none-any.whl", "sdist": DIST / f"addnorm-{version}.tar.gz"}
    for kind in given.kinds or files:
        print(f"== {kind}, {given.versions or 'tested'} versions, Python {sys.version.split()[0]}", flush=True)
        _try(files[kind], given.versions or "tested")
    return 0


def _try(file: Path, versions: str) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        venv.create(folder / "venv", with_pip=True)
        python = folder / "venv" / "bin" / "python"
        constraints = folder / "constraints.txt"
        constraints.write_text(_constraints(versions), encoding="utf-8")
        install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", constraints]
        subprocess.run([*install, file], check=True)
        (folder / "study.yaml").write_text(STUDY, encoding="utf-8")
        (folder / "runs.csv").write_text(RUNS, encoding="utf-8")
        addnorm = folder / "venv" / "bin" / "addnorm"
        # Without torch at first: what judges runs of other code must not need it.
        for step in ([addnorm, "--version"], [addnorm, "rank", "runs.csv"], [addnorm, "noise", "runs.csv"]):
            _run(step, folder)
        subprocess.run([*install, f"{file}[torch]"], check=True)
        for step in (
            [addnorm, "doctor"],
            [addnorm, "run", "study.yaml", "--out", "runs/tried"],
            [addnorm, "rank", "runs/tried"],
            [addnorm, "explain", "runs/tried"],
            [addnorm, "report", "runs/tried"],
            [python, "-c", AUDIT],
        ):
            _run(step, folder)
        installed = [python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"]
        shown = subprocess.run(installed, check=True, capture_output=True, text=True).stdout.split()
        print("installed:", *shown, flush=True)


def _run(step: Sequence[str | Path], folder: Path) -> None:
    print("--", *(str(part).strip().partition("\n")[0] for part in step[1:]), flush=True)
    subprocess.run([str(part) for part in step], cwd=folder, check=True, env=_environment())


def _environment() -> dict[str, str]:
    """This process's environment, without what would let Python find the checkout instead of what is installed."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "JAXTYPING"))
    }


def _constraints(versions: str) -> str:
    if versions == "tested":
        return (ROOT / "constraints.txt").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if versions == "oldest":
        needed = [*project["dependencies"], *project["optional-dependencies"]["torch"]]
        return "".join(re.sub(r">=", "==", line) + ".*\n" for line in needed)
    return ""


if __name__ == "__main__":
    sys.exit(main())
