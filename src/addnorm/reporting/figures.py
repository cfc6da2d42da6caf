"""A study's figures and tables as files: `NAME.svg`, `NAME.png`, `NAME.csv`, and `.tex` for what goes into a paper."""

import csv
import importlib
import io
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from addnorm.reporting import rows as data
from addnorm.reporting.pages import lengths
from addnorm.reporting.pages.kept import kept
from addnorm.reporting.pages.snapshot import Snapshot
from addnorm.reporting.plots.style import drawable
from addnorm.reporting.tables import costs as cost_table
from addnorm.reporting.tables import curves as curve_table
from addnorm.reporting.tables import extrapolation as length_table
from addnorm.reporting.tables import flow as flow_table
from addnorm.reporting.tables import ranking as ranking_table
from addnorm.reporting.tables import scalars as scalar_table
from addnorm.reporting.tables import score_terms as term_table
from addnorm.store.files import make_folder, write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAYERS = {
    "gradient_norm": "gradient",
    "stream_size": "rms",
    "branch_share": "share",
    "attention_entropy": "entropy",
    "one_hot": "one_hot",
    "attention_similarity": "similarity",
    "own_scores": "own_share",
    "early_exit": "exit_loss",
}
"""Figures of one measure over depth: file in `plots/` and key in insight.json."""

FIGURES = ("ranking", "differences", "curves", "scalars", "costs", *LAYERS)
"""Every figure of a study that was trained and inspected, in a report's order."""
ON_DEMAND = ("extrapolation", "score_terms")
"""Figures of what `addnorm extrapolate` and `addnorm inspect --terms` measured; a study without them lacks nothing."""

_DPI = 160
_UNDATED: dict[str, dict[str, Any]] = {
    "svg": {"Date": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None},
}


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A figure that was written."""

    name: str
    rows: data.Rows
    """What it was drawn from."""
    svg: bytes
    files: tuple[Path, ...]


def write_figures(snapshot: Snapshot, folder: Path, language: str) -> list[Drawn]:
    """Draw what the study has numbers for, and write figures and tables into the folder.

    Returns:
        The figures in the order of `FIGURES` and `ON_DEMAND`; what there are no numbers for is left out.

    Raises:
        DiskFull, JobError: the folder cannot be written.
    """
    make_folder(folder)
    found = []
    for name, rows in _rows(snapshot, language).items():
        if not any(_has_numbers(row) for row in rows):
            continue
        module = importlib.import_module(f"addnorm.reporting.plots.{name}")
        figure = module.figure(rows, drawable(language))
        svg = saved(figure, "svg")
        paths = {folder / f"{name}.svg": svg, folder / f"{name}.png": saved(figure, "png")}
        paths |= {folder / file: text.encode() for file, text in _tables(name, rows, snapshot).items()}
        for path, content in paths.items():
            write_atomic(path, content)
        found.append(Drawn(name=name, rows=rows, svg=svg, files=tuple(paths)))
    if table := data.insight_table(snapshot):
        write_atomic(folder / "insight.csv", as_csv(table).encode())
        write_atomic(folder / "insight.tex", flow_table.latex(table).encode())
    return found


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Rows of one form as comma-separated values, numbers in full precision, an empty cell for None."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _rows(snapshot: Snapshot, language: str) -> dict[str, data.Rows]:
    makers: dict[str, Callable[[], data.Rows]] = {
        "ranking": lambda: data.ranking_rows(snapshot, drawable(language)),
        "differences": lambda: data.difference_rows(snapshot, drawable(language)),
        "curves": lambda: data.curve_rows(snapshot),
        "scalars": lambda: data.scalar_rows(snapshot),
        "costs": lambda: data.cost_rows(snapshot),
    }
    found: dict[str, data.Rows] = {name: make() for name, make in makers.items()}
    found |= {name: data.layer_rows(snapshot, key) for name, key in LAYERS.items()}
    return found | {"extrapolation": data.length_rows(snapshot), "score_terms": data.score_term_rows(snapshot)}


def _has_numbers(row: dict[str, Any]) -> bool:
    keys = (
        "mean",
        "difference",
        "finals",
        "start",
        "end",
        "loss",
        "terms",
        "parameters",
        "tokens_per_s",
        "wall_s",
        "peak_bytes",
    )
    values = [row[key] for key in keys if key in row]
    return any(value is not None and value != [] for value in values)


def _tables(name: str, rows: data.Rows, snapshot: Snapshot) -> dict[str, str]:
    if name == "ranking" and snapshot.ranking is not None:
        content = snapshot.ranking.to_json()
        return {"ranking.csv": ranking_table.csv(content), "ranking.tex": ranking_table.latex(content)}
    if name == "curves":
        return {"curves.csv": as_csv(data.long_curves(rows)), "curves.tex": curve_table.latex(rows)}
    if name == "scalars":
        return {"scalars.csv": as_csv(data.long_scalars(rows)), "scalars.tex": scalar_table.latex(rows)}
    if name == "costs":
        return {"costs.csv": as_csv(rows), "costs.tex": cost_table.latex(rows)}
    if name == "extrapolation":
        measured = kept(snapshot, lengths.NAME)
        return {"extrapolation.csv": length_table.csv(measured), "extrapolation.tex": length_table.latex(measured)}
    if name == "score_terms":
        return {"score_terms.csv": as_csv(data.long_terms(rows)), "score_terms.tex": term_table.latex(rows)}
    return {}


def saved(figure: "Figure", kind: str) -> bytes:
    """The figure as a file of that kind: svg, png or pdf. The same numbers give the same bytes."""
    # Some fonts with Chinese glyphs have no normal weight; the nearest is what is wanted, so nobody need be told.
    fonts = logging.getLogger("matplotlib.font_manager")
    level = fonts.level
    fonts.setLevel(logging.ERROR)
    try:
        return _bytes(figure, kind)
    finally:
        fonts.setLevel(level)


def _bytes(figure: "Figure", kind: str) -> bytes:
    import matplotlib

    out = io.BytesIO()
    # Without a date and with a fixed salt the same numbers give the same file.
    with matplotlib.rc_context({"svg.hashsalt": "addnorm", "svg.fonttype": "path"}):
        figure.savefig(out, format=kind, dpi=_DPI, metadata=_UNDATED[kind])
    return out.getvalue()
