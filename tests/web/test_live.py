"""Changes reach open pages once, in order, and again after a cut connection."""

import json
import socket
import threading

import httpx
import pytest

import made_files
import made_study
from addnorm.reporting.reader import Reader
from addnorm.store import write_json
from addnorm.web.live import Live

PATIENCE = httpx.Timeout(30.0)


class Listener:
    """Reads a page's event stream in a thread of its own."""

    def __init__(self, url: str, **headers: str) -> None:
        self.changes: list[tuple[str, dict]] = []
        self._client = httpx.Client(timeout=PATIENCE)
        self._response = self._client.send(self._client.build_request("GET", url, headers=headers), stream=True)
        assert self._response.status_code == 200
        assert self._response.headers["content-type"].startswith("text/event-stream")
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        number = ""
        try:
            for line in self._response.iter_lines():
                if line.startswith("id: "):
                    number = line.removeprefix("id: ")
                elif line.startswith("data: "):
                    self.changes.append((number, json.loads(line.removeprefix("data: "))))
        except (httpx.HTTPError, httpx.StreamError):
            pass  # the test has cut the connection

    def cut(self) -> None:
        # Closing alone would leave the reading thread waiting for bytes.
        self._response.extensions["network_stream"].get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=10)
        self._response.close()
        self._client.close()

    @property
    def numbers(self) -> list[int]:
        return [int(number.partition("-")[2]) for number, _ in self.changes]


def events_address(url: str, page: str = "overview") -> str:
    text = httpx.get(f"{url}/{'' if page == 'overview' else page}", timeout=PATIENCE).text
    return url + text.partition('data-events="')[2].partition('"')[0].replace("&amp;", "&")


def test_a_new_event_arrives_by_itself(tmp_path, served):
    study = made_study.make(tmp_path / "study")
    run = study.runs()[0]
    listener = Listener(events_address(served(tmp_path / "study")))
    with run.claim() as events:
        events.write("start", step=0, resumed_from=0, replays=0)
        made_study.train(run, events, 0, 10)
        made_study.wait_until(
            lambda: any("640<span" in change["sections"].get("card-0", "") for _, change in listener.changes)
        )
    made_study.wait_until(lambda: "interrupted" in (listener.changes[-1][1]["sections"].get("card-0", "")))
    assert all(
        set(change["sections"]) <= {"answer", "totals", "ladder", "card-0", "card-1", "card-2"}
        for _, change in listener.changes
    )
    assert any(run.name in change["runs"] for _, change in listener.changes)
    listener.cut()


def test_changes_come_in_order_and_go_on_after_a_cut(tmp_path, served):
    study = made_study.make(tmp_path / "study")
    run = study.runs()[0]
    address = events_address(served(tmp_path / "study"))
    first = Listener(address)

    def seen(listener: Listener) -> list[int]:
        found = [
            change["sections"]["card-0"].partition("<dd>")[2]
            for _, change in listener.changes
            if "card-0" in change["sections"]
        ]
        assert found is not None
        return listener.numbers

    with run.claim() as events:
        events.write("start", step=0, resumed_from=0, replays=0)
        for end in (2, 4, 6):
            made_study.train(run, events, end - 2, end)
            count = len(first.changes)
            made_study.wait_until(lambda count=count: len(first.changes) > count)
        first.cut()
        last_id, last_number = first.changes[-1][0], first.numbers[-1]
        assert seen(first) == sorted(set(first.numbers))
        # While nobody listens:
        made_study.train(run, events, 6, 20)
        again = Listener(address, **{"Last-Event-ID": last_id})
        made_study.wait_until(
            lambda: any("1.28 k<span" in change["sections"].get("card-0", "") for _, change in again.changes)
        )
        assert again.numbers[0] > last_number
        assert again.numbers == sorted(set(again.numbers))
        assert not any(change["reload"] for _, change in again.changes)
    again.cut()


def test_a_page_of_another_server_is_told_to_load_anew(tmp_path, served):
    made_study.finished(tmp_path / "study")
    address = events_address(served(tmp_path / "study"))
    for wrong in ("other-3", "nonsense", "", f"{address.partition('after=')[2].partition('-')[0]}-999999"):
        listener = Listener(address.partition("&after=")[0] + "&after=" + wrong)
        made_study.wait_until(lambda listener=listener: len(listener.changes) > 0)
        assert listener.changes[0][1]["reload"] is True
        listener.cut()


def test_an_idle_study_sends_nothing_but_the_greeting(tmp_path):
    made_study.finished(tmp_path / "study")
    live = Live(Reader(tmp_path / "study"))
    for _ in range(3):
        live.look()
    assert live.since(0)[1:] == (0, frozenset(), frozenset())


def test_every_look_with_news_is_one_number_and_names_what_changed(tmp_path):
    study = made_study.make(tmp_path / "study")
    live = Live(Reader(tmp_path / "study"))
    made_study.finish(study.runs()[0])
    live.look()
    _, number, sections, runs = live.since(0)
    assert number == 2, "the run's news, then the ranking's"
    assert runs == {study.runs()[0].name}
    assert {
        "totals",
        "card-0",
        "ladder",
        "verdicts",
        "values",
        "cost",
        "runs",
    } <= sections
    assert not {"failures", "proofs"} & sections, "there is none, before and after"
    assert not {"scalars", "lengths", "insight", "terms"} & sections, "none of their files was written"
    assert live.since(number)[1:] == (number, frozenset(), frozenset()), "nothing is told twice"
    made_study.finish(study.runs()[1])
    live.look()
    assert live.since(number)[3] == {study.runs()[1].name}
    assert live.since(0)[3] == {study.runs()[0].name, study.runs()[1].name}


def test_a_death_that_writes_nothing_is_seen(tmp_path):
    study = made_study.make(tmp_path / "study")
    live = Live(Reader(tmp_path / "study"))
    with study.runs()[0].claim() as events:
        events.write("start", step=0, resumed_from=0, replays=0)
        live.look()
        assert live.now()[0].runs[0].state == "running"
    live.look()
    assert live.now()[0].runs[0].state == "interrupted"


def test_numbers_too_old_to_say_answer_with_everything(tmp_path, monkeypatch):
    monkeypatch.setattr("addnorm.web.live._KEPT", 2)
    study = made_study.make(tmp_path / "study")
    live = Live(Reader(tmp_path / "study"))
    for run in study.runs()[:3]:
        made_study.finish(run)
        live.look()
    number = live.now()[1]
    assert "everything" in live.since(0)[2]
    assert "everything" not in live.since(number - 2)[2]
    assert "everything" in live.since(number + 1)[2]


def test_the_folder_may_vanish_and_come_back(tmp_path):
    study = made_study.make(tmp_path / "study")
    live = Live(Reader(tmp_path / "study"), every_s=0.02)
    live.start()
    study.path.rename(tmp_path / "away")
    made_study.wait_until(lambda: live.trouble is not None)
    (tmp_path / "away").rename(study.path)
    made_study.wait_until(lambda: live.trouble is None)
    live.stop()
    assert live.is_stopped


def test_what_is_shown_of_a_working_run_moves_with_its_events(tmp_path):
    """Tokens per second stand with the costs, repeated steps with the proofs; neither changes a state."""
    study = made_study.make(tmp_path / "study")
    run = study.runs()[0]
    with run.claim() as events:
        events.write("start", step=0, resumed_from=0, replays=0)
        made_study.train(run, events, 0, 8)
    with run.claim() as events:
        events.write("start", step=4, resumed_from=4, replays=4)
        live = Live(Reader(study.path))
        events.write("replayed", step=8, first=5, last=8, equal=True)
        live.look()
        assert live.since(0)[2] == {"totals", "card-0", "runs", "cost", "proofs", "log", "workers"}


WRITTEN = {
    "lengths": ("lengths", "extrapolation.json", made_files.evaluation(), "2.5000"),
    "cost": (
        "cost",
        "audit.json",
        made_files.audit(),
        ">37<",
    ),
    "scalars": ("scalars", "explain.json", {"time": 1.5e9, "runs": []}, "To update the verdicts"),
    "scalars of a model": (
        "model?variant=base",
        "explain.json",
        {"time": 1.5e9, "runs": []},
        "To update the verdicts",
    ),
    "insight": ("model?variant=base", "RUN/insight.json", made_files.flow, ">1.5<"),
    "terms": ("model?variant=base", "RUN/terms.json", made_files.four_terms(), "3 texts of 9 tokens"),
    "audit of a run": (
        "model?variant=base",
        "RUN/audit.json",
        {"findings": [{"parameter": "head.bias", "verdict": "partly redundant", "size": 3, "redundant_dof": 1}]},
        "partly redundant",
    ),
}
"""Page, the file that a command leaves while it is open, and what the page must then say."""


def section_of(what: str) -> str:
    return {"audit of a run": "insight", "scalars of a model": "scalars"}.get(what, what)


BESIDE = {"insight": {"depth"}}
"""Further sections that show the same file."""


@pytest.mark.parametrize("what", WRITTEN)
def test_what_a_command_measured_reaches_open_pages(tmp_path, served, what):
    """Once, in order among the runs' events, again after a cut; and it goes when the file goes."""
    page, name, content, said = WRITTEN[what]
    study = made_study.finished(tmp_path / "study")
    run = next(run for run in study.runs() if run.spec["variant"] == "base")
    if section_of(what) == "scalars":  # a page of none says nothing of verdicts
        made_files.record_scalars(run, ("residual.alpha[0]",))
    path = study.path / name.replace("RUN", run.name)
    section = section_of(what)
    address = events_address(served(study.path), page)
    first = Listener(address)
    write_json(path, content(run) if callable(content) else content)
    made_study.wait_until(lambda: any(said in c["sections"].get(section, "") for _, c in first.changes))
    assert [set(c["sections"]) for _, c in first.changes] == [{section} | BESIDE.get(what, set())]
    first.cut()
    path.unlink()
    again = Listener(address, **{"Last-Event-ID": first.changes[-1][0]})
    made_study.wait_until(lambda: len(again.changes) > 0)
    assert said not in again.changes[0][1]["sections"][section]
    assert again.numbers[0] > first.numbers[-1]
    assert not again.changes[0][1]["reload"]
    again.cut()


def test_what_a_command_measured_of_another_model_is_not_sent(tmp_path, served):
    study = made_study.finished(tmp_path / "study")
    listener = Listener(events_address(served(study.path), "model?variant=v4m5"))
    base, own = (next(r for r in study.runs() if r.spec["variant"] == name) for name in ("base", "v4m5"))
    write_json(base.path / "terms.json", made_files.four_terms())
    made_study.wait_until(lambda: len(listener.changes) == 1)
    write_json(own.path / "terms.json", made_files.four_terms())
    made_study.wait_until(lambda: len(listener.changes) == 2)
    assert [set(change["sections"]) for _, change in listener.changes] == [set(), {"terms"}]
    listener.cut()


@pytest.mark.parametrize("page", ["ranking", "cost", "record", "model"])
def test_other_pages_are_sent_their_own_sections_alone(tmp_path, served, page):
    study = made_study.make(tmp_path / "study")
    url = served(tmp_path / "study")
    listener = Listener(events_address(url, "model?variant=v2m1" if page == "model" else page))
    (made_study.fail if page == "record" else made_study.finish)(study.runs()[1])
    own = {
        "ranking": {"ladder", "verdicts", "values"},
        "cost": {"cost", "workers"},
        "record": {"failures"},
        "model": {"runs"},
    }[page]
    made_study.wait_until(lambda: set().union(*(change["sections"] for _, change in listener.changes)) == own)
    listener.cut()
