"""The conclusion in words claims what the verdicts' codes allow, and nothing else, in both languages."""

import itertools
import re
import tomllib
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
from test_missing_verdicts import CASES, REFERENCES, runs

from addnorm.statistics import Ranking, Result, rank
from addnorm.statistics.conclusion import conclusion
from addnorm.statistics.measure import measure_of
from addnorm.words import Sentence, phrases

DIFFERENCE = re.compile(r"better|worse|equivalent|no difference|cannot be resolved")
DECIDED = ("better", "worse", "equivalent", "failed")


def sentences(ranking: Ranking) -> tuple[Sentence, Sentence, Sentence]:
    asked, found, still_open = conclusion(ranking)
    for each in (asked, found, still_open):
        chinese = phrases("zh").note(each.note)
        assert chinese
        assert "{" not in chinese
        assert "{" not in each
    return asked, found, still_open


def comparisons(ranking: Ranking) -> list[str | None]:
    return [each.verdict for row in ranking.variants for each in row.versus.values()]


@pytest.mark.parametrize("code", CASES)
def test_without_a_verdict_there_is_a_reason_and_no_claim(code: str) -> None:
    """Of every way to lack a verdict, what remains when the decided comparisons are left out."""
    reference = REFERENCES.get(code, "base")
    everything = CASES[code]()
    whole = rank(everything, references=[reference])
    without = {row.variant for row in whole.variants for c in row.versus.values() if c.reason_code == code}
    assert without
    kept = [run for run in everything if run.variant in without or run.variant == reference]
    ranking = rank(kept, references=[reference])
    if any(verdict is not None for verdict in comparisons(ranking)):  # the reason needs the decided ones
        ranking = whole
    _, found, still_open = sentences(ranking)
    if not any(verdict in DECIDED for verdict in comparisons(ranking)):
        assert not DIFFERENCE.search(found), found
        assert found.startswith(("No verdict yet: ", "Nothing is decided."))
        assert "Found" not in found
    assert still_open.startswith("Open: ")
    assert still_open != "Open: nothing."
    if "undecided" not in comparisons(ranking):
        assert "cannot be resolved" not in still_open


@pytest.mark.parametrize("seeds", [1, 2])
def test_too_few_seeds_say_how_many_there_are(seeds: int) -> None:
    ranking = rank([run for run in runs() if run.seed < seeds], references=["base"])
    _, found, still_open = sentences(ranking)
    shared = "1 seed shared" if seeds == 1 else "2 seeds shared"
    assert found == f"No verdict yet: {shared}, a verdict needs 3."
    assert still_open.startswith("Open: 2 of 2 comparisons")


def test_unequal_seeds_have_their_own_reasons() -> None:
    ranking = rank(runs(mine=(2.4112,), deep=(2.4911, 2.5312)), references=["base"])
    _, found, _ = sentences(ranking)
    assert found.startswith("No verdict yet: ")
    assert "mine–base: 1 seed shared, a verdict needs 3" in found
    assert "deep–base: 2 seeds shared, a verdict needs 3" in found


def test_many_reasons_are_counted() -> None:
    few = {f"v{place}": tuple(2.4 + place / 70 + seed / 90 for seed in range(1 + place % 2)) for place in range(6)}
    _, found, _ = sentences(rank(runs(mine=(2.4,), deep=(2.5,), **few), references=["base"]))
    assert found.endswith("and 5 more.")


def noise(**levels: float) -> list[Result]:
    rng = np.random.default_rng(3)
    return [
        Result(variant=name, seed=seed, loss=2.5 + level + 0.01 * rng.standard_normal())
        for name, level in levels.items()
        for seed in range(4)
    ]


def test_all_undecided_is_no_finding() -> None:
    ranking = rank(noise(base=0, a=0.001, b=-0.001), references=["base"])
    assert set(comparisons(ranking)) == {"undecided"}
    _, found, _ = sentences(ranking)
    assert found.startswith("Nothing is decided. With 95 % confidence, none of the 2 tested comparisons shows a diff")
    _, alone, _ = sentences(rank(noise(base=0, a=0.001), references=["base"]))
    assert "the tested comparison shows neither a difference nor that there is none" in alone


def test_a_second_batch_says_what_of_it_was_found_again() -> None:
    first = noise(base=0, a=0.3, b=-0.3, c=0.001)

    def with_second(**levels: float) -> str:
        later = [replace(run, seed=run.seed + 4) for run in noise(**levels)]
        return sentences(rank([*first, *later], references=["base"], second=(4, 5, 6, 7)))[1]

    batch = " On a second batch of seeds (4, 5, 6, 7), which was planned before the first was seen: "
    assert with_second(base=0, a=0.3, b=-0.3).endswith(f"{batch}b–base, a–base found again.")
    assert with_second(base=0, a=-0.3, b=-0.3).endswith(f"{batch}b–base found again; a–base not found again.")
    assert with_second().endswith(f"{batch}b–base, a–base not yet known.")
    assert "second batch" not in sentences(rank(first, references=["base"]))[1]


def test_all_equivalent_is_a_finding() -> None:
    _, found, still_open = sentences(rank(noise(base=0, a=0, b=0), references=["base"], margin=0.2))
    assert "a is equivalent to base (within 0.2 nats)" in found
    assert still_open == "Open: nothing."


def test_failures_alone_need_no_confidence() -> None:
    lost = [run for run in runs(mine=("failed",) * 3) if run.variant != "deep"]
    _, found, still_open = sentences(rank(lost, references=["base"]))
    assert found == "Found: mine failed."
    assert still_open == "Open: nothing."


def test_a_reference_alone_is_compared_with_nothing() -> None:
    _, found, _ = sentences(rank([run for run in runs() if run.variant == "base"], references=["base"]))
    assert found == "Nothing to compare: every variant is the reference."


@pytest.mark.parametrize(
    ("name", "unit"), [("bpb", " bits per byte"), ("perplexity", ""), ("error", " %"), ("accuracy", "")]
)
def test_another_measure_is_not_in_nats(name: str, unit: str) -> None:
    measure = measure_of(name, "higher" if name == "accuracy" else "lower", unit=unit.strip() or None)
    many = noise(base=0, a=0.3, b=-0.3, **{f"v{place}": 0.1 * place + 0.2 for place in range(6)})
    for some, chosen in itertools.product((noise(base=0, a=0.3, b=-0.3), many), (0.001, 2.0)):
        ranking = rank(some, references=["base"], measure=measure, margin=chosen)
        text = " ".join(sentences(ranking))
        assert "nat" not in text
        assert "loss" not in text
        assert name in text
        assert f"{unit} (" in text or f"{unit})" in text


def test_every_sentence_in_nats_has_its_form_for_other_measures() -> None:
    for language in ("en", "zh"):
        words = (files("addnorm.words") / language / "statistics.toml").read_text(encoding="utf-8")
        known = tomllib.loads(words)["note"]
        in_nats = {code for code, text in known.items() if re.match("found|counted|asked", code) and "nat" in text}
        assert in_nats
        assert {f"{code}_plain" for code in in_nats} <= known.keys()
