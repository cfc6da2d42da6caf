"""`replicate:` and `--until confirmed`: found verdicts alone are trained again, and a study that is killed anywhere ends as one
that is not."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

import addnorm
from addnorm.cli import main
from addnorm.errors import InputError
from addnorm.store import StudyFolder, read_json
from addnorm.store.extension import content_hash
from addnorm.store.results import ranking
from addnorm.study.loading import load_study
from addnorm.supervision.run import run
from train_here import workers_here

STUDY = """
name: twice
references: [base]
seeds: [0, 1, 2]
margin: 1.0e-9
corpus: {kind: synthetic, num_documents: 20}
tokenizer: bytes
training:
  {steps: 6, batch: 2, seq: 16, eval_sequences: 4, optimizer: {kind: adamw, learning_rate: 2e-2}, schedule: {kind: constant}}
model: {preset: base, width: 16, depth: 1, heads: 2, kv_heads: 1, hidden: 16, max_seq: 16}
variants:
  base: {}
  near: {dropout: 0.05}
  still: {training: {optimizer: {learning_rate: 1e-7}}}
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "twice.yaml"
    path.write_text(STUDY)
    return path


@pytest.fixture(scope="module")
def calm(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study that nothing disturbed. Read it only."""
    return train(file, tmp_path_factory.mktemp("calm") / "out").path


def train(file: Path, out: Path, **settings: Any) -> StudyFolder:
    with workers_here():
        return run(load_study(str(file)), out=out, **{"until": "confirmed", **settings})


def content(out: Path) -> dict[str, Any]:
    """The plan with its stages, and the weights of every run, without times."""
    plan = read_json(out / "study.json")
    for extension in plan.get("extensions", []):
        del extension["time"]
    return {**plan, "weights": {run.name: (run.ending() or {}).get("content_hash") for run in StudyFolder(out).runs()}}


def test_the_variants_of_found_verdicts_are_trained_again_on_seeds_that_the_plan_froze(calm: Path) -> None:
    folder = StudyFolder(calm)
    assert folder.plan["seeds"] == [0, 1, 2]
    assert folder.plan["replicate"] == [3, 4, 5]
    (stage,) = folder.extensions
    assert {(entry["variant"], entry["seed"]) for entry in stage["runs"]} == {
        (name, seed) for name in ("base", "still") for seed in (3, 4, 5)
    }
    found = ranking(folder)
    again = found["still"].versus["base"].again
    assert again is not None
    assert again.state == "found again"
    assert found["near"].versus["base"].again is None
    assert found["still"].seeds == 3, "the second batch is in no mean"
    assert not found.provisional
    assert not found.added_after_look
    assert "unplanned" not in [note.note["code"] for note in found.warnings]


def test_text_json_csv_and_latex_say_it(calm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rank", str(calm)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "(again 0/3 +" in text
    assert "found again on a second batch of seeds (3, 4, 5)" in text
    assert main(["rank", str(calm), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    states = {row["variant"]: row["versus"].get("base", {}).get("again") for row in said["variants"]}
    assert states["still"]["state"] == "found again"
    assert states["near"] is None
    assert said["second"] == [3, 4, 5]
    assert main(["rank", str(calm), "--csv"]) == 0
    assert "base:again" in capsys.readouterr().out.splitlines()[0]
    assert main(["rank", str(calm), "--latex"]) == 0
    assert "found again" in capsys.readouterr().out


@pytest.mark.thorough
def test_longer_texts_are_judged_on_the_first_batch_and_tested_again_on_the_second(calm: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(calm, out)
    with workers_here():
        found = addnorm.extrapolate(out, lengths="1x,2x", windows=2)
    for length in map(str, found["lengths"]):
        rows = {row["variant"]: row for row in found["rankings"][length]["variants"]}
        assert {name: row["seeds"] for name, row in rows.items()} == dict.fromkeys(("base", "near", "still"), 3)
        still = rows["still"]["versus"]["base"]
        assert (still["verdict"], still["again"]["state"]) == ("worse", "found again")
        # Its verdict, where it has one, stands alone: nobody planned to test it again.
        assert "again" not in rows["near"]["versus"]["base"]
    assert [row["seeds"] for row in found["rows"]] == [3] * len(found["rows"])
    assert all({value["seed"] for value in row["values"]} == {0, 1, 2} for row in found["rows"])


def test_the_page_says_it(calm: Path) -> None:
    written = addnorm.report(calm, out=calm.parent / "report.html")
    assert "found again on the second batch of seeds" in written.html.read_text(encoding="utf-8")


def test_the_same_command_changes_nothing(file: Path, calm: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(calm, out)
    before = content(out)
    train(file, out)
    assert content(out) == before


def test_a_study_killed_between_the_batches_and_within_the_second_ends_as_one_that_is_not(
    file: Path, calm: Path, tmp_path: Path
) -> None:
    between, within = tmp_path / "between", tmp_path / "within"
    shutil.copytree(calm, between)
    plan = read_json(between / "study.json")
    for extension in plan.pop("extensions"):
        for entry in extension["runs"]:
            shutil.rmtree(between / entry["run"])
    (between / "study.json").write_text(json.dumps(plan))
    shutil.copytree(calm, within)
    lost = StudyFolder(within).runs()[-1]
    shutil.rmtree(lost.path)
    for out in (between, within):
        train(file, out)
        assert content(out) == content(calm)


def test_a_stop_before_the_second_batch_trains_none(file: Path, tmp_path: Path) -> None:
    sent = []

    def stop_at_the_second(text: str) -> None:
        if text.startswith("The second batch") and not sent:
            sent.append(text)
            os.kill(os.getpid(), signal.SIGINT)

    folder = train(file, tmp_path / "out", say=stop_at_the_second)
    assert sent
    train(file, folder.path)
    assert len(StudyFolder(folder.path).runs()) == 15
    assert not ranking(StudyFolder(folder.path)).provisional


def test_replicate_of_a_study_needs_no_option(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text(STUDY.replace("seeds: [0, 1, 2]", "seeds: [0, 1, 2]\nreplicate: [7, 8, 9]"))
    folder = train(path, tmp_path / "out", until=None)
    assert [entry["seeds"] for entry in folder.extensions] == [[7, 8, 9]]


def test_where_nothing_is_found_no_second_batch_is_trained(tmp_path: Path) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text(STUDY.partition("  still")[0])
    told: list[str] = []
    folder = train(path, tmp_path / "out", say=told.append)
    if ranking(folder)["near"].versus["base"].verdict == "undecided":
        assert told[-1] == "The first batch of seeds found nothing, so that no second batch is trained."
        assert not folder.extensions


def test_a_tuned_study_is_confirmed_at_the_points_that_were_chosen(tmp_path: Path) -> None:
    path = tmp_path / "tuned.yaml"
    tune = "tune: {seeds: [100, 101], over: {training.optimizer.learning_rate: [1e-7, 2e-2]}}\n"
    still = "  still: {training: {optimizer: {learning_rate: 1e-7}}"
    still += ", tune: {over: {training: {optimizer: {learning_rate: [1e-7, 1e-8]}}}}}\n"
    path.write_text(STUDY.partition("  still")[0] + still + tune)
    folder = train(path, tmp_path / "out")
    assert folder.plan["replicate"] == [102, 103, 104]
    assert [extension.get("stage") for extension in folder.extensions] == [1, 2]
    comparison = ranking(folder)["still"].versus["base"]
    assert comparison.again is not None
    assert comparison.again.state == "found again"
    assert set(comparison.tuning) == {100, 101}
    assert min(comparison.tuning.values()) > 0
    codes = [note.note["code"] for note in ranking(folder).warnings]
    assert "tuning_differs" not in codes


@pytest.mark.parametrize(
    ("replicate", "said"),
    [
        ("[2, 3, 4]", "expected seeds that nothing has been seen of, got 2"),
        ("[3, 4]", "expected at least 3 seeds"),
        ("[3, 4, 4]", "expected at least 3 seeds"),
        ("[3, 4, -1]", "expected at least 3 seeds"),
    ],
)
def test_seeds_that_were_seen_are_refused(
    replicate: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text(STUDY + f"replicate: {replicate}\n")
    assert main(["run", str(path), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "$.replicate" in error
    assert not (tmp_path / "out").exists()


def test_what_contradicts_a_second_batch_is_refused(
    file: Path, calm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    shutil.copytree(calm, out)
    for words, said in (
        (["--set", "seeds=[0,1,2,9]", "--set", "replicate=[3,4,5]"], "no seed is added"),
        ([], "planned before the first is seen"),
        (["--set", "replicate=[6,7,8]"], "planned before the first is seen"),
        (["--until", "confirmed", "--most", "9"], "--most: expected with --until decided"),
        (["--until", "decided", "--set", "replicate=[3,4,5]"], "expected no replicate where seeds are added"),
        (["--until", "confirmed", "--set", "seeds=[0,1]"], "expected at least 3 seeds with --until confirmed"),
    ):
        assert main(["run", str(file), "--out", str(out), *words]) == 2
        assert said in " ".join(capsys.readouterr().err.split())
    assert content(out) == content(calm)


def test_from_python_too(file: Path) -> None:
    with pytest.raises(InputError, match="expected at least 3 seeds with --until confirmed"):
        run(load_study(str(file), settings=["seeds=[0]"]), out="never", until="confirmed")


def without_second_batch(calm: Path, out: Path) -> Path:
    """The first batch as a study of its own."""
    shutil.copytree(calm, out)
    plan = read_json(out / "study.json")
    del plan["extensions"], plan["replicate"], plan["plan_hash"]
    (out / "study.json").write_text(json.dumps({**plan, "plan_hash": content_hash(plan)}))
    return out


def test_a_family_that_was_not_planned_is_marked_in_every_form(
    calm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = without_second_batch(calm, tmp_path / "out")
    for words, code in (
        (["--exclude", "near"], "left_out"),
        (["--variant", "still"], "left_out"),
        (["--reference", "still"], "references"),
        (["--margin", "0.1"], "margin"),
    ):
        forms = {}
        for form in ("", "--json", "--csv", "--latex"):
            assert main(["rank", str(out), *words, *([form] if form else [])]) == 0
            forms[form] = capsys.readouterr().out
        assert "NOT AS PLANNED" in forms[""]
        assert "worse* " in forms[""] or "better* " in forms[""]
        assert json.loads(forms["--json"])["unplanned"] == [code]
        header, *rows = forms["--csv"].splitlines()
        assert header.split(",")[-1] == "unplanned"
        assert {row.split(",")[-1] for row in rows} == {code}
        assert r"$^\ast$" in forms["--latex"]
        assert "asterisk" in forms["--latex"]
    for form in ("", "--json", "--csv", "--latex"):
        assert main(["rank", str(out), *([form] if form else [])]) == 0
        assert not {"NOT AS PLANNED", "asterisk", "worse*"} & {
            word for word in ("NOT AS PLANNED", "asterisk", "worse*") if word in capsys.readouterr().out
        }


def test_a_stop_that_was_not_planned_is_marked(calm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = without_second_batch(calm, tmp_path / "out")
    (StudyFolder(out).runs()[-1].path / "DONE").unlink()
    assert main(["rank", str(out)]) == 0
    assert "PROVISIONAL" in capsys.readouterr().out
    assert main(["rank", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unplanned"] == ["unfinished"]
    assert main(["rank", str(out), "--csv"]) == 0
    assert all(line.endswith("unfinished") for line in capsys.readouterr().out.splitlines()[1:])


@pytest.mark.parametrize(
    "words", [["--exclude", "near"], ["--variant", "still"], ["--reference", "near"], ["--margin", "0.1"]]
)
def test_the_family_of_a_study_with_a_second_batch_is_frozen(
    words: list[str], calm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rank", str(calm), *words]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "expected the planned family, since a second batch of seeds tests what that family found" in error
