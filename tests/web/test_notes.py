"""Notes: the only thing that a page writes, from its own forms alone, and nothing is lost."""

import re
from concurrent.futures import ThreadPoolExecutor
from html import unescape

import pytest
from starlette.testclient import TestClient

import made_study
from addnorm.errors import InputError
from addnorm.store.notes import add_note, add_tag, notes, remove_note, remove_tag
from addnorm.web.app import application
from addnorm.web.home import home_application

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def study(tmp_path):
    return made_study.make(tmp_path / "runs" / "study")


@pytest.fixture
def asked(study):
    return TestClient(application(study.path), base_url="http://127.0.0.1:8321", follow_redirects=False)


def key_of(asked, path="/"):
    found = re.search(r'name="key" value="([^"]+)"', asked.get(path).text)
    assert found is not None
    return found[1]


def files(study):
    return {path: path.stat().st_mtime_ns for path in study.path.rglob("*")}


def test_a_note_is_written_shown_and_removed(study, asked):
    key = key_of(asked)
    text = "<b>Again</b> with warm-up.\r\nSecond line."
    answer = asked.post("/notes?lang=zh", data={"key": key, "act": "note", "text": text})
    assert (answer.status_code, answer.headers["location"]) == (303, "/?lang=zh#notes")
    (note,) = notes(study.path).notes
    assert note.text == "<b>Again</b> with warm-up.\nSecond line."
    page = asked.get("/").text
    assert "&lt;b&gt;Again&lt;/b&gt; with warm-up.\nSecond line." in page
    asked.post("/notes", data={"key": key, "act": "remove-note", "id": note.id})
    assert notes(study.path).notes == ()
    assert "Again" in (study.path / "notes.jsonl").read_text(), "nothing that was written is taken away"


def test_tags_and_notes_of_a_model_stand_on_its_page_alone(study, asked):
    key = key_of(asked)
    answer = asked.post("/notes", data={"key": key, "act": "tag", "text": " to  repeat ", "variant": "v4m5"})
    assert answer.headers["location"] == "/model?variant=v4m5#notes"
    assert '<span class="tag">to repeat</span>' in asked.get("/model?variant=v4m5").text
    for other in ("/", "/model?variant=base"):
        assert "to repeat" not in asked.get(other).text
    asked.post("/notes", data={"key": key, "act": "remove-tag", "text": "to repeat", "variant": "v4m5"})
    assert notes(study.path).tags == ()


@pytest.mark.parametrize("wrong", ["no key", "other key", "other site", "no type"])
def test_another_site_cannot_write(study, asked, wrong):
    form, headers = {"key": key_of(asked), "act": "note", "text": "hello"}, {}
    if wrong == "no key":
        del form["key"]
    elif wrong == "other key":
        form["key"] = "x" * 32
    elif wrong == "other site":
        headers = {"Sec-Fetch-Site": "cross-site"}
    else:
        form = {"text": "key"}
    before = files(study)
    answer = asked.post("/notes", data=form, headers=headers)
    assert answer.status_code == 403
    assert files(study) == before


def test_a_strange_host_cannot_write(study, asked):
    key, before = key_of(asked), files(study)
    answer = asked.post("/notes", data={"key": key, "act": "note", "text": "hello"}, headers={"Host": "evil.example"})
    assert answer.status_code == 421
    assert files(study) == before


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"act": "note", "text": "   "}, "a note: expected 1 to 20000 characters, got 0"),
        ({"act": "tag", "text": "x" * 41}, "a tag: expected 1 to 40 characters, got 41"),
        ({"act": "note", "text": "x" * 140_000}, "expected at most 128 KiB"),
        ({"act": "note", "text": "x", "variant": "../x"}, "no model '../x'"),
        ({"act": "rm", "text": "x"}, "expected one of note, tag"),
    ],
)
def test_what_cannot_be_a_note_is_refused_with_the_reason(study, asked, form, said):
    key, before = key_of(asked), files(study)
    answer = asked.post("/notes", data={"key": key, **form})
    assert answer.status_code == 400
    assert said in unescape(answer.text)
    assert files(study) == before


@pytest.mark.parametrize(
    ("host", "choice", "can_write"),
    [
        ("127.0.0.1", "local", True),
        ("127.0.0.1", "never", False),
        ("0.0.0.0", "local", False),
        ("0.0.0.0", "always", True),
    ],
)
def test_elsewhere_than_on_loopback_notes_are_off_unless_asked_for(study, host, choice, can_write):
    add_tag(study.path, "kept")
    token = None if host == "127.0.0.1" else "right-token"
    for app, path in (
        (application(study.path, host=host, token=token, notes=choice), "/"),
        (home_application(study.path.parent, host=host, token=token, notes=choice), "/study/study/"),
    ):
        asked = TestClient(app, base_url="http://127.0.0.1:8321", headers={"Authorization": "Bearer right-token"})
        html = asked.get(path).text
        assert ('<form method="post"' in html) == can_write
        assert '<span class="tag">kept</span>' in html
        answer = asked.post(f"{path}notes", data={"key": "x", "act": "note", "text": "x"})
        assert answer.status_code == (403 if can_write else 405)
        assert asked.post(path, data={}).status_code == 405, "nothing else takes a form"
        assert asked.post("/events", data={}).status_code == 405


def test_a_form_of_the_home_writes_into_the_study_that_it_belongs_to(study):
    made_study.make(study.path.parent / "other")
    app = home_application(study.path.parent)
    asked = TestClient(app, base_url="http://127.0.0.1:8321", follow_redirects=False)
    html = asked.get("/study/study/").text
    address = re.search(r'method="post" action="([^"]+)"', html)
    assert address is not None
    answer = asked.post(address[1], data={"key": key_of(asked, "/study/study/"), "act": "note", "text": "here"})
    assert answer.headers["location"] == "/study/study/#notes"
    assert [note.text for note in notes(study.path).notes] == ["here"]
    assert notes(study.path.parent / "other").notes == ()


def test_nothing_is_lost_when_many_write_at_once(study):
    texts = [f"note {place}" for place in range(40)]
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda text: add_note(study.path, text), texts))
        list(pool.map(lambda each: remove_note(study.path, each), ids[::2]))
    assert sorted(note.text for note in notes(study.path).notes) == sorted(texts[1::2])


def test_a_torn_line_is_passed_over_and_tags_are_given_once(tmp_path):
    add_tag(tmp_path, "a")
    add_tag(tmp_path, "a")
    assert (tmp_path / "notes.jsonl").read_text().count("\n") == 1
    with open(tmp_path / "notes.jsonl", "a", encoding="utf-8") as file:
        file.write('{"time": 1, "ta')
    assert notes(tmp_path).tags == ((None, "a"),)
    add_tag(tmp_path, "b", variant="base")
    remove_tag(tmp_path, "never given")
    assert notes(tmp_path).tags == ((None, "a"), ("base", "b"))
    assert notes(tmp_path).of("base").tags == (("base", "b"),)
    with pytest.raises(InputError):
        add_note(tmp_path, "")


def test_a_damaged_file_of_notes_is_said_and_not_written_to(study, asked):
    (study.path / "notes.jsonl").write_text("not JSON\n", encoding="utf-8")
    html = asked.get("/").text
    assert "notes.jsonl is damaged" in html
    assert '<form method="post"' not in html
