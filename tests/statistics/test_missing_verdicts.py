"""Every comparison without a verdict has a reason in words, in both languages, and a code; the text for a terminal says it."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import addnorm.statistics.verdicts
from addnorm.reporting.formats.measured import missing_verdicts
from addnorm.reporting.formats.ranking_latex import latex
from addnorm.reporting.sections.ranking import text
from addnorm.statistics import Result, rank
from addnorm.words import phrases

LOSSES = {"base": (2.5003, 2.5214, 2.5108), "mine": (2.4112, 2.4425, 2.4237), "deep": (2.4911, 2.5312, 2.5009)}


def runs(**changed: tuple[float | str | None, ...]) -> list[Result]:
    """Three variants; in place of a loss stands a state."""
    found = []
    for name, row in {**LOSSES, **changed}.items():
        for seed, loss in enumerate(row):
            if isinstance(loss, str):
                found.append(Result(variant=name, seed=seed, state=loss, reason="lost"))
            elif loss is not None:
                found.append(Result(variant=name, seed=seed, loss=loss))
    return found


def untrained(name: str, loss: float) -> list[Result]:
    return [Result(variant=name, seed=s, loss=loss, trained=False, content_hash=name) for s in range(3)]


def shifted() -> list[Result]:
    return [*runs(), Result(variant="late", seed=7, loss=2.4), Result(variant="late", seed=8, loss=2.41)]


CASES: dict[str, Callable[[], list[Result]]] = {
    "nothing_finished": lambda: runs(base=("running",) * 3, mine=("queued",) * 3, deep=("queued",) * 3),
    "reference_not_finished": lambda: runs(base=("failed",) * 3),
    "nothing_shared": shifted,
    "one_shared": lambda: runs(mine=(2.4112,)),
    "several_shared": lambda: runs(mine=(2.4112, 2.4425)),
    "few_runs": lambda: [
        *(
            replace(run, seed=run.seed + 10 * place)
            for place, name in enumerate(LOSSES)
            for run in runs()
            if run.variant == name
        ),
        *(Result(variant="few", seed=40 + s, loss=2.4 + s / 70) for s in range(2)),
    ],
    "no_spread": lambda: [*runs(), *(Result(variant="copies", seed=s, loss=2.4 + 1 / 7) for s in range(3))],
    "same_digits": lambda: runs(mine=(2.41, 2.41, 2.41)),
    "no_noise": lambda: [r for r in runs(mine=(2.2503, 2.2714, 2.2608)) if r.variant != "deep"],
    "both_constant": lambda: [*runs(), *untrained("base2", 2.6), *untrained("other", 2.7)],
    "reference_diverged": lambda: runs(base=(2.5003, "diverged", 2.5108, 2.4999, 2.5101)),
    "two_names": lambda: [
        *runs(),
        *(
            Result(variant=v, seed=s, loss=2.4 + s / 7, content_hash=f"same{s}")
            for v in ("one", "two")
            for s in range(2)
        ),
    ],
}
REFERENCES = {"both_constant": "base2", "two_names": "one"}


@pytest.mark.parametrize("code", CASES)
def test_a_missing_verdict_has_a_code_and_a_reason_where_a_person_reads_it(code: str) -> None:
    ranking = rank(CASES[code](), references=[REFERENCES.get(code, "base")])
    content = ranking.to_json()
    missing = [c for row in ranking.variants for c in row.versus.values() if c.verdict is None]
    assert code in {comparison.reason_code for comparison in missing}
    shown = " ".join(text(content).split())
    comments = latex(content)["ranking.tex"]
    for comparison in missing:
        assert comparison.reason is not None
        assert comparison.to_json()["reason_code"] == comparison.reason_code
        assert phrases("zh").note(comparison.reason.note), "the page of another language has it too"
        covered = any(note["code"].startswith("no_verdict") for note in content["notes"])
        covered &= comparison.reason_code in ("one_shared", "several_shared", "no_spread")
        assert str(comparison.reason) in shown or covered
        assert str(comparison.reason) in comments or covered


def test_the_cases_are_all_that_there_are() -> None:
    """A new reason in the verdicts needs a case here."""
    source = Path(addnorm.statistics.verdicts.__file__).read_text(encoding="utf-8")
    known = set(re.findall(r'say\(\s*"(\w+)"', source)) | {"one_shared", "several_shared", "few_runs"}
    with_verdict = {"none_finished", "diverged", "certainly_lower", "certainly_higher"}
    assert known - with_verdict - {"ended", "ended_because"} == set(CASES)


def test_the_warning_of_too_few_seeds_stands_only_where_it_holds() -> None:
    """Three seeds are shared: it is the printed digits that are missing."""
    two = [r for r in CASES["same_digits"]() if r.variant != "deep"]
    ranking = rank(two, references=["base"])
    assert not [note for note in ranking.to_json()["notes"] if note["code"].startswith("no_verdict")]
    assert missing_verdicts(ranking.to_json()) == [
        "no verdict on mine against base: every seed of mine prints the same loss, which shows no spread; "
        "more digits would tell."
    ]


def test_many_comparisons_of_one_reason_are_counted() -> None:
    losses = {f"v{place}": tuple(x + place / 70 for x in LOSSES["deep"]) for place in range(7)}
    ranking = rank(runs(base=(2.5003, "diverged", 2.5108), **losses), references=["base"])
    (sentence,) = [each for each in missing_verdicts(ranking.to_json()) if "diverged" in each]
    assert re.search(r"v\d against base and \d more: the reference base diverged", sentence)


def test_comparisons_with_a_verdict_have_no_code_in_json() -> None:
    comparison = rank(runs(), references=["base"])["mine"].versus["base"]
    assert comparison.verdict == "better"
    assert "reason_code" not in comparison.to_json()
