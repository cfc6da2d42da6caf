"""What real programs write is read: an archive that MLflow, TensorBoard, trackio, W&B, SwanLab, Inspect and pandas filled.

`tests/fixtures/make_trackers.py` made it, with the programs themselves; `versions.json` in it names their versions.
"""

import json
import math
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from test_tracker_exports import LOSSES

import addnorm
from addnorm.cli import main
from addnorm.errors import InputError
from addnorm.statistics.run_tables import read_run_table, read_runs
from addnorm.statistics.run_tables.samples import read_items

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "trackers.tar.gz"
MLFLOW = {"variant": "params.model", "seed": "params.seed", "loss": "metrics.val/loss"}
BY_SETTINGS = {"variant": "model", "loss": "val/loss"}
BY_NAME = {"variant": "Name", "run": "{variant}-s{seed}", "loss": "val/loss"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trackers")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def found(path: Path, columns: Mapping[str, str] | None) -> dict[tuple[str, int], float | str | None]:
    """Loss by variant and seed; the state of a run that has none."""
    return {(r.variant, r.seed): r.state if r.loss is None else pytest.approx(r.loss) for r in read_runs(path, columns)}


def test_the_database_of_mlflow(made: Path) -> None:
    others = {("wide", 0): "failed", ("hot", 0): "diverged", ("slow", 0): "running"}
    assert found(made / "mlflow" / "mlflow.db", MLFLOW) == {**LOSSES, **others}
    ranking = addnorm.rank(made / "mlflow" / "mlflow.db", columns=MLFLOW)
    assert (ranking["deep"].versus["base"].verdict, ranking.provisional) == ("better", True)


def test_the_csv_of_mlflow_lacks_what_the_database_has(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A loss of nan is an empty cell of a run that finished: refused, since it may also be a loss that was never logged."""
    path = made / "mlflow" / "mlflow.csv"
    columns = ",".join(f"{name}={column}" for name, column in MLFLOW.items())
    assert main(["rank", str(path), "--columns", columns]) == 2
    assert "line 3: expected a number in column 'metrics.val/loss', got ''" in capsys.readouterr().err
    lines = path.read_text().splitlines(keepends=True)
    whole = made / "mlflow" / "without_hot.csv"
    whole.write_text("".join(line for line in lines if "hot-s0" not in line))
    assert found(whole, MLFLOW) == {**LOSSES, ("wide", 0): "failed", ("slow", 0): "running"}


def test_events_of_tensorboard(made: Path) -> None:
    table = read_run_table(made / "tensorboard")
    assert {(r.variant, r.seed): pytest.approx(r.loss, rel=1e-6) for r in table.runs} == LOSSES
    assert [(w.note["code"], w.note["values"]["run"]) for w in table.warnings] == [("resumed", "base-s1")]


def test_the_database_of_trackio(made: Path) -> None:
    columns = {"variant": "config.model", "seed": "config.seed", "loss": "val/loss"}
    assert found(made / "trackio" / "joints.db", columns) == LOSSES


@pytest.mark.parametrize("columns", [BY_SETTINGS, BY_NAME], ids=["settings", "names"])
def test_runs_of_wandb_without_a_network(made: Path, columns: dict[str, str]) -> None:
    """The last run of deep ended with exit code 1, and the one of hot logged a loss of nan."""
    assert found(made / "wandb", columns) == {**LOSSES, ("deep", 2): "failed", ("hot", 0): "diverged"}


@pytest.mark.parametrize("columns", [BY_SETTINGS, BY_NAME], ids=["settings", "names"])
def test_runs_of_swanlab_without_a_network(made: Path, columns: dict[str, str]) -> None:
    assert found(made / "swanlab", columns) == LOSSES


@pytest.mark.parametrize("name", ["wandb", "swanlab"])
def test_a_run_whose_file_is_cut_off_has_not_ended(made: Path, tmp_path: Path, name: str) -> None:
    """As after a kill: the record of its end, or a part of one, is missing."""
    shutil.copytree(made / name, tmp_path / name)
    path = next(path for path in sorted((tmp_path / name).rglob(f"*.{name}")))
    whole = path.read_bytes()
    for size in range(len(whole) - 1, len(whole) // 2, -97):
        path.write_bytes(whole[:size])
        assert found(tmp_path / name, BY_SETTINGS)["base", 0] == "running"
    path.write_bytes(b"x" * 100)
    with pytest.raises(InputError, match=r"expected a run of W&B or SwanLab, got other bytes. Leave it out"):
        read_runs(tmp_path / name, BY_SETTINGS)


def test_a_resumed_run_of_wandb_is_one_run(made: Path, tmp_path: Path) -> None:
    """Its second part has the same ID, and its values replace those of the first at the same steps."""
    first, second, *_ = (made / "wandb").rglob("*.wandb")
    for folder, path in (("alone", second), ("both/offline-run-1", first), ("both/offline-run-2", second)):
        (tmp_path / folder).mkdir(parents=True)
        shutil.copy(path, tmp_path / folder / "run-abc.wandb")
    both, alone = (read_run_table(tmp_path / name, BY_SETTINGS, fewest_seeds=1).runs for name in ("both", "alone"))
    assert both == alone
    assert len(both) == 1


def test_a_metric_that_no_run_has_is_named(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rank", str(made / "wandb"), "--columns", "loss=val/los"]) == 2
    error = capsys.readouterr().err
    assert "expected a logged number 'val/los', got " in error
    assert "Did you mean 'val/loss'?" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("form", ["json", "eval_of_2024", "eval"])
def test_logs_of_inspect(made: Path, form: str) -> None:
    if form == "eval":
        pytest.importorskip("zstandard")
    (table,) = read_items(made / "inspect" / form, {"document": "metadata.page"})
    assert (table.task, table.metric) == ("add_one", "match")
    assert table.scores == {
        ("base", None): {"0": 0.0, "1": 1.0, "2": 0.0, "3": 1.0},
        ("deep", None): {"0": 1.0, "1": 1.0, "2": 0.0, "3": 1.0},
    }
    assert table.documents == {"0": "0", "1": "0", "2": "1", "3": "1"}
    row = addnorm.downstream(made / "inspect" / form)["deep", "add_one"]
    assert (row.verdict, row.comparison.method, row.comparison.only_second) == ("undecided", "mcnemar", 0)


def test_a_log_of_inspect_that_cannot_be_read(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = next((made / "inspect" / "eval_of_2024").rglob("*.eval"))
    unfinished = tmp_path / "started.eval"
    with zipfile.ZipFile(log) as whole, zipfile.ZipFile(unfinished, "w") as part:
        for name in whole.namelist():
            if name.startswith("_journal"):
                part.writestr(name, whole.read(name))
    cut_off = tmp_path / "cut.eval"
    data = bytearray(log.read_bytes())
    data[len(data) // 3 : len(data) // 3 + 400] = bytes(400)
    cut_off.write_bytes(data)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    for path, message in (
        (unfinished, "expected a log of status success, got 'started'"),
        (cut_off, "expected a whole log of Inspect, got an error"),
        (next((made / "inspect" / "eval").rglob("*.eval")), "pip install 'addnorm[inspect]', or write JSON with"),
    ):
        assert main(["rank", str(path), "--as", "downstream"]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "columns"), [("runs", None), ("history", None), ("wide", {"run": "seed_{seed}"})], ids=lambda x: str(x)[:8]
)
def test_parquet_files_of_pandas(made: Path, name: str, columns: dict[str, str] | None) -> None:
    pytest.importorskip("pyarrow")
    assert found(made / "pandas" / f"{name}.parquet", columns) == LOSSES


def test_cells_of_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    decimals = pyarrow.array(["2.91", "2.93", "2.92"]).cast(pyarrow.decimal128(10, 4))
    table = pyarrow.table({"variant": ["a"] * 3, "seed": pyarrow.array([0, 1, 2], pyarrow.uint64()), "loss": decimals})
    path = tmp_path / "RUNS.PARQUET"
    write_parquet(table, path)
    assert found(path, None) == {("a", 0): 2.91, ("a", 1): 2.93, ("a", 2): 2.92}
    write_parquet(table.set_column(2, "loss", pyarrow.array([2.9, math.nan, math.inf])), path)
    assert found(path, None) == {("a", 0): 2.9, ("a", 1): "diverged", ("a", 2): "diverged"}
    write_parquet(table.set_column(2, "loss", pyarrow.array([2.9, None, 2.8])), path)
    with pytest.raises(InputError, match=r"row 1: expected a number in column 'loss', got None"):
        read_runs(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="expected a whole Parquet file"):
        read_runs(path)


def write_parquet(table: Any, path: Path) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, path)


def test_a_package_that_is_missing_is_named(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["rank", str(made / "pandas" / "runs.parquet")]) == 2
    error = capsys.readouterr().err
    assert "pip install 'addnorm[parquet]', or write the table as CSV." in error
    assert error.count("\n") == 1
    assert json.loads((made / "versions.json").read_text())["mlflow"].startswith("mlflow-skinny 3.")
