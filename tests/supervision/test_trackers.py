"""Trackers: the numbers that a tool receives, each step once, and that no tool affects a run."""

import inspect
import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from addnorm.cli import main
from addnorm.cli import run as run_command
from addnorm.errors import UnknownName
from addnorm.fields import flat_fields
from addnorm.store import StudyFolder
from addnorm.supervision import tracker_process
from addnorm.supervision.tracker_process import EventForwarder
from addnorm.supervision.trackers import TRACKERS, SentVerdicts, ToolMissing, Tracker
from addnorm.supervision.tracking import PROCESS, Tracking
from train_here import workers_here

PLAN = {
    "study": "tracked",
    "plan_hash": "p" * 8,
    "runs": [
        {"run": f"base-s{seed}", "variant": "base", "seed": seed, "steps": 4, "spec": {"training": {"steps": 4}}}
        for seed in (0, 1)
    ],
}


class Kept(Tracker):
    """Remembers what it is handed."""

    def __init__(self, folder: Path, study: str) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def begin(self, run: str, config: Any, known: str | None) -> str:
        self.calls.append(("begin", run, dict(config), known))
        return f"id-{run}"

    def log(self, run: str, step: int, time: float, values: Any) -> None:
        self.calls.append(("log", run, step, dict(values)))

    def end(self, run: str, state: str) -> None:
        self.calls.append(("end", run, state))

    def conclude(self, verdicts: SentVerdicts, known: str | None) -> str:
        self.calls.append(("conclude", verdicts, known))
        return "id-verdicts"

    def flush(self) -> None:
        self.calls.append(("flush",))


@pytest.fixture
def study(tmp_path: Path) -> StudyFolder:
    return StudyFolder.create(tmp_path / "runs", PLAN)


def write(study: StudyFolder, run: str, *steps: int, ending: str | None = None) -> None:
    with study.run(run).claim() as events:
        events.write("start", step=steps[0] - 1, resumed_from=0)
        for step in steps:
            events.write("train", step=step, loss=1 / step, first=step, losses=[1 / step], note="text")
        events.write("eval", step=steps[-1], final=ending is not None, loss=0.5, accuracy=0.25)
    if ending is not None:
        study.run(run).mark(ending, step=steps[-1])  # type: ignore[arg-type]


def test_a_run_is_handed_on_from_begin_to_end(study: StudyFolder, tmp_path: Path) -> None:
    write(study, "base-s0", 1, 2, ending="finished")
    tracker = Kept(tmp_path, "tracked")
    follower = EventForwarder(study, tracker, tmp_path / "kept.json")
    follower.update()
    assert tracker.calls == [
        ("begin", "base-s0", {"training.steps": 4}, None),
        ("log", "base-s0", 1, {"train/loss": 1.0}),
        ("log", "base-s0", 2, {"train/loss": 0.5}),
        ("log", "base-s0", 2, {"eval/loss": 0.5, "eval/accuracy": 0.25}),
        ("end", "base-s0", "finished"),
        ("flush",),
    ]
    follower.update()
    follower.close()
    assert len(tracker.calls) == 6, "nothing new, nothing handed on"


def test_steps_that_a_resumed_run_repeats_are_handed_on_once(study: StudyFolder, tmp_path: Path) -> None:
    write(study, "base-s0", 1, 2, 3)
    first = Kept(tmp_path, "tracked")
    follower = EventForwarder(study, first, tmp_path / "kept.json")
    follower.update()
    follower.close()
    assert first.calls[-1] == ("end", "base-s0", "interrupted")
    write(study, "base-s0", 2, 3, 4, ending="finished")
    second = Kept(tmp_path, "tracked")
    EventForwarder(study, second, tmp_path / "kept.json").update()
    assert second.calls[0] == ("begin", "base-s0", {"training.steps": 4}, "id-base-s0")
    assert [call[2] for call in second.calls if call[0] == "log"] == [4, 4]


def test_the_rooms_files_are_the_trackers() -> None:
    assert TRACKERS.kinds() == ("mlflow", "swanlab", "tensorboard", "trackio", "wandb")
    assert all(kind in inspect.getsource(run_command.Options) for kind in TRACKERS.kinds()), (
        "the command's help names them"
    )
    with pytest.raises(UnknownName, match="Did you mean 'tensorboard'"):
        Tracking(["tensorbord"], say=print)


@pytest.mark.parametrize("kind", [kind for kind in TRACKERS.kinds() if kind != "tensorboard"])
def test_a_tool_that_is_not_installed_is_absent(kind: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, kind, None)  # what Python keeps for a module that cannot be imported
    with pytest.raises(ToolMissing, match="pip install"):
        TRACKERS.class_of(kind)(tmp_path, "tracked")


def test_tensorboard_holds_the_events_numbers(finished: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    study = StudyFolder(finished)
    follower = EventForwarder(study, TRACKERS.class_of("tensorboard")(tmp_path, study.name), tmp_path / "kept.json")
    follower.update()
    follower.close()
    for run in study.runs():
        (file,) = (tmp_path / run.name).glob("events.out.tfevents.*")
        found = [
            (value.tag, event.step, value.simple_value or value.tensor.float_val[0])
            for event in EventFileLoader(str(file)).Load()
            for value in event.summary.value
        ]
        expected = [
            (f"{event['type']}/{name}", event["step"], event[name])
            for event in map(json.loads, run.events_path.read_text().splitlines())
            if event["type"] in ("train", "eval")
            for name in ("loss", "accuracy", "learning_rate")
            if name in event
        ]
        assert expected
        for tag, step, value in expected:  # TensorBoard keeps float32
            (mine,) = [v for t, s, v in found if (t, s) == (tag, step)]
            assert mine == pytest.approx(value, rel=2**-23)


class Recorder:
    """Stands for a tool's module and everything in it: every call is kept, and gives the recorder itself back."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.run_id = "r1"
        self.experiment_id = "e1"
        self.info = self

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> "Recorder":
            self.calls.append((name, arguments, options))
            return self

        return call

    def named(self, name: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        return [(arguments, options) for called, arguments, options in self.calls if called == name]


DOCUMENTED = {
    # https://huggingface.co/docs/trackio/v0.27.0/api.md, and of 0.4 https://huggingface.co/docs/trackio/v0.4.0/track
    "trackio": {"project": None, "name": None, "config": None, "resume": ("must", "allow", "never")},
    # https://docs.wandb.ai/ref/python/init/
    "wandb": {
        "project": None,
        "name": None,
        "group": ("base",),
        "id": None,
        "dir": None,
        "config": None,
        "resume": ("allow", "never", "must", "auto"),
        "reinit": ("default", "return_previous", "finish_previous", "create_new"),
    },
    # https://docs.swanlab.cn/en/api/py-init.html; ids: https://docs.swanlab.cn/en/guide_cloud/experiment_track/resume-experiment.md
    "swanlab": {
        "project": None,
        "experiment_name": None,
        "id": None,
        "logdir": None,
        "config": None,
        "resume": ("must", "allow", "never"),
        "mode": ("cloud", "local", "offline", "disabled"),
    },
}
"""What each tool's `init` takes by its documentation, of what we give it; None for any value. None of the three is installed
where these tests run, so that they are called as they say is all that is known."""


@pytest.mark.parametrize("kind", DOCUMENTED)
@pytest.mark.parametrize("known", [None, "base-s0"])
def test_tools_are_called_as_their_documentation_says(
    kind: str, known: str | None, tmp_path: Path, monkeypatch: Any
) -> None:
    fake = Recorder()
    monkeypatch.setitem(sys.modules, kind, fake)
    tracker = TRACKERS.class_of(kind)(tmp_path, "tracked")
    tracker.begin("base-s0", {"training.steps": 4, "variant": "base"}, known)
    tracker.log("base-s0", 1, 0.0, {"train/loss": 1.0})
    tracker.end("base-s0", "failed")
    ((arguments, options),) = fake.named("init")
    assert arguments == ()
    assert options.keys() <= DOCUMENTED[kind].keys()
    for name, values in DOCUMENTED[kind].items():
        assert values is None or name not in options or options[name] in values, name
    assert ("group" in options) == (kind == "wandb"), "a variant's seeds are one group"
    if kind == "swanlab":
        assert re.fullmatch(r"[^/\\#?%:]{1,64}", options["id"])
    ((arguments, options),) = fake.named("log")
    assert len(arguments) == 1
    assert isinstance(arguments[0], dict)
    assert options.keys() <= {"step"}
    ((arguments, options),) = fake.named("finish")
    assert arguments == ()
    assert options.keys() <= ({"exit_code"} if kind == "wandb" else set())


@pytest.mark.parametrize("kind", ["trackio", "wandb", "swanlab"])
def test_tools_with_init_log_finish(kind: str, study: StudyFolder, tmp_path: Path, monkeypatch: Any) -> None:
    fake = Recorder()
    monkeypatch.setitem(sys.modules, kind, fake)
    write(study, "base-s0", 1, 2, ending="finished")
    EventForwarder(study, TRACKERS.class_of(kind)(tmp_path, study.name), tmp_path / "kept.json").update()
    ((_, options),) = fake.named("init")
    assert options["project"] == "tracked"
    assert "base-s0" in (options.get("name"), options.get("experiment_name"))
    assert options["config"] == {"training.steps": 4}
    logged = [arguments[0] for arguments, _ in fake.named("log")]
    assert [values["train/loss"] for values in logged if "train/loss" in values] == [1.0, 0.5]
    steps = [
        options["step"] if "step" in options else values["step"]
        for values, (_, options) in zip(logged, fake.named("log"), strict=True)
    ]
    assert steps == [1, 2, 2]
    assert len(fake.named("finish")) == 1


# Statuses of a run: https://docs.databricks.com/api/experiments/v1/update-run.md; methods of the client:
# https://tessl.io/registry/tessl/pypi-mlflow/3.3.0/files/docs/client.md. MLflow is not installed where these tests run.
def test_mlflow(study: StudyFolder, tmp_path: Path, monkeypatch: Any) -> None:
    fake = Recorder()
    fake.entities = types.SimpleNamespace(Metric=lambda *values: values)
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    write(study, "base-s0", 1, ending="failed")
    EventForwarder(study, TRACKERS.class_of("mlflow")(tmp_path, study.name), tmp_path / "kept.json").update()
    assert fake.named("create_run") == [(("e1",), {"run_name": "base-s0"})]
    metrics = [options["metrics"] for _, options in fake.named("log_batch")]
    assert [(name, value, step) for batch in metrics for name, value, _, step in batch] == [
        ("train/loss", 1.0, 1),
        ("eval/loss", 0.5, 1),
        ("eval/accuracy", 0.25, 1),
    ]
    assert fake.named("set_terminated") == [(("r1",), {"status": "FAILED"})]


def test_flatten() -> None:
    assert dict(flat_fields({"a": {"b": {"c": 1}, "d": [2]}, "e": None})) == {"a.b.c": 1, "a.d": [2], "e": None}


MISBEHAVING = """
import os, sys, time, threading
from addnorm.supervision import tracker_process
from addnorm.supervision.trackers import ToolMissing, Tracker
class Bad(Tracker):
    def __init__(self, folder, study): {init}
    def begin(self, run, config, known): return run
    def log(self, run, step, time, values): {log}
    def end(self, run, state): pass
    def conclude(self, verdicts, known): {conclude}
class Trackers:
    def class_of(self, kind): return Bad
tracker_process.TRACKERS = Trackers()
code = tracker_process.main(sys.argv[1:])
sys.stderr.flush()
os._exit(code)
"""

FAULTS = {
    "raises": ("pass", "raise RuntimeError('the server is gone')", "the server is gone"),
    "hangs": ("pass", "__import__('time').sleep(3600)", "did not end within"),
    "is_missing": ("raise ToolMissing('not here. pip install it')", "pass", "not here. pip install it"),
    "kills_itself": ("pass", "os.kill(os.getpid(), 9)", "has stopped"),
    "ends_the_process": ("pass", "(print('bye', file=sys.stderr), sys.stderr.flush(), os._exit(7))", "bye"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_tracker_that_misbehaves_is_reported_once_and_touches_nothing(
    fault: str, study: StudyFolder, tmp_path: Path
) -> None:
    init, log, expected = FAULTS[fault]
    script = tmp_path / "tracker.py"
    script.write_text(MISBEHAVING.format(init=init, log=log, conclude="return known"), encoding="utf-8")
    said: list[str] = []
    write(study, "base-s0", 1, 2, ending="finished")
    before = {path: path.read_bytes() for path in study.path.rglob("*") if path.is_file()}
    with Tracking(["trackio"], say=said.append, command=(sys.executable, str(script)), last_wait_s=2.0) as tracking:
        for _ in range(3):
            tracking.update(study.path)
        (process,) = tracking._processes.values()
        if fault != "hangs":
            process.wait(60)
        tracking.update(study.path)
        tracking.update(study.path)
    assert process.poll() is not None
    assert len(said) == 1, said
    assert expected in said[0]
    assert said[0].startswith("Tracker trackio ")
    assert {path: path.read_bytes() for path in before} == before


def test_a_process_that_cannot_be_started(study: StudyFolder, tmp_path: Path) -> None:
    said: list[str] = []
    with Tracking(["wandb"], say=said.append, command=(str(tmp_path / "nothing"),)) as tracking:
        tracking.update(study.path)
        tracking.update(study.path)
    assert len(said) == 1
    assert "could not be started" in said[0]


def test_the_process_hands_on_what_comes_before_its_supervisor_ends(study: StudyFolder) -> None:
    said: list[str] = []
    with Tracking(["tensorboard"], say=said.append, command=PROCESS, last_wait_s=120.0) as tracking:
        tracking.update(study.path)
        write(study, "base-s1", 1, 2, ending="finished")
    assert said == []
    kept = json.loads((study.path / tracker_process.FOLDER / "tensorboard.json").read_text())
    assert kept["base-s1"]["steps"] == {"train": 2, "eval": 2}
    assert list((study.path / tracker_process.FOLDER / "tensorboard" / "base-s1").iterdir())


def test_run_refuses_an_unknown_tracker_before_anything_starts(
    tmp_path: Path, tiny_study_text: str, capsys: Any
) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(tiny_study_text, encoding="utf-8")
    assert main(["run", str(file), "--out", str(tmp_path / "runs"), "--tracker", "tensorbord"]) == 2
    assert "Did you mean 'tensorboard'" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_run_with_a_tracker_that_is_absent_trains_all_the_same(
    tmp_path: Path, tiny_study_text: str, capsys: Any, monkeypatch: Any
) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(tiny_study_text.replace("  v4m5: {preset: v4m5}\n", ""), encoding="utf-8")
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "trackio.py").write_text("raise ImportError('not here')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{hidden}:{':'.join(sys.path)}")
    arguments = ["run", str(file), "--out", str(tmp_path / "runs"), "--set", "seeds=[0]", "--json"]
    with workers_here():
        assert main([*arguments, "--mirror", "trackio"]) == 0
    out, err = capsys.readouterr()
    assert {run["state"] for run in json.loads(out)["runs"]} == {"finished"}
    assert err.count("Tracker trackio has stopped") == 1
    assert "pip install 'addnorm[trackio]'" in err
