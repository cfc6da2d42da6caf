import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from addnorm.errors import InputError, JobError
from addnorm.store import Damaged, Lock, StudyFolder
from addnorm.store.plan_difference import plan_differences


def plan(*variants: str, plan_hash: str = "p1", **more: Any) -> dict[str, Any]:
    runs = [
        {"run": f"{name}-{seed}", "variant": name, "seed": seed, "steps": 10, "spec": {"width": 8}}
        for name in variants
        for seed in (0, 1)
    ]
    return {"study": "demo", "plan_hash": plan_hash, "addnorm_version": "0.1.0", "runs": runs, **more}


def test_a_study_is_frozen_and_opened_again(tmp_path: Path) -> None:
    made = StudyFolder.create(tmp_path / "deep" / "out", plan("add", "rezero"))
    opened = StudyFolder(tmp_path / "deep" / "out")
    assert [run.name for run in opened.runs()] == ["add-0", "add-1", "rezero-0", "rezero-1"]
    assert opened.plan == made.plan == {"format": 1, **plan("add", "rezero")}
    assert json.loads((opened.path / "add-1" / "spec.json").read_text()) == plan("add")["runs"][1]
    status = opened.status()
    assert (status["study"], status["plan_hash"]) == ("demo", "p1")
    assert [entry["state"] for entry in status["runs"]] == ["queued"] * 4


def test_the_same_plan_goes_on_and_completes_what_a_crash_left_out(tmp_path: Path) -> None:
    StudyFolder.create(tmp_path, plan("add"))
    before = (tmp_path / "study.json").stat().st_mtime_ns
    (tmp_path / "add-1" / "spec.json").unlink()
    (tmp_path / "add-1").rmdir()
    StudyFolder.create(tmp_path, plan("add"))
    assert (tmp_path / "add-1" / "spec.json").exists()
    assert (tmp_path / "study.json").stat().st_mtime_ns == before


def test_another_plan_is_refused_with_what_differs(tmp_path: Path) -> None:
    StudyFolder.create(tmp_path, plan("add", "rezero"))
    changed = plan("add", "deepnorm", plan_hash="p2")
    for run in changed["runs"][:2]:
        run["steps"] = 20
    with pytest.raises(InputError) as caught:
        StudyFolder.create(tmp_path, changed)
    assert str(caught.value) == (
        f"{tmp_path}: expected the plan that study 'demo' was started with, got another one (steps: 10 → 20; no longer: "
        "variant rezero; new: variant deepnorm). One folder holds one plan, to which only seeds may be added: choose "
        "another folder with --out, or undo the change to continue the old plan."
    )
    assert not (tmp_path / "deepnorm-0").exists()


@pytest.mark.parametrize(("found", "word"), [(2, "a newer addnorm"), (0, "another addnorm"), (None, "another addnorm")])
def test_another_format_is_refused(tmp_path: Path, found: int | None, word: str) -> None:
    (tmp_path / "study.json").write_text(json.dumps({**plan("add"), "format": found}))
    with pytest.raises(InputError, match=f"folder format {found}, made by {word}"):
        StudyFolder(tmp_path)
    with pytest.raises(InputError, match=f"folder format {found}, made by {word}"):
        StudyFolder.create(tmp_path, plan("add"))


def test_folders_without_a_study_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no study"):
        StudyFolder(tmp_path)
    for content in ("{", "[]", "{}"):
        (tmp_path / "study.json").write_text(content)
        with pytest.raises(Damaged, match=r"study\.json is damaged"):
            StudyFolder(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"study": None}, "plan.study: expected a value of type str, got None"),
        (
            {"runs": [{"run": "a", "variant": "a", "seed": "0", "steps": 1}]},
            r"plan.runs\[0\].seed: expected a value of type int",
        ),
        ({"runs": [{"run": "../a", "variant": "a", "seed": 0, "steps": 1}]}, "expected a name for a folder"),
        ({"runs": [{"run": "data", "variant": "a", "seed": 0, "steps": 1}]}, "expected a name for a folder"),
        ({"runs": 2 * [{"run": "a", "variant": "a", "seed": 0, "steps": 1}]}, "got 'a' twice"),
        ({"more": {1, 2}}, "study.json: expected finite numbers"),
    ],
)
def test_a_plan_that_is_none_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        StudyFolder.create(tmp_path, {**plan("add"), **change})
    assert not (tmp_path / "study.json").exists()


def test_an_unknown_run_is_told(tmp_path: Path) -> None:
    study = StudyFolder.create(tmp_path, plan("add"))
    assert study.run("add-1").name == "add-1"
    with pytest.raises(InputError, match=r"has no run 'x'\. Known: add-0, add-1"):
        study.run("x")


def test_a_supervised_folder_without_a_plan_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("addnorm.store.study._PAUSE_S", 0)
    lock = Lock(tmp_path / "supervisor.lock")
    assert lock.try_acquire()
    with pytest.raises(JobError, match=rf"expected a study.json, got none while process {os.getpid()} works"):
        StudyFolder.create(tmp_path, plan("add"))
    lock.release()


def test_eight_processes_make_one_study(tmp_path: Path) -> None:
    script = """
import json, sys
from addnorm.errors import InputError
from addnorm.store import StudyFolder
plan = json.loads(sys.argv[2])
sys.stdin.read()
try:
    print(StudyFolder.create(sys.argv[1], plan).plan_hash)
except InputError as error:
    print("refused")
"""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "out"), json.dumps(plan("add", plan_hash=f"p{number % 2}"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(8)
    ]
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    said = sorted(process.communicate()[0].strip() for process in started)
    winner = StudyFolder(tmp_path / "out").plan_hash
    assert said == [winner] * 4 + ["refused"] * 4
    assert not list(tmp_path.glob("**/*.tmp"))


def wider(*seeds: int, plan_hash: str = "p2", **more: Any) -> dict[str, Any]:
    """The plan of `plan("add", "rezero")` with more seeds."""
    found = plan("add", "rezero", plan_hash=plan_hash, **more)
    added = [
        {"run": f"{name}-{seed}", "variant": name, "seed": seed, "steps": 10, "spec": {"width": 8}}
        for seed in seeds
        for name in ("add", "rezero")
    ]
    return {**found, "runs": [*added, *found["runs"]]}


def test_seeds_are_added_and_the_first_plan_stays(tmp_path: Path) -> None:
    StudyFolder.create(tmp_path, plan("add", "rezero"))
    first = json.loads((tmp_path / "study.json").read_text())
    study = StudyFolder.create(tmp_path, wider(2, 3))
    kept = json.loads((tmp_path / "study.json").read_text())
    assert {name: value for name, value in kept.items() if name != "extensions"} == first
    assert study.plan_hash == "p1"
    assert [(e["plan_hash"], e["seeds"], e["looked"]) for e in study.extensions] == [("p2", [2, 3], False)]
    assert [run.name for run in StudyFolder(tmp_path).runs()][4:] == ["add-2", "rezero-2", "add-3", "rezero-3"]
    assert (tmp_path / "rezero-3" / "spec.json").exists()
    study.record_peek()
    StudyFolder.create(tmp_path, wider(2, 3, 4, plan_hash="p3"))
    assert [e["seeds"] for e in StudyFolder(tmp_path).extensions] == [[2, 3], [4]]
    assert not StudyFolder(tmp_path).extensions[1]["looked"], "nothing had finished, so there was nothing to see"


def test_an_extended_folder_goes_on_with_either_plan(tmp_path: Path) -> None:
    StudyFolder.create(tmp_path, plan("add", "rezero"))
    StudyFolder.create(tmp_path, wider(2))
    before = (tmp_path / "study.json").read_bytes()
    assert len(StudyFolder.create(tmp_path, plan("add", "rezero")).runs()) == 6
    assert len(StudyFolder.create(tmp_path, wider(2)).runs()) == 6
    assert (tmp_path / "study.json").read_bytes() == before


def test_a_crash_while_extending_leaves_one_of_the_two_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    StudyFolder.create(tmp_path, plan("add", "rezero"))
    before = (tmp_path / "study.json").read_bytes()

    def power_cut(*given: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("addnorm.store.files.os.replace", power_cut)
        with pytest.raises(KeyboardInterrupt):
            StudyFolder.create(tmp_path, wider(2))
    assert (tmp_path / "study.json").read_bytes() == before
    assert not Lock(tmp_path / "supervisor.lock").held_by()
    with monkeypatch.context() as patched:
        patched.setattr("addnorm.store.study.make_folder", lambda path: power_cut() if path.name == "add-2" else None)
        with pytest.raises(KeyboardInterrupt):
            StudyFolder.create(tmp_path, wider(2))
    assert len(StudyFolder(tmp_path).runs()) == 6
    assert not (tmp_path / "add-2").exists()
    StudyFolder.create(tmp_path, wider(2))
    assert (tmp_path / "add-2" / "spec.json").exists()
    assert len(StudyFolder(tmp_path).extensions) == 1


def test_nothing_is_added_while_a_supervisor_works(tmp_path: Path) -> None:
    StudyFolder.create(tmp_path, plan("add", "rezero"))
    lock = Lock(tmp_path / "supervisor.lock")
    assert lock.try_acquire()
    with pytest.raises(
        JobError, match=rf"expected no running supervisor while seeds are added, got process {os.getpid()}"
    ):
        StudyFolder.create(tmp_path, wider(2))
    lock.release()
    assert StudyFolder(tmp_path).extensions == []


@pytest.mark.parametrize("what", ["margin", "one variant only", "an old seed", "a new variant", "a changed run"])
def test_whatever_adds_more_or_less_than_seeds_is_refused(tmp_path: Path, what: str) -> None:
    StudyFolder.create(tmp_path, plan("add", "rezero", margin=0.005))
    asked = wider(2, margin=0.01 if what == "margin" else 0.005)
    if what == "one variant only":
        asked["runs"] = [entry for entry in asked["runs"] if entry["run"] != "add-2"]
    elif what == "an old seed":
        asked["runs"] = [{**entry, "seed": 1} if entry["seed"] == 2 else entry for entry in asked["runs"]]
    elif what == "a new variant":
        asked["runs"].append({**asked["runs"][0], "run": "mine-2", "variant": "mine"})
    elif what == "a changed run":
        asked["runs"][-1] = {**asked["runs"][-1], "steps": 11}
    with pytest.raises(InputError, match="only seeds may be added"):
        StudyFolder.create(tmp_path, asked)
    assert StudyFolder(tmp_path).extensions == []


@pytest.mark.thorough  # eight processes
def test_looks_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    StudyFolder.create(tmp_path, plan("add"))
    script = (
        "import sys; from addnorm.store import StudyFolder; sys.stdin.read(); StudyFolder(sys.argv[1]).record_peek()"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    for process in started:
        process.communicate("")
    assert [process.returncode for process in started] == [0] * 6
    lines = (tmp_path / "looks.jsonl").read_text().splitlines()
    assert [json.loads(line)["finished"] for line in lines] == [0] * 6


def with_spec(change: Any = lambda variant, spec: None, **more: Any) -> dict[str, Any]:
    """A plan of two variants whose specs `change` has edited."""
    made = plan("add", "rezero", plan_hash="p", references=["add"], data_hash="d1", **more)
    for run in made["runs"]:
        run["spec"] = {
            "study": "demo",
            "variant": run["variant"],
            "seed": run["seed"],
            "data_hash": "d1",
            "model": {"width": 8, "residual": {"kind": run["variant"]}},
            "training": {"steps": 10, "schedule": {"kind": "cosine", "warmup": 0.1}},
            "corpus": {"kind": "stdlib", "max_bytes": 100},
        }
        change(run["variant"], run["spec"])
    return made


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda variant, spec: spec["training"].update(steps=5), "training.steps: 10 → 5"),
        (lambda variant, spec: spec["training"].update(clip=1.0), "training.clip: not set → 1.0"),
        (lambda variant, spec: spec["training"].update(steps=None), "training.steps: 10 → none"),
        (
            lambda variant, spec: spec["training"].update(schedule={"kind": "constant"}),
            'training.schedule: cosine {"warmup": 0.1} → constant',
        ),
        (
            lambda variant, spec: spec["model"].update(width=8 if variant == "add" else 16),
            "variants.rezero.model.width: 8 → 16",
        ),
        (
            lambda variant, spec: spec["model"].update(width=4 if variant == "add" else 16),
            "variants.add.model.width: 8 → 4; variants.rezero.model.width: 8 → 16",
        ),
        (
            lambda variant, spec: spec["training"].update({f"field_{place}": place for place in range(8)}),
            "; ".join(f"training.field_{place}: not set → {place}" for place in range(6)) + "; and 2 more",
        ),
    ],
)
def test_a_changed_field_is_named_with_both_values(change: Any, expected: str) -> None:
    assert plan_differences(with_spec(), with_spec(change)) == expected


def test_what_no_field_says_is_a_sentence() -> None:
    old = with_spec()
    assert plan_differences(old, {**old, "margin": 0.1}) == "margin: not set → 0.1"
    assert plan_differences(old, {**old, "data_hash": "d2"}) == "the text of the corpus, or its tokens, have changed"
    corpus = with_spec(lambda variant, spec: spec["corpus"].update(max_bytes=50))
    assert plan_differences(old, {**corpus, "data_hash": "d2"}) == "corpus.max_bytes: 100 → 50"
    renamed = {**old, "runs": [{**run, "run": f"{run['run']}-other"} for run in old["runs"]]}
    assert plan_differences(old, renamed) == "the code of a plugin has changed"
    first = {**old, "runs": [run for run in old["runs"] if run["seed"] == 0]}
    assert plan_differences(old, first) == "no longer: seed 1"
