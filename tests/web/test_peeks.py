"""A page that shows results is a look at them: recorded once per new result, by whichever page shows it first."""

import pytest

import made_files
import made_study
from addnorm.reporting.sections import pages as page_names
from addnorm.store.peeks import peeks


def count(folder):
    return len(peeks(folder))


def test_looking_again_at_the_same_results_is_one_look(tmp_path, client):
    study = made_study.half_done(tmp_path / "study")
    asked = client(study.path)
    for _ in range(3):
        asked.get("/")
        asked.get("/ranking")
    assert [look["finished"] for look in peeks(study.path)] == [3]
    assert peeks(study.path)[0]["plan_hash"] == study.plan_hash
    # A page that is started anew finds the look in the folder.
    client(study.path).get("/")
    assert count(study.path) == 1
    made_study.finish(study.runs()[4])
    client(study.path).get("/ranking")
    assert [look["finished"] for look in peeks(study.path)] == [3, 4]


@pytest.mark.parametrize("page", [name for name in page_names() if name not in ("overview", "ranking")])
def test_pages_without_results_are_no_look(tmp_path, client, page):
    study = made_study.finished(tmp_path / "study")
    made_files.checkpoint(study.path, "mine")
    asked = client(study.path)
    variant = "mine" if page == "checkpoint" else "base"
    assert asked.get(f"/{page}?variant={variant}&run=base0-s0").status_code == 200
    assert asked.head("/ranking").status_code == 200
    assert count(study.path) == 0


def test_before_the_first_result_there_is_nothing_to_see(tmp_path, client):
    study = made_study.make(tmp_path / "study")
    client(study.path).get("/")
    assert count(study.path) == 0


def test_a_look_that_cannot_be_recorded_is_said(tmp_path, client):
    study = made_study.finished(tmp_path / "study")
    (study.path / "looks.jsonl").mkdir()
    assert "This look at the results could not be recorded" in client(study.path).get("/").text
