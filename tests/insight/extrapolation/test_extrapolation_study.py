"""Whole studies at lengths: what is written, what is not computed twice, what the verdicts are."""

import json
import math
import shutil
import statistics
from pathlib import Path

import pytest
from scipy.stats import t
from studies import finish, untrained

from addnorm.errors import InputError
from addnorm.insight.extrapolation import summary
from addnorm.insight.extrapolation.extrapolate import extrapolate
from addnorm.insight.extrapolation.switches import parse_switches
from addnorm.statistics import Result, rank
from addnorm.statistics.measure import LOSS_OF_ANSWERS, NATS_PER_ANSWER
from addnorm.store import RunFolder, StudyFolder

VARIANTS = """
  biased: {bias: {q: true, k: true}}
  masked: {objective: masked, position: sinusoidal}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained(tmp_path_factory.mktemp("made"), VARIANTS).path


@pytest.fixture
def study(made: Path, tmp_path: Path) -> Path:
    """A copy to write into."""
    return Path(shutil.copytree(made, tmp_path / "runs"))


def evaluated(folder: Path, **changes) -> tuple[dict, list[int]]:
    """The result, and how many evaluations each run cost."""
    computed: list[int] = []
    options = {"lengths": "1x,2x", "windows": 4, "workers": 1, "references": ("plain",)} | changes
    found = extrapolate(folder, on_done=lambda run, outcome, done, total: computed.append(outcome.computed), **options)
    return found, computed


def kept(folder: Path) -> dict[str, dict]:
    return {path.parent.name: json.loads(path.read_text()) for path in folder.glob("*/extrapolation.json")}


def test_what_a_study_gives(study: Path) -> None:
    found, computed = evaluated(study, lengths="1x,2x,4x", switches=parse_switches("log_n"))
    assert computed == [6] * 9
    assert (found["trained"], found["lengths"], found["stretch"]) == (16, [16, 32, 64], 64)
    assert [line["label"] for line in found["lines"]] == [
        name for variant in ("plain", "biased", "masked") for name in (variant, f"{variant} +log_n")
    ]
    assert len(found["rows"]) == 3 * 6
    assert json.loads((study / "extrapolation.json").read_text()) == found
    files = kept(study)
    assert len(files) == 9
    for row in found["rows"]:
        mine = [
            entry
            for content in files.values()
            for entry in content["evaluations"]
            if (content["variant"], entry["switch"], entry["length"]) == (row["variant"], row["switch"], row["length"])
        ]
        assert len(mine) == row["seeds"] == 3
        losses = [entry["window"]["loss"] for entry in mine]
        assert row["loss"] == pytest.approx(sum(losses) / 3)
        # 95 % for three lengths together: 5/3 % outside; Student's t with two degrees of freedom.
        error = statistics.stdev(losses) / math.sqrt(3)
        expected = t.interval(1 - 0.05 / 3, 2, loc=row["loss"], scale=error)
        assert row["loss_interval"] == pytest.approx(expected)
        assert [bucket["to"] for bucket in row["buckets"]] == [8, 16, 32, 64][: 2 + [16, 32, 64].index(row["length"])]
        assert sum(bucket["targets"] for bucket in row["buckets"]) == row["targets"]
        for part in (row, *row["buckets"]):
            assert part["perplexity"] == pytest.approx(math.exp(part["loss"]))
            assert 0 <= part["accuracy"] <= 1
            assert part["accuracy_interval"][0] <= part["accuracy"] <= part["accuracy_interval"][1]
    targets = {row["variant"]: set() for row in found["rows"]}
    for row in found["rows"]:
        targets[row["variant"]].add(row["targets"])
    assert targets["plain"] == targets["biased"] == {4 * 64}, "the same targets at every length"
    assert len(targets["masked"]) == 1


def test_at_the_train_length_it_is_the_workers_own_evaluation(finished: Path, tmp_path: Path) -> None:
    """With as many windows as the study evaluates on, the texts are the same, and so must the losses be."""
    copy = Path(shutil.copytree(finished, tmp_path / "runs"))
    found, _ = evaluated(copy, lengths="1x", references=("base",))
    for row in found["rows"]:
        for value in row["values"]:
            # Float32 sums in batches of another size: some ulps of a loss near 5.
            status = RunFolder(copy / value["run"]).status()
            assert value["loss"] == pytest.approx(status.loss, rel=1e-5)
            assert value["accuracy"] == pytest.approx(status.accuracy)


def test_verdicts_are_the_rankings_on_each_length(study: Path) -> None:
    for scoring in ("window", "ending"):
        found, _ = evaluated(study, scoring=scoring)
        for length in (16, 32):
            results = [
                Result(
                    variant=content["variant"],
                    seed=content["seed"],
                    loss=entry[scoring]["loss"],
                    accuracy=entry[scoring]["accuracy"],
                    corpus_hash="one",
                    tokenizer_hash="one",
                )
                for content in kept(study).values()
                for entry in content["evaluations"]
                if entry["length"] == length
            ]
            # 95 % for two lengths together leaves 97.5 % for each.
            expected = rank(results, references=("plain",), margin=0.005, confidence=0.975)
            for row in (row for row in found["rows"] if row["length"] == length):
                for name, comparison in row["versus"].items():
                    mine = expected[row["variant"]].versus[name]
                    assert comparison["verdict"] == mine.verdict
                    assert comparison["interval"] == pytest.approx(mine.interval)


def test_losses_of_a_task_are_ranked_as_such(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "measure_of_study", lambda folder: LOSS_OF_ANSWERS)
    found, _ = evaluated(study)
    assert (found["metric"], found["unit"]) == ("loss", NATS_PER_ANSWER)
    assert {ranking["unit"] for ranking in found["rankings"].values()} == {NATS_PER_ANSWER}


def test_a_switch_is_not_ranked_where_it_changes_nothing(study: Path) -> None:
    found, _ = evaluated(study, switches=parse_switches("log_n"))
    at = {(row["label"], row["length"]): row for row in found["rows"]}
    assert at["plain +log_n", 16]["loss"] == at["plain", 16]["loss"]
    assert at["plain +log_n", 16]["versus"] == {}
    assert at["plain +log_n", 32]["versus"]["plain"]["verdict"] is not None


def test_nothing_is_computed_twice(study: Path) -> None:
    first, computed = evaluated(study)
    assert computed == [2] * 9
    times = {path: path.stat().st_mtime_ns for path in study.glob("*/extrapolation.json")}
    again, computed = evaluated(study)
    assert computed == [0] * 9
    assert again == first
    assert {path: path.stat().st_mtime_ns for path in times} == times
    more, computed = evaluated(study, switches=parse_switches("log_n"))
    assert computed == [2] * 9, "the switch at both lengths, and nothing of what was there"
    assert next(row for row in more["rows"] if row["switch"] == "none")["loss"] == first["rows"][0]["loss"]
    run = RunFolder(next(study.glob("plain-s0-*")))
    run.final_path.write_bytes((next(study.glob("plain-s1-*")) / "final.safetensors").read_bytes())
    _, computed = evaluated(study)
    assert sorted(computed) == [0] * 8 + [2], "other weights are evaluated anew"
    _, computed = evaluated(study, windows=3)
    assert computed == [2] * 9, "and so is another text"


def test_a_file_of_ours_that_is_damaged_is_computed_again(study: Path) -> None:
    first, _ = evaluated(study)
    for number, content in enumerate(("", "[]", '{"format": 99}')):
        (next(study.glob(f"plain-s{number}-*")) / "extrapolation.json").write_text(content)
    again, computed = evaluated(study)
    assert sorted(computed) == [0] * 6 + [2] * 3
    assert again == first


def test_what_was_done_before_an_interruption_is_kept(study: Path) -> None:
    def stop(run, outcome, done, total) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extrapolate(study, lengths="1x,2x", windows=4, workers=1, on_done=stop)
    assert len(kept(study)) == 4
    assert not (study / "extrapolation.json").exists()
    _, computed = evaluated(study)
    assert sorted(computed) == [0] * 4 + [2] * 5


@pytest.mark.thorough
def test_worker_processes_find_the_same_numbers(study: Path, tmp_path: Path) -> None:
    alone, _ = evaluated(study, variants=("plain",))
    other = Path(shutil.copytree(study, tmp_path / "other", ignore=shutil.ignore_patterns("extrapolation.json")))
    together, computed = evaluated(other, variants=("plain",), workers=2)
    assert computed == [2] * 3
    assert together == alone


def test_runs_without_a_result_are_shown_and_said(study: Path) -> None:
    broken = next(study.glob("plain-s0-*"))
    (broken / "final.safetensors").write_bytes(b"not weights")
    untrained_run = next(study.glob("biased-s1-*"))
    (untrained_run / "DONE").unlink()
    (untrained_run / "final.safetensors").unlink()
    found, computed = evaluated(study)
    assert sorted(computed) == [0] + [2] * 7
    assert "final.safetensors is damaged" in found["problems"][broken.name]
    assert any(broken.name in warning for warning in found["warnings"])
    at = {(row["label"], row["length"]): row for row in found["rows"]}
    assert (at["plain", 32]["seeds"], at["biased", 32]["seeds"], at["masked", 32]["seeds"]) == (2, 2, 3)
    states = {value["run"]: value["state"] for value in at["biased", 32]["values"]}
    assert states[untrained_run.name] == "interrupted"
    assert at["biased", 32]["versus"]["plain"]["verdict"] is None, "one shared seed is too few"


def test_a_run_that_lost_its_weights_does_not_stop_the_others(study: Path) -> None:
    """Its earlier numbers belong to another text by then, and are not compared with those of this one."""
    evaluated(study)
    gone = next(study.glob("plain-s0-*"))
    (gone / "final.safetensors").unlink()
    found, computed = evaluated(study, windows=2)
    assert computed == [2] * 8
    assert found["problems"] == {gone.name: "its final weights are missing"}
    at = {(row["label"], row["length"]): row for row in found["rows"]}
    assert (at["plain", 32]["seeds"], at["biased", 32]["seeds"]) == (2, 3)


def test_runs_that_have_not_ended_are_counted_once_however_many_switches(study: Path) -> None:
    waiting = next(study.glob("biased-s1-*"))
    (waiting / "DONE").unlink()
    (waiting / "final.safetensors").unlink()
    found, _ = evaluated(study, switches=parse_switches("log_n,local_window"))
    said = [warning for warning in found["warnings"] if "provisional" in warning]
    assert [warning.partition(" tokens: ")[2] for warning in said] == [
        "provisional: runs that have not ended: 1. Verdicts can change when they end."
    ] * 2


def test_everything_asked_for_is_checked_before_anything_is_evaluated(study: Path) -> None:
    for margin in (-1.0, 0.0, math.nan):
        with pytest.raises(InputError, match="margin: expected a positive number"):
            evaluated(study, margin=margin)
    for run in study.glob("biased-s*"):
        (run / "final.safetensors").unlink()
    with pytest.raises(InputError, match="has no finished run of biased to evaluate"):
        evaluated(study, variants=("biased",), references=None)
    assert not list(study.rglob("extrapolation.json"))


def test_a_loss_that_is_not_finite_is_a_failure_at_that_length(study: Path) -> None:
    evaluated(study)
    for path in study.glob("plain-s*/extrapolation.json"):
        content = json.loads(path.read_text())
        for entry in content["evaluations"]:
            if entry["length"] == 32:
                entry["window"] |= {"loss": None, "perplexity": None}
        path.write_text(json.dumps(content))
    found, computed = evaluated(study)
    assert computed == [0] * 9
    at = {(row["label"], row["length"]): row for row in found["rows"]}
    assert at["plain", 32]["loss"] is None
    assert at["plain", 16]["loss"] is not None
    assert any("its loss at 32 tokens is not finite" in warning for warning in found["warnings"])


def test_chosen_variants_and_references(study: Path) -> None:
    found, computed = evaluated(study, variants=("biased", "masked"), references=None)
    assert computed == [2] * 6
    assert found["references"] == []
    assert "references that were not chosen are left out: plain." in found["warnings"]
    with pytest.raises(InputError, match=r"no variant 'bised'\. Did you mean 'biased'"):
        evaluated(study, variants=("bised",))
    with pytest.raises(InputError, match="reference"):
        evaluated(study, variants=("biased",), references=("plain",))


def test_few_windows_are_said(study: Path) -> None:
    found, _ = evaluated(study, windows=10**6)
    assert any("expected 1000000 windows, but the held-out text holds" in warning for warning in found["warnings"])


def test_positions_at_eight_times_the_train_length(tmp_path: Path) -> None:
    """Every position kind that knows the length, GAU's and T5's among them, with every switch that applies to it."""
    from addnorm.catalogue import ROOMS

    kinds = [kind for kind in ROOMS["position"].kinds() if kind != "learned"]
    lines = "\n".join(f"  {kind}: {{position: {kind}}}" for kind in kinds)
    folder = untrained(tmp_path, lines + "\n", seeds="[0]", references="[]")
    found, computed = evaluated(
        folder.path, lengths="1x,8x", windows=2, references=None, switches=parse_switches("log_n,local_window")
    )
    assert computed == [6] * (len(kinds) + 1)
    assert not found["problems"]
    assert all(row["loss"] is not None for row in found["rows"])


def test_a_study_without_a_finished_run(tmp_path: Path) -> None:
    folder = untrained(tmp_path, seeds="[0]")
    run = folder.runs()[0]
    (run.path / "DONE").unlink()
    run.final_path.unlink()
    with pytest.raises(InputError, match="has no finished run to evaluate"):
        evaluated(folder.path)
    finish(StudyFolder(folder.path).runs()[0])
    assert evaluated(folder.path)[1] == [2]
