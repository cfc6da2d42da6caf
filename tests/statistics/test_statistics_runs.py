"""Which runs a ranking counts: copies, failures, runs to come, runs it refuses."""

from collections.abc import Sequence
from typing import Any

import pytest
from seeded_results import study

from addnorm.errors import InputError, UnknownName
from addnorm.statistics import Result, rank, read_published


def without(results: Sequence[Result], variant: str, *seeds: int) -> list[Result]:
    return [r for r in results if not (r.variant == variant and (not seeds or r.seed in seeds))]


def test_copies_by_hash_count_once_even_when_digits_differ() -> None:
    results = [Result(**{**vars(r), "content_hash": f"{r.variant}{r.seed}"}) for r in study(3)]
    copy = Result(variant="base", seed=9, loss=2.7, content_hash="base0")
    ranking = rank([*results, copy], references=["base"])
    assert ranking["base"].seeds == 3
    assert [value.counted for value in ranking["base"].values] == [True, True, True, False]
    assert ranking.warnings == ("base/9 repeats base/0 bit for bit: a copy, not a replicate. Counted once.",)


def test_equal_digits_with_different_hashes_are_two_runs() -> None:
    results = study(3)
    same = [Result(variant="base", seed=s, loss=2.4, content_hash=str(s)) for s in (7, 8)]
    assert rank([*results, *same])["base"].seeds == 5


def test_a_variant_that_is_another_under_a_second_name_takes_no_part_in_the_count() -> None:
    alone = rank(study(), references=["base"])
    again = [Result(**{**vars(r), "variant": "alias"}) for r in study() if r.variant == "bad"]
    both = rank([*study(), *again], references=["base"])
    assert both["alias"].same_as == "bad"
    assert both["alias"].versus["base"] == both["bad"].versus["base"] == alone["bad"].versus["base"]
    assert both.family == alone.family
    assert both.noise_df == alone.noise_df
    assert any("alias repeats variant bad" in warning for warning in both.warnings)


def test_a_copy_of_the_reference_is_equivalent_to_it() -> None:
    again = [Result(**{**vars(r), "variant": "alias"}) for r in study() if r.variant == "base"]
    ranking = rank([*again, *study()], references=["base"])
    assert (ranking["alias"].same_as, ranking["base"].same_as) == ("base", None)
    comparison = ranking["alias"].versus["base"]
    assert comparison.verdict == "equivalent"
    assert comparison.interval == (0.0, 0.0)


def test_one_run_under_two_variants_is_called_mislabelled() -> None:
    results = [Result(**{**vars(r), "content_hash": f"{r.variant}{r.seed}"}) for r in study(4)]
    stolen = [Result(**{**vars(r), "content_hash": "base1"}) if r.name == "bad/1" else r for r in results]
    ranking = rank(stolen, references=["base"])
    assert ranking["bad"].seeds == 3
    assert any("one of the two is mislabelled" in warning for warning in ranking.warnings)


def test_failed_variants_are_listed_last_with_their_reason() -> None:
    lost = [Result(variant="deep", seed=s, state="failed", reason="out of memory") for s in range(4)]
    ranking = rank([*lost, *study()], references=["base"])
    assert ranking.variants[-1].variant == "deep"
    assert ranking["deep"].versus["base"].verdict == "failed"
    assert ranking["deep"].tier.label == "failed"
    assert ranking["deep"].rank_interval is None
    assert "deep: seeds 0, 1, 2, 3 failed (out of memory)." in ranking.warnings
    assert ranking.family == 3


@pytest.mark.parametrize(("variant", "verdict"), [("good", "failed"), ("twin", "failed"), ("bad", "worse")])
def test_a_variant_that_diverged_at_one_seed_can_lose_but_not_win_or_tie(variant: str, verdict: str) -> None:
    results = [*without(study(5), variant, 2), Result(variant=variant, seed=2, state="diverged")]
    comparison = rank(results, references=["base"])[variant].versus["base"]
    assert comparison.verdict == verdict
    assert comparison.seeds == 4


def test_a_variant_that_diverged_at_one_seed_takes_no_rank_from_others() -> None:
    whole = rank(study(5))
    assert (whole["good"].rank_interval, whole["bad"].rank_interval) == ((1, 1), (4, 4))
    holed = rank([*without(study(5), "good", 2), Result(variant="good", seed=2, state="diverged")])
    assert holed["good"].rank_interval == (1, 4)
    assert holed["bad"].rank_interval == (3, 4)


@pytest.mark.parametrize(("variant", "verdict"), [("good", "better"), ("twin", None), ("bad", None)])
def test_a_reference_that_diverged_at_one_seed_can_be_beaten_only(variant: str, verdict: str | None) -> None:
    results = [*without(study(5), "base", 2), Result(variant="base", seed=2, state="diverged")]
    comparison = rank(results, references=["base"])[variant].versus["base"]
    assert comparison.verdict == verdict
    if verdict is None:
        assert comparison.reason is not None
        assert "diverged at seed 2" in comparison.reason


def test_a_failed_reference_gives_no_verdict_and_no_line() -> None:
    lost = [Result(variant="gone", seed=s, state="diverged") for s in range(4)]
    ranking = rank([*study(), *lost], references=["gone", "base"])
    assert ranking["good"].versus["gone"].verdict is None
    assert ranking["good"].versus["base"].verdict == "better"
    assert ranking.lines == (("base",),)


@pytest.mark.parametrize(("planned", "provisional"), [(True, True), (False, True)])
def test_provisional_while_runs_have_not_ended(planned: bool, provisional: bool) -> None:
    waiting = Result(variant="good", seed=9, state="running", planned=planned)
    assert rank([*study(), waiting], references=["base"]).provisional is provisional


def test_runs_still_to_come_make_no_verdict_cheaper() -> None:
    waiting = [Result(variant="later", seed=s, state="queued") for s in range(4)]
    assert rank([*study(), *waiting], references=["base"]).family == 4


def test_seeds_added_after_a_look_are_named() -> None:
    ranking = rank(study(), references=["base"], added_after_look=[3])
    assert ranking.to_json()["added_after_look"] == [3]
    assert any("seeds added after results had been seen: 3" in warning for warning in ranking.warnings)


@pytest.mark.parametrize("what", ["corpus", "tokenizer"])
def test_runs_on_different_data_are_refused(what: str) -> None:
    mixed = [*study(3, **{f"{what}_hash": "aaa"}), Result(variant="new", seed=0, loss=2.4, **{f"{what}_hash": "bbb"})]
    with pytest.raises(
        InputError, match=rf"only runs on one {what} can be ranked: base/0 has {what} hash aaa, new/0 has bbb"
    ):
        rank(mixed, references=["base"])


def test_a_run_that_does_not_say_its_corpus_is_refused_beside_one_that_does() -> None:
    with pytest.raises(InputError, match="hash aaa, new/0 has none"):
        rank([*study(3, corpus_hash="aaa"), Result(variant="new", seed=0, loss=2.4)])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rank([]), "at least one run"),
        (lambda: rank(study(), references=["bas"]), "Did you mean 'base'"),
        (lambda: rank(study(), references=["base", "base"]), "named once"),
        (lambda: rank([*study(), study()[0]]), "one run per variant and seed"),
        (lambda: rank(study(), margin=0.0), "margin: expected a positive number"),
        (lambda: rank(study(), confidence=95.0), "For 95 % give 0.95"),
        (lambda: rank(study(), assumed_sd=-1.0), "assumed_sd: expected a positive"),
        (lambda: Result(variant="a", seed=0), "run a/0: expected a finite loss, got None"),
        (lambda: Result(variant="a", seed=0, loss=float("nan")), "as 'diverged'"),
        (
            lambda: Result(variant="a", seed=0, loss=2.0, state="running"),
            "expected no loss in state 'running', got 2.0",
        ),
        (lambda: Result(variant="a", seed=0, loss=2.0, accuracy=50.2), "Divide per cent by 100"),
    ],
)
def test_wrong_input_is_rejected_readably(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def test_unknown_states_are_named() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'finished'"):
        Result(variant="a", seed=0, loss=2.0, state="finishd")


def test_a_results_file_with_a_misspelt_field_is_refused(tmp_path: Any) -> None:
    file = tmp_path / "results.json"
    file.write_text('{"runs": [{"variant": "a", "seed": 0, "los": 2.0}]}')
    with pytest.raises(InputError, match=r"\$\.runs\[0\]: expected fields of a run, got 'los'\. Did you mean 'loss'"):
        read_published(file)
    with pytest.raises(InputError, match="No such file"):
        read_published(tmp_path / "none.json")
