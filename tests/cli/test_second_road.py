"""One question asked in two ways has one answer: what counts as a run, the reference, the direction, what has diverged."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from test_predict_command import AGAIN, frozen, printed, refused, train

import addnorm
from addnorm.errors import InputError
from addnorm.store import StudyFolder

Row = dict[str, Any]


def rows(levels: dict[str, float], seeds: int = 6, spread: float = 0.002, **more: Any) -> list[Row]:
    """Runs of each variant about its level, all of their digits written."""
    draw = random.Random(1)
    return [
        {"variant": name, "seed": seed, "loss": level + draw.gauss(0, spread), **more}
        for name, level in levels.items()
        for seed in range(seeds)
    ]


def copied(of: list[Row], times: int) -> list[Row]:
    """The runs and copies of them under other seeds."""
    return [{**row, "seed": row["seed"] + 100 * copy} for copy in range(times) for row in of]


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two sizes, each with a second batch of seeds of two variants."""
    folder = tmp_path_factory.mktemp("ladder")
    return [str(train(frozen(folder / f"w{steps}", steps, replicate=("base", "gains")))) for steps in (100, 400)]


def test_a_copy_of_a_run_counts_once_for_a_rule_for_a_worth_and_for_a_stream(tmp_path: Path) -> None:
    few = rows({"base": 3.28, "idea": 3.278}, seeds=2)
    once, often = (addnorm.rule(each, "modded-nanogpt")["idea"].conditions[0] for each in (few, copied(few, 3)))
    assert once == often
    sizes = [
        row for c, level in ((1e17, 3.3), (1e18, 3.1)) for row in rows({"base": level, "idea": level - 0.02}, compute=c)
    ]
    alone, twice = addnorm.speedup(sizes), addnorm.speedup(copied(sizes, 2))
    assert twice["idea"].interval == pytest.approx(alone["idea"].interval)
    assert any("Counted once" in str(warning) for warning in twice.warnings)
    stream = rows({"base": 2.9}, seeds=12, spread=0.01) + [
        {"variant": "idea", "seed": s, "loss": 2.871234567} for s in range(9)
    ]
    judged = addnorm.judge(tmp_path / "whole.jsonl", stream)
    assert (judged["idea"].verdict, judged["idea"].runs) == ("open", 1)
    assert any("Counted once" in str(note) for note in judged.notes)
    # One after another is no way around it.
    for end in (13, 14, 15, 16):
        later = addnorm.judge(tmp_path / "slowly.jsonl", stream[:end])
    assert (later["idea"].verdict, later["idea"].runs) == ("open", 1)


def test_a_rule_compares_with_the_reference_of_the_study(ladder: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(ladder[0])
    plan = json.loads((path / "study.json").read_text(encoding="utf-8"))
    other = path.with_name("other")
    StudyFolder.create(other, {**plan, "references": ["same"]})
    train(StudyFolder(other))
    ruled = json.loads(printed(capsys, "rank", str(other), "--rule", "parameter-golf", "--json"))
    assert ruled["reference"] == addnorm.rank(other).references[0] == "same"


def test_a_number_of_which_higher_is_better_is_no_loss_to_a_worth(tmp_path: Path) -> None:
    table = [{**row, "acc": row["loss"], "compute": 1e17} for row in rows({"base": 0.5, "idea": 0.55})]
    curve = [{**row, "step": step, "acc": row["acc"] * step / 300} for row in table for step in (100, 200, 300)]
    with pytest.raises(InputError, match="expected a loss, or a direction"):
        addnorm.speedup(table, limit=0.1, exponent=0.1, columns={"loss": "acc"})
    with pytest.raises(InputError, match="expected a loss, or a direction"):
        addnorm.speedup(curve, of="steps", columns={"loss": "acc"})


def test_the_second_batch_counts_the_seeds_at_which_a_number_is_better(
    ladder: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """`gains` has the lower perplexity at every seed of both batches: better at all of them, or at none if higher is better."""
    for direction, word, better in (("lower", "better", 4), ("higher", "worse", 0)):
        text = " ".join(printed(capsys, "rank", ladder[1], "--metric", f"perplexity,direction={direction}").split())
        assert f"{word} {better}/4 -" in text
        assert f"(again {better}/{len(AGAIN)} -" in text


def test_steps_of_a_variant_with_a_diverged_run_have_no_worth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = frozen(tmp_path / "w400", 400)
    gone = "gains-s1"
    train(study, only={run.name for run in study.runs()} - {gone})
    run = study.run(gone)
    with run.claim() as events:
        events.write("eval", step=20, loss=9.0, final=False, accuracy=0.1, perplexity=9.0)
        run.mark("diverged", step=21)
    assert addnorm.rank(study.path)["gains"].versus["base"].verdict == "failed"
    assert "diverged" in refused(capsys, "rank", str(study.path), "--as", "steps")
    assert addnorm.speedup(study.path, of="steps", variants=["same"])["same"].worth > 0


def test_time_per_step_is_of_the_runs_whose_steps_are_compared(tmp_path: Path) -> None:
    """The machine is ten times slower during the second batch, which `same` has not."""
    study = frozen(tmp_path / "w400", 400, replicate=("base", "gains"))
    train(study, only=[run.name for run in study.runs("first")])
    before = addnorm.speedup(study.path, of="steps").costs
    train(study, only=[run.name for run in study.runs("second")], speed=0.1)
    assert addnorm.speedup(study.path, of="steps").costs == before


def test_a_known_difference_within_the_margin_is_equivalent_for_items_as_for_runs() -> None:
    right = {"base": "1101001011" * 400, "deep": "1101001011" * 399 + "1111111111"}
    items = [{"variant": name, "item": i, "score": int(x)} for name, of in right.items() for i, x in enumerate(of)]
    asked = {"columns": {"loss": "score", "seed": ""}}
    assert addnorm.downstream(items, **asked)["deep", ""].verdict == "better"
    assert addnorm.downstream(items, **asked, margin=0.01)["deep", ""].verdict == "equivalent"
