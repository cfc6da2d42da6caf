"""Verdicts in trackers: a run of the study's own when it has ended, what it shows in each tool, that a fault ends nothing."""

import json
import re
import shutil
import sqlite3
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from test_trackers import MISBEHAVING, Kept, Recorder

import addnorm
import made_study
from addnorm.cli import main
from addnorm.statistics.run_tables import read_runs
from addnorm.statistics.run_tables.trackers import SUMMARY
from addnorm.store import StudyFolder
from addnorm.store.peeks import peeks
from addnorm.supervision.tracker_process import EventForwarder
from addnorm.supervision.trackers import TRACKERS
from addnorm.supervision.tracking import Tracking

PAIRS = ("v2m1 - base", "v4m5 - base")


@pytest.fixture
def ended(tmp_path: Path) -> StudyFolder:
    return made_study.finished(tmp_path / "runs")


def forwarded(study: StudyFolder, tracker: Any) -> EventForwarder:
    forwarder = EventForwarder(study, tracker, study.path.parent / "kept.json")
    forwarder.update()
    forwarder.close()
    forwarder.conclude()
    return forwarder


def test_verdicts_are_those_of_the_ranking_and_are_sent_once(ended: StudyFolder, tmp_path: Path) -> None:
    tracker = Kept(tmp_path, "made")
    forwarder = forwarded(ended, tracker)
    ((_, sent, known),) = [call for call in tracker.calls if call[0] == "conclude"]
    assert [peek["finished"] for peek in peeks(ended.path)] == [9], "what is sent is seen"
    ranking = addnorm.rank(ended.path)
    found = ranking["v2m1"].versus["base"]
    assert found.verdict == "better"
    assert found.interval is not None
    assert known is None
    assert sent.texts["verdict/v2m1 - base"] == "better"
    assert "v2m1 is better than base" in sent.texts["answer"]
    ends = (found.difference, *found.interval, found.seeds)
    assert tuple(sent.numbers[f"{name}/v2m1 - base"] for name in ("difference", "low", "high", "seeds")) == ends
    assert tuple(f"{row['variant']} - {row['reference']}" for row in sent.comparisons) == PAIRS
    forwarder.conclude()
    again = Kept(tmp_path, "made")
    forwarded(ended, again)
    assert again.calls == [], "the tool has them"


def test_further_seeds_change_the_same_run(ended: StudyFolder, tmp_path: Path) -> None:
    forwarded(ended, Kept(tmp_path, "made"))
    more = StudyFolder.create(ended.path, {**made_study.plan(seeds=(0, 1, 2, 3)), "plan_hash": "q" * 64})
    for run in more.runs():
        if run.spec["seed"] == 3:
            made_study.finish(run, level=2.4)
    tracker = Kept(tmp_path, "made")
    forwarded(more, tracker)
    ((_, sent, known),) = [call for call in tracker.calls if call[0] == "conclude"]
    assert (known, sent.runs) == ("id-verdicts", 12)


def test_runs_that_are_planned_later_are_forwarded(tmp_path: Path) -> None:
    """A study with tuning or seeds in stages plans runs while it is trained."""
    study = made_study.make(tmp_path / "runs", seeds=(0,))
    tracker = Kept(tmp_path, "made")
    forwarder = EventForwarder(study, tracker, tmp_path / "kept.json")
    forwarder.update()
    more = StudyFolder.create(study.path, {**made_study.plan(seeds=(0, 1)), "plan_hash": "q" * 64})
    late = next(run for run in more.runs() if run.spec["seed"] == 1)
    made_study.finish(late)
    forwarder.update()
    assert {call[1] for call in tracker.calls if call[0] == "begin"} == {late.name}


def test_a_study_that_goes_on_and_one_without_a_verdict(tmp_path: Path) -> None:
    tracker = Kept(tmp_path, "made")
    forwarded(made_study.half_done(tmp_path / "half" / "runs"), tracker)
    assert not [call for call in tracker.calls if call[0] == "conclude"], "a run is still to do"
    single = made_study.make(tmp_path / "single" / "runs", seeds=(0,))
    for run in single.runs():
        made_study.finish(run)
    forwarded(single, tracker)
    ((_, sent, _),) = [call for call in tracker.calls if call[0] == "conclude"]
    assert sent.texts["verdict/v2m1 - base"] == "none"
    assert "No verdict yet" in sent.texts["answer"]
    assert not [name for name in sent.numbers if name.startswith(("low/", "high/"))]


@pytest.mark.parametrize("kind", ["trackio", "wandb", "swanlab"])
def test_tools_with_init(kind: str, ended: StudyFolder, tmp_path: Path, monkeypatch: Any) -> None:
    fake = Recorder()
    fake.summary = types.SimpleNamespace(update=fake.update)
    monkeypatch.setitem(sys.modules, kind, fake)
    forwarded(ended, TRACKERS.class_of(kind)(tmp_path, ended.name))
    (*_, (_, options)) = fake.named("init")
    assert options["project"] == "made"
    assert "verdicts" in (options.get("name"), options.get("experiment_name"))
    assert options["config"][SUMMARY] == "verdicts"
    assert len(fake.named("init")) == len(fake.named("finish")) == 10
    if kind == "wandb":
        (((shown,), _),) = fake.named("update")
        assert fake.calls[-1] == ("finish", (), {"exit_code": 0})
        assert options["id"] == "verdicts"
    else:
        *_, ((numbers,), at) = fake.named("log")
        assert at == {"step": 9}, "runs behind the verdicts"
        shown = {**options["config"], **numbers}
    assert shown["verdict/v2m1 - base"] == "better"
    assert shown["difference/v2m1 - base"] == pytest.approx(-0.04, abs=0.005)
    assert "v2m1 is better than base" in shown["answer"]


# Letters of names: https://mlflow.org/docs/latest/python_api/mlflow.html, log_metric. MLflow is not installed here.
def test_mlflow(ended: StudyFolder, tmp_path: Path, monkeypatch: Any) -> None:
    fake = Recorder()
    fake.entities = types.SimpleNamespace(Metric=lambda *values: values)
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    forwarded(ended, TRACKERS.class_of("mlflow")(tmp_path, ended.name))
    assert fake.named("create_run")[-1] == (("e1",), {"run_name": "verdicts"})
    tags = {name: value for (_, name, value), _ in fake.named("set_tag")}
    assert tags[SUMMARY] == "verdicts"
    assert tags["verdict/v2m1 - base"] == "better"
    metrics = {name: (value, options) for (_, name, value), options in fake.named("log_metric")}
    assert metrics["seeds/v4m5 - base"] == (3.0, {"step": 9})
    assert all(re.fullmatch(r"[\w\-. /]+", name, re.ASCII) for name in (*tags, *metrics))
    assert fake.calls[-1] == ("set_terminated", ("r1",), {"status": "FINISHED"})


def test_tensorboard_shows_a_table_and_its_folder_is_ranked(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Read by TensorBoard's own reader, and ranked by ours like the study that filled it."""
    loader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_file_loader",
        reason="TensorBoard is not installed: nothing reads it",
    )
    study = StudyFolder(shutil.copytree(finished, tmp_path / "runs"))
    with Tracking(["tensorboard"], say=lambda text: pytest.fail(text), last_wait_s=120.0) as tracking:
        tracking.update(study.path)
    expected = addnorm.rank(study.path)
    versus = expected["v4m5"].versus["base"]
    folder = study.path / "mirrors" / "tensorboard"
    (file,) = (folder / "verdicts").glob("events.out.tfevents.*")
    ((value, step),) = [
        (value, event.step) for event in loader.EventFileLoader(str(file)).Load() for value in event.summary.value
    ]
    assert (value.tag, value.metadata.plugin_data.plugin_name, step) == ("verdicts", "text", 6)
    text = value.tensor.string_val[0].decode()
    assert text.startswith("Asked: does the held-out loss of v4m5 differ from that of base?")
    assert f"\n| v4m5 | base | {versus.verdict} | {versus.difference:.5g} | " in text
    assert main(["rank", str(folder), "--reference", "base", "--margin", "0.01", "--json"]) == 0
    ranked = json.loads(capsys.readouterr().out)
    assert {row["variant"] for row in ranked["variants"]} == {"base", "v4m5"}
    for mine, row in ((mine, expected[mine["variant"]]) for mine in ranked["variants"]):
        assert mine["seeds"] == row.seeds == 3
        assert mine["mean"] == pytest.approx(row.mean, rel=1e-6), "TensorBoard keeps float32"
        assert {name: each["verdict"] for name, each in mine["versus"].items()} == {
            name: each.verdict for name, each in row.versus.items()
        }


def test_a_database_with_verdicts_is_ranked_without_them(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    with sqlite3.connect(path) as opened:
        opened.executescript(
            "CREATE TABLE runs (run_uuid, status, lifecycle_stage);"
            "CREATE TABLE metrics (key, value, timestamp, run_uuid, step, is_nan);"
            "CREATE TABLE params (key, value, run_uuid); CREATE TABLE tags (key, value, run_uuid);"
            "INSERT INTO runs VALUES ('a', 'FINISHED', 'active'), ('b', 'FINISHED', 'active'), ('v', 'FINISHED', 'active');"
            "INSERT INTO params VALUES ('model', 'base', 'a'), ('seed', '0', 'a'), ('model', 'base', 'b'), ('seed', '1', 'b');"
            "INSERT INTO metrics VALUES ('loss', 2.0, 0, 'a', 1, 0), ('loss', 2.5, 0, 'b', 1, 0);"
            f"INSERT INTO tags VALUES ('{SUMMARY}', 'verdicts', 'v');"
        )
    opened.close()
    columns = {"variant": "params.model", "seed": "params.seed", "loss": "metrics.loss"}
    assert [(run.seed, run.loss) for run in read_runs(path, columns)] == [(0, 2.0), (1, 2.5)]


@pytest.mark.parametrize(
    ("conclude", "expected"),
    [("raise RuntimeError('no room for verdicts')", "no room for verdicts"), ("os._exit(7)", "has stopped")],
)
def test_a_tracker_that_fails_at_the_verdicts_ends_nothing(
    conclude: str, expected: str, ended: StudyFolder, tmp_path: Path
) -> None:
    script = tmp_path / "tracker.py"
    script.write_text(MISBEHAVING.format(init="pass", log="pass", conclude=conclude), encoding="utf-8")
    before = addnorm.rank(ended.path).to_json()
    said: list[str] = []
    command = (sys.executable, str(script))
    with Tracking(["trackio"], say=said.append, command=command, last_wait_s=60.0) as tracking:
        tracking.update(ended.path)
    assert len(said) == 1
    assert expected in said[0]
    assert said[0].endswith("The runs are not affected.")
    assert addnorm.rank(ended.path).to_json() == before
