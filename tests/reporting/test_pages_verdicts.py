"""The table of verdicts: how its intervals are drawn."""

import re

import made_study
from addnorm.reporting.reader import Reader
from addnorm.reporting.render import Pages
from addnorm.reporting.view import View


def test_a_difference_beyond_the_drawing_is_an_arrow_at_its_edge(tmp_path):
    """One variant that is far worse does not set the scale of the others; a dot would place it where it is not."""
    names = ("base", "one", "two", "three", "four", "far")
    study = made_study.make(tmp_path / "study", models={name: made_study.model_spec() for name in names})
    for run in study.runs():
        made_study.finish(run, level=5.0 if run.spec["variant"] == "far" else 2.4)
    view = View(page="ranking", language="en", link=lambda page, **query: f"/{page}")
    html = Pages().section("verdicts", Reader(study.path).look(), view)
    (arrow,) = re.findall(r'<svg x="([\d.]+)%" y="5"[^>]*><path class="dot beyond verdict-worse"', html)
    assert float(arrow) == 100
    assert html.count("<circle") == 4
