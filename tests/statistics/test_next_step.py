"""The next step after a ranking: one for every way to lack a verdict, in both languages."""

import pytest
from test_missing_verdicts import CASES, REFERENCES

from addnorm.statistics import Ranking, Result, rank
from addnorm.statistics.effects.next_step import NextStep, next_step
from addnorm.words import phrases


def step_of(ranking: Ranking) -> NextStep:
    step = next_step(ranking)
    chinese = phrases("zh").note(step.sentence.note)
    assert chinese
    assert "{" not in chinese + step.sentence
    assert step.to_json()["sentence"] == str(step.sentence)
    return step


def results(**losses: tuple[float, ...]) -> list[Result]:
    return [Result(variant=name, seed=seed, loss=x) for name, of in losses.items() for seed, x in enumerate(of)]


BASE = (2.503, 2.522, 2.511)


FIRST = {"nothing_finished": "wait"} | dict.fromkeys(
    ("nothing_shared", "one_shared", "several_shared", "few_runs"), "run_seeds"
)
"""Actions by the reason; another reason has to be corrected."""


@pytest.mark.parametrize("code", CASES)
def test_every_missing_verdict_has_a_next_step(code: str) -> None:
    reference = REFERENCES.get(code, "base")
    ranking = rank(CASES[code](), references=[reference])
    pairs = [(row.variant, c) for row in ranking.variants for c in row.versus.values() if c.reason_code == code]
    without = {variant for variant, comparison in pairs if comparison.verdict is None}
    kept = [run for run in CASES[code]() if run.variant in without or run.variant == reference]
    step = step_of(rank(kept, references=[reference]))
    assert step.action == FIRST.get(code, "correct")
    if step.action == "correct":
        assert set(step.variants) & without


def test_decided_comparisons_are_reported() -> None:
    step = step_of(rank(results(base=BASE, deep=(2.412, 2.443, 2.421)), references=["base"]))
    assert (step.action, step.seeds, step.variants) == ("report", None, ())


def test_a_verdict_that_was_not_found_again_stays_open() -> None:
    runs = results(base=(*BASE, *BASE), deep=(2.412, 2.443, 2.421, 2.60, 2.45, 2.54))
    step = step_of(rank(runs, references=["base"], second=(3, 4, 5)))
    assert step.action == "report"
    assert step.sentence.note["code"] == "next_report_both"
    assert "deep–base" in step.sentence
    again = rank(results(base=(*BASE, *BASE), deep=(2.412, 2.443, 2.421) * 2), references=["base"], second=(3, 4, 5))
    assert step_of(again).sentence.note["code"] == "next_report"


def test_a_tested_comparison_is_run_at_new_seeds() -> None:
    ranking = rank(results(base=BASE, deep=(2.489, 2.471, 2.513)), references=["base"])
    step = step_of(ranking)
    assert ranking["deep"].versus["base"].verdict == "undecided"
    assert (step.action, step.variants) == ("run_new_seeds", ("base", "deep"))
    assert step.seeds == ranking["deep"].versus["base"].seeds_needed
    assert str(step.seeds) in step.sentence
    assert "rank the new runs alone" in step.sentence


def test_an_untested_comparison_is_completed_first() -> None:
    """Two comparisons are open: one was tested, the other has two seeds."""
    ranking = rank(results(base=BASE, deep=(2.489, 2.471, 2.513), wide=(2.40, 2.42)), references=["base"])
    step = step_of(ranking)
    needed = max(ranking["wide"].versus["base"].seeds_needed or 0, 3)
    assert (step.action, step.seeds, step.variants) == ("run_seeds", needed, ("base", "wide"))


def test_what_no_usual_number_of_seeds_decides_is_left_open() -> None:
    ranking = rank(
        results(base=(2.50, 2.60, 2.50, 2.60), deep=(2.60, 2.50, 2.601, 2.501)), references=["base"], margin=0.0001
    )
    assert ranking["deep"].versus["base"].verdict == "undecided"
    assert step_of(ranking).action == "leave_open"


def test_runs_that_have_not_ended_are_awaited() -> None:
    runs = [*results(base=BASE, deep=(2.412, 2.443, 2.421)), Result(variant="deep", seed=3, state="running")]
    assert step_of(rank(runs, references=["base"])).action == "wait"


def test_a_single_variant_needs_another() -> None:
    assert step_of(rank(results(base=BASE), references=["base"])).action == "add_variant"


def test_a_lost_reference_is_corrected() -> None:
    runs = [*results(deep=BASE), *(Result(variant="base", seed=seed, state="failed") for seed in range(3))]
    step = step_of(rank(runs, references=["base"]))
    assert (step.action, step.variants) == ("correct", ("deep", "base"))
    assert "no run of the reference base finished" in step.sentence
