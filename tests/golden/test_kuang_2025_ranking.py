"""Kuang's (2025) eighteen printed runs: what an honest ranking can and cannot say about them."""

import math
from pathlib import Path

import pytest

from addnorm.reporting.sections.ranking import text
from addnorm.statistics import Ranking, kuang_2025, rank

PRINTED = """
base 50.21 2.5297 12.55 | base_2 50.21 2.5297 12.55 | v2m1 50.10 2.5340 12.60
v2m3 50.30 2.5199 12.43 | v3m1 50.25 2.5253 12.49 | v3m3_1 50.24 2.5259 12.50
v3m3_2 50.22 2.5261 12.50 | v4m1 50.25 2.5293 12.54 | v4m2 50.01 2.5512 12.82
v4m3 49.93 2.5556 12.88 | v4m4 50.06 2.5451 12.74 | v4m4_2 50.06 2.5451 12.74
v4m5 50.00 2.5470 12.77 | v4m5_2 50.00 2.5470 12.77 | v4m6 50.16 2.5420 12.70
v4m6_2 50.16 2.5420 12.70 | v4m7 50.10 2.5443 12.73 | v4m7_2 50.15 2.5429 12.72
"""
"""准确率 (per cent), 损失值, 困惑度 as the source's page prints them."""


@pytest.fixture(scope="module")
def ranking() -> Ranking:
    published = kuang_2025()
    return rank(published.results, references=published.references, assumed_sd=published.assumed_sd)


def test_the_shipped_file_holds_the_printed_numbers() -> None:
    cells = [cell.split() for line in PRINTED.strip().splitlines() for cell in line.split("|")]
    printed = {name: tuple(map(float, numbers)) for name, *numbers in cells}
    shipped = {r.run: (round(100 * (r.accuracy or 0), 2), r.loss, r.perplexity) for r in kuang_2025().results}
    assert shipped == printed
    assert len(shipped) == 18


def test_perplexity_is_the_exponential_of_the_loss() -> None:
    for result in kuang_2025().results:
        # Four digits of loss move exp(loss) by 0.0006, two digits of perplexity round by 0.005.
        assert abs(math.exp(result.finished_loss) - (result.perplexity or 0)) < 0.0057


def test_four_of_the_five_repeats_are_copies(ranking: Ranking) -> None:
    copies = [warning.split(" in every")[0] for warning in ranking.warnings if "a copy, not a replicate" in warning]
    assert copies == [
        "base_2 repeats base",
        "v4m4_2 repeats v4m4",
        "v4m5_2 repeats v4m5",
        "v4m6_2 repeats v4m6",
    ]
    assert {row.variant: row.seeds for row in ranking.variants if row.seeds != 1} == {"v4m7": 2}


def test_one_real_repeat_supports_no_verdict(ranking: Ranking) -> None:
    assert all(c.verdict is None and c.interval is None for row in ranking.variants for c in row.versus.values())
    assert all(row.rank_interval == (1, 13) for row in ranking.variants)
    assert {row.tier.label for row in ranking.variants} == {"open", "reference"}
    assert (ranking.noise_df, ranking.noise_sd) == (0, None)
    assert any(
        "the order as listed is not supported. More than one distinct run: v4m7 (2)." in warning
        for warning in ranking.warnings
    )


def test_the_values_are_still_shown_in_order(ranking: Ranking) -> None:
    order = "v2m3 v3m1 v3m3_1 v3m3_2 v4m1 base v2m1 v4m6 v4m7 v4m4 v4m5 v4m2 v4m3"
    assert [row.variant for row in ranking.variants] == order.split()
    assert ranking["v2m3"].versus["base"].difference == pytest.approx(-0.0098)


def test_what_it_would_take(ranking: Ranking) -> None:
    """At the authors' own standard deviation 0.0023: large gaps need 3 seeds, the tier above base needs 10 to 14."""
    needed = {row.variant: {name: c.seeds_needed for name, c in row.versus.items()} for row in ranking.variants}
    assert needed["v4m3"] == {"base": 3, "v2m1": 3, "v2m3": 3}
    assert needed["v3m1"]["base"] == 10
    assert needed["v3m3_2"]["base"] == 14
    assert ranking["v4m1"].versus["base"].seeds_needed_for == "equivalence"
    assert any("3 seeds per variant decide half of the 33 comparisons, 14 decide all" in w for w in ranking.warnings)


def test_without_an_assumption_nothing_can_be_planned() -> None:
    published = kuang_2025()
    ranking = rank(published.results, references=published.references)
    assert all(c.seeds_needed is None for row in ranking.variants for c in row.versus.values())
    assert any("the runs themselves cannot say how large the noise is" in warning for warning in ranking.warnings)


def test_the_sources_tiers_follow_accuracy_against_loss_in_one_place(ranking: Ranking) -> None:
    """It puts v4m6 and v4m7 above v2m1, by accuracy; by loss both lie below it."""
    order = kuang_2025().notes["tiers"]["order"]
    tier = {name: index for index, names in enumerate(order) for name in names}
    means = {row.variant: row.mean or 0 for row in ranking.variants}
    assert tier.keys() == means.keys()
    against = [(a, b) for a in means for b in means if tier[a] < tier[b] and means[a] > means[b]]
    assert sorted(against) == [("v4m6", "v2m1"), ("v4m7", "v2m1")]
    assert [w.split(":")[0] for w in ranking.warnings if "disagree" in w] == [
        "accuracy and loss disagree on v4m6 against v2m1"
    ]


@pytest.mark.parametrize("page", ["ranking.md", "ranking.zh-CN.md"])
def test_the_guide_prints_the_real_output(ranking: Ranking, page: str) -> None:
    guide = Path(__file__).parents[2] / "docs" / "guide" / page
    blocks = [block.split("```")[0] for block in guide.read_text(encoding="utf-8").split("```text\n")[1:]]
    assert text(ranking.to_json()) in blocks
