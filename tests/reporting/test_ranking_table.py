"""The ranking's three printed forms."""

import csv as csv_format
import io
from typing import Any

import pytest

from addnorm.reporting.formats.names import file_name
from addnorm.reporting.formats.ranking_latex import latex
from addnorm.reporting.sections.ranking import csv, means, text
from addnorm.reporting.sections.verdicts import verdicts
from addnorm.statistics import Result, rank
from addnorm.statistics.measure import measure_of


def _comparison(verdict: str | None, difference: float | None, interval: list[float] | None, needed: int | None) -> Any:
    return {"verdict": verdict, "difference": difference, "interval": interval, "seeds_needed": needed}


def _entry(variant: str, mean: float | None, tier: str, gaps: list[int], ranks: list[int] | None, versus: Any) -> Any:
    return {
        "variant": variant,
        "seeds": 0 if mean is None else 3,
        "mean": mean,
        "interval": None if mean is None else [mean - 0.01, mean + 0.01],
        "accuracy": None if mean is None else 0.5025,
        "tier": {"label": tier, "gaps": gaps, "firm": len(gaps) == 1},
        "rank_interval": ranks,
        "versus": versus,
        "same_as": None,
    }


@pytest.fixture
def ranking() -> dict[str, Any]:
    return {
        "metric": "loss",
        "margin": 0.005,
        "confidence": 0.95,
        "provisional": True,
        "references": ["base", "v2_m1"],
        "variants": [
            _entry(
                "rezero",
                2.4875,
                "above base",
                [0],
                [1, 1],
                {
                    "base": _comparison("better", -0.0125, [-0.0175, -0.0075], None),
                    "v2_m1": _comparison("better", -0.02, [-0.04, 0.0], None),
                },
            ),
            _entry(
                "base", 2.5, "reference", [], [2, 3], {"v2_m1": _comparison("undecided", -0.0075, [-0.02, 0.005], 12)}
            ),
            _entry(
                "v2_m1", 2.5075, "reference", [], [2, 3], {"base": _comparison("undecided", 0.0075, [-0.005, 0.02], 12)}
            ),
            _entry(
                "50%_of & more",
                2.51,
                "below base",
                [1, 2],
                [2, 4],
                {"base": _comparison(None, 0.01, None, 7), "v2_m1": _comparison(None, 0.0025, None, None)},
            ),
            _entry("deep", None, "failed", [], None, {"base": _comparison("failed", None, None, None)}),
        ],
        "warnings": ["deep: seeds 0, 1, 2 failed (out of memory).", "a second warning"],
    }


TEXT = """\
Loss in nats per token, lower is better; ± is for each mean alone. Margin ±0.005. PROVISIONAL: runs
have yet to end.

ranks  variant        seeds    loss       ±  acc. %  tier
    1  rezero             3  2.4875  0.0100   50.25  above base
  2-3  base               3  2.5000  0.0100   50.25  reference
  2-3  v2_m1              3  2.5075  0.0100   50.25  reference
  2-4  50%_of & more      3  2.5100  0.0100   50.25  below base ?
    -  deep               0       -       -       -  failed

Differences in thousandths of a nat; all intervals together hold with 95 % confidence:

variant        vs base                          vs v2_m1
rezero         better -12.5 [-17.5, -7.5]       better -20.0 [-40.0, +0.0]
base           -                                undecided -7.5 [-20.0, +5.0] 12 seeds
v2_m1          undecided +7.5 [-5.0, +20.0] 12 seeds  -
50%_of & more  no verdict +10.0 7 seeds         no verdict +2.5
deep           failed                           -

! deep: seeds 0, 1, 2 failed (out of memory).
! a second warning
"""


def test_a_table_without_accuracies_has_no_column_for_them(ranking: dict[str, Any]) -> None:
    rows = [{**row, "accuracy": None} for row in ranking["variants"]]
    assert "acc. %" in text(ranking)
    assert "acc. %" not in text({**ranking, "variants": rows})


def test_text_says_all_of_it(ranking: dict[str, Any]) -> None:
    squeezed = [" ".join(line.split()) for line in text(ranking).splitlines()]
    assert squeezed == [" ".join(line.split()) for line in TEXT.splitlines()]


def test_text_columns_line_up(ranking: dict[str, Any]) -> None:
    lines = text(ranking).splitlines()
    head = next(line for line in lines if line.startswith("ranks"))
    body = lines[lines.index(head) + 1 : lines.index(head) + 6]
    for line, tier in zip(body, ["above", "reference", "reference", "below", "failed"], strict=True):
        assert line.index(tier, head.index("seeds")) == head.index("tier")


@pytest.mark.parametrize("width", [80, 100, 140])
def test_text_keeps_to_its_width(ranking: dict[str, Any], width: int) -> None:
    ranking["warnings"].append("long " * 60)
    ranking["references"] = ["base", "v2_m1", "third", "fourth"]
    for entry in ranking["variants"]:
        entry["versus"]["third"] = entry["versus"]["fourth"] = _comparison("worse", 0.02, [0.01, 0.03], None)
    assert max(len(line) for line in text(ranking, width).splitlines()) <= width
    assert text(ranking, width).count("vs fourth") == 1


def test_csv_keeps_full_precision_and_every_row(ranking: dict[str, Any]) -> None:
    ranking["variants"][0]["mean"] = 2.4875000000000003
    table = list(csv_format.DictReader(io.StringIO(csv(ranking))))
    assert [line["variant"] for line in table] == ["rezero", "base", "v2_m1", "50%_of & more", "deep"]
    assert float(table[0]["mean"]) == 2.4875000000000003
    assert (table[0]["base:verdict"], table[0]["base:low"]) == ("better", "-0.0175")
    assert (table[1]["base:verdict"], table[1]["v2_m1:seeds_needed"]) == ("", "12")
    assert table[4]["mean"] == ""


def test_latex_has_a_balanced_escaped_table_of_losses_and_one_per_reference(ranking: dict[str, Any]) -> None:
    ranking["warnings"].append("two\nlines")
    printed = latex(ranking)
    assert len(printed) == 1 + len(ranking["references"])
    for table in printed.values():
        lines = table.splitlines()
        assert "% two lines" in lines
        cells = [line for line in lines if line.endswith(r"\\")]
        assert {line.replace(r"\&", "").count("&") for line in cells} == {4}
        assert [table.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    assert r"50\%\_of \& more & 2--4 & 3 & $2.5100 \pm 0.0100$" in printed["ranking.tex"]
    assert r"& $-12.5$ & $[-17.5, -7.5]$ & better &" in printed["ranking-base.tex"]
    assert r"v2\_m1 &" not in printed["ranking-v2_m1.tex".replace("v2_m1", file_name("v2_m1"))]


def test_a_copied_variant_names_its_original(ranking: dict[str, Any]) -> None:
    ranking["variants"][3]["same_as"] = "base"
    assert means(ranking).body[3][1] == "50%_of & more (= base)"


def test_seeds_beyond_a_hundred_are_called_not_resolvable() -> None:
    losses = {"base": (2.500, 2.520, 2.511), "near": (2.5024, 2.5162, 2.5111)}
    results = [Result(variant=v, seed=s, loss=x) for v, row in losses.items() for s, x in enumerate(row)]
    ranking = rank(results, references=["base"], margin=1e-6)
    needed = ranking["near"].versus["base"].seeds_needed
    assert needed is not None
    assert needed > 100
    said = " ".join(text(ranking.to_json()).split())
    assert ">100 seeds" in said
    assert ">100 seeds: not resolvable at this budget" in said
    assert f"{needed} seeds" not in said
    near = next(line for line in verdicts(ranking, {}).rows if line["variant"] == "near")
    (cell,) = near["cells"]
    assert cell is not None
    assert [cell[name] for name in ("seeds_lower", "seeds", "seeds_needed", "needed_for")] == [1, 3, 100, "more"]


def test_a_row_of_the_page_has_half_of_its_means_interval() -> None:
    results = [
        Result(variant=v, seed=s, loss=2.5 + at + 0.01 * s * (-1) ** at) for at, v in enumerate("ab") for s in range(4)
    ]
    ranking = rank(results, references=["a"])
    for row in verdicts(ranking, {}).rows:
        entry = ranking[row["variant"]]
        assert entry.mean is not None
        assert entry.interval is not None
        assert row["mean"] == entry.mean
        assert [row["mean"] - row["reach"], row["mean"] + row["reach"]] == pytest.approx(entry.interval, abs=1e-12)


def test_marks_of_negative_numbers_are_explained() -> None:
    runs = [
        Result(variant=v, seed=s, loss=level + 0.01 * s, planned=s < 3)
        for v, level in (("a", -0.5), ("b", -0.4))
        for s in range(4)
    ]
    shown = text(rank(runs, references=["a"], measure=measure_of("logprob", "higher")).to_json())
    assert "-0.47*" in shown
    assert "* not in the first plan" in shown
