"""Builds the documentation's site, offline: `python docs/site/build.py`, which `make docs` runs.

The pages are the repository's own Markdown files, at their own places, so that their links hold in the repository and on the
site. Reference, gallery and study reports' navigation are derived from the code and the files. Everything is written below
build/docs; nothing generated is committed. Warnings of the generator and broken links are errors.
"""

import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "docs"), str(ROOT / "src")]

import gallery  # noqa: E402
import links  # noqa: E402
import llms  # noqa: E402
import pages  # noqa: E402
import reference_pages  # noqa: E402

OUT = ROOT / "build" / "docs"
NOTEBOOK = ROOT / "build" / "notebook"
"""Where `make notebook` writes the executed notebook as HTML; it joins the site if it is there."""


def main() -> int:
    """Build the site. Returns the exit code."""
    started = time.process_time()
    shutil.rmtree(OUT, ignore_errors=True)
    source = OUT / "source"
    navigation = pages.copy(ROOT, source)
    navigation["Reference"] = reference_pages.write(source / "reference")
    navigation["Mechanisms"] = gallery.write(ROOT, source / "mechanisms")
    notebooks = pages.copy_notebooks(NOTEBOOK, source / "notebooks")
    if notebooks:
        navigation["Notebooks"] = notebooks
    (OUT / "zensical.toml").write_text(_settings(navigation), encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(OUT / "zensical.toml")]
    done = subprocess.run(command, cwd=OUT, check=False)
    if done.returncode:
        return done.returncode
    listed = llms.write(source, OUT / "site", navigation)
    broken = links.broken(OUT / "site")
    for problem in broken:
        print(f"docs: {problem}", file=sys.stderr)
    count = len(list((OUT / "site").rglob("*.html")))
    seconds = time.process_time() - started
    print(f"{count} pages in {OUT.relative_to(ROOT)}/site, {listed} in llms.txt, {seconds:.1f} processor seconds here.")
    return 1 if broken else 0


def _settings(navigation: dict[str, object]) -> str:
    base = (Path(__file__).parent / "zensical.toml").read_text(encoding="utf-8")
    tomllib.loads(base)  # a mistake in it is reported with its line, before anything is appended
    base = base.replace('"EXTENSION"', _toml(Path(__file__).with_name("docstrings.py")))
    head, _, rest = base.partition("[project]\n")
    return f"{head}[project]\nnav = {_toml(navigation)}\n{rest}"


def _toml(value: object) -> str:
    """Navigation as TOML: a section is a list of single-key tables."""
    if isinstance(value, dict):
        return "[" + ", ".join(f"{{ {_toml(key)} = {_toml(entry)} }}" for key, entry in value.items()) + "]"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


if __name__ == "__main__":
    sys.exit(main())
