"""`addnorm rank` on run folders made through the store, without training."""

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import addnorm.supervision.run
from addnorm.cli import main
from addnorm.store import RunFolder, StudyFolder

LEVELS = {"base": 0.0, "good": -0.05, "bad": 0.06, "twin": 0.0005}


def plan(seeds: int = 4, *, plan_hash: str = "p1", **more: Any) -> dict[str, Any]:
    runs = [
        {"run": f"{name}-s{seed}", "variant": name, "seed": seed, "steps": 10}
        for seed in range(seeds)
        for name in LEVELS
    ]
    fixed = {"study": "demo", "references": ["base"], "margin": 0.005, "data_hash": "corpus", "tokenizer_hash": "bytes"}
    return {**fixed, "plan_hash": plan_hash, "seeds": list(range(seeds)), "runs": runs, **more}


def finish(run: RunFolder) -> None:
    """End a run with a loss that its variant and seed alone decide."""
    variant, seed = run.spec["variant"], run.spec["seed"]
    noise = 0.0005 * np.random.default_rng([len(variant), ord(variant[0]), seed]).normal()
    loss = 2.5 + LEVELS[variant] + 0.01 * np.cos(seed) + noise
    with run.claim() as events:
        events.write("eval", step=10, loss=float(loss), accuracy=0.5, perplexity=float(np.exp(loss)), final=True)
        run.mark("finished", step=10, content_hash=run.name)


def lose(run: RunFolder, state: Any, reason: str) -> None:
    with run.claim() as events:
        events.write("train", step=4, loss=3.0)
        run.mark(state, reason=reason, step=4)


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    """A study whose sixteen runs are all queued."""
    return StudyFolder.create(tmp_path / "demo", plan())


def ranked(capsys: pytest.CaptureFixture[str], folder: StudyFolder, *options: str) -> tuple[int, str, str]:
    code = main(["rank", str(folder.path), *options])
    out, err = capsys.readouterr()
    return code, out, err


def as_json(capsys: pytest.CaptureFixture[str], folder: StudyFolder, *options: str) -> dict[str, Any]:
    code, out, err = ranked(capsys, folder, "--json", *options)
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def row(ranking: dict[str, Any], variant: str) -> dict[str, Any]:
    found: dict[str, Any] = next(entry for entry in ranking["variants"] if entry["variant"] == variant)
    return found


def test_a_finished_study(folder: StudyFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for run in folder.runs():
        finish(run)
    ranking = as_json(capsys, folder)
    assert [entry["variant"] for entry in ranking["variants"]] == ["good", "base", "twin", "bad"]
    verdicts = {entry["variant"]: entry["versus"].get("base", {}).get("verdict") for entry in ranking["variants"]}
    assert verdicts == {"good": "better", "base": None, "twin": "equivalent", "bad": "worse"}
    assert ranking["provisional"] is False
    assert ranking["added_after_look"] == []
    assert row(ranking, "good")["seeds"] == 4


def test_failed_and_diverged_runs_are_shown_with_their_reasons(
    folder: StudyFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    for run in folder.runs():
        variant, seed = run.spec["variant"], run.spec["seed"]
        if variant == "twin":
            lose(run, "failed", "out of memory")
        elif (variant, seed) == ("good", 1):
            lose(run, "diverged", "the loss was not finite")
        else:
            finish(run)
    ranking = as_json(capsys, folder)
    assert ranking["provisional"] is False
    assert ranking["variants"][-1]["variant"] == "twin"
    assert row(ranking, "twin")["mean"] is None
    assert row(ranking, "twin")["versus"]["base"]["verdict"] == "failed"
    # The survivors of `good` are clearly better, but they are what is left of four.
    assert row(ranking, "good")["seeds"] == 3
    assert row(ranking, "good")["versus"]["base"]["verdict"] == "failed"
    assert row(ranking, "bad")["versus"]["base"]["verdict"] == "worse"
    said = " ".join(ranking["warnings"])
    assert "twin: seeds 0, 1, 2, 3 failed (out of memory)" in said
    assert "good: seed 1 diverged (the loss was not finite). Its mean is over what is left of 4 seeds." in said
    assert len([v for entry in ranking["variants"] for v in entry["values"]]) == 16
    code, out, _ = ranked(capsys, folder)
    assert code == 0
    assert "failed" in next(line for line in out.splitlines() if "twin" in line)


def test_a_blocked_run_is_shown_with_its_reason(folder: StudyFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for run in folder.runs():
        if (run.spec["variant"], run.spec["seed"]) == ("good", 1):
            lose(run, "blocked", "the disk was full")
        else:
            finish(run)
    said = " ".join(as_json(capsys, folder)["warnings"])
    assert "good: seed 1 blocked (the disk was full). Its mean is over what is left of 4 seeds." in said


def test_an_unfinished_study_is_provisional_and_counts_all_its_comparisons(
    folder: StudyFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    for run in folder.runs():
        if run.spec["seed"] < 3 and run.spec["variant"] != "twin":
            finish(run)
    ranking = as_json(capsys, folder)
    assert ranking["provisional"] is True
    assert ranking["family"] == 3, "comparisons that are still to come share the error rate"
    assert "provisional: runs that have not ended: 7. Verdicts can change when they end." in ranking["warnings"]
    assert row(ranking, "good")["versus"]["base"]["verdict"] == "better"
    assert "PROVISIONAL" in ranked(capsys, folder)[1]


def test_a_study_without_any_result_has_no_verdict(folder: StudyFolder, capsys: pytest.CaptureFixture[str]) -> None:
    ranking = as_json(capsys, folder)
    assert ranking["provisional"] is True
    assert {entry["mean"] for entry in ranking["variants"]} == {None}
    assert row(ranking, "good")["versus"]["base"]["verdict"] is None
    assert ranked(capsys, folder, "--csv")[0] == ranked(capsys, folder, "--latex")[0] == 0


def test_results_on_different_corpora_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = [
        {"variant": name, "seed": seed, "loss": 2.5, "corpus_hash": "aaa" if name == "base" else "bbb"}
        for name in ("base", "new")
        for seed in range(3)
    ]
    file = tmp_path / "results.json"
    file.write_text(json.dumps({"references": ["base"], "runs": entries}), encoding="utf-8")
    code = main(["rank", str(file), "--json"])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert "only runs on one corpus can be ranked: base/0 has corpus hash aaa, new/0 has bbb" in err


def test_a_folder_takes_no_runs_on_another_corpus(folder: StudyFolder) -> None:
    with pytest.raises(ValueError, match="One folder holds one plan"):
        StudyFolder.create(folder.path, plan(5, plan_hash="p2", data_hash="another"))


def test_csv_holds_the_json_s_numbers(folder: StudyFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for run in folder.runs():
        finish(run)
    ranking = as_json(capsys, folder)
    code, out, _ = ranked(capsys, folder, "--csv")
    assert code == 0
    lines = list(csv.DictReader(io.StringIO(out)))
    assert [line["variant"] for line in lines] == [entry["variant"] for entry in ranking["variants"]]
    for line, entry in zip(lines, ranking["variants"], strict=True):
        assert float(line["mean"]) == entry["mean"]
        if entry["variant"] != "base":
            assert line["base:verdict"] == entry["versus"]["base"]["verdict"]
            assert float(line["base:low"]) == entry["versus"]["base"]["interval"][0]


def test_latex_is_a_table_with_one_line_per_variant(folder: StudyFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for run in folder.runs()[:-1]:
        finish(run)
    code, out, _ = ranked(capsys, folder, "--latex")
    assert code == 0
    assert out.startswith("% provisional: runs that have not ended: 1")
    assert out.count("\\\\\n") == 1 + len(LEVELS) + len(LEVELS), "losses, and differences to one reference"
    assert out.count(r"\end{tabular}") == 2


def test_other_references_and_margin(folder: StudyFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for run in folder.runs():
        finish(run)
    ranking = as_json(capsys, folder, "--reference", "good", "--reference", "bad", "--margin", "0.2")
    assert ranking["references"] == ["good", "bad"]
    assert row(ranking, "twin")["versus"]["good"]["verdict"] == "equivalent"
    code, _, err = ranked(capsys, folder, "--reference", "goood")
    assert code == 2
    assert "Did you mean 'good'?" in err


def test_without_references_the_first_variant_is_the_reference(tmp_path: Path, capsys: Any) -> None:
    folder = StudyFolder.create(tmp_path / "demo", {**plan(), "references": []})
    for run in folder.runs():
        finish(run)
    ranking = as_json(capsys, folder)
    first = folder.plan["runs"][0]["variant"]
    assert ranking["references"] == [first]
    assert all((first in entry["versus"]) == (entry["variant"] != first) for entry in ranking["variants"])


def test_seeds_added_after_a_look_are_marked(folder: StudyFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for run in folder.runs():
        finish(run)
    as_json(capsys, folder)
    wider = StudyFolder.create(folder.path, plan(6, plan_hash="p2"))
    early = as_json(capsys, wider)
    assert early["provisional"] is True
    for run in wider.runs()[16:]:
        finish(run)
    ranking = as_json(capsys, wider)
    assert ranking["provisional"] is False
    assert ranking["added_after_look"] == [4, 5]
    assert any("seeds added after results had been seen: 4, 5." in warning for warning in ranking["warnings"])
    marks = {v["seed"]: (v["planned"], v["after_look"]) for v in row(ranking, "good")["values"]}
    assert marks == {**dict.fromkeys(range(4), (True, False)), 4: (False, True), 5: (False, True)}
    assert "seeds added after results" in ranked(capsys, wider)[1]


@pytest.mark.parametrize("look", ["none", "before any result"])
def test_seeds_added_before_results_were_seen_are_an_extension_only(
    folder: StudyFolder, capsys: pytest.CaptureFixture[str], look: str
) -> None:
    if look != "none":
        as_json(capsys, folder)
    for run in folder.runs():
        finish(run)
    wider = StudyFolder.create(folder.path, plan(5, plan_hash="p2"))
    for run in wider.runs()[16:]:
        finish(run)
    ranking = as_json(capsys, wider)
    assert ranking["added_after_look"] == []
    warning = "not in the first plan, and counted: seed 4, added before any ranking had been shown with results."
    assert warning in ranking["warnings"]
    assert [v["planned"] for v in row(ranking, "bad")["values"]] == [True, True, True, True, False]


def test_each_look_is_a_line(folder: StudyFolder, capsys: pytest.CaptureFixture[str]) -> None:
    as_json(capsys, folder)
    finish(folder.runs()[0])
    for form in ("--csv", "--latex"):
        ranked(capsys, folder, form)
    lines = [json.loads(line) for line in (folder.path / "looks.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(line["finished"], line["plan_hash"]) for line in lines] == [(0, "p1"), (1, "p1"), (1, "p1")]


def test_a_look_that_cannot_be_recorded_is_told_and_shown(
    folder: StudyFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in folder.runs():
        finish(run)
    opened = os.open

    def read_only(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if str(path).endswith("looks.jsonl") and flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied")  # root, who runs some test suites, may write anywhere
        return opened(path, flags, *rest, **more)

    monkeypatch.setattr("addnorm.store.lines.os.open", read_only)
    code, out, err = ranked(capsys, folder, "--json")
    assert code == 0
    assert json.loads(out)["provisional"] is False
    assert "this look is not recorded" in err
    assert "Permission denied" in err


def test_run_takes_more_seeds_and_refuses_any_other_change(
    tmp_path: Path, tiny_study_text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From `run` to `rank` as a user gives them; only the training itself is left out."""
    monkeypatch.setattr(addnorm.supervision.run, "supervise", lambda *given, **options: [])
    file, out = tmp_path / "tiny.yaml", tmp_path / "out"
    file.write_text(tiny_study_text, encoding="utf-8")
    command = ["run", str(file), "--out", str(out), "--json"]
    main(command)
    first = json.loads((out / "study.json").read_text(encoding="utf-8"))
    for run in StudyFolder(out).runs():
        with run.claim() as events:
            events.write("eval", step=6, loss=2.0 + 0.01 * run.spec["seed"] ** 2 + 0.001 * len(run.name), accuracy=0.5)
            run.mark("finished", step=6, content_hash=run.name)
    assert main(["rank", str(out), "--json"]) == 0
    main([*command, "--set", "seeds=[0, 1, 2, 3, 4]"])
    capsys.readouterr()
    now = json.loads((out / "study.json").read_text(encoding="utf-8"))
    (extension,) = now.pop("extensions")
    assert now == first, "the first plan stays as it was frozen"
    assert (extension["seeds"], extension["looked"], len(extension["runs"])) == ([3, 4], True, 4)
    assert extension["plan_hash"] != first["plan_hash"]
    main(["status", str(out), "--json"])
    states = [entry["state"] for entry in json.loads(capsys.readouterr().out)["runs"]]
    assert states == ["finished"] * 6 + ["queued"] * 4
    main(["rank", str(out), "--json"])
    ranking = json.loads(capsys.readouterr().out)
    assert (ranking["provisional"], ranking["added_after_look"]) == (True, [3, 4])
    for change in ("training.steps=7", "margin=0.02", "seeds=[0, 1]"):
        before = (out / "study.json").read_bytes()
        assert main([*command, "--set", change]) == 2
        assert "only seeds may be added" in " ".join(capsys.readouterr().err.split())
        assert (out / "study.json").read_bytes() == before


def test_a_variant_that_is_left_out_counts_as_a_look(folder: StudyFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for run in folder.runs():
        finish(run)
    ranking = as_json(capsys, folder, "--exclude", "bad", "--exclude", "twin")
    assert [entry["variant"] for entry in ranking["variants"]] == ["good", "base"]
    assert any("left out of this ranking: bad, twin." in warning for warning in ranking["warnings"])
    assert [entry["variant"] for entry in as_json(capsys, folder, "--variant", "good")["variants"]] == ["good", "base"]
    assert len((folder.path / "looks.jsonl").read_text(encoding="utf-8").splitlines()) == 2
    code, _, err = ranked(capsys, folder, "--exclude", "god")
    assert code == 2
    assert "Did you mean 'good'?" in err


def test_the_seeds_at_which_a_variant_is_lower_stand_beside_the_verdict(
    folder: StudyFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    for run in folder.runs():
        finish(run)
    comparison = row(as_json(capsys, folder), "good")["versus"]["base"]
    assert comparison["seeds_lower"] == 4
    assert [entry["seed"] for entry in comparison["by_seed"]] == [0, 1, 2, 3]
    mean = sum(entry["difference"] for entry in comparison["by_seed"]) / 4
    assert mean == pytest.approx(comparison["difference"])
    text = ranked(capsys, folder)[1]
    assert "better 4/4 -" in text
    assert "worse 0/4 +" in text
    assert "lower on 4 of 5 seeds" in " ".join(text.split())
