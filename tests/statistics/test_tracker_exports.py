"""Runs as trackers and training scripts leave them: databases, wide exports, names of runs, logs."""

import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import addnorm
from addnorm.cli import main
from addnorm.errors import InputError
from addnorm.statistics.run_tables import columns_from, read_run_table, read_runs

LOSSES = {
    ("base", 0): 2.91,
    ("base", 1): 2.93,
    ("base", 2): 2.92,
    ("deep", 0): 2.81,
    ("deep", 1): 2.84,
    ("deep", 2): 2.82,
}


def found(runs: Any) -> dict[tuple[str, int], float | None]:
    return {(run.variant, run.seed): run.loss for run in runs}


def mlflow(path: Path, losses: dict[tuple[str, int], float] = LOSSES, status: str = "FINISHED") -> Path:
    """The tables of MLflow's store that are read, as `mlflow/store/tracking/dbmodels/models.py` declares them."""
    opened = sqlite3.connect(path)
    opened.executescript(
        "CREATE TABLE runs (run_uuid VARCHAR(32) PRIMARY KEY, name VARCHAR(250), status VARCHAR(9), "
        "start_time BIGINT, end_time BIGINT, lifecycle_stage VARCHAR(20), experiment_id INTEGER);"
        "CREATE TABLE metrics (key VARCHAR(250), value FLOAT, timestamp BIGINT, run_uuid VARCHAR(32), step BIGINT, "
        "is_nan BOOLEAN);"
        "CREATE TABLE params (key VARCHAR(250), value VARCHAR(8000), run_uuid VARCHAR(32));"
        "CREATE TABLE tags (key VARCHAR(250), value VARCHAR(8000), run_uuid VARCHAR(32));"
    )
    for place, ((variant, seed), loss) in enumerate(losses.items()):
        run = f"{place:032x}"
        opened.execute("INSERT INTO runs VALUES (?, ?, ?, 0, 1, 'active', 1)", (run, f"{variant}-{seed}", status))
        opened.executemany("INSERT INTO params VALUES (?, ?, ?)", [("model", variant, run), ("seed", str(seed), run)])
        values = [("val_loss", 9.0, 5, run, 20, 0), ("val_loss", loss, 9, run, 20, 0), ("val_loss", 3.5, 1, run, 10, 0)]
        opened.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", values)
    opened.execute("INSERT INTO runs VALUES ('gone', 'gone', 'FINISHED', 0, 1, 'deleted', 1)")
    opened.commit()
    opened.close()
    return path


def trackio(path: Path, losses: dict[tuple[str, int], float] = LOSSES) -> Path:
    """The tables that trackio's `SQLiteStorage.init_db` makes, as far as they are read."""
    opened = sqlite3.connect(path)
    opened.executescript(
        "CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL, "
        "run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL);"
        "CREATE TABLE configs (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, run_name TEXT NOT NULL, "
        "config TEXT NOT NULL, created_at TEXT NOT NULL, UNIQUE(run_id));"
    )
    for (variant, seed), loss in losses.items():
        run = f"{variant}-s{seed}"
        config = json.dumps({"model": variant, "seed": seed, "_Group": None})
        opened.execute(
            "INSERT INTO configs (run_id, run_name, config, created_at) VALUES (?, ?, ?, '')",
            (f"id-{run}", run, config),
        )
        # A resumed run repeats step 20; training and evaluation are logged apart.
        for step, values in (
            (10, {"val/loss": 3.5}),
            (20, {"val/loss": 9.0}),
            (20, {"train/loss": 1.0}),
            (20, {"val/loss": loss}),
        ):
            opened.execute(
                "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, '', ?, ?, ?)",
                (f"id-{run}", run, step, json.dumps(values)),
            )
    opened.commit()
    opened.close()
    return path


def test_the_database_of_mlflow_gives_what_its_csv_gives(tmp_path: Path) -> None:
    columns = {"variant": "params.model", "seed": "params.seed", "loss": "metrics.val_loss"}
    assert found(read_runs(mlflow(tmp_path / "mlflow.db"), columns)) == LOSSES
    rows = "".join(f"x,FINISHED,{loss},{variant},{seed}\n" for (variant, seed), loss in LOSSES.items())
    (tmp_path / "runs.csv").write_text(f"run_id,status,metrics.val_loss,params.model,params.seed\n{rows}")
    assert found(read_runs(tmp_path / "runs.csv", columns)) == LOSSES
    assert addnorm.rank(tmp_path / "mlflow.db", columns=columns)["deep"].versus["base"].verdict == "better"
    stopped = read_run_table(mlflow(tmp_path / "killed.db", status="KILLED"), columns).runs
    assert {run.state for run in stopped} == {"failed"}


def test_the_database_of_trackio_by_settings_and_by_names(tmp_path: Path) -> None:
    path = trackio(tmp_path / "project.db")
    by_settings = {"variant": "config.model", "seed": "config.seed", "loss": "val/loss"}
    by_name = {"variant": "run_name", "run": "{variant}-s{seed}", "loss": "val/loss"}
    assert found(read_runs(path, by_settings)) == found(read_runs(path, by_name)) == LOSSES


def test_a_chart_that_wandb_or_swanlab_exports(tmp_path: Path) -> None:
    names = [f"{variant}-s{seed}" for variant, seed in LOSSES]
    header = ",".join(f'"{name} - val_loss","{name} - val_loss__MIN","{name} - val_loss__MAX"' for name in names)
    last = ",".join(f"{loss},{loss},{loss}" for loss in LOSSES.values())
    path = tmp_path / "chart.csv"
    path.write_text(f'"Step",{header}\n10,{last.replace("2.", "3.")}\n20,{last}\n')
    assert found(read_runs(path, {"run": "{variant}-s{seed} - val_loss"})) == LOSSES
    path.write_text(f'"Step",{header}\n10,{last}\n20,{last.replace("2.82", "")}\n')
    runs = {(run.variant, run.seed): run.state for run in read_runs(path, {"run": "{variant}-s{seed} - val_loss"})}
    assert runs["deep", 2] == "running"  # it stops at half of the steps of the others, and no state tells why
    assert runs["deep", 1] == "finished"


def test_tables_with_a_column_per_seed_or_per_variant(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text("model,seed_0,seed_1,seed_2,note\nbase,2.91,2.93,2.92,x\ndeep,2.81,2.84,2.82,\n")
    assert found(read_runs(path, {"variant": "model", "run": "seed_{seed}"})) == LOSSES
    path.write_text("seed,loss of base,loss of deep\n0,2.91,2.81\n1,2.93,2.84\n2,2.92,2.82\n")
    assert found(read_runs(path, {"run": "loss of {variant}"})) == LOSSES
    path.write_text("seed,loss of base,loss of deep\n0,2.91\n")
    with pytest.raises(InputError, match="line 2: expected 3 cells"):
        read_runs(path, {"run": "loss of {variant}"})
    path.write_text("seed_0,seed_1\n2.9,2.8\n")
    with pytest.raises(InputError, match="expected a column 'variant'"):
        read_runs(path, {"run": "seed_{seed}"})


def test_names_of_runs_tell_variant_and_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "runs.csv"
    rows = "".join(f"{variant}-s{seed},finished,{loss}\n" for (variant, seed), loss in LOSSES.items())
    path.write_text(f"Name,State,val_loss\n{rows}")
    columns = "variant=Name,loss=val_loss,run={variant}-s{seed}"
    assert main(["rank", str(path), "--columns", columns, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["variants"][0]["variant"] == "deep"
    for form, message in (
        ("{variant}_{seed}", "line 2: expected a run's name of the form '{variant}_{seed}', got 'base-s0'"),
        ("{seed}{seed}", "expected run={variant}_{seed}"),
    ):
        assert main(["rank", str(path), "--columns", f"variant=Name,loss=val_loss,run={form}"]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


NANOGPT = """import os
====================================================================================================
Running Python 3.12.7
====================================================================================================
step:0/{steps} val_loss:10.8258 train_time:0ms step_avg:0.01ms
step:1/{steps} train_time:79ms step_avg:79.04ms
step:{last}/{steps} val_loss:{loss} train_time:79532ms step_avg:57.22ms
peak memory allocated: 30220 MiB reserved: 38672 MiB
"""
NANOCHAT = """Vocab size: 32,768
Step 00000 | Validation bpb: 3.301000
step 00000/00200 (0.00%) | loss: 10.397222 | lrm: 1.00 | dt: 900.00ms | tok/sec: 58,254 | bf16_mfu: 1.00 | epoch: 1
Step 00200 | Validation bpb: {loss}
Step 00200 | CORE metric: 0.1234
Peak memory usage: 75422.02MiB
Minimum validation bpb: {loss}
"""


def test_logs_of_modded_nanogpt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The form of a log of records/track_1_short/2026-07-17_FP8DownProjection; the file's name is a hash."""
    for variant, losses in (("baseline", (3.2781, 3.2790, 3.2775)), ("this_pr", (3.2776, 3.2792, 3.2785))):
        (tmp_path / variant).mkdir()
        for place, loss in enumerate(losses):
            text = NANOGPT.format(steps=1390, last=1390, loss=loss)
            (tmp_path / variant / f"1d7c6c03-846f-4dc8-9809-dcb1e42496d{place}.txt").write_text(text)
    (tmp_path / "baseline" / "README.txt").write_text("step:1390/1390 is the last one\n")
    columns = {"loss": "val_loss", "seed": ""}
    table = read_run_table(tmp_path, columns)
    assert [(run.variant, run.loss) for run in table.runs][:2] == [("baseline", 3.2781), ("baseline", 3.279)]
    (tmp_path / "this_pr" / "ff.txt").write_text(NANOGPT.format(steps=1390, last=1250, loss=3.31))
    states = [run.state for run in read_runs(tmp_path, columns) if run.variant == "this_pr"]
    assert sorted(states) == ["finished", "finished", "finished", "running"]
    assert main(["rank", str(tmp_path), "--rule", "modded-nanogpt", "--columns", "loss=val_loss,seed="]) == 0
    assert "passes" in capsys.readouterr().out
    assert main(["rank", str(tmp_path), "--columns", "loss=val_los,seed="]) == 2
    assert (
        "expected a number 'val_los' in the logs, got step_avg, train_time, val_loss. Did you mean"
        in capsys.readouterr().err
    )


def test_logs_of_nanochat(tmp_path: Path) -> None:
    for (variant, seed), loss in LOSSES.items():
        (tmp_path / f"{variant}-s{seed}.log").write_text(NANOCHAT.format(loss=loss))
    columns = {"run": "{variant}-s{seed}", "loss": "val/bpb"}
    assert found(read_runs(tmp_path, columns)) == LOSSES
    ranking = addnorm.rank(tmp_path, columns=columns)
    assert (ranking.measure.unit, ranking.measure.better) == ("bits per byte", "lower")
    core = {**columns, "loss": "core_metric"}
    with pytest.raises(InputError, match="higher"):
        addnorm.rank(tmp_path, columns=core)


def test_logs_of_nanogpt_and_of_runs_that_diverged(tmp_path: Path) -> None:
    """nanoGPT does not announce its last step, so that a run which stops before the others is asked about."""
    for (variant, seed), loss in LOSSES.items():
        steps = (0, 250) if (variant, seed) == ("deep", 2) else (0, 250, 500)
        lines = [f"step {step}: train loss {loss:.4f}, val loss {loss + 500 - step:.4f}" for step in steps]
        (tmp_path / f"{variant}-s{seed}.log").write_text("number of parameters: 10.65M\n" + "\n".join(lines) + "\n")
    columns = {"run": "{variant}-s{seed}", "loss": "val_loss"}
    runs = {(run.variant, run.seed): run for run in read_runs(tmp_path, columns)}
    assert runs["deep", 2].state == "running"
    assert {name: run.loss for name, run in runs.items() if run.state == "finished"} == {
        name: pytest.approx(loss) for name, loss in LOSSES.items() if name != ("deep", 2)
    }
    (tmp_path / "deep-s2.log").write_text(
        "step 0: train loss 4.1, val loss 4.2\nstep 500: train loss NaN, val loss NaN\n"
    )
    assert {run.state for run in read_runs(tmp_path, columns)} == {"finished", "diverged"}


def test_a_log_of_two_runs_is_refused(tmp_path: Path) -> None:
    one = NANOGPT.format(steps=1390, last=1390, loss=3.28)
    for name, text in (("a-s0", one), ("a-s1", one), ("b-s0", NANOGPT.format(steps=1390, last=700, loss=3.9) + one)):
        (tmp_path / f"{name}.txt").write_text(text)
    columns = {"run": "{variant}-s{seed}", "loss": "val_loss"}
    assert [run.loss for run in read_runs(tmp_path, columns)] == [3.28] * 3  # b was resumed, from its first step
    (tmp_path / "b-s0.txt").write_text(one.replace("3.28", "3.20") + one)
    with pytest.raises(InputError, match=r"b-s0.txt: expected one run, got a second one: step 0 behind step 1390"):
        read_runs(tmp_path, columns)


CRASHES = {
    "a traceback": ("Traceback (most recent call last):\n  File 'train.py'\ntorch.OutOfMemoryError: CUDA\n", "running"),
    "a scheduler": ("slurmstepd: error: *** JOB 991 ON n1 CANCELLED AT 10:00 DUE TO TIME LIMIT ***\n", "running"),
    "a shell": ("Killed\n", "running"),
    "no number": ("iter 510: loss nan, time 20ms\n", "diverged"),
    "nothing": ("iter 510: loss 2.1, time 20ms\n", "finished"),
}


@pytest.mark.parametrize("name", CRASHES)
def test_what_a_log_of_nanogpt_says_behind_its_last_evaluation(tmp_path: Path, name: str) -> None:
    told, state = CRASHES[name]
    for (variant, seed), loss in LOSSES.items():
        lines = f"step 0: train loss 4, val loss 4.2\nstep 500: train loss 2, val loss {loss}\n"
        (tmp_path / f"{variant}-s{seed}.log").write_text(lines + (told if (variant, seed) == ("deep", 2) else ""))
    (tmp_path / "deep-s1.log").write_bytes((tmp_path / "deep-s1.log").read_bytes().replace(b"\n", b"\r\n"))
    columns = {"run": "{variant}-s{seed}", "loss": "val_loss"}
    states = {(run.variant, run.seed): run.state for run in read_runs(tmp_path, columns)}
    assert states.pop(("deep", 2)) == state
    assert set(states.values()) == {"finished"}
    (tmp_path / "deep-s2.log").write_text("number of parameters: 10.65M\n" + told)
    states = {(run.variant, run.seed): run.state for run in read_runs(tmp_path, columns)}
    assert states[("deep", 2)] == "running", "it died before its first evaluation, or has not come to it"


@pytest.mark.parametrize("content", ["", "step,val_loss\n", "step,train_loss\n10,2.0\n"])
@pytest.mark.parametrize("form", ["{v}-s{s}.csv", "{v}/seed-{s}/metrics.csv"])
def test_a_run_whose_file_holds_no_loss_has_not_ended(tmp_path: Path, form: str, content: str) -> None:
    for (variant, seed), loss in LOSSES.items():
        path = tmp_path / form.format(v=variant, s=seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if (variant, seed) == ("deep", 2) else f"step,val_loss\n10,{loss}\n")
    if form.endswith("{s}.csv"):
        (tmp_path / "summary.csv").write_text("variant,mean\nbase,2.9\n")
    runs = {(run.variant, run.seed): run for run in read_runs(tmp_path, {"loss": "val_loss"})}
    assert {run: result.state for run, result in runs.items() if result.state != "finished"} == {("deep", 2): "running"}
    assert runs.keys() == LOSSES.keys()


def test_versions_of_which_the_last_was_begun_anew_are_refused(tmp_path: Path) -> None:
    for (variant, seed), loss in LOSSES.items():
        folder = tmp_path / variant / f"seed-{seed}"
        for version in ("version_0", "version_1"):
            (folder / version).mkdir(parents=True)
        (folder / "version_0" / "metrics.csv").write_text(f"step,val_loss\n100,3\n200,2.95\n300,{loss}\n")
        (folder / "version_1" / "metrics.csv").write_text("step,val_loss\n")
    columns = {"loss": "val_loss", "run": "{variant}/seed-{seed}/version_*"}
    again = tmp_path / "deep" / "seed-2" / "version_1" / "metrics.csv"
    again.write_text("step,val_loss\n250,9.0\n")
    with pytest.raises(
        InputError, match="'deep' at seed 2, got a second one: step 250 behind step 300, and an end before"
    ):
        read_runs(tmp_path, columns)


def test_a_trainer_whose_training_loss_became_nan_diverged(tmp_path: Path) -> None:
    for (variant, seed), loss in LOSSES.items():
        state = json.loads(trainer({10: loss}, summary=True))
        if (variant, seed) == ("deep", 2):
            state["log_history"].insert(2, {"loss": math.nan, "step": 15})
        (tmp_path / f"{variant}-s{seed}").mkdir()
        (tmp_path / f"{variant}-s{seed}" / "trainer_state.json").write_text(json.dumps(state))
    states = {(run.variant, run.seed): run.state for run in read_runs(tmp_path, {"loss": "eval_loss"})}
    assert {run for run, state in states.items() if state != "finished"} == {("deep", 2)}


def test_a_run_of_trackio_that_never_logged_the_metric_has_not_ended(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "project.db")) as opened:
        opened.execute("CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_name TEXT, step INTEGER, metrics TEXT)")
        opened.execute("CREATE TABLE configs (id INTEGER PRIMARY KEY, run_name TEXT, config TEXT)")
        for (variant, seed), loss in LOSSES.items():
            logged = {"train": 3.0} if (variant, seed) == ("deep", 2) else {"val": loss}
            values = (f"{variant}-s{seed}", 9, json.dumps(logged))
            opened.execute("INSERT INTO metrics (run_name, step, metrics) VALUES (?, ?, ?)", values)
        opened.commit()
    columns = {"variant": "run_name", "run": "{variant}-s{seed}", "loss": "val"}
    states = {(run.variant, run.seed): run.state for run in read_runs(tmp_path / "project.db", columns)}
    assert {run for run, state in states.items() if state != "finished"} == {("deep", 2)}
    assert states[("deep", 2)] == "running"


def trainer(losses: dict[int, float], steps: int = 20, *, summary: bool = False) -> str:
    """A `trainer_state.json` of Transformers, as far as it is read."""
    logged = [{"loss": x - 0.1, "step": step} for step, x in losses.items()]
    logged += [{"eval_loss": x, "epoch": 1.0, "step": step} for step, x in losses.items()]
    logged += [{"train_runtime": 9.0, "train_loss": 2.2, "step": max(losses)}] if summary else []
    return json.dumps({"log_history": logged, "global_step": max(losses), "max_steps": steps, "best_metric": 1.0})


def mlruns(run: Path, variant: str, seed: int, loss: float, stage: str = "active", status: int = 3) -> None:
    """A run as MLflow's file store keeps it; the last value of the largest step counts."""
    for folder in ("metrics/val", "params", "tags"):
        (run / folder).mkdir(parents=True)
    (run / "meta.yaml").write_text(f"lifecycle_stage: {stage}\nrun_id: {run.name}\nstatus: {status}\n")
    (run / "params" / "model").write_text(variant)
    (run / "params" / "seed").write_text(str(seed))
    (run / "metrics" / "val" / "loss").write_text(f"5 9.0 20\n9 {loss} 20\n1 3.5 10\n")


CURVE = "step,val_loss,train_loss\n10,,2.2\n10,{a},\n20,,2.1\n20,{x},\n"
RUN_FILES: dict[str, tuple[str, str, str]] = {
    "Lightning's CSV logger": ("{v}/seed-{s}/metrics.csv", CURVE, "loss=val_loss"),
    "its versions": ("{v}/{s}/version_0/metrics.csv", CURVE, "run={variant}/{seed}/version_0,loss=val_loss"),
    "Keras' CSVLogger": ("{v}-s{s}/log.csv", "epoch,loss,val_loss\n0,9,{a}\n1,8,{x}\n", "loss=val_loss"),
    "a file for each run": ("{v}_seed{s}.tsv", "step\tval_loss\n10\t{a}\n20\t{x}\n", "loss=val_loss"),
    "JSON lines of training and validation": (
        "{v}-s{s}.jsonl",
        '{{"step": 10, "train": 2.1}}\n{{"step": 10, "val_loss": {a}}}\n{{"step": 20, "val_loss": {x}}}\n',
        "loss=val_loss",
    ),
    "charts that TensorBoard saves": (
        "run-{v}-s{s}-tag-loss.csv",
        "Wall time,Step,Value\n1.5,10,{a}\n2.5,20,{x}\n",
        "run=run-{variant}-s{seed}-tag-loss,loss=Value",
    ),
    "one table for each variant and seed": ("{v}{s}.csv", "variant,seed,loss\n{v},{s},{x}\n", ""),
    "no seeds": ("{v}/{s}c0ffee.csv", "step,val_loss\n10,{a}\n20,{x}\n", "loss=val_loss,seed="),
}


@pytest.mark.parametrize("name", RUN_FILES)
def test_a_file_for_each_run(tmp_path: Path, name: str) -> None:
    form, content, columns = RUN_FILES[name]
    for (v, s), x in LOSSES.items():
        path = tmp_path / form.format(v=v, s=s)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.format(v=v, s=s, a=x + 0.5, x=x))
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "hidden.csv").write_text("step,val_loss\n1,1\n")
    (tmp_path / "hparams.csv").write_text("lr\n0.1\n") if "no seeds" not in name and "each" in name else None
    runs = read_runs(tmp_path, columns_from(columns))
    if name == "no seeds":
        assert sorted((run.variant, run.loss) for run in runs) == sorted((v, x) for (v, _), x in LOSSES.items())
    else:
        assert found(runs) == LOSSES


def test_states_of_a_trainer(tmp_path: Path) -> None:
    """The newest state counts; a run that made fewer steps than planned has ended if its summary was written."""
    for (v, s), x in LOSSES.items():
        for step, folder in ((10, "checkpoint-10"), (20, "checkpoint-20")):
            path = tmp_path / f"{v}-s{s}" / folder / "trainer_state.json"
            path.parent.mkdir(parents=True)
            path.write_text(trainer({10: 9.0, **({20: x} if step == 20 else {})}))
    stopped, crashed = (tmp_path / f"base-s{s}" / "checkpoint-20" / "trainer_state.json" for s in (0, 1))
    stopped.write_text(trainer({10: 9.0, 20: 2.91}, steps=40, summary=True))
    crashed.write_text(trainer({10: 9.0, 20: 2.93}, steps=40))
    ranking = addnorm.rank(tmp_path, columns={"loss": "eval_loss"})
    assert {(v.variant, value.seed): value.loss for v in ranking.variants for value in v.values if value.counted} == {
        run: x for run, x in LOSSES.items() if run != ("base", 1)
    }
    assert ranking.provisional
    with pytest.raises(InputError, match=r"expected a number 'val_loss' in the files of its runs, got .*eval_loss"):
        read_runs(tmp_path, {"loss": "val_loss"})
    stopped.write_text("[]")
    with pytest.raises(
        InputError, match=r"checkpoint-20/trainer_state.json: expected a state of Transformers' Trainer"
    ):
        read_runs(tmp_path, {"loss": "eval_loss"})


def test_the_folder_of_mlflow_gives_what_its_database_gives(tmp_path: Path) -> None:
    for place, ((v, s), x) in enumerate(LOSSES.items()):
        mlruns(tmp_path / "mlruns" / "1" / f"{place:032x}", v, s, x)
    mlruns(tmp_path / "mlruns" / "1" / "gone", "base", 7, 1.0, stage="deleted")
    mlruns(tmp_path / "mlruns" / ".trash" / "2" / "old", "base", 8, 1.0)
    mlruns(tmp_path / "mlruns" / "1" / "killed", "deep", 9, 1.0, status=5)
    (tmp_path / "mlruns" / "1" / "meta.yaml").write_text("experiment_id: '1'\nlifecycle_stage: active\n")
    columns = {"variant": "params.model", "seed": "params.seed", "loss": "metrics.val/loss"}
    for folder in (tmp_path, tmp_path / "mlruns"):
        runs = {(run.variant, run.seed): run for run in read_runs(folder, columns)}
        assert runs.pop(("deep", 9)).state == "failed"
        assert {run: of.loss for run, of in runs.items()} == LOSSES


def test_a_name_of_a_file_that_tells_no_run_is_refused(tmp_path: Path) -> None:
    for name in ("base.csv", "deep.csv"):
        (tmp_path / name).write_text("step,val_loss\n10,2.5\n")
    with pytest.raises(InputError, match="named by variant and seed, such as deep/seed-0 or deep-s0, got 'base'"):
        read_runs(tmp_path, {"loss": "val_loss"})


def test_a_folder_of_another_form_says_what_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metrics.xml").write_text("step,val_loss\n1,2.5\n")
    assert main(["rank", str(tmp_path), "--columns", "loss=val_loss"]) == 2
    assert "got a folder without TensorBoard events" in " ".join(capsys.readouterr().err.split())


def test_databases_that_cannot_be_read_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.db"
    opened = sqlite3.connect(other)
    opened.execute("CREATE TABLE pages (id INTEGER)")
    opened.commit()
    opened.close()
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"SQLite format 3\x00" + b"\xff" * 200)
    for path, options, message in (
        (other, [], "expected a database of MLflow or trackio, got one of pages"),
        (broken, [], "expected a whole database, got an error"),
        (
            mlflow(tmp_path / "m.db"),
            ["--columns", "loss=val_loss"],
            "got metrics.val_loss. Did you mean 'metrics.val_loss'?",
        ),
        (mlflow(tmp_path / "n.db"), ["--columns", "loss=metrics.val_loss"], "expected columns 'variant' and 'seed'"),
    ):
        assert main(["rank", str(path), *options]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


def test_the_csv_writer_of_swanlab_leaves_short_rows(tmp_path: Path) -> None:
    """A run that logs more adds columns to the header; the rows before it keep their cells."""
    about = "run_id,experiment_name,description,project,workspace,timestamp,logdir,url"
    rows = [f"id,{v}-s{s},,p,w,t,logs,,{v},{s},{loss}" for (v, s), loss in LOSSES.items()]
    path = tmp_path / "swanlab_runs.csv"
    header = f"{about},config/model,config/seed,val/loss,val/accuracy"
    path.write_text("\n".join([header, *rows[:-1], f"{rows[-1]},0.5"]) + "\n")
    columns = {"variant": "config/model", "seed": "config/seed", "loss": "val/loss"}
    assert found(read_runs(path, columns)) == LOSSES
    path.write_text("\n".join([header.replace("url", "link"), *rows]) + "\n")
    with pytest.raises(InputError, match="line 2: expected 12 cells"):
        read_runs(path, columns)
