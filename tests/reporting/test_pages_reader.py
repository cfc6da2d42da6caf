"""Looking at a folder again and again: only what changed is read, and the answer is always that of a fresh look."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import made_study
from addnorm.reporting.changes import changed_sections
from addnorm.reporting.reader import Reader
from addnorm.reporting.render import Pages, query_of
from addnorm.reporting.sections.insight import insight
from addnorm.reporting.sections.ladder import ladder
from addnorm.reporting.sections.scalars.record import families
from addnorm.reporting.view import View
from addnorm.store import RunFolder, StudyFolder


def shown(snapshot) -> str:
    """What a visitor sees of a ranking; the states of runs that have not ended are not the ranking's own."""
    view = View(page="ranking", link=lambda page, **query: page)
    return "".join(Pages().section(name, snapshot, view) for name in ("ladder", "verdicts", "values"))


def fresh(folder: Path):
    return Reader(folder).look()


def test_an_old_reader_sees_what_a_fresh_one_sees(tmp_path):
    study = made_study.make(tmp_path / "study")
    reader = Reader(study.path)
    runs = study.runs()

    def assert_same() -> None:
        now, anew = reader.look(), fresh(study.path)
        assert now.runs == anew.runs
        assert shown(now) == shown(anew)

    assert_same()
    made_study.finish(runs[0])
    assert_same()
    made_study.fail(runs[1])
    assert_same()
    with runs[2].claim() as events:
        assert_same()
        made_study.train(runs[2], events, 0, 6)
        assert_same()
    assert_same()
    runs[1].retry()
    assert_same()


def test_an_unchanged_folder_is_the_same_snapshot_and_no_file_is_opened(tmp_path, monkeypatch):
    study = made_study.finished(tmp_path / "study")
    reader = Reader(study.path)
    before = reader.look()
    monkeypatch.setattr(RunFolder, "status", lambda run: pytest.fail("a run was read that had not changed"))
    assert reader.look() is before
    assert changed_sections(before, before) == frozenset()


def test_added_seeds_are_seen(tmp_path):
    study = made_study.finished(tmp_path / "study")
    reader = Reader(study.path)
    before = reader.look()
    plan = made_study.plan(seeds=(0, 1, 2, 3))
    StudyFolder.create(study.path, {**plan, "plan_hash": "f" * 64})
    now = reader.look()
    assert len(now.runs) == 12
    assert changed_sections(before, now) == {"everything"}


def test_the_ladder_dashes_references_that_cannot_be_told_apart(tmp_path):
    study = made_study.make(tmp_path / "study", references=("base", "v2m1"))
    for run in study.runs():
        made_study.finish(run, level={"base": 2.4, "v2m1": 2.4, "v4m5": 2.2}[run.spec["variant"]])
    ranking = fresh(study.path).ranking
    assert ranking is not None
    names = {name: name for name in ("base", "v2m1", "v4m5")}
    drawn = ladder(ranking, names, names)
    assert [line.dashed for line in drawn.lines] == [True]
    rung = next(rung for rung in drawn.rungs if rung.variant == "v4m5")
    assert (rung.left, rung.width, rung.firm) == (0.0, 50.0, True)
    assert rung.ranks == (1, 1)


def test_scalars_stand_beside_what_decay_alone_would_have_left(tmp_path):
    study = made_study.finished(tmp_path / "study")
    names = ["scores.log_a.0[0]", "scores.log_a.1[0]", "scores.log_a.1[1]", "layers.0.branch_norm.gain[0]"]
    for run in study.runs():
        if run.spec["variant"] == "v4m5":
            kept = {key: np.zeros(4) for key in ("decay", "gradient", "mean", "mean_square")}
            kept |= {
                "value": np.array([0.5, 0.2, 0.3, 9.0]),
                "init": np.ones(4),
                "log_kept": np.full(4, np.log(0.25)),
                "decay": np.array([-0.5, -0.6, -0.7, 0.0]),
                "gradient": np.array([0.0, -0.2, 0.0, 0.0]),
                "steps": np.array(40),
            }
            told = json.dumps([[1, 0.5], [2, 0.25], [2, 0.75], [None, None]])
            metadata = {"names": json.dumps(names), "step": "40", "effective": told}
            save_file(kept, run.path / "scalars.safetensors", metadata=metadata)
    (family,) = families(fresh(study.path), ["base", "v4m5"])
    assert (family.name, family.variant, family.seeds, family.step) == ("scores.log_a", "v4m5", (0, 1, 2), 40)
    assert [entry.label for entry in family.entries] == ["1, 0", "2, 0", "2, 1"], "as the mechanism says"
    assert [entry.effective for entry in family.entries] == [0.5, 0.25, 0.75]
    assert [entry.mean for entry in family.entries] == pytest.approx([0.5, 0.2, 0.3], rel=1e-15)
    assert [entry.decay_only for entry in family.entries] == pytest.approx([0.25] * 3, rel=1e-15)
    assert [entry.by_decay for entry in family.entries] == pytest.approx([1.0, 0.75, 1.0], rel=1e-15)


def test_a_damaged_record_of_scalars_is_no_record(tmp_path):
    study = made_study.finished(tmp_path / "study")
    for run in study.runs():
        (run.path / "scalars.safetensors").write_bytes(b"half")
    assert families(fresh(study.path), ["v4m5"]) == []


def test_insight_is_drawn_layer_by_layer(tmp_path):
    study = made_study.finished(tmp_path / "study")
    run = next(run for run in study.runs() if run.spec["variant"] == "v4m5")

    def flow(scale: float) -> dict:
        layers = [{"layer": i, "gradient": scale * 10.0**-i, "entropy": 2.0 - i, "rms": None} for i in range(3)]
        return {"loss": 2.0, "gradient": 1.0, "layers": layers}

    (run.path / "insight.json").write_text(json.dumps({"format": 1, "start": flow(1.0), "end": flow(2.0)}))
    found = insight(fresh(study.path), "v4m5")
    assert [panel.key for panel in found.panels] == ["gradient", "entropy"]
    gradient = found.panels[0]
    assert gradient.is_log
    assert gradient.lines == ((1.0, 0.1, 0.01), (2.0, 0.2, 0.02))
    steps = [b - a for a, b in zip(gradient.ys[0], gradient.ys[0][1:], strict=False) if a is not None and b is not None]
    assert steps[0] == pytest.approx(steps[1], rel=1e-9), "equal ratios are equal distances"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_one_file_holds_everything_and_asks_for_nothing(tmp_path, language):
    study = made_study.finished(tmp_path / "study")
    text = Pages().one_file(fresh(study.path), language)
    for part in (
        "title-title",
        "answer-title",
        "setup-title",
        "ranking-title",
        "verdicts-title",
        "curves-title",
        "cost-title",
        "proofs-title",
        "model-v4m5",
    ):
        assert part in text
    for asking in ("<script", "<link", "http://", "https://", "url(", "<form", "<button"):
        assert asking not in text.replace("http://www.w3.org", "")


def test_a_card_is_the_same_by_itself_and_on_the_page(tmp_path):
    study = made_study.half_done(tmp_path / "study")
    snapshot, pages = fresh(study.path), Pages()
    view = View(page="overview", link=lambda page, **query: page + query_of(**query))
    whole = pages.section("cards", snapshot, view)
    for place in range(3):
        assert pages.section(f"card-{place}", snapshot, view).strip() in whole
