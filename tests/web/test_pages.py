"""Every page of every kind of study: it answers, holds what it must, and is whole HTML in both languages."""

import json
import re
from html import escape, unescape

import pytest

import made_files
import made_study
from addnorm.reporting.reader import Reader
from addnorm.reporting.sections import pages as page_names
from addnorm.store import StudyFolder
from addnorm.store.results import ranking
from addnorm.web import app as web_app
from addnorm.web.app import application
from addnorm.words import phrases
from whole_page import assert_whole

PLAIN = [name for name in page_names() if name not in made_study.NOT_PLAIN]
ADDRESSES = {name: f"/{'' if name == 'overview' else name}" for name in PLAIN} | {
    "model": "/model?variant=v4m5",
    "log": "/log?run=base0-s0",
}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_page_of_every_study_answers(study, client, language):
    _, folder = study
    asked = client(folder)
    for address in ADDRESSES.values():
        answer = asked.get(f"{address}{'&' if '?' in address else '?'}lang={language}")
        assert answer.status_code == 200, address
        assert_whole(answer.text)
        assert ("总览" in answer.text) == (language == "zh")
        assert "made" in answer.text
    assert_whole(asked.get("/model?variant=none").text)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_page_of_a_measured_study_answers(study, client, language):
    """Whatever the runs' states, with everything in the folder that commands leave there."""
    _, folder = study
    made_files.measure(StudyFolder(folder))
    made_files.checkpoint(folder, "mine")
    asked = client(folder)
    for address in (*ADDRESSES.values(), *made_study.OF_CHECKPOINTS, "/model?variant=base"):
        answer = asked.get(f"{address}{'&' if '?' in address else '?'}lang={language}")
        assert answer.status_code == 200, address
        assert_whole(answer.text)
    assert "2.5000" in asked.get("/lengths").text
    assert "terms-0" in asked.get("/model?variant=base").text
    assert ">190<" in asked.get("/cost").text


def test_the_check_for_whole_pages_catches_what_it_is_for():
    for broken in (
        "<p>a</div>",
        "<p>a",
        '<p style="x">a</p>',
        "<script>a</script>",
        '<a href="http://a">b</a>',
        "<p id='a'></p><p id='a'></p>",
    ):
        with pytest.raises(AssertionError):
            assert_whole(broken)


def totals(html: str) -> dict[str, int]:
    found = re.search(r'<dl class="counts">(.*?)</dl>', html, re.S)
    assert found is not None
    cells = re.findall(r'<div class="(\w+)[^"]*"><dt>.*?</dt><dd>(\d+)</dd>', found[1], re.S)
    return {name: int(count) for name, count in cells}


def test_totals_count_every_state(tmp_path, client):
    made_study.half_done(tmp_path / "half")
    made_study.failed(tmp_path / "failed")
    assert totals(client(tmp_path / "half").get("/").text) == {
        "all": 9, "finished": 3, "running": 0, "queued": 5, "interrupted": 1, "failed": 0,
    }  # fmt: skip
    assert totals(client(tmp_path / "failed").get("/").text) == {
        "all": 9, "finished": 4, "running": 0, "queued": 0, "interrupted": 0, "blocked": 1, "diverged": 1, "failed": 3,
    }  # fmt: skip


def test_a_run_is_running_while_somebody_holds_it(tmp_path, client):
    study = made_study.make(tmp_path / "study")
    with study.runs()[0].claim() as events:
        events.write("start", step=0, resumed_from=0, replays=0)
        made_study.train(study.runs()[0], events, 0, 10)
        html = client(tmp_path / "study").get("/").text
        assert totals(html)["running"] == 1
        # 30 steps left at 640 tokens a second, 64 tokens a step; 350 steps of all runs
        assert "about 35 s left" in html
        assert "Time left</dt><dd>3 s" in html
    assert totals(client(tmp_path / "study").get("/").text)["interrupted"] == 1


def test_a_run_that_could_not_be_compiled_says_why(tmp_path, client):
    plan = made_study.plan()
    plan["runs"][0]["spec"]["training"]["compile"] = True
    study = StudyFolder.create(tmp_path / "study", plan)
    study.runs()[0].write_compiled("RuntimeError: no <C++> compiler")
    asked = client(study.path)
    for language, sentence in (("en", "Seed 0 is trained uncompiled, although"), ("zh", "种子 0 虽设置了")):
        shown = asked.get(f"/model?variant=base&lang={language}").text
        assert_whole(shown)
        assert shown.count(sentence) == 1
        assert shown.count(escape("RuntimeError: no <C++> compiler")) == 1
    assert "uncompiled" not in asked.get("/model?variant=v4m5").text


def test_cards_and_verdicts_say_what_the_ranking_says(tmp_path, client):
    made_study.finished(tmp_path / "study")
    expected = ranking(StudyFolder(tmp_path / "study"))
    asked = client(tmp_path / "study")
    overview, table = asked.get("/").text, asked.get("/ranking").text
    for row in expected.variants:
        assert row.mean is not None
        assert row.interval is not None
        shown = f'{row.mean:.4f} <span class="reach">± {(row.interval[1] - row.interval[0]) / 2:.4f}</span>'
        assert shown in overview
        assert f"{row.mean:.4f}" in table
    assert expected["v2m1"].versus["base"].verdict == "better"
    assert re.search(r'href="/model\?variant=v2m1">.*?verdict-better.*?</tr>', table, re.S)
    needed = expected["v4m5"].versus["base"].seeds_needed
    if needed is not None:
        assert f"{needed} seeds per model would decide" in table


def test_no_warning_and_no_reason_is_left_in_english(tmp_path, client):
    """Every study that the statistics have something to say of: its Chinese table holds none of their English."""
    made_study.half_done(tmp_path / "half")
    made_study.failed(tmp_path / "failed")
    level = made_study.make(tmp_path / "level", references=("base", "v2m1"))
    for run in level.runs():
        made_study.finish(run)
    said = set()
    for name in ("half", "failed", "level"):
        found = ranking(StudyFolder(tmp_path / name))
        reasons = [c.reason for row in found.variants for c in row.versus.values() if c.reason and not c.seeds_needed]
        text = unescape(client(tmp_path / name).get("/ranking?lang=zh").text)
        for sentence in (*found.warnings, *reasons):
            said.add(sentence.note["code"])
            assert sentence not in text
            assert phrases("zh").note(sentence.note) in text
    assert {"provisional", "lost", "references_level", "none_finished"} <= said
    assert "参照" in text


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_is_not_translated_is_marked_as_english(tmp_path, client, language):
    made_study.failed(tmp_path / "study")
    (tmp_path / "study" / "looks.jsonl").mkdir()
    asked = client(tmp_path / "study")
    marked = f" lang={chr(34)}en{chr(34)}" if language == "zh" else ""
    record = asked.get(f"/record?lang={language}").text
    reason = next(run.reason for run in Reader(tmp_path / "study").look().runs if run.reason)
    assert f'<p class="reason"><span{marked}>{escape(reason, quote=False)}' in record
    assert f'<pre tabindex="0"{marked}>' in record
    lost = asked.get(f"/model?variant=nobody&lang={language}")
    assert (lost.status_code, f'<p class="empty"><span{marked}>nobody</span></p>' in lost.text) == (404, True)
    assert f"<span{marked}>" in asked.get(f"/ranking?lang={language}").text.split("<footer>")[1]


def test_the_newest_event_is_the_events_own_time(tmp_path, client):
    study = made_study.half_done(tmp_path / "study")
    newest = max(run.last_event()["time"] for run in study.runs() if run.last_event())
    assert f'data-since="{newest:.3f}"' in client(tmp_path / "study").get("/").text


def test_the_record_holds_failures_logs_and_proofs(tmp_path, client):
    made_study.failed(tmp_path / "failed")
    text = client(tmp_path / "failed").get("/record").text
    assert "the loss became nan at step 8" in text
    assert "Traceback\nboom" in text
    assert "diverged on resume: step 3 first gave loss 2.0, now 2.1" in text
    made_study.finished(tmp_path / "finished")
    text = client(tmp_path / "finished").get("/record").text
    assert text.count("bit-identical</span>") == 3
    assert "17–20" in text
    assert made_study.plan()["plan_hash"] in text


def test_a_resume_that_came_out_otherwise_is_said_to_differ(tmp_path, client):
    study = made_study.make(tmp_path / "study")
    run = study.runs()[0]
    with run.claim() as events:
        events.write("start", step=0, resumed_from=0, replays=0)
        made_study.train(run, events, 0, 20)
    with run.claim() as events:
        events.write("start", step=16, resumed_from=16, replays=4)
        events.write("diverged", step=18, reason="step 18 first gave 2.0, now 2.5")
        run.mark("diverged", step=18, reason="step 18 first gave 2.0, now 2.5")
    text = client(tmp_path / "study").get("/record").text
    assert "differs</span>" in text
    assert "bit-identical</span>" not in text


def test_a_models_page_typesets_its_formula_and_says_how_it_differs(tmp_path, client):
    made_study.finished(tmp_path / "study")
    text = client(tmp_path / "study").get("/model?variant=v4m5").text
    assert "<mfrac>" in text
    assert "<msqrt>" in text
    assert (
        '<th scope="row"><code>scores.kind</code></th><td><code>weighted</code></td><td><code>own</code></td>' in text
    )
    assert "addnorm inspect" in text


def test_curves_answer_with_any_set_of_models(tmp_path, client):
    made_study.finished(tmp_path / "study")
    asked = client(tmp_path / "study")
    mean = asked.get("/curves.json?variant=base&variant=v4m5").json()
    assert [line["label"] for line in mean["series"]] == ["base", "v4m5"]
    assert mean["series"][0]["steps"] == list(range(2, 41, 2))
    assert all(
        low <= mid <= high
        for low, mid, high in zip(*(mean["series"][0][k] for k in ("low", "values", "high")), strict=True)
    )
    seeds = asked.get("/curves.json?variant=base&mode=seeds&first=10&last=20").json()
    assert [line["seed"] for line in seeds["series"]] == [0, 1, 2]
    assert seeds["series"][0]["steps"] == [8, 10, 12, 14, 16, 18, 20, 22], "with the next points beyond both edges"
    assert asked.get("/curves.json?metric=../../etc/passwd").status_code == 404
    assert 'value="eval.loss" checked' in asked.get("/curves?metric=eval.loss").text
    both = asked.get("/curves.json?metric=eval.loss&metric=train.loss").json()
    assert (both["metric"], [other["metric"] for other in both["more"]]) == ("train.loss", ["eval.loss"])
    assert asked.get("/curves.csv?variant=base").headers["content-type"].startswith("text/csv")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("zh-CN,zh;q=0.9,en;q=0.8", "总览"),
        ("en-GB,en;q=0.9,zh;q=0.2", "Overview"),
        ("fr", "Overview"),
        ("", "Overview"),
        ("de, zh;q=0.1", "总览"),
        ("zh;q=x", "Overview"),
    ],
)
def test_the_browser_says_which_language(tmp_path, client, header, expected):
    made_study.make(tmp_path / "study")
    asked = client(tmp_path / "study")
    assert f">{expected}</a>" in asked.get("/", headers={"accept-language": header}).text
    assert ">Overview</a>" in asked.get("/?lang=en", headers={"accept-language": header}).text


def test_links_keep_a_language_that_was_chosen(tmp_path, client):
    made_study.finished(tmp_path / "study")
    asked = client(tmp_path / "study")
    assert 'href="/ranking?lang=zh"' in asked.get("/?lang=zh").text
    assert 'href="/ranking"' in asked.get("/").text
    assert 'href="/model?lang=en&amp;variant=base"' in asked.get("/ranking?lang=en").text


@pytest.mark.parametrize(("language", "key"), [("en", "Kuang (2025)"), ("zh", "Kuang（2025）")])
def test_a_page_links_the_documents_that_it_cites(tmp_path, client, language, key):
    made_study.finished(tmp_path / "study")
    text = client(tmp_path / "study").get(f"/model?variant=v4m5&lang={language}").text
    cited = text[text.index('<ul class="references">') :]
    assert key in cited
    assert '<a href="https://kexue.fm/archives/9577" rel="noreferrer">kexue.fm/archives/9577</a>' in cited


def test_a_models_page_explains_its_mechanisms_in_chinese(tmp_path, client):
    made_study.finished(tmp_path / "study")
    text = client(tmp_path / "study").get("/model?variant=v4m5&lang=zh").text
    assert "分数求和，每对层有一个可学习的正除数。" in text
    assert "每层选择听取哪些更早层的分数" in text
    assert "Scores summed" not in text
    english = re.findall(r'lang="en"[^>]*>([^<]*)<', text.partition('<ul class="references">')[0])
    assert [words for words in english if words != "English"], "sources are citations"
    assert all(re.search(r"arXiv|source|20\d\d|Source|nothing", words) for words in english if words != "English")


@pytest.mark.parametrize(
    ("change", "english", "chinese"),
    [
        ({"references": ["gone"]}, "models that it does not train: gone", "它并不训练的变体比较：gone"),
        ({"references": ["base", "base"]}, "every reference is named once", "每个参照只能出现一次"),
        ({"margin": -1.0}, "margin: expected a positive number", "这些运行无法排名"),
    ],
)
def test_why_nothing_is_ranked_is_said_in_the_pages_language(tmp_path, client, change, english, chinese):
    study = made_study.finished(tmp_path / "study")
    plan = {**json.loads((study.path / "study.json").read_text()), **change}
    (study.path / "study.json").write_text(json.dumps(plan))
    asked = client(study.path)
    for page in ("/", "/ranking"):
        assert english in unescape(asked.get(f"{page}?lang=en").text)
        assert chinese in unescape(asked.get(f"{page}?lang=zh").text)


def test_a_card_says_what_was_trained_and_for_how_long(tmp_path, client):
    study = made_study.half_done(tmp_path / "study")
    card = client(study.path).get("/").text.partition('data-live="card-0"')[2].partition("</li>")[0]
    # 40 and 20 steps of 4 sequences of 16 tokens, of three runs with 40 steps
    assert 'Tokens</dt><dd>3.84 k<span class="soft"> / 7.68 k' in card
    assert re.search(r"Training time</dt><dd>\d+ s<", card)


def test_a_card_holds_all_that_is_known_of_a_model(tmp_path, client):
    study = made_study.half_done(tmp_path / "study")
    (study.path / "data").mkdir()
    (study.path / "data" / "dataset.json").write_text(json.dumps({"train": {"tokens": 1024}}))
    with study.runs()[4].claim() as events:
        events.write("start", step=0, resumed_from=0, replays=0)
        made_study.train(study.runs()[4], events, 0, 10)
        html = client(study.path).get("/").text
    card = html.partition('data-live="card-1"')[2].partition("</li>")[0]
    said = " ".join(re.sub(r"<[^>]+>", " ", card).split())
    for word in ("Running", "Accuracy", "Loss", "Perplexity", "Tokens", "Training time", "Seeds", "Time left"):
        assert word.lower() in said.lower(), word
    made_study.finished(tmp_path / "finished")
    assert "± " in client(tmp_path / "finished").get("/").text


def test_every_page_that_is_served_is_among_the_tested_addresses(tmp_path):
    app = application(made_study.finished(tmp_path / "study").path)
    served = {route.path for route in app.routes if not route.path.startswith("/static/")} - {
        "/events",
        "/curves.json",
        "/curves.csv",
        "/curves.svg",
        "/curves.png",
        "/notes",
    }
    assert served == {
        address.partition("?")[0] for address in (*made_study.addresses("base"), *made_study.OF_CHECKPOINTS)
    }
    assert all(path in (web_app.__doc__ or "").split() for path in served), "the module's docstring names every page"


def test_the_overview_opens_with_the_question_and_its_answer(tmp_path, client):
    made_study.finished(tmp_path / "study")
    text = client(tmp_path / "study").get("/").text
    said = unescape(re.sub(r"<[^>]+>", "", text.partition('<section class="answer"')[2].partition("</section>")[0]))
    assert "Made by hand." in said
    assert "v2m1 is better than base by" in said
    assert text.index('data-live="answer"') < text.index('data-live="totals"') < text.index('data-live="ladder"')
    assert text.index('data-live="ladder"') < text.index('data-live="card-1"') < text.index('data-live="card-0"'), (
        "best first"
    )
    assert "residual cumulative" in text, "the variant in a line"
    made_study.failed(tmp_path / "failed")
    card = client(tmp_path / "failed").get("/").text.partition('data-live="card-2"')[2].partition("</li>")[0]
    assert "the loss became nan at step 8" in card


def test_totals_shrink_when_nothing_is_left_to_do(tmp_path, client):
    made_study.finished(tmp_path / "study")
    text = client(tmp_path / "study").get("/").text
    assert 'class="counts"' not in text
    assert 'class="progress"' not in text
    assert "23 k tokens trained" in text  # 9 runs, 40 steps, 64 tokens
