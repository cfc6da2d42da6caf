"""Who is let in, and that nothing in a study, its names least of all, can change what a page does."""

import os
from pathlib import Path

import pytest

import made_files
import made_study
from addnorm.errors import InputError
from addnorm.reporting.sections import pages as page_names
from addnorm.web.app import application
from addnorm.web.security import hosts_of, is_loopback

HOSTILE = (
    "<script>alert(1)</script>",
    "../../etc/passwd",
    "' onmouseover='x",
    '"><img src=x onerror=y>',
    "a&b=c#d %2e%2e",
    "{{ 7331 * 7001 }}",
    "模型",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made_study.finished(tmp_path / "study")
    return tmp_path / "study"


@pytest.mark.parametrize("host", ["127.0.0.1:8321", "localhost:8321", "localhost", "[::1]:8321", "LOCALHOST"])
def test_it_answers_by_its_own_names(folder, client, host):
    assert client(folder).get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8321",
        "127.0.0.1.evil.example",
        "10.0.0.5",
        "",
        "[::2]",
        "localhost@evil",
        "localhost:1:2",
    ],
)
def test_it_is_known_by_no_other_name(folder, client, host):
    asked = client(folder)
    for path in ("/", "/curves.json", "/events", "/static/page.css"):
        answer = asked.get(path, headers={"host": host})
        assert answer.status_code == 421
        assert "made" not in answer.text


def test_every_answer_carries_the_headers(folder, client):
    asked = client(folder)
    for path in ("/", "/record", "/curves.json", "/static/live.js", "/nowhere", "/model?variant=no"):
        headers = asked.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self'; base-uri 'none'")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    assert asked.get("/").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_can_only_be_read(folder, client, method):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert client(folder).request(method, "/").status_code == 405
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_an_address_beyond_this_machine_needs_a_token(folder):
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org", ""):
        assert not is_loopback(host)
        with pytest.raises(InputError, match="token"):
            application(folder, host=host)
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.8.0.1", "::1", "localhost"))
    assert "localhost" in hosts_of("0.0.0.0")
    assert hosts_of("192.168.1.5") == {"192.168.1.5"}


def test_the_token_is_asked_for_once_and_leaves_the_address(folder, client):
    asked = client(folder, host="0.0.0.0", token="right-token")
    for path in ("/", "/events", "/curves.json", "/static/page.css", "/?token=wrong", "/?token="):
        refused = asked.get(path)
        assert refused.status_code == 401
        assert "made" not in refused.text
    answer = asked.get("/ranking?lang=zh&token=right-token")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/ranking?lang=zh"
    cookie = answer.headers["set-cookie"]
    assert "httponly" in cookie.lower()
    assert "samesite=strict" in cookie.lower()
    assert "right-token" not in cookie
    assert asked.get("/ranking?lang=zh").status_code == 200
    asked.cookies.clear()
    assert asked.get("/").status_code == 401
    assert asked.get("/", headers={"cookie": "addnorm=right-token"}).status_code == 401
    assert asked.get("/", headers={"authorization": "Bearer right-token"}).status_code == 200


def test_the_redirect_never_leads_to_another_host(folder, client):
    answer = client(folder, host="0.0.0.0", token="right-token").get(
        "http://127.0.0.1:8321//evil.example/?token=right-token"
    )
    assert answer.status_code == 303
    assert answer.headers["location"] == "/evil.example/"


def test_a_server_that_listens_everywhere_takes_addresses_but_no_strange_names(folder, client):
    asked = client(folder, host="0.0.0.0", token="right-token")
    key = {"authorization": "Bearer right-token"}
    assert asked.get("/", headers={"host": "192.168.1.5:8321", **key}).status_code == 200
    assert asked.get("/", headers={"host": "evil.example", **key}).status_code == 421


def test_names_are_data(tmp_path, client):
    models = {"base": made_study.model_spec(), **dict.fromkeys(HOSTILE, made_study.model_spec(scores="weighted"))}
    study = made_study.make(tmp_path / "study", models=models, references=("base", HOSTILE[0]))
    for run in study.runs():
        if run.spec["variant"] == HOSTILE[1]:
            made_study.fail(run, reason=HOSTILE[0], log=[HOSTILE[3]])
        else:
            made_study.finish(run)
    made_files.checkpoint(study.path, f"{HOSTILE[3]}2")
    asked = client(tmp_path / "study")
    for name in page_names():
        for variant in {"model": HOSTILE, "checkpoint": [f"{HOSTILE[3]}2"]}.get(name, (None,)):
            asked_for = {"log": {"run": study.runs()[0].name}}.get(name, {"variant": variant} if variant else None)
            answer = asked.get("/" if name == "overview" else f"/{name}", params=asked_for)
            assert answer.status_code == 200
            assert "<script>alert" not in answer.text
            assert "<img" not in answer.text
            assert "' onmouseover='x" not in answer.text.replace("&#39;", "&")
            assert "root:" not in answer.text
            assert "51324331" not in answer.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in asked.get("/").text
    drawn = asked.get("/curves.json", params={"variant": HOSTILE[0]})
    assert drawn.headers["content-type"] == "application/json"
    assert drawn.json()["series"][0]["variant"] == HOSTILE[0]


@pytest.mark.parametrize(
    "path",
    [
        "/static/../render.py",
        "/static/%2e%2e/render.py",
        "/static/..%2frender.py",
        "//etc/passwd",
        "/static//etc/passwd",
        "/study.json",
        "/base0-s0/events.jsonl",
        "/model?variant=../../etc/passwd",
        "/static/",
    ],
)
def test_no_address_reaches_a_file(folder, client, path):
    answer = client(folder).get(f"http://127.0.0.1:8321{path}")
    assert answer.status_code == 404
    assert "root:" not in answer.text
    assert "plan_hash" not in answer.text


def test_a_link_that_leads_out_of_the_study_is_not_followed(tmp_path, client):
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret words\n", encoding="utf-8")
    study = made_study.make(tmp_path / "study")
    run = study.runs()[0]
    with run.claim() as events:
        events.write("start", step=0, resumed_from=0, replays=0)
        run.mark("failed", step=0, reason="it failed")
    for name in ("log.txt", "insight.json", "audit.json", "scalars.safetensors"):
        os.symlink(secret, run.path / name)
    asked = client(tmp_path / "study")
    for path in ("/record", "/model?variant=base", "/scalars", "/", f"/log?run={run.name}"):
        assert "secret words" not in asked.get(path).text
    assert "a link to a file outside" in asked.get("/record").text


def test_static_files_may_be_kept_only_under_the_address_of_their_content(folder, client):
    asked = client(folder)
    assert "immutable" not in asked.get("/static/page.css?v=old").headers["cache-control"]
    address = asked.get("/").text.partition('rel="stylesheet" href="')[2].partition('"')[0]
    assert "immutable" in asked.get(address).headers["cache-control"]
