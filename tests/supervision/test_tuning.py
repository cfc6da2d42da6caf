"""`tune:` end to end: points first, then the chosen ones on fresh seeds; killed anywhere, it ends as one that is not."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from addnorm.cli import main
from addnorm.store import StudyFolder, read_json
from addnorm.store.results import ranking
from addnorm.store.tuning import tuning
from addnorm.study.loading import load_study
from addnorm.supervision.run import run
from train_here import workers_here

STUDY = """
name: tuned
references: [base]
seeds: [0, 1, 2]
corpus: {kind: synthetic, num_documents: 20}
tokenizer: bytes
training: {steps: 3, batch: 2, seq: 16, eval_sequences: 2, schedule: {kind: constant}}
model: {preset: base, width: 16, depth: 1, heads: 2, kv_heads: 1, hidden: 16, max_seq: 16}
tune:
  seeds: [100, 101]
  over: {training.optimizer.learning_rate: [1e-6, 2e-2, 1e6]}
variants:
  base: {}
  scaled: {residual: scale, tune: {over: {training: {optimizer: {learning_rate: [1e-6, 2e-2]}}}}}
"""
BEST = {"base": "base, learning_rate 2e-2", "scaled": "scaled, learning_rate 2e-2"}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "tuned.yaml"
    path.write_text(STUDY)
    return path


@pytest.fixture(scope="module")
def calm(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study that nothing disturbed. Read it only."""
    return train(file, tmp_path_factory.mktemp("calm") / "out").path


def train(file: Path, out: Path) -> StudyFolder:
    with workers_here():
        return run(load_study(str(file)), out=out)


def content(out: Path) -> dict[str, Any]:
    """The plan with its choice, and the weights of every run, without times."""
    plan = read_json(out / "study.json")
    for extension in plan.get("extensions", []):
        del extension["time"]
    runs = StudyFolder(out).all_runs()
    return {**plan, "weights": {run.name: (run.ending() or {}).get("content_hash") for run in runs}}


def only_tuned(calm: Path, out: Path) -> Path:
    """The study when its tuning has ended."""
    shutil.copytree(calm, out)
    plan = read_json(out / "study.json")
    for extension in plan.pop("extensions"):
        for entry in extension["runs"]:
            shutil.rmtree(out / entry["run"])
    (out / "study.json").write_text(json.dumps(plan))
    (out / "costs.json").unlink()
    return out


def test_the_best_points_are_compared_on_fresh_seeds_alone(file: Path, calm: Path) -> None:
    folder = StudyFolder(calm)
    assert {(run.spec["variant"], run.spec["seed"]) for run in folder.tuning_runs()} == {
        (point, seed)
        for point in (
            "base, learning_rate 1e-6",
            "base, learning_rate 1e6",
            "scaled, learning_rate 1e-6",
            *BEST.values(),
        )
        for seed in (100, 101)
    }
    assert [(run.spec["variant"], run.spec["seed"]) for run in folder.runs()] == [
        (variant, seed) for seed in (0, 1, 2) for variant in ("base", "scaled")
    ]
    for run_ in folder.runs():
        assert run_.spec["spec"]["training"]["optimizer"]["learning_rate"] == 2e-2
        assert run_.spec["spec"]["variant"] == run_.spec["variant"]
    assert [extension["chosen"] for extension in folder.extensions] == [BEST]
    found = ranking(folder)
    assert {row.variant for row in found.variants} == {"base", "scaled"}
    assert {value.seed for row in found.variants for value in row.values} == {0, 1, 2}
    assert all(value.planned and not value.after_look for row in found.variants for value in row.values)
    assert found.family == 1
    assert set(read_json(calm / "costs.json")["variants"]) == {"base", "scaled"}
    before = (calm / "study.json").read_bytes()
    assert len(train(file, calm).all_runs()) == 16
    assert (calm / "study.json").read_bytes() == before


def test_a_point_that_fails_is_not_chosen_and_the_edge_is_said(calm: Path) -> None:
    outcome = tuning(StudyFolder(calm))
    assert outcome is not None
    base, scaled = outcome.variants
    assert [run.state for run in base.points[2].runs] == ["failed", "failed"]
    assert (base.chosen, base.edges, base.flat) == (BEST["base"], (), False)
    assert [(edge.end, edge.value) for edge in scaled.edges] == [("highest", 2e-2)]
    warnings = [str(warning) for warning in ranking(StudyFolder(calm)).warnings]
    edge = (
        "scaled: best at the edge of the grid: widen it (training.optimizer.learning_rate 0.02 is the highest value)."
    )
    assert edge in warnings
    assert "base: tuning runs failed or diverged at learning_rate 1e6." in warnings


@pytest.mark.parametrize("moment", ["before the choice is written", "while it is trained"])
def test_a_killed_study_ends_like_any_other(
    moment: str, file: Path, calm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    out = only_tuned(calm, tmp_path / "out")
    with monkeypatch.context() as patched:
        writing = moment == "before the choice is written"
        patched.setattr(
            "addnorm.store.study.with_stage" if writing else "addnorm.training.loop.Trainer.train_step", killed
        )
        with pytest.raises(KeyboardInterrupt):
            train(file, out)
    assert len(StudyFolder(out).extensions) == (moment != "before the choice is written")
    train(file, out)
    assert content(out) == content(calm)


def test_a_recorded_choice_stands(file: Path, calm: Path, tmp_path: Path) -> None:
    """Tuning runs that are tried again later change what is shown of them, and not what is compared."""
    out = tmp_path / "out"
    shutil.copytree(calm, out)
    plan = read_json(out / "study.json")
    other = {**BEST, "base": "base, learning_rate 1e-6"}
    plan["extensions"][0]["chosen"] = other
    (out / "study.json").write_text(json.dumps(plan))
    outcome = tuning(StudyFolder(out))
    assert outcome is not None
    assert {of.variant: of.chosen for of in outcome.variants} == other
    assert [edge.end for edge in outcome.variants[0].edges] == ["lowest"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "seeds=[0,1,2,3]"], "seeds: [0, 1, 2] → [0, 1, 2, 3]"),
        (["--set", "tune.seeds=[7]"], "tune.seeds: [100, 101] → [7]"),
        # The runs after tuning are in the folder's plan alone; that is no difference of the study.
        (
            ["--set", "training.final_sequences=all"],
            "another one (training.final_sequences: not set → all). One folder",
        ),
        (["--set", "tune=null", "--set", "variants.scaled.tune=null"], "tune: {"),
    ],
)
def test_another_tuning_is_refused_and_nothing_lost(
    options: list[str], message: str, file: Path, calm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = (calm / "study.json").read_bytes()
    with workers_here():
        assert main(["run", str(file), "--out", str(calm), *options]) == 2
    told = capsys.readouterr().err
    assert "expected the plan that study 'tuned' was started with, got another one" in told
    assert message in told
    assert (calm / "study.json").read_bytes() == plan


def test_seeds_in_stages_are_refused_with_the_line(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["run", str(file), "--out", str(out), "--until", "decided"]) == 2
    assert f"{file}: $.tune (line 9): expected no tune where seeds are added" in capsys.readouterr().err
    assert not out.exists()


def test_commands_tell_the_points_and_the_choice(
    calm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(calm, tmp_path / "out")
    for command in ("rank", "status"):
        assert main([command, str(tmp_path / "out")]) == 0
        told = capsys.readouterr().out
        assert "Tuning on the seeds 100, 101: mean loss of each point; * chosen" in told
        assert re.search(r"^scaled .*\* +- +(flat, )?at the edge$", told, re.MULTILINE)
        assert main([command, str(tmp_path / "out"), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["tuning"]
        assert {of["variant"]: of["chosen"] for of in found["variants"]} == BEST
        assert found["variants"][0]["points"][2]["mean"] is None


def test_nothing_is_ranked_before_the_choice(calm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = only_tuned(calm, tmp_path / "out")
    assert main(["rank", str(out)]) == 2
    assert "nothing to compare yet: 10 of 10 tuning runs have ended." in capsys.readouterr().err
