"""The table of verdicts: how its intervals are drawn."""

import math
import re

import pytest

import made_study
from addnorm.reporting.reader import Reader
from addnorm.reporting.render import Pages
from addnorm.reporting.sections.answer import answer
from addnorm.reporting.sections.cards import cards
from addnorm.reporting.view import View

SECTIONS = ("cards", "verdicts")
HARD = 3.4
"""Level of the seed that only the reference has reached; the others are at 2.4 and 2.5."""


def section(name, study, place=None):
    view = View(page="ranking", language="en", link=lambda page, **query: f"/{page}")
    return Pages().section(name, Reader(study.path).look(), view)


def unequal(path, finished):
    """A study of two models of which the given runs have finished, as (variant, seed); seed 1 is a hard one."""
    study = made_study.make(path, models={name: made_study.model_spec() for name in ("base", "one")}, seeds=[0, 1, 2])
    for run in study.runs():
        variant, seed = run.spec["variant"], run.spec["seed"]
        if (variant, seed) in finished:
            level = HARD if seed == 1 else 2.4 if variant == "base" else 2.5
            made_study.finish(run, level=level, accuracy=0.75 if seed == 1 else 0.25)
    return study


def losses(study):
    shown = Reader(study.path).look().losses
    return {name: (round(each.loss, 1), each.shared) for name, each in shown.items()}


@pytest.mark.parametrize("name", SECTIONS)
def test_losses_over_unequal_seeds_are_over_those_that_all_have(name, tmp_path):
    """The reference has a seed that is hard for every model: its mean over both would be the worse one."""
    study = unequal(tmp_path / "study", {("base", 0), ("base", 1), ("one", 0)})
    assert losses(study)["base"][1] == losses(study)["one"][1] == 1
    assert losses(study)["base"][0] < losses(study)["one"][0] < HARD - 0.5
    html = section(name, study)
    assert html.count("shared seeds: 1") == 2
    assert html.count("25.00 %") == 2, "the accuracy beside a loss is of the same seeds"
    assert [card.perplexity == math.exp(card.loss) for card in cards(Reader(study.path).look())] == [True, True]
    assert "± 0" not in html  # an interval of one mean says nothing beside it


@pytest.mark.parametrize("name", SECTIONS)
def test_losses_without_a_shared_seed_are_not_to_be_compared(name, tmp_path):
    study = unequal(tmp_path / "study", {("base", 1), ("one", 0)})
    assert [shared for _, shared in losses(study).values()] == [0, 0]
    assert section(name, study).count("no shared seed yet") == 2


@pytest.mark.parametrize("name", SECTIONS)
@pytest.mark.parametrize(
    "runs", [{("base", 0), ("one", 0)}, {("base", 1)}, {(name, seed) for name in ("base", "one") for seed in range(3)}]
)
def test_losses_over_equal_seeds_are_plain_means(runs, name, tmp_path):
    study = unequal(tmp_path / "study", runs)
    assert {shared for _, shared in losses(study).values()} == {None}
    html = section(name, study)
    assert "shared seeds:" not in html
    assert "no shared seed" not in html


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


def test_a_tested_comparison_is_priced_at_new_seeds_alone(tmp_path):
    """Further seeds beside those that were tested would be a second look at them."""
    study = made_study.make(tmp_path / "study", models={name: made_study.model_spec() for name in ("base", "one")})
    for run in study.runs():
        seed = run.spec["seed"]
        made_study.finish(run, kept=2.4 + 0.01 * seed + (run.spec["variant"] == "one") * (0.02, -0.002, 0.03)[seed])
    snapshot = Reader(study.path).look()
    comparison = snapshot.ranking["one"].versus["base"]
    assert (comparison.verdict, snapshot.ranking.stages) == ("undecided", None)
    price = answer(snapshot).price
    assert price.runs == 2 * comparison.seeds_needed > 6
    assert price.training_s == price.runs * 40 * 4 * 16 / 640, "not by the clock, which counts pauses"
