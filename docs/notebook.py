"""Executes the notebooks of docs/notebooks and writes them as pages: `python docs/notebook.py [FOLDER]`, or `make notebook`.

FOLDER, `build/notebooks` if not given, then holds of every notebook `NAME.ipynb` with its outputs, `NAME.md`, and its pictures
in `NAME_files/`. The sources are committed without outputs. A cell that raises an error ends the program.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbconvert import MarkdownExporter

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "docs" / "notebooks"
TIMEOUT_S = 600
"""Longest time that a cell may take."""


def build(source: Path, folder: Path) -> Path:
    """Execute a notebook and write it as a page.

    Args:
        source: the notebook.
        folder: receives the executed notebook, the page and its pictures.

    Returns:
        The page.

    Raises:
        CellExecutionError: a cell raises an error.
    """
    notebook: Any = nbformat.read(source, as_version=4)
    with tempfile.TemporaryDirectory() as work:  # receives what the cells write
        NotebookClient(notebook, timeout=TIMEOUT_S, resources={"metadata": {"path": work}}).execute()
    text, resources = MarkdownExporter().from_notebook_node(
        notebook, resources={"output_files_dir": f"{source.stem}_files"}
    )
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, folder / source.name)
    for name, content in resources["outputs"].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    page = folder / f"{source.stem}.md"
    page.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    return page


def main(folder: Path) -> None:
    """Build all notebooks."""
    for source in sorted(SOURCES.glob("*.ipynb")):
        build(source, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "notebooks")
