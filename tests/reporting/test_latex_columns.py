"""The tables of a report, compiled: they are LaTeX, and each fits a column of a two-column paper."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import made_files
from addnorm.reporting.reader import Reader
from addnorm.reporting.report import write_report
from addnorm.reporting.sections import terms as score_terms

COLUMN_PT = 241.0
"""Of a two-column paper: ICML 234.9 pt, IEEE 252 pt, ACL 219 pt; `revtex` 246 pt."""


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed (Debian: texlive-latex-base)")
@pytest.mark.usefixtures("blank_pictures")
def test_every_table_compiles_and_fits_a_column(tmp_path: Path) -> None:
    folder = made_files.everything(tmp_path / "study").path
    write_report(Reader(folder).look(), tmp_path / "report.html", "en")
    (terms,) = score_terms.latex(made_files.four_terms()["rows"]).values()
    (tmp_path / "score_terms.tex").write_text(terms)
    tables = sorted(path.stem for path in tmp_path.glob("*.tex"))
    assert {"ranking", "ranking-base", "curves-loss", "costs", "scalars-v4m5"} <= set(tables)
    # booktabs is not part of every installation; its rules are lines across, without width of their own.
    rules = "\n".join(rf"\newcommand{{\{rule}}}{{\hline}}" for rule in ("toprule", "midrule", "bottomrule"))
    boxes = "\n".join(
        rf"\sbox{{\one}}{{\small\input{{{name}.tex}}}}\typeout{{WIDTH {name} \the\wd\one}}" for name in tables
    )
    document = "\n".join(
        [r"\documentclass[twocolumn]{article}", rules, r"\newsavebox{\one}\begin{document}", boxes, r"\end{document}"]
    )
    (tmp_path / "all.tex").write_text(document)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    widths = {name: float(width) for name, width in re.findall(r"WIDTH (\S+) ([\d.]+)pt", done.stdout)}
    assert widths.keys() == set(tables)
    assert {name: width for name, width in widths.items() if width > COLUMN_PT} == {}
    assert not any(re.search(r"\de[+-]\d", (tmp_path / f"{name}.tex").read_text()) for name in tables)
