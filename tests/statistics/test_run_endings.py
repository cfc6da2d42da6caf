"""Whether the runs of a table have ended: states, last steps, resumed event files, and the names of folders."""

import json
import struct
from pathlib import Path

import pytest
from test_run_tables import VERSION, event

import addnorm
from addnorm.cli import main
from addnorm.errors import InputError
from addnorm.statistics import Result
from addnorm.statistics.run_tables import columns_from, read_run_table, read_runs
from addnorm.supervision.trackers import TRACKERS, ToolMissing

LOSSES = {"base": (2.51, 2.52, 2.53), "mine": (2.41, 2.43, 2.42)}


def table(tmp_path: Path, header: str, rows: list[str]) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def by_name(path: Path, **columns: str) -> dict[str, Result]:
    return {f"{run.variant}/{run.seed}": run for run in read_runs(path, columns)}


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("finished", "finished"),
        ("FINISHED", "finished"),
        ("Completed", "finished"),
        ("crashed", "failed"),
        ("killed", "failed"),
        ("Failed", "failed"),
        ("preempted", "failed"),
        ("OUT_OF_MEMORY", "failed"),
        ("running", "running"),
        ("Pending", "running"),
        ("in progress", "running"),
        ("diverged", "diverged"),
    ],
)
@pytest.mark.parametrize("column", ["state", "State", "status"])
def test_states_of_trackers_are_read(tmp_path: Path, word: str, state: str, column: str) -> None:
    rows = [
        f"{v},{s},{x},{word if (v, s) == ('mine', 1) else 'finished'}"
        for v, r in LOSSES.items()
        for s, x in enumerate(r)
    ]
    path = table(tmp_path, f"variant,seed,loss,{column}", rows)
    run = by_name(path)["mine/1"]
    assert run.state == state
    assert (run.loss is None) == (state != "finished")
    ranking = addnorm.rank(path)
    assert ranking["mine"].seeds == (3 if state == "finished" else 2)
    assert ranking.provisional == (state == "running")
    assert by_name(path, state="")["mine/1"].loss == 2.43, "an empty name leaves the column out"


def test_a_word_of_two_meanings_is_asked(tmp_path: Path) -> None:
    """Ray Tune writes TERMINATED of a trial that finished, clouds of a machine that was taken away."""
    rows = [f"{variant},{seed},{loss},TERMINATED" for variant in LOSSES for seed, loss in enumerate(LOSSES[variant])]
    path = table(tmp_path, "variant,seed,loss,status", rows)
    with pytest.raises(InputError, match=r"'TERMINATED', which Ray Tune writes of a trial that finished and others"):
        read_runs(path)
    assert {run.state for run in read_runs(path, {"state": ""})} == {"finished"}


def test_a_word_that_is_no_state_is_refused_where_others_are(tmp_path: Path) -> None:
    path = table(tmp_path, "variant,seed,loss,state", ["a,0,2.5,finished", "a,1,2.6,Ohio"])
    with pytest.raises(InputError, match=r"line 3: expected the state of a run .* got 'Ohio'.*--columns state="):
        read_runs(path)
    path = table(tmp_path, "variant,seed,loss,state", ["a,0,2.5,Texas", "a,1,2.6,Ohio"])
    assert len(read_runs(path)) == 2, "a column without any state is another column"


@pytest.mark.parametrize(
    ("column", "well", "badly", "state"),
    [
        ("run_status", "finished", "crashed", "failed"),
        ("Job State", "COMPLETED", "TIMEOUT", "failed"),
        ("outcome", "ok", "killed", "failed"),
        ("finished", "True", "False", "running"),
        ("done", "yes", "no", "running"),
        ("Crashed", "0", "1", "failed"),
        ("diverged", "false", "true", "diverged"),
        ("exit_code", "0", "137", "failed"),
        ("Exit Code", "0:0", "0:9", "failed"),
        ("sys/failed", "False", "True", "failed"),
        ("Killed?", "no", "yes", "failed"),
        ("has_nan", "0", "1", "diverged"),
        ("trial.status", "done", "PRUNED", "failed"),
        ("JobState", "COMPLETED", "NODE_FAIL", "failed"),
        ("slurm_state", "COMPLETED", "CANCELLED by 1000", "failed"),
        ("attributes.status", "🏁 finished", "💥 crashed", "failed"),
    ],
)
def test_an_ending_under_another_name(tmp_path: Path, column: str, well: str, badly: str, state: str) -> None:
    rows = [
        f"{v},{s},{x},{badly if (v, s) == ('mine', 1) else well}" for v, r in LOSSES.items() for s, x in enumerate(r)
    ]
    path = table(tmp_path, f"variant,seed,loss,{column}", rows)
    assert {name: run.state for name, run in by_name(path).items() if run.state != "finished"} == {"mine/1": state}
    assert by_name(path, state="")["mine/1"].state == "finished"
    assert by_name(path, state=column)["mine/1"].state == state


@pytest.mark.parametrize("words", [("converged", "exploded"), ("✅", "❌"), ("すみ", "だめ")])
def test_a_column_of_states_without_a_known_word_is_named(tmp_path: Path, words: tuple[str, str]) -> None:
    rows = [f"{v},{s},{x},{words[(v, s) == ('mine', 1)]}" for v, r in LOSSES.items() for s, x in enumerate(r)]
    path = table(tmp_path, "variant,seed,loss,status", rows)
    (said,) = (each for each in addnorm.rank(path).warnings if "column of states" in each)
    assert f"({', '.join(words[::-1] if LOSSES.keys() == {'mine'} else words)})" in said
    assert "column of states" not in " ".join(addnorm.rank(path, columns={"state": ""}).warnings)
    assert "column of states" in " ".join(addnorm.noise(path).warnings)


def test_of_two_columns_of_states_one_has_to_be_named(tmp_path: Path) -> None:
    rows = [f"{v},{s},{x},ok,{'crashed' if s else 'finished'}" for v, r in LOSSES.items() for s, x in enumerate(r)]
    path = table(tmp_path, "variant,seed,loss,status,state", rows)
    with pytest.raises(InputError, match="expected one column of states, got 'state' and 'status'"):
        read_runs(path)
    assert by_name(path, state="state")["mine/1"].state == "failed"


@pytest.mark.parametrize(
    "column",
    [
        "iter",
        "Epoch",
        "train_steps",
        "Global Step",
        "tokens_seen",
        "consumed_samples",
        "last_step",
        "train/global_step",
    ],
)
def test_steps_under_another_name(tmp_path: Path, column: str) -> None:
    rows = [f"{v},{s},{20 if (v, s) == ('mine', 1) else 90},{x}" for v, r in LOSSES.items() for s, x in enumerate(r)]
    ranking = addnorm.rank(table(tmp_path, f"variant,seed,{column},loss", rows))
    assert [value.counted for value in ranking["mine"].values] == [True, False, True]
    curves = [f"{v},{s},{9 * at},{x - at}" for v, r in LOSSES.items() for s, x in enumerate(r) for at in (2, 10, 1)]
    runs = by_name(table(tmp_path, f"variant,seed,{column},loss", curves))
    assert {name: run.loss for name, run in runs.items()} == {
        f"{v}/{s}": pytest.approx(x - 10) for v, r in LOSSES.items() for s, x in enumerate(r)
    }


def test_every_command_says_which_runs_do_not_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One table through every command: the same runs count, and the text says which do not."""
    rows = [
        f"{v},{s},{step},{x - step / 1000}"
        for v, r in LOSSES.items()
        for s, x in enumerate(r)
        for step in (100, 200)
        if (v, s, step) != ("mine", 1, 200)
    ]
    path = str(table(tmp_path, "variant,seed,step,loss", rows))
    other = tmp_path / "larger.csv"
    other.write_text(Path(path).read_text(encoding="utf-8").replace(",2.", ",1."), encoding="utf-8")
    commands = (
        ["rank", path],
        ["noise", path],
        ["rank", path, "--rule", "marin-gate-1"],
        ["trend", path, str(other), "--parameters", "1e6,2e6"],
    )
    for words in commands:
        assert main(words) == 0
        assert "mine, 1 at step 100" in " ".join(capsys.readouterr().out.split()), words
    assert main(["rank", path, "--json"]) == 0
    ranked = {row["variant"]: (row["seeds"], row["mean"]) for row in json.loads(capsys.readouterr().out)["variants"]}
    assert main(["noise", path, "--json"]) == 0
    noise = {row["variant"]: (row["runs"], row["mean"]) for row in json.loads(capsys.readouterr().out)["variants"]}
    assert noise == {name: (count, pytest.approx(mean)) for name, (count, mean) in ranked.items()}
    assert main(["judge", str(tmp_path / "ledger.jsonl"), "--propose", path, "--baseline-runs", "3"]) == 0
    assert "not recorded, since they have not finished: 1 runs" in " ".join(capsys.readouterr().out.split())


def test_a_run_that_failed_takes_no_part_in_the_noise_and_is_named(tmp_path: Path) -> None:
    rows = [f"{v},{s},{x},{'failed' if s == 1 else 'ok'}" for v, r in LOSSES.items() for s, x in enumerate(r)]
    said = addnorm.noise(table(tmp_path, "variant,seed,loss,state", rows)).warnings
    assert any("runs that have not finished take no part: 2 (of " in each for each in said)


def test_a_run_that_has_not_ended_needs_no_loss(tmp_path: Path) -> None:
    path = table(
        tmp_path, "variant,seed,loss,state", ["a,0,2.5,finished", "a,1,,running", "b,0,,crashed", "b,1,nan,finished"]
    )
    assert [run.state for run in read_runs(path)] == ["finished", "running", "failed", "diverged"]
    lines = [
        {"variant": "a", "seed": s, "loss": x, "state": w} for s, x, w in ((0, 2.5, "finished"), (1, None, "running"))
    ]
    (tmp_path / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert [run.state for run in read_runs(tmp_path / "runs.jsonl")] == ["finished", "running"]


STEPS = [
    f"{v},{s},{step},{x + 1000 / step - 1}"
    for v, r in LOSSES.items()
    for s, x in enumerate(r)
    for step in (250, 1000, 500)
]


def test_of_several_steps_the_last_one_counts(tmp_path: Path) -> None:
    runs = by_name(table(tmp_path, "variant,seed,step,loss", STEPS))
    assert {name: run.loss for name, run in runs.items()} == {
        f"{v}/{s}": pytest.approx(x) for v, row in LOSSES.items() for s, x in enumerate(row)
    }
    with pytest.raises(InputError, match="at seed 0, got a second one after"):
        by_name(table(tmp_path, "variant,seed,step,loss", STEPS), step="")


def test_steps_without_a_loss_are_passed_over(tmp_path: Path) -> None:
    """A history of W&B has an empty cell at the steps at which nothing was evaluated."""
    rows = [*STEPS, *(f"{v},{s},1010," for v in LOSSES for s in range(3))]
    assert by_name(table(tmp_path, "variant,seed,_step,loss", rows))["mine/1"].loss == pytest.approx(2.43)


@pytest.mark.parametrize("last", [10, 890, 950, 999])
def test_whether_a_run_without_a_state_ended_is_asked(tmp_path: Path, last: int) -> None:
    """It may be at work, crashed or short by design: no share of the other steps tells."""
    rows = [
        f"{v},{s},{last if (v, s) == ('mine', 1) else 1000},{x}" for v, r in LOSSES.items() for s, x in enumerate(r)
    ]
    ranking = addnorm.rank(table(tmp_path, "variant,seed,step,loss", rows))
    assert [value.counted for value in ranking["mine"].values] == [True, False, True]
    assert ranking["mine"].values[1].state == "running"
    assert ranking.provisional
    text = " ".join(ranking.warnings)
    assert f"not known, and they do not count: mine, 1 at step {last}; other runs end at step 1000" in text
    assert "--columns ended=all" in text
    told = addnorm.rank(tmp_path / "runs.csv", columns={"ended": "all"})
    assert all(value.counted for value in told["mine"].values)
    assert not told.provisional
    assert f"seed 1 ends at step {last}, other runs of it at step 1000" in " ".join(told.warnings)
    assert all(value.counted for value in addnorm.rank(tmp_path / "runs.csv", columns={"step": ""})["mine"].values)


def test_the_command_takes_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{v},{s},{1000 - 100 * (s == 2)},{x}" for v, r in LOSSES.items() for s, x in enumerate(r)]
    path = str(table(tmp_path, "variant,seed,step,loss", rows))
    assert main(["rank", path, "--json"]) == 0
    asked = json.loads(capsys.readouterr().out)
    assert (asked["next"]["action"], asked["variants"][0]["versus"]) != ("report", {})
    assert asked["next"]["action"] == "wait"
    assert main(["rank", path, "--columns", "ended=all", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["next"]["action"], told["variants"][0]["versus"]["base"]["verdict"]) == ("report", "better")
    assert main(["rank", path, "--columns", "ended=some"]) == 2
    assert "expected ended=all" in capsys.readouterr().err


def test_of_many_variants_whose_ending_is_not_known_some_are_named(tmp_path: Path) -> None:
    rows = [f"v{v},{s},{100 + v if s else 50},2.5{v}{s}" for v in range(20) for s in range(3)]
    found = read_run_table(table(tmp_path, "variant,seed,step,loss", rows))
    assert [run.state for run in found.runs].count("finished") == 2  # those of v19, which end last
    (asked, *_) = found.warnings
    assert "v0, 3 at step 50-100" in asked
    assert "and 14 more variants" in asked
    assert len(asked) < 600


def test_a_finished_run_of_few_steps_counts_and_is_named(tmp_path: Path) -> None:
    rows = [f"a,{s},{step},2.5{s},finished" for s, step in enumerate((1000, 1000, 10))]
    found = read_run_table(table(tmp_path, "variant,seed,step,loss,state", rows))
    assert [run.state for run in found.runs] == ["finished"] * 3
    assert "seed 2 ends at step 10" in " ".join(found.warnings)


def test_variants_of_different_length_are_named(tmp_path: Path) -> None:
    rows = [f"{v},{s},{1000 if v == 'base' else 800},{x}" for v, r in LOSSES.items() for s, x in enumerate(r)]
    asked = addnorm.rank(table(tmp_path, "variant,seed,step,loss", rows))
    assert asked.provisional
    assert asked["mine"].versus["base"].verdict is None
    assert "mine, 3 at step 800; other runs end at step 1000" in " ".join(asked.warnings)
    ranking = addnorm.rank(tmp_path / "runs.csv", columns={"ended": "all"})
    assert ranking["mine"].seeds == 3
    assert "end at different steps: base at 1000, mine at 800" in " ".join(ranking.warnings)


def test_training_and_validation_of_one_step_in_two_rows(tmp_path: Path) -> None:
    """As Lightning's logger writes them; two losses of one step are still refused."""
    rows = [
        f"{v},{s},{step},{cells}"
        for v, r in LOSSES.items()
        for s, x in enumerate(r)
        for step in (10, 20)
        for cells in (f",{x - 0.1}", f"{x + (20 - step)},")
    ]
    path = table(tmp_path, "variant,seed,step,loss,train_loss", rows)
    assert {name: run.loss for name, run in by_name(path).items()} == {
        f"{v}/{s}": x for v, r in LOSSES.items() for s, x in enumerate(r)
    }
    with pytest.raises(InputError, match="at step 20, got a second one"):
        read_runs(table(tmp_path, "variant,seed,step,loss,train_loss", [*rows, "base,0,20,2.7,"]))


def test_one_step_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 4: .* at step 500, got a second one after .*line 3"):
        read_runs(table(tmp_path, "variant,seed,step,loss", ["a,0,250,3", "a,0,500,2.5", "a,0,500,2.6", "a,1,500,2.5"]))


def events(folder: Path, name: str, points: list[tuple[int, float]], tag: str = "loss", start: float = 1.5) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    records = b"".join(event(step, {tag: value}) for step, value in points)
    records = records.replace(struct.pack("<d", 1.5), struct.pack("<d", start))
    (folder / f"events.out.tfevents.{name}").write_bytes(VERSION + records)


def whole_folder(root: Path) -> None:
    for variant, row in LOSSES.items():
        for seed, loss in enumerate(row):
            events(root / f"{variant}-s{seed}", "1.host", [(10, 6.0), (500, 3.0), (1000, loss)])


def test_a_resumed_run_replaces_what_it_repeats(tmp_path: Path) -> None:
    whole_folder(tmp_path)
    # The names of the files are in the other order than their times.
    events(tmp_path / "mine-s1", "9.host", [(10, 6.0), (600, 2.9), (1000, 1.0)], start=10.0)
    events(tmp_path / "mine-s1", "5.host", [(500, 2.8), (1000, 2.5)], start=20.0)
    found = read_run_table(tmp_path)
    assert {f"{r.variant}/{r.seed}": r.loss for r in found.runs}["mine/1"] == 2.5
    (said,) = found.warnings
    assert "mine-s1: its values begin anew behind step 1000" in said


@pytest.mark.parametrize("name", ["1.host.bak", "1.host (copy)", "0.host"])
@pytest.mark.parametrize("kept", [1, 2, 3])
def test_an_earlier_copy_of_an_event_file_replaces_nothing(tmp_path: Path, name: str, kept: int) -> None:
    """Whole or from before the run went on, and cut anywhere."""
    whole_folder(tmp_path)
    expected = read_run_table(tmp_path)
    points = [(10, 6.0), (500, 3.0), (1000, LOSSES["mine"][1])][:kept]
    events(tmp_path / "mine-s1", name, points)
    assert read_run_table(tmp_path) == expected
    copy = tmp_path / "mine-s1" / f"events.out.tfevents.{name}"
    copy.write_bytes(copy.read_bytes()[:-3])
    assert read_run_table(tmp_path) == expected


def test_a_run_that_was_resumed_and_stopped_early_has_not_ended(tmp_path: Path) -> None:
    whole_folder(tmp_path)
    events(tmp_path / "mine-s1", "5.host", [(500, 2.8), (700, 2.7)], start=20.0)
    ranking = addnorm.rank(tmp_path)
    assert [value.counted for value in ranking["mine"].values] == [True, False, True]
    assert "mine, 1 at step 700; other runs end at step 1000" in " ".join(ranking.warnings)


def test_steps_that_go_back_inside_a_file_are_a_resumed_run(tmp_path: Path) -> None:
    whole_folder(tmp_path)
    events(tmp_path / "base-s0", "1.host", [(10, 6.0), (1000, 1.0), (500, 3.0), (1000, 2.51)])
    found = read_run_table(tmp_path)
    assert {f"{r.variant}/{r.seed}": r.loss for r in found.runs}["base/0"] == pytest.approx(2.51)
    assert [w.note["code"] for w in found.warnings] == ["resumed"]


@pytest.mark.parametrize("name", ["lr_0.001", "layers-12", "v2", "base/version_0", "2024-11-05", "run 3"])
def test_numbers_in_names_of_folders_are_no_seeds_unless_told(tmp_path: Path, name: str) -> None:
    events(tmp_path / name, "1.host", [(1, 2.5)])
    with pytest.raises(InputError, match="expected a run named by variant and seed"):
        read_runs(tmp_path)


@pytest.mark.parametrize(
    ("form", "folder"),
    [
        ("{variant}_{seed}", "deep_net_{}"),
        ("{seed}/{variant}", "{}/deep_net"),
        ("{variant}.{seed}/*", "deep_net.{}/version_0"),
        ("run-{seed}-{variant}", "run-{}-deep_net"),
        ("*/{variant}+{seed}", "jobs/deep_net+{}"),
    ],
)
def test_the_form_of_names_can_be_told(tmp_path: Path, form: str, folder: str) -> None:
    for seed in (3, 14):
        events(tmp_path / folder.format(seed), "1.host", [(1, 2.5)])
    columns = columns_from(f"run={form}")
    assert {(run.variant, run.seed) for run in read_runs(tmp_path, columns)} == {("deep_net", 3), ("deep_net", 14)}
    with pytest.raises(InputError, match="another form with both"):
        read_runs(tmp_path, {"run": "{variant}"})


def test_a_form_that_is_told_chooses_folders_and_names_the_others(tmp_path: Path) -> None:
    """Keras writes the same tag into a folder for training and one for validation."""
    for seed in range(3):
        for side, loss in (("train", 1.0), ("validation", 2.5)):
            events(tmp_path / f"deep-s{seed}" / side, "1.host", [(10, loss + seed)])
    found = read_run_table(tmp_path, {"run": "{variant}-s{seed}/validation"})
    assert [run.loss for run in found.runs] == [2.5, 3.5, 4.5]
    (said,) = found.warnings
    assert "{variant}-s{seed}/validation: 3 (deep-s0/train, deep-s1/train, deep-s2/train)" in said
    with pytest.raises(InputError, match="expected a run named by variant and seed"):
        read_runs(tmp_path)
    with pytest.raises(InputError, match=r"expected a run named by '\{variant\}_\{seed\}'"):
        read_runs(tmp_path, {"run": "{variant}_{seed}"})


def test_two_folders_of_one_run_and_steps_below_zero_are_refused(tmp_path: Path) -> None:
    events(tmp_path / "deep-s1", "1.host", [(10, 2.5)])
    events(tmp_path / "deep_seed1", "1.host", [(10, 2.4)])
    with pytest.raises(
        InputError, match=r"deep_seed1: expected one run of variant 'deep' at seed 1, .* beside deep-s1"
    ):
        read_runs(tmp_path)
    events(tmp_path / "deep_seed1", "1.host", [(10, 2.4), (2**64 - 1, 9.0)])
    with pytest.raises(InputError, match=r"expected steps from 0, got -1 of"):
        read_runs(tmp_path)


def test_a_folder_of_events_without_the_loss_has_not_ended(tmp_path: Path) -> None:
    for v, r in LOSSES.items():
        for s, x in enumerate(r):
            tag = "train/loss" if (v, s) == ("mine", 1) else "eval/loss"
            events(tmp_path / f"{v}-s{s}", "1", [(90, x)], tag=tag)
    assert by_name(tmp_path)["mine/1"].state == "running"
    assert {run.state for name, run in by_name(tmp_path).items() if name != "mine/1"} == {"finished"}


def test_the_folder_of_our_own_tracker_is_ranked(tmp_path: Path) -> None:
    root = tmp_path / "mirrors" / "tensorboard"
    try:
        tracker = TRACKERS.class_of("tensorboard")(root, "demo")
    except ToolMissing as error:
        pytest.skip(str(error))
    for variant, row in LOSSES.items():
        for seed, loss in enumerate(row):
            run = f"{variant}-s{seed}-0a1b2c{seed:02}"
            tracker.begin(run, {}, None)
            for step in (5, 10):
                tracker.log(run, step, 1.0, {"train/loss": 9.0, "eval/loss": loss + 10 - step, "eval/accuracy": 0.5})
            tracker.end(run, "finished")
    ranking = addnorm.rank(root)
    assert ranking.metric == "eval/loss"
    assert [(row.variant, row.seeds) for row in ranking.variants] == [("mine", 3), ("base", 3)]
    assert ranking["mine"].versus["base"].verdict == "better"
    assert not ranking.warnings


def test_of_several_held_out_losses_one_has_to_be_named(tmp_path: Path) -> None:
    for tag, name in (("eval/loss", "1.a"), ("test/loss", "1.b"), ("train/loss", "1.c")):
        events(tmp_path / "base-s0", name, [(1, 2.5)], tag)
        events(tmp_path / "base-s1", name, [(1, 2.6)], tag)
    with pytest.raises(InputError, match="Name the tag with --columns loss=TAG"):
        read_runs(tmp_path)
    assert len(read_runs(tmp_path, {"loss": "test/loss"})) == 2
