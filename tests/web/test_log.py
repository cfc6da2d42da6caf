"""The log of a run: its end, earlier parts, a search, its events, and what its worker uses."""

import re
from html import unescape

import pytest

import made_study
from addnorm.reporting.reader import Reader
from addnorm.reporting.reading.run_log import MOST_LINES, SHOWN_BYTES, log_end, log_search, newest_events
from addnorm.web.live import Live

USES = {"cpu_cores": 1.98, "resident_bytes": 300 * 2**20, "gpu_bytes": 3 * 2**30}


def test_the_parts_of_a_log_are_the_whole_log_once(tmp_path):
    lines = [f"line {place} of the log" for place in range(20_000)]
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found, until = [], None
    for _ in range(100):
        part = log_end(tmp_path / "log.txt", until)
        found = [*part.lines, *found]
        until = part.first
        if until == 0:
            break
    assert found == lines


def test_a_log_is_shown_as_text(tmp_path):
    (tmp_path / "log.txt").write_bytes(b"10 %\r20 %\r\n\x1b[31mred\x00\xff\n" + b"x" * 5000)
    part = log_end(tmp_path / "log.txt")
    assert part.lines[:3] == ("10 %", "20 %", "[31mred�")
    assert len(part.lines[3]) == 2000
    assert log_end(tmp_path / "none").lines == ()


def test_a_search_reads_the_whole_log_and_numbers_its_lines(tmp_path):
    content = "first of all\n" + "nothing\n" * SHOWN_BYTES + "Last Of All\n"
    (tmp_path / "log.txt").write_text(content, encoding="utf-8")
    found = log_search(tmp_path / "log.txt", "all of")
    assert found.lines == ("1: first of all", f"{SHOWN_BYTES + 2}: Last Of All")
    assert found.matches == 2
    many = log_search(tmp_path / "log.txt", "nothing")
    assert (many.matches, len(many.lines)) == (SHOWN_BYTES, MOST_LINES)


def test_events_come_newest_first_and_lists_as_lengths(tmp_path):
    study = made_study.finished(tmp_path / "study")
    found = newest_events(study.runs()[0].events_path)
    assert [event.type for event in found[:3]] == ["end", "eval", "eval"]
    assert "losses [2]" in next(event.values for event in found if event.type == "train")
    assert {event.type for event in newest_events(study.runs()[0].events_path, "eval")} == {"eval"}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_of_a_log_shows_searches_and_goes_back(tmp_path, client, language):
    study = made_study.half_done(tmp_path / "study")
    run = study.runs()[3]
    run.log_path.write_text("".join(f"step {place}\n" for place in range(20_000)) + "<b>the end</b>\n")
    asked = client(study.path)
    html = asked.get(f"/log?run={run.name}&lang={language}").text
    assert "&lt;b&gt;the end&lt;/b&gt;" in html
    assert "step 19999" in html
    assert "step 0\n" not in html
    earlier = unescape(re.search(r'href="(/log[^"]*until=\d+[^"]*)"', html)[1])
    assert "step 19999" not in asked.get(earlier).text
    found = asked.get(f"/log?run={run.name}&query=step+7777&lang={language}").text
    assert "7778: step 7777" in found
    assert asked.get("/log?run=../../etc/passwd").status_code == 404
    assert asked.get("/log").status_code == 404


def test_a_log_that_grows_is_news_while_its_run_is_at_work(tmp_path):
    study = made_study.make(tmp_path / "study")
    run = study.runs()[0]
    with run.claim() as events:
        events.write("start", step=0, resumed_from=0, replays=0)
        live = Live(Reader(study.path))
        live.look()
        number = live.now()[1]
        run.log_path.write_text("a warning\n")
        live.look()
        assert live.since(number)[2:] == ({"log"}, {run.name})


def test_what_a_worker_uses_is_shown_and_what_it_does_not_know_is_not_made_up(tmp_path, client):
    study = made_study.make(tmp_path / "study")
    run, plain = study.runs()[:2]
    with run.claim() as events, plain.claim() as others:
        events.write("train", step=2, loss=3.0, tokens_per_s=640.0, losses=[3.0], uses=USES)
        others.write("train", step=2, loss=3.0, tokens_per_s=640.0, losses=[3.0])
        html = client(study.path).get("/cost?lang=en").text
        table = html.partition('data-live="workers"')[2].partition("</section>")[0]
        rows = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in re.findall(r"<tr><th.*?</tr>", table)[1:]]
        assert [row[1:] for row in rows] == [["1.98", "300 MiB", "3 GiB", "–", "640"], ["–", "–", "–", "–", "640"]]
        assert "CPU cores 1.98" in re.sub(r"<[^>]+>", "", client(study.path).get(f"/log?run={run.name}&lang=en").text)
    assert "No worker is at work" in client(study.path).get("/cost?lang=en").text
