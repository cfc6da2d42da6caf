"""Several metrics in one ranking: which one decides, and how they share error rates."""

import random
from typing import Any

import pytest

import addnorm
from addnorm.errors import InputError
from addnorm.reporting.sections.ranking import csv
from addnorm.statistics.measure import MetricChoice

random.seed(5)
ROWS = [
    {
        "variant": name,
        "seed": seed,
        "loss": 2.5 - better + random.gauss(0, 0.01),
        "acc": 50 + 20 * better + random.gauss(0, 0.3),
    }
    for name, better in (("base", 0.0), ("deep", 0.1), ("wide", 0.0))
    for seed in range(4)
]
ACCURACY = "acc,direction=higher,unit=%,margin=0.2"


def test_each_metric_is_ranked_as_it_would_be_alone() -> None:
    both = addnorm.rank(ROWS, metric=["loss", ACCURACY])
    alone = addnorm.rank(ROWS), addnorm.rank(ROWS, columns={"loss": "acc"}, direction="higher", unit="%", margin=0.2)
    (other,) = both.others
    for ranked, by_itself in zip((both, other), alone, strict=True):
        assert [row.to_json() for row in ranked.variants] == [row.to_json() for row in by_itself.variants]
        assert ranked.confidence == 0.95
    assert other["deep"].versus["base"].verdict == "better"
    assert "loss decides" in both.warnings[0]
    assert type(other) is type(both)


def test_together_they_share_one_error_rate() -> None:
    apart, together = (addnorm.rank(ROWS, metric=["loss", ACCURACY], together=shared) for shared in (False, True))
    assert [each.confidence for each in (together, *together.others)] == [0.975, 0.975]
    low, high = together["deep"].versus["base"].interval or (0, 0)
    inner = apart["deep"].versus["base"].interval or (0, 0)
    assert low < inner[0] < inner[1] < high
    assert "share one error rate" in together.warnings[0]


def test_one_metric_is_the_ranking_that_it_always_was() -> None:
    assert addnorm.rank(ROWS, metric="loss").to_json() == addnorm.rank(ROWS).to_json()
    assert "others" not in addnorm.rank(ROWS).to_json()


def test_what_is_said_apart_is_of_the_first_metric() -> None:
    ranked = addnorm.rank(
        ROWS, metric=["acc", {"name": "loss", "margin": 0.5}], direction="higher", unit="%", margin=0.2
    )
    assert (ranked.measure.better, ranked.measure.unit, ranked.margin) == ("higher", "%", 0.2)
    assert (ranked.others[0].measure.unit, ranked.others[0].margin) == ("nats per token", 0.5)


def test_a_table_of_them_has_a_line_per_metric_and_variant() -> None:
    lines = csv(addnorm.rank(ROWS, metric=["loss", ACCURACY]).to_json()).splitlines()
    assert [line.split(",")[0] for line in lines] == ["metric", *["loss"] * 3, *["acc"] * 3]


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"metric": ["loss", "loss"]}, "expected each column once, got loss twice"),
        ({"metric": ["acc"]}, "expected a loss, or a direction"),
        ({"metric": ["acc,direction=up"]}, "expected direction=lower or higher, got 'up'"),
        ({"metric": ["acc,better=higher"]}, "got 'better'"),
        ({"metric": ["acc,direction=higher,margin=much"]}, "expected a number as margin, got 'much'"),
        ({"metric": ["loss"], "columns": {"loss": "acc"}}, "expected no column loss=acc beside it"),
        ({"metric": ["loss"], "together": True}, "expected several metrics, got one"),
        ({"metric": [""]}, "expected the name of a column"),
    ],
)
def test_a_wrong_metric_gives_one_message(choices: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        addnorm.rank(ROWS, **choices)


def test_metrics_are_for_tables() -> None:
    with pytest.raises(InputError, match="expected a table of runs where columns are given"):
        addnorm.rank("kuang-2025", metric=["loss"])


def test_a_choice_is_itself() -> None:
    choice = MetricChoice(name="acc", direction="higher")
    assert MetricChoice.of(choice) is choice


def test_a_ranking_prints_in_full_and_shows_itself_in_a_line() -> None:
    ranked = addnorm.rank(ROWS, metric=["loss", ACCURACY])
    assert repr(ranked) == "<Ranking of 3 variants against base by loss, acc: 1 better, 1 undecided>"
    assert "acc in %, higher is better" in str(ranked)
    html = ranked._repr_html_()
    assert html.count("<table") == 2
    assert "deep is better than base" in html
    assert ranked.others[0].plot().axes[0].get_xlabel() == "acc in %, higher is better"
    assert max(len(repr(each)) for each in (ranked["deep"], ranked["deep"].versus["base"], addnorm.noise(ROWS))) < 160
