"""The page of all studies of a folder: what it says of each, two beside each other, and its live updates."""

import json
import re
import shutil
from html import unescape

import pytest
from starlette.testclient import TestClient

import made_study
from addnorm.errors import InputError
from addnorm.store import StudyFolder, write_json
from addnorm.store.notes import add_tag
from addnorm.store.peeks import peeks
from addnorm.web.home import home_application
from addnorm.web.studies import Studies
from whole_page import assert_whole


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Three studies: one finished, one under way in a folder of its own, one with other held-out text."""
    folder = tmp_path_factory.mktemp("home") / "runs"
    made_study.finished(folder / "first")
    made_study.half_done(folder / "group" / "under way")
    other = StudyFolder.create(folder / "other", {**made_study.plan(seeds=(0,)), "data_hash": "e" * 64})
    for run in other.runs():
        made_study.finish(run)
    return folder


@pytest.fixture
def home(made):
    studies = Studies(made, None)
    for study in studies.all():
        assert study.open()
    app = home_application(made, studies=studies)
    return TestClient(app, base_url="http://127.0.0.1:8321", follow_redirects=False)


def text_of(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def row_of(html: str, name: str) -> str:
    return text_of(next(row for row in html.split('<li class="study-row"')[1:] if f">{name}</a>" in row))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_study_is_listed_with_question_answer_progress_and_cost(home, language):
    html = home.get(f"/?lang={language}").text
    assert_whole(html)
    assert len(re.findall('class="study-row"', html)) == 3
    first, second = row_of(html, "first"), row_of(html, "group/under way")
    if language == "en":
        assert "Made by hand. Found, with 95 % confidence in all of it together: v2m1 is better than base by" in first
        assert "9 runs of 3 models" in first
        assert "23 k tokens trained" in first
        assert "pauses included, all runs added" in first
        assert "38.9 % of all steps done" in second
    else:
        assert "v2m1 优于 base" in first
        assert "已完成全部步数的 38.9 %" in second


def test_a_study_is_a_link_into_its_own_site(home):
    html = home.get("/").text
    (address,) = set(re.findall(r'href="(/study/group/[^"]+)"', html))
    page = home.get(address)
    assert page.status_code == 200
    assert_whole(page.text)
    for link in re.findall(r'href="(/[^"#]*)"', page.text):
        assert home.get(unescape(link)).status_code == 200, link
    assert 'data-events="/study/group/under%20way/events' in page.text or "/study/group/under way/events" in page.text
    assert "All studies</a>" in page.text
    assert home.get("/study/first/curves.json").json()["metric"] == "train.loss"


def test_an_address_reaches_studies_alone(home, made):
    (made / "secret").mkdir()
    (made / "secret" / "study.txt").write_text("the secret words", encoding="utf-8")
    for path in (
        "/study/secret/",
        "/study/secret/study.txt",
        "/study/%2e%2e/",
        "/study/../../etc/passwd",
        "/study/first/../secret",
    ):
        answer = home.get(path)
        assert "secret words" not in answer.text
        assert answer.status_code in (404, 307), path


def test_search_and_tag_choose_studies(home, made):
    add_tag(made / "first", "baseline")
    assert home.get("/").text.count('<span class="tag">baseline</span>') == 1
    for query, names in (("query=under+way", ["group/under way"]), ("tag=baseline", ["first"]), ("query=nothing", [])):
        html = home.get(f"/?{query}").text
        assert re.findall(r'<h2><a href="[^"]+">([^<]+)', html) == names


@pytest.mark.parametrize("language", ["en", "zh"])
def test_two_studies_stand_side_by_side_on_one_scale(home, made, language):
    html = home.get(f"/compare?study=first&study=group/under way&lang={language}").text
    assert_whole(html)
    models = re.findall(r'side-(\d)">[AB]</span></td><th scope="row"><a[^>]+>(\w+)<', html)
    assert sorted(models) == sorted([(side, name) for side in "01" for name in ("base", "v2m1", "v4m5")])
    means = [float(mean) for mean in re.findall(r"<td class=\"number\">(\d\.\d{4})", html)]
    assert means == sorted(means)
    assert ("Differences between studies are not tested" in html) == (language == "en")


def test_studies_whose_losses_mean_something_else_are_not_compared(home):
    html = home.get("/compare?study=first&study=other&lang=en").text
    assert "cannot be compared" in html
    assert "Held-out text: dddddddddddd in A, eeeeeeeeeeee in B" in html
    assert 'class="compared"' not in html
    assert text_of(html).count("Made by hand.") == 2, "each is still shown"


@pytest.mark.parametrize("query", ["", "study=first", "study=first&study=first", "study=first&study=../etc"])
def test_other_than_two_studies_are_refused(home, query):
    assert "Expected two studies, got" in home.get(f"/compare?{query}&lang=en").text


def test_showing_an_answer_is_a_look_at_the_results(tmp_path):
    study = made_study.finished(tmp_path / "runs" / "one")
    made_study.make(tmp_path / "runs" / "empty")
    asked = TestClient(home_application(tmp_path / "runs"), base_url="http://127.0.0.1:8321")
    asked.head("/")
    assert peeks(study.path) == []
    for _ in range(2):
        asked.get("/")
    assert [look["finished"] for look in peeks(study.path)] == [9]
    assert peeks(tmp_path / "runs" / "empty") == []


def test_news_reach_the_list_once_and_a_new_study_reloads_it(tmp_path, monkeypatch):
    monkeypatch.setattr("addnorm.web.studies._REST_S", 0.0)
    study = made_study.make(tmp_path / "runs" / "one")
    studies = Studies(tmp_path / "runs", None)
    studies.look()
    number = studies.number
    studies.look()
    assert studies.since(number) == (number, []), "nothing happened"
    made_study.finish(study.runs()[0])
    studies.look()
    newest, changed = studies.since(number)
    assert newest > number
    assert [each.name for each in changed or []] == ["one"]
    assert studies.since(newest) == (newest, [])
    made_study.make(tmp_path / "runs" / "two")
    studies.look()
    assert studies.since(newest)[1] is None, "the list has changed"
    shutil.rmtree(tmp_path / "runs" / "two")
    studies.look()
    assert [each.name for each in studies.all()] == ["one"]


def test_a_damaged_study_is_listed_with_the_reason(tmp_path):
    made_study.make(tmp_path / "runs" / "good")
    (tmp_path / "runs" / "bad").mkdir()
    (tmp_path / "runs" / "bad" / "study.json").write_text("{", encoding="utf-8")
    asked = TestClient(home_application(tmp_path / "runs"), base_url="http://127.0.0.1:8321")
    assert "study.json is damaged" in row_of(asked.get("/?lang=en").text, "bad")
    assert "study.json is damaged" in asked.get("/study/bad/").text
    plan = json.loads((tmp_path / "runs" / "good" / "study.json").read_text())
    write_json(tmp_path / "runs" / "bad" / "study.json", plan)
    assert asked.get("/study/bad/").status_code == 200, "it is read once it can be"


def test_a_link_to_another_folder_is_not_followed(tmp_path):
    made_study.make(tmp_path / "elsewhere" / "study")
    made_study.make(tmp_path / "runs" / "one")
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere")
    assert [study.name for study in Studies(tmp_path / "runs", None).all()] == ["one"]


def test_a_folder_without_studies_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"holds no study: expected a study\.json"):
        Studies(tmp_path, None)
    with pytest.raises(InputError, match="token"):
        home_application(tmp_path, host="0.0.0.0")
