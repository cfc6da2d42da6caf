"""The page's command, and the page beside a training."""

import re
from contextlib import ExitStack

import httpx
import pytest

import made_study
from addnorm.cli import main
from addnorm.cli._progress import Silent
from addnorm.cli.run import _with_page
from addnorm.web.serve import page, serving


def test_the_page_stands_beside_a_training_and_goes_with_it(tmp_path, capsys):
    study = made_study.half_done(tmp_path / "study")
    with ExitStack() as stack:
        show = _with_page(Silent(), stack)
        show(study, study.statuses())
        show(study, study.statuses())
        said = capsys.readouterr().err
        (url,) = re.findall(r"http://127\.0\.0\.1:\d+/", said)
        assert "made" in httpx.get(url, timeout=30).text
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, timeout=30)


def test_a_taken_port_is_said_and_another_is_found_when_none_was_asked_for(tmp_path, capsys, monkeypatch):
    study = made_study.make(tmp_path / "study")
    first = page(study.path, port=0)
    port = first.listening.getsockname()[1]
    assert main(["watch", str(study.path), "--port", str(port)]) == 1
    assert f"port {port} of 127.0.0.1 is not free" in capsys.readouterr().err
    monkeypatch.setattr("addnorm.web.serve.PORT", port)
    second = page(study.path)
    assert second.listening.getsockname()[1] != port
    for one in (first, second):
        one.listening.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["nowhere"], "holds no study"),
        ([".", "--port", "70000"], "--port: expected a number between 0 and 65535, got 70000"),
        ([".", "--token", "short"], "--token: expected at least 8 characters, got 5"),
        (["STUDY", "--host", "no such host"], "--host: expected an address of this machine"),
    ],
)
def test_wrong_options_are_said(tmp_path, capsys, options, message):
    made_study.make(tmp_path / "study")
    assert main(["watch", *(str(tmp_path / "study") if word == "STUDY" else word for word in options)]) == 2
    assert message in capsys.readouterr().err


def test_other_addresses_come_with_a_token_of_their_own(tmp_path):
    study = made_study.make(tmp_path / "study")
    ready = page(study.path, host="0.0.0.0", port=0)
    assert re.search(r"\?token=[\w-]{32}$", ready.url)
    port, token = ready.listening.getsockname()[1], ready.url.partition("token=")[2]
    with serving(ready):
        assert httpx.get(f"http://127.0.0.1:{port}/", timeout=30).status_code == 401
        opened = httpx.get(f"http://127.0.0.1:{port}/?token={token}", timeout=30, follow_redirects=True)
        assert opened.status_code == 200
