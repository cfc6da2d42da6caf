"""Runs as trackers and training scripts leave them: databases, wide exports, names of runs, logs."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import addnorm
from addnorm.cli import main
from addnorm.errors import InputError
from addnorm.statistics.run_tables import read_run_table, read_runs

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
    with pytest.raises(
        InputError, match=r"b-s0.txt: expected one run, got a second one: step 0 behind the last one, 1390"
    ):
        read_runs(tmp_path, columns)


def test_a_folder_of_another_form_says_what_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metrics.csv").write_text("step,val_loss\n1,2.5\n")
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
