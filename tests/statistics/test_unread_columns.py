"""What a table says in columns that are not read, and steps in the notation of its losses: never passed over in silence."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import addnorm
from addnorm.errors import InputError
from addnorm.statistics import Result
from addnorm.statistics.run_tables import read_curves, read_run_table

LOSSES = {
    (variant, seed): loss
    for variant, row in {"base": (2.51, 2.52, 2.53, 2.515), "mine": (2.41, 2.43, 2.42, 2.425)}.items()
    for seed, loss in enumerate(row)
}
CRASHED = ("mine", 2)
NOTE = "columns that are not read may tell that runs ended badly"


def table(path: Path, column: str, well: str, badly: str) -> Path:
    rows = [f"{v},{s},{x},{badly if (v, s) == CRASHED else well}" for (v, s), x in LOSSES.items()]
    path.write_text("\n".join([f"variant,seed,loss,{column}", *rows]) + "\n", encoding="utf-8")
    return path


def states(path: Path, **columns: str) -> dict[tuple[str, int], str]:
    return {(run.variant, run.seed): run.state for run in read_run_table(path, columns).runs}


@pytest.mark.parametrize(
    ("column", "well", "badly"),
    [
        ("error", "", "CUDA out of memory"),
        ("exception", "", "RuntimeError: NaN loss"),
        ("result", "fine", "FAIL"),
        ("Zustand", "fertig", "abgebrochen"),
        ("état", "terminé", "échoué"),
        ("运行结果", "正常", "崩溃"),
        ("notes", "", "node 7 died at step 300"),
        ("signal", "", "SIGKILL"),
        ("termination", "normal", "preempted"),
        ("health", "good", "dead"),
        ("end_reason", "max_steps", "nan_loss"),
        ("stopped_by", "", "OOM killer"),
        ("tags", "sweep", "sweep;crashed_early"),
        ("emoji", "👍", "❌"),
        ("memo", "", "Fehler in Schritt 12"),
        ("fin", "correcte", "interrompue"),
        ("exit", "clean", "SIGTERM"),
        ("is_done?", "ja", "hung"),
        ("reason", "Completed", "OOMKilled"),
        ("exc_type", "", "KeyboardInterrupt"),
        ("last_error", "", "torch.OutOfMemoryError"),
        ("slurm_comment", "", "DUE TO TIME LIMIT"),
        ("memo", "", "No space left on device"),
        ("Статус", "завершено", "ошибка"),
        ("结论", "正常", "异常"),
        ("結果", "正常終了", "異常終了"),
        ("결과", "완료", "실패"),
        ("resultado", "terminado", "falló"),
        ("esito", "completato", "interrotto"),
        ("wynik", "zakończony", "przerwany"),
        ("resultaat", "klaar", "mislukt"),
        ("status", "", "boom"),
        ("crashed", "", "x"),
        ("done", "☑", "☐"),
        ("notes", "", "DO NOT USE - wrong lr"),
        ("备注", "", "作废，学习率写错"),
        ("tags", "sweep1", "sweep1|debug|ignore"),
        ("error", "False", "True"),
        ("exit", "0", "1"),
        ("num_nan_steps", "0", "312"),
        ("keep", "yes", "no"),
        ("is_outlier", "0", "1"),
        ("exclude", "FALSE", "TRUE"),
        ("converged", "True", "False"),
        ("end_time", "2026-01-01 12:00", ""),
        ("datetime_complete", "2026-01-01 12:00", "NaT"),
        ("progress", "1.0", "0.62"),
        ("pct_done", "100%", "62%"),
        ("steps_done", "1000/1000", "620/1000"),
        ("eta_seconds", "0", "5120"),
        ("Grund", "", "Zeitüberschreitung"),
        ("нотатка", "", "помилка CUDA"),
        ("comment", "final", "WIP"),
        ("remarks", "", "truncated at 60 %"),
        ("comment", "", "still running"),
        ("end_ts", "1767225600", "0"),
        ("End", "2026-01-01T10:00:00", "Unknown"),
        ("progress", '"1,0"', '"0,62"'),
        ("early_stopped", "False", "True"),
    ],
)
def test_a_column_that_may_tell_a_bad_end_is_named(tmp_path: Path, column: str, well: str, badly: str) -> None:
    path = table(tmp_path / "runs.csv", column, well, badly)
    ranking = addnorm.rank(path)
    (said,) = (each for each in ranking.warnings if NOTE in each or "column of states" in each)
    assert (badly or column).strip('"').replace(", ", " · ") in str(said)
    assert all(value.counted for value in ranking["mine"].values)
    assert any(NOTE in each for each in addnorm.noise(path).warnings) == (NOTE in said)
    told = addnorm.rank(path, columns={"state": ""})
    assert not any(NOTE in each for each in told.warnings), "the user said that none ended badly"


@pytest.mark.parametrize(
    ("column", "well", "badly"),
    [
        ("success", "True", "False"),
        ("oom", "no", "yes"),
        ("rc", "0", "137"),
        ("exit_status", "0", "-9"),
        ("aborted", "False", "True"),
        ("valid", "1", "0"),
        ("OK?", "yes", "no"),
        ("sys/has_error", "false", "true"),
        ("timed out", "n", "y"),
        ("状态", "已完成", "失败"),
        ("status", "成功", "崩溃"),
    ],
)
def test_an_answer_to_a_question_about_the_end_is_read(tmp_path: Path, column: str, well: str, badly: str) -> None:
    path = table(tmp_path / "runs.csv", column, well, badly)
    assert {run for run, state in states(path).items() if state != "finished"} == {CRASHED}
    assert set(states(path, state="").values()) == {"finished"}


@pytest.mark.parametrize(
    ("column", "well", "badly"),
    [
        ("resumed_from", "crash-test", "crash-test"),  # the same for all: a setting
        ("test_acc", "0.7", "nan"),
        ("test_acc", "0.7", "NaN"),
        ("note", "slow", "deadline in May"),
        ("valid", "2.31", "2.35"),  # a loss of that name
        ("config", "kompakt", "komplex"),
        ("unstuck", "", "monitored"),
        ("language", "en", "ko"),
        ("best_epoch", "28", "3"),
        ("step_time_ms", "57.1", "93.0"),
        ("is_best", "no", "yes"),
        ("error", "0.31", "0.4"),  # a measure
        ("warmup_steps", "100", "100"),
        ("gpu", "0", "1"),
        ("start_time", "10:00", ""),
        ("log", "out/0/error.log", "out/1/error.log"),
        ("checkpoint", "out/0/best.pt", "out/1/best.pt"),
        ("config", '"{""ignore_index"": -100}"', '"{""ignore_index"": -1}"'),
    ],
)
def test_other_columns_are_not_named(tmp_path: Path, column: str, well: str, badly: str) -> None:
    found = read_run_table(table(tmp_path / "runs.csv", column, well, badly))
    assert found.warnings == ()
    assert {run.state for run in found.runs} == {"finished"}


def test_beside_a_column_of_states_only_answers_are_named(tmp_path: Path) -> None:
    path = table(tmp_path / "runs.csv", "state,notes", "finished,", "finished,crashed once and resumed")
    assert read_run_table(path).warnings == ()
    path = table(tmp_path / "runs.csv", "state,diverged", "finished,no", "finished,yes")
    (said,) = read_run_table(path).warnings
    assert "'diverged' ('yes')" in said


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ("finished,ignore this one", "ignore this one"),
        ("finished,debug", "debug"),
        ("finished,invalid", "invalid"),
    ],
)
def test_words_that_set_a_run_aside_count_beside_a_state_too(tmp_path: Path, cells: str, words: str) -> None:
    path = table(tmp_path / "runs.csv", "State,Notes", "finished,", cells)
    (said,) = read_run_table(path).warnings
    assert f"'Notes' ('{words}')" in said
    named = [f"{v}-s{s},{x},{cells if (v, s) == CRASHED else 'finished,'}" for (v, s), x in LOSSES.items()]
    path.write_text("\n".join(["Name,loss,State,Notes", *named]), encoding="utf-8")
    assert words in " ".join(read_run_table(path, {"variant": "Name", "run": "{variant}-s{seed}"}).warnings)


def by_variant(path: Path, column: str, cells: dict[str, str], further: str = "") -> Path:
    rows = [f"{v},{s},{x},{cells[v]}{further}" for (v, s), x in LOSSES.items()]
    path.write_text("\n".join([f"variant,seed,loss,{column}", *rows]) + "\n", encoding="utf-8")
    return path


def test_a_setting_is_the_same_for_all_runs_of_a_variant(tmp_path: Path) -> None:
    for column, own in {
        "keep": "no",
        "use_bias": "False",
        "pooling": "mean",
        "tokens_B": "20",
        "max_steps": "9",
    }.items():
        path = by_variant(tmp_path / "runs.csv", column, {"base": "", "mine": own})
        assert read_run_table(path).warnings == (), column


@pytest.mark.parametrize(
    ("column", "well", "badly"),
    [
        ("tokens_B", "10.0", "4.1"),
        ("n_batches", "4000", "1300"),
        ("Schritte", "1000", "480"),
        ("步数", "1000", "480"),
        ("kimg", "25000", "11200"),
        ("env_timesteps", "1000000", "400000"),
        ("ksteps", "20", "8"),
    ],
)
def test_a_count_that_differs_within_a_variant_is_named(tmp_path: Path, column: str, well: str, badly: str) -> None:
    path = table(tmp_path / "runs.csv", column, well, badly)
    (said,) = read_run_table(path).warnings
    assert f"{column!r} ({well!r}, {badly!r})" in said
    assert read_run_table(path, {"step": ""}).warnings == ()
    counted = read_run_table(path, {"step": column})
    assert {(run.variant, run.seed) for run in counted.runs if run.state != "finished"} == {CRASHED}


@pytest.mark.parametrize(
    ("columns", "well", "badly"),
    [
        ("epochs,current_epoch", "10,10", "10,4"),
        ("num_steps,last_step", "5000,5000", "5000,1200"),
        ("train_steps,completed_steps", "5000,5000", "5000,1200"),
        ("training_iteration,done", "100,True", "16,True"),
        ("epochs_run,best_epoch", "30,28", "11,3"),
    ],
)
def test_steps_that_were_made_are_read_before_planned_ones(tmp_path: Path, columns: str, well: str, badly: str) -> None:
    found = read_run_table(table(tmp_path / "runs.csv", columns, well, badly))
    assert found.warnings != ()
    assert str(found.warnings[0]).count("step") > 0


@pytest.mark.parametrize("column", ["lr", "params_lr", "config/batch_size", "precision", "code_version", "n_layers"])
def test_a_setting_that_differs_within_a_variant_is_named(tmp_path: Path, column: str) -> None:
    (said,) = read_run_table(table(tmp_path / "runs.csv", column, "0.001", "0.01")).warnings
    assert "differ in settings" in said
    assert f"{column!r} ('0.001', '0.01')" in said
    assert read_run_table(by_variant(tmp_path / "runs.csv", column, {"base": "1", "mine": "2"})).warnings == ()
    assert read_run_table(table(tmp_path / "runs.csv", column, "1e-3", "0.001")).warnings == ()
    named = read_run_table(table(tmp_path / "runs.csv", column, "1", "2"), {"variant": f"variant+{column}"})
    assert named.warnings == ()


def test_runs_that_end_before_what_was_planned_are_named(tmp_path: Path) -> None:
    path = by_variant(tmp_path / "runs.csv", "step,max_steps", {"base": "1000,1000", "mine": "1000,2000"})
    (said,) = read_run_table(path).warnings
    assert "'max_steps' ('1000 / 2000')" in said
    path = by_variant(tmp_path / "runs.csv", "step,max_steps", {"base": "999,1000", "mine": "990,1000"})
    assert not any("max_steps" in said for said in read_run_table(path, {"ended": "all"}).warnings)
    path = by_variant(tmp_path / "runs.csv", "step,max_epochs", {"base": "1000,1000", "mine": "1000,2000"})
    assert read_run_table(path).warnings == (), "epochs are no steps"


@pytest.mark.parametrize("word", ["mean", "std", "Mittelwert", "平均"])
def test_a_row_that_sums_up_the_runs_of_a_variant_is_named(tmp_path: Path, word: str) -> None:
    rows = [f"{v},{s + 1},{x}" for (v, s), x in LOSSES.items()] + [f"mine,{word},2.42"]
    (tmp_path / "runs.csv").write_text("\n".join(["variant,run,loss", *rows]), encoding="utf-8")
    (said,) = (each for each in read_run_table(tmp_path / "runs.csv", {"seed": ""}).warnings if "summary" in each)
    assert f"'run' ('{word}')" in said


def objects(tmp_path: Path, cells: Callable[[bool], object]) -> list[str]:
    rows = [{"variant": v, "seed": s, "loss": x, "meta": cells((v, s) == CRASHED)} for (v, s), x in LOSSES.items()]
    path = tmp_path / "runs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return [str(each) for source in (path, rows) for each in read_run_table(source).warnings]


def test_so_are_fields_of_objects_in_a_file_and_in_memory(tmp_path: Path) -> None:
    assert all(
        "'meta.exit' ('crash')" in said for said in objects(tmp_path, lambda bad: {"exit": "crash" if bad else "ok"})
    )
    assert len(objects(tmp_path, lambda bad: {"exit": "crash" if bad else "ok"})) == 2
    assert objects(tmp_path, lambda bad: {"accuracy": float("nan") if bad else 0.7}) == []
    assert objects(tmp_path, lambda bad: {"killed_heads": 3 if bad else 0}) == []


STEPS = (500, 1000, 1500, 20000)


def history(path: Path, separator: str, mark: str, cell: Callable[[int], str]) -> Path:
    lines = [separator.join(("variant", "seed", "step", "loss"))]
    for (variant, seed), loss in LOSSES.items():
        for step in STEPS:
            value = f"{loss + (STEPS[-1] - step) / 10000:.4f}".replace(".", mark)
            lines.append(separator.join((variant, str(seed), cell(step), value)))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("separator", "mark", "cell"),
    [
        (";", ",", lambda step: f"{step:,}".replace(",", ".")),  # Excel in German
        ("\t", ",", lambda step: f"{step:,}".replace(",", ".")),
        (";", ",", lambda step: f"{step:,}".replace(",", "\u202f")),  # in French
        (";", ",", lambda step: f"{step},0"),  # pandas, to_csv(decimal=",")
        (";", ",", lambda step: f"{step / 1000:g}".replace(".", ",")),  # epochs
        (";", ",", lambda step: f"{step / 1000:.1f}"),  # two programs
        (",", ".", lambda step: f'"{step:,}"'),  # Excel in English
        (",", ".", lambda step: f"{step / 1000:.3f}"),
        (";", ".", lambda step: f"{step:,}"),
    ],
)
def test_steps_are_read_in_the_notation_of_the_table(
    tmp_path: Path, separator: str, mark: str, cell: Callable[[int], str]
) -> None:
    path = history(tmp_path / "runs.csv", separator, mark, cell)
    found = read_run_table(path)
    assert {(run.variant, run.seed): run.loss for run in found.runs} == {
        run: pytest.approx(x, abs=1e-12) for run, x in LOSSES.items()
    }
    assert found.warnings == ()
    curves, _, _ = read_curves(path)
    steps = sorted(curves["mine"][0])
    assert [step / steps[0] for step in steps] == pytest.approx([step / STEPS[0] for step in STEPS])


def test_steps_of_two_notations_are_refused(tmp_path: Path) -> None:
    cells = {500: "0.5", 1000: "1,25", 1500: "1.500", 20000: "20"}
    with pytest.raises(InputError, match=r"in column 'step'.*another decimal mark"):
        read_run_table(history(tmp_path / "runs.csv", ";", ",", cells.__getitem__))


def evaluations(loss: float, first: int, last: int) -> str:
    return "".join(
        f"step {step}: train loss 2.0, val loss {loss + (2000 - step) / 1000:.4f}\niter {step}: loss 2.1, time 20ms\n"
        for step in range(first, last + 1, 500)
    )


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (lambda x: evaluations(x + 1, 0, 2000) + evaluations(x, 0, 2000), "step 0 behind step 2000"),
        (lambda x: evaluations(x + 1, 0, 1000) + evaluations(x, 0, 2000), "step 0 behind step 1000"),
        (lambda x: evaluations(x, 0, 2000) + evaluations(x - 1, 0, 1000), "step 0 behind step 2000"),
        (lambda x: evaluations(x, 1000, 2000) + evaluations(x - 1, 500, 2000), "step 500 behind step 2000"),
        (lambda x: evaluations(x + 1, 0, 1500) + evaluations(x, 1000, 2000), None),  # resumed
        (lambda x: evaluations(x, 0, 1000) + evaluations(x, 1000, 2000), None),
    ],
)
def test_a_log_of_two_runs_is_refused_and_a_resumed_one_is_read(
    tmp_path: Path, lines: Callable[[float], str], problem: str | None
) -> None:
    for (variant, seed), loss in LOSSES.items():
        text = lines(loss) if (variant, seed) == CRASHED else evaluations(loss, 0, 2000)
        (tmp_path / f"{variant}_{seed}.log").write_text(text, encoding="utf-8")
    named = {"loss": "val_loss", "run": "{variant}_{seed}"}
    if problem is not None:
        with pytest.raises(InputError, match=rf"mine_2.log: expected one run, got a second one: {problem}"):
            read_run_table(tmp_path, named)
        return
    found: tuple[Result, ...] = read_run_table(tmp_path, named).runs
    assert {(run.variant, run.seed): run.loss for run in found} == LOSSES


@pytest.mark.parametrize(
    "column",
    [
        *(
            "val_loss",
            "eval_loss",
            "validation_loss",
            "val/loss",
            "test_loss",
            "valLoss",
            "dev_loss",
            "loss_val",
            "val_bpb",
        ),
        *("metrics.val_loss", "loss/validation", "验证损失", "heldout_nll", "eval_ppl", "Val-Loss"),
    ],
)
def test_a_held_out_loss_beside_the_one_that_is_ranked_is_named(tmp_path: Path, column: str) -> None:
    path = table(tmp_path / "runs.csv", column, "1.5", "1.6")
    (said,) = read_run_table(path).warnings
    assert f"loss is ranked; the table has {column} as well" in said
    assert read_run_table(path, {"loss": column}).warnings == ()
    rows = [{"variant": v, "seed": s, "loss": x, column: 1.5} for (v, s), x in LOSSES.items()]
    assert len(read_run_table(rows).warnings) == 1


def test_so_it_is_in_the_histories_of_keras_and_transformers(tmp_path: Path) -> None:
    for (variant, seed), loss in LOSSES.items():
        run = tmp_path / "keras" / f"{variant}-s{seed}.csv"
        run.parent.mkdir(exist_ok=True)
        run.write_text(f"epoch,loss,val_loss\n0,{loss},{loss}\n1,{loss / 2},{loss - 0.1}\n", encoding="utf-8")
        state = tmp_path / "trainer" / f"{variant}-s{seed}" / "trainer_state.json"
        state.parent.mkdir(parents=True)
        log = [{"step": 1, "loss": loss / 2}, {"step": 2, "loss": loss / 3}, {"step": 2, "eval_loss": loss}]
        state.write_text(json.dumps({"global_step": 2, "max_steps": 2, "log_history": log}), encoding="utf-8")
    for folder, column in (("keras", "val_loss"), ("trainer", "eval_loss")):
        (said,) = read_run_table(tmp_path / folder).warnings
        assert f"--columns loss={column}" in said
        assert read_run_table(tmp_path / folder, {"loss": column}).warnings == ()
