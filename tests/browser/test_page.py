"""What only a browser can show: live changes, zoom, keys, language, widths, and that the page keeps to itself."""

import itertools
from pathlib import Path

import pytest

import made_files
import made_study
from addnorm.reporting.reader import Reader
from addnorm.reporting.report import write_report
from addnorm.store import write_json
from sampled import sampled

HERE = Path(__file__).parent
ADDRESSES = made_study.addresses("v4m5", "base")


def test_a_running_study_moves_without_a_reload(tmp_path, window):
    study = made_study.make(tmp_path / "study")
    run = study.runs()[0]
    seen = window(study.path).go("/")
    card = seen.tab.locator('[data-live="card-0"]')
    assert "queued" in card.inner_text()
    with run.claim() as events:
        events.write("start", step=0, resumed_from=0, replays=0)
        made_study.train(run, events, 0, 10)
        seen.wait("document.querySelector('[data-live=card-0]').innerText.includes('640 / 7.68 k')")
        seen.wait("document.querySelector('[data-live=totals]').innerText.includes('Running\\n1')")
        made_study.train(run, events, 10, 20)
        seen.wait("document.querySelector('[data-live=card-0]').innerText.includes('1.28 k / 7.68 k')")
    seen.wait("document.querySelector('[data-live=card-0]').innerText.includes('interrupted')")
    newest = run.last_event()["time"]
    assert seen.tab.locator("[data-live=totals] time").get_attribute("data-since") == f"{newest:.3f}"
    assert seen.loads == 1


def test_curves_grow_while_a_run_works(tmp_path, window):
    study = made_study.make(tmp_path / "study")
    run = study.runs()[0]
    with run.claim() as events:
        events.write("start", step=0, resumed_from=0, replays=0)
        made_study.train(run, events, 0, 10)
        seen = window(study.path).go("/curves")
        seen.wait("document.querySelector('.plot').dataset.newest === '10'")
        made_study.train(run, events, 10, 30)
        seen.wait("document.querySelector('.plot').dataset.newest === '30'")
    assert seen.loads == 1


def test_what_a_command_measured_appears_without_a_reload(tmp_path, window):
    study = made_study.finished(tmp_path / "study")
    seen = window(study.path).go("/lengths")
    assert seen.tab.locator("[data-live=lengths] svg[role=img]").count() == 0
    write_json(study.path / "extrapolation.json", made_files.evaluation())
    seen.wait("document.querySelectorAll('[data-live=lengths] svg[role=img]').length === 2")
    assert seen.loads == 1


@pytest.mark.parametrize("broken", ["fetch", "json"])
def test_leaving_the_page_while_curves_arrive_is_no_error(tmp_path, window, broken):
    """A page that is left rejects the request, or the reading of its body if the headers have come already."""
    made_study.finished(tmp_path / "study")
    seen = window(tmp_path / "study")
    owner = {"fetch": "window", "json": "Response.prototype"}[broken]
    rejected = "() => { document.title = 'left'; return Promise.reject(new TypeError('Failed to fetch')); }"
    seen.tab.add_init_script(f"{owner}.{broken} = {rejected}")
    seen.go("/curves")
    seen.wait("document.title === 'left'")
    seen.tab.wait_for_timeout(100)
    seen.assert_well()


def test_the_table_behind_the_curves_follows_zoom_and_events(tmp_path, window):
    study = made_study.make(tmp_path / "study")
    run = study.runs()[0]
    last = "document.querySelector('#curves-table thead th:last-child').textContent"
    seen = window(study.path).go("/curves")
    seen.wait("document.querySelector('#curves-table').hidden")
    with run.claim() as events:
        events.write("start", step=0, resumed_from=0, replays=0)
        made_study.train(run, events, 0, 10)
        seen.wait(f"!document.querySelector('#curves-table').hidden && {last} === '10'")
        made_study.train(run, events, 10, 30)
        seen.wait(f"{last} === '30'")
    seen.tab.get_by_role("button", name="Zoom in").click()
    first = "document.querySelector('#curves-table thead th:nth-child(2)').textContent"
    seen.wait(f"{first} === '10' && {last} === '30'")
    rows = seen.tab.locator("#curves-table tbody tr")
    assert rows.count() == 1
    assert rows.locator("th").text_content() == "base"
    assert seen.loads == 1


def test_what_a_reader_opened_stays_open_when_the_section_changes(tmp_path, window):
    study = made_study.half_done(tmp_path / "study")
    seen = window(study.path).go("/ranking")
    summary = seen.tab.locator("[data-live=ladder] summary")
    summary.focus()
    seen.tab.keyboard.press("Enter")
    seen.tab.evaluate("document.querySelector('[data-live=ladder]').dataset.old = 'yes'")
    for run in study.runs()[3:6]:
        made_study.finish(run)
    seen.wait("!document.querySelector('[data-live=ladder]').dataset.old")
    assert seen.tab.evaluate("document.querySelector('[data-live=ladder] details').open") is True
    assert seen.tab.evaluate("document.activeElement.tagName") == "SUMMARY"


def test_the_language_is_switched_and_stays(tmp_path, window):
    made_study.finished(tmp_path / "study")
    seen = window(tmp_path / "study").go("/")
    seen.tab.get_by_role("link", name="中文").click()
    seen.tab.wait_for_selector("text=问题与回答")
    assert seen.tab.evaluate("document.documentElement.lang") == "zh-Hans"
    seen.tab.get_by_role("link", name="排名", exact=True).click()
    seen.tab.wait_for_selector("text=分级图")
    seen.tab.get_by_role("link", name="English").click()
    seen.tab.wait_for_selector("text=Tier ladder")


def test_a_chinese_browser_is_spoken_to_in_chinese(tmp_path, window):
    made_study.finished(tmp_path / "study")
    seen = window(tmp_path / "study", locale="zh-CN").go("/")
    assert "问题与回答" in seen.tab.locator("main").inner_text()


def shown_range(tab) -> tuple[int, int]:
    first, last = tab.evaluate(
        "[document.querySelector('.plot').dataset.first, document.querySelector('.plot').dataset.last]"
    )
    return int(first), int(last)


def wait_for_range(seen, condition: str) -> None:
    place = "const p = document.querySelector('.plot').dataset, f = +p.first, l = +p.last"
    seen.wait(f"(() => {{ {place}; return {condition}; }})()")


def test_the_chart_zooms_by_mouse_keys_and_buttons(tmp_path, window):
    made_study.finished(tmp_path / "study")
    seen = window(tmp_path / "study").go("/curves")
    tab = seen.tab
    wait_for_range(seen, "f === 0 && l === 40")
    over = tab.locator(".u-over").first.bounding_box()
    tab.mouse.move(over["x"] + over["width"] * 0.25, over["y"] + 100)
    tab.mouse.down()
    tab.mouse.move(over["x"] + over["width"] * 0.75, over["y"] + 110, steps=4)
    tab.mouse.up()
    wait_for_range(seen, "f >= 9 && f <= 11 && l >= 29 && l <= 31")
    tab.locator(".u-over").first.dblclick()
    wait_for_range(seen, "f === 0 && l === 40")
    tab.locator(".plot").first.focus()
    tab.keyboard.press("+")
    wait_for_range(seen, "f === 10 && l === 30")
    tab.keyboard.press("ArrowRight")
    wait_for_range(seen, "f === 15 && l === 35")
    tab.keyboard.press("0")
    wait_for_range(seen, "f === 0 && l === 40")
    tab.get_by_role("button", name="Zoom in").click()
    wait_for_range(seen, "f === 10 && l === 30")
    assert shown_range(tab) == (10, 30)


def test_models_scale_and_seeds_are_chosen_without_a_reload(tmp_path, window):
    made_study.finished(tmp_path / "study")
    seen = window(tmp_path / "study").go("/curves")
    legend = "[...document.querySelectorAll('[data-legend] li')].map((row) => row.textContent)"
    seen.wait(f"({legend}).join() === 'base,v2m1,v4m5'")
    seen.tab.get_by_role("checkbox", name="v2m1").uncheck()
    seen.wait(f"({legend}).join() === 'base,v4m5'")
    seen.tab.get_by_role("radio", name="every seed").check()
    seen.wait(f"({legend}).length === 6")
    seen.tab.get_by_role("radio", name="logarithmic").check()
    seen.wait("location.search.includes('log=log')")
    assert seen.loads == 1
    # What was chosen stands in the address, so a reload shows the same, and Back undoes the last choice.
    seen.tab.reload()
    seen.wait(f"({legend}).length === 6")
    seen.tab.go_back()
    seen.wait("document.querySelector('[name=log][value=linear]').checked")
    seen.wait(f"({legend}).length === 6")


def test_the_legend_of_a_models_own_page_names_that_model(tmp_path, window):
    """There the model is no choice: its input has no label, only the form around it."""
    seen = window(made_study.finished(tmp_path / "study").path).go("/model?variant=v4m5")
    legend = "[...document.querySelectorAll('[data-legend] li')].map((one) => one.innerText.trim()).join()"
    seen.wait(f"{legend} !== ''")
    assert seen.tab.evaluate(legend) == "v4m5"
    seen.tab.get_by_label("every seed").check()
    seen.wait(f"{legend} === 'v4m5 · 0,v4m5 · 1,v4m5 · 2'")


def test_without_script_the_page_says_as_much(tmp_path, window):
    made_study.finished(tmp_path / "study")
    made = window(tmp_path / "study", java_script_enabled=False)
    made.tab.goto(f"{made.url}/curves")
    assert made.tab.locator("svg.chart").first.locator("polyline").count() == 3
    made.tab.get_by_role("checkbox", name="v2m1").uncheck()
    made.tab.get_by_role("radio", name="every seed").check()
    made.tab.get_by_role("button", name="Draw").click()
    assert made.tab.locator("svg.chart").first.locator("polyline").count() == 6
    made.tab.goto(f"{made.url}/")
    assert "as of page load" in made.tab.locator("header").inner_text()


@pytest.mark.parametrize("path", sampled(5, (*made_study.addresses("base"), *made_study.OF_CHECKPOINTS)))
def test_everything_can_be_reached_by_the_tab_key(tmp_path, window, path):
    made_files.everything(tmp_path / "study")
    made_files.checkpoint(tmp_path / "study", "mine")
    seen = window(tmp_path / "study").go(path)
    stop = (HERE / "stop.js").read_text(encoding="utf-8")
    seen.tab.wait_for_timeout(300)
    order = []
    while len(order) < 80:
        seen.tab.keyboard.press("Tab")
        here = seen.tab.evaluate(stop)
        if here is None:
            break
        order.append(here)
    assert order[0]["name"] == "Skip to the content"
    assert [at["name"] for at in order if not at["seen"]] == [], "the focus must be seen wherever it is"
    # Beside each other in one line is in order too.
    tops = seen.tab.evaluate("stops.map((element) => element.getBoundingClientRect().top + scrollY)")
    assert len(tops) == len(order)
    assert all(later > earlier - 60 for earlier, later in itertools.pairwise(tops[1:]))
    reachable = seen.tab.evaluate("document.querySelectorAll('a[href], button, input, select, summary').length")
    radios_not_chosen = seen.tab.evaluate("document.querySelectorAll('input[type=radio]:not(:checked)').length")
    hidden = seen.tab.evaluate(
        "document.querySelectorAll("
        "'details:not([open]) :is(a, input:not([type=hidden])), form button, input[type=hidden]').length"
    )
    assert len(order) >= reachable - radios_not_chosen - hidden


@pytest.mark.parametrize(
    ("width", "scheme", "language"), sampled(3, [(375, "light", "en"), (375, "dark", "zh"), (1280, "dark", "en")])
)
def test_no_page_scrolls_sideways(tmp_path, window, width, scheme, language):
    names = {f"a-model-with-a-very-long-name-{place}-that-goes-on": made_study.model_spec() for place in range(9)}
    study = made_study.make(
        tmp_path / "study", models={**made_study.MODELS, **names}, references=("base", *list(names)[:2]), steps=20
    )
    for run in study.runs():
        if run.spec["variant"] == "v2m1":
            made_study.fail(run, reason="a reason " * 30, log=["a long line of a log " * 10])
        else:
            made_study.finish(run)
    made_files.measure(study)
    seen = window(study.path, viewport={"width": width, "height": 780}, color_scheme=scheme)
    for path in ADDRESSES:
        seen.go(f"{path}{'&' if '?' in path else '?'}lang={language}")
        seen.tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        if "curves" in path or "model" in path:
            seen.wait("document.querySelector('.uplot')")
        assert seen.tab.evaluate("document.documentElement.scrollWidth") <= width, path


@pytest.mark.parametrize(("motion", "name"), [("reduce", "none"), ("no-preference", "fresh")])
def test_with_reduced_motion_nothing_moves(tmp_path, window, motion, name):
    study = made_study.make(tmp_path / "study")
    seen = window(study.path, reduced_motion=motion).go("/")
    made_study.finish(study.runs()[0])
    seen.tab.wait_for_selector("[data-live=card-0].fresh")
    assert seen.tab.evaluate("getComputedStyle(document.querySelector('[data-live=card-0]')).animationName") == name


def test_with_reduced_motion_no_page_has_anything_that_could_move(tmp_path, window):
    made_files.everything(tmp_path / "study")
    made_files.checkpoint(tmp_path / "study", "mine")
    seen = window(tmp_path / "study", reduced_motion="reduce")
    moving = """[...document.querySelectorAll("*")].filter((e) => {
        const style = getComputedStyle(e);
        return style.animationName !== "none" || style.transitionDuration.split(", ").some((time) => time !== "0s");
    }).map((e) => e.outerHTML.slice(0, 100))"""
    for path in (*made_study.addresses("base"), *made_study.OF_CHECKPOINTS):
        seen.go(path)
        if path == "/lengths":  # the section is put in anew, as when a command measured again
            changed = made_files.evaluation() | {"warnings": [], "notes": []}
            assert seen.tab.locator("[data-live=lengths] .warnings").count() == 1
            write_json(tmp_path / "study" / "extrapolation.json", changed)
            seen.wait("document.querySelectorAll('[data-live=lengths] .warnings').length === 0")
        assert seen.tab.evaluate(moving) == [], path
        assert seen.tab.evaluate("document.getAnimations().length") == 0, path


@pytest.mark.parametrize("language", sampled(2, ["en", "zh"]))
def test_on_a_phone_no_text_of_a_chart_is_cut_off(tmp_path, window, language):
    """A tick that loses its minus says something else. −0.0025 is as wide as ticks become."""
    made_files.everything(tmp_path / "study")
    seen = window(tmp_path / "study", viewport={"width": 375, "height": 780})
    cut = """[...document.querySelectorAll("main svg text")].filter((e) => {
        const at = e.getBoundingClientRect(), whole = e.ownerSVGElement.closest("section").getBoundingClientRect();
        return at.width > 0 && (at.left < whole.left - 1 || at.right > whole.right + 1);
    }).map((e) => e.outerHTML)"""
    for path in ("/scalars", "/lengths", "/model?variant=v4m5", "/model?variant=base"):
        seen.go(f"{path}{'&' if '?' in path else '?'}lang={language}")
        ticks = "main svg text[text-anchor=end]:not(.layer)"  # the rows of a map are named, not numbered
        assert seen.tab.locator(ticks).count() > 0
        seen.tab.evaluate(f"for (const e of document.querySelectorAll('{ticks}')) e.textContent = '−0.0025'")
        assert seen.tab.evaluate(cut) == [], path


@pytest.mark.parametrize("scheme", sampled(2, ["dark", "light"]))
def test_every_text_stands_out_from_what_is_behind_it(tmp_path, window, scheme):
    made_files.measure(made_study.failed(tmp_path / "study"))
    seen = window(tmp_path / "study", color_scheme=scheme)
    for path in ADDRESSES:
        seen.go(path)
        ratio, where = seen.tab.evaluate((HERE / "contrast.js").read_text(encoding="utf-8"))
        assert ratio >= 4.5, f"{path}: {where}"


A4_PX = 718
"""Width of A4 between chromium's own margins, in CSS pixels."""


@pytest.mark.parametrize("language", sampled(2, ["en", "zh"]))
def test_a_report_prints_in_black_and_within_the_page(tmp_path, chromium, language, monkeypatch):
    """In a dark browser too, with long names, four references, a log without a space, and pictures wider than paper."""
    wide = b'<svg xmlns="http://www.w3.org/2000/svg" width="3000" height="100" viewBox="0 0 3000 100"/>'
    monkeypatch.setattr("addnorm.reporting.figures.saved", lambda figure, kind: wide)
    models = {f"a-model-with-quite-a-long-name-{n}": made_study.model_spec() for n in range(6)}
    study = made_study.make(tmp_path / "study", models=models, references=list(models)[:4])
    for run in study.runs()[:-1]:
        made_study.finish(run, attempts=2)
    made_study.fail(study.runs()[-1], log=("x" * 400,))
    html = write_report(Reader(study.path).look(), tmp_path / "r.html", language).html
    context = chromium.new_context(viewport={"width": A4_PX, "height": 1000}, color_scheme="dark")
    tab = context.new_page()
    tab.goto(html.as_uri())
    assert tab.evaluate("getComputedStyle(document.body).color") != "rgb(25, 27, 29)", "dark on a screen"
    tab.emulate_media(media="print")
    assert tab.evaluate("getComputedStyle(document.body).color") == "rgb(25, 27, 29)"
    cut = """[...document.querySelectorAll("td, th, dd, pre, p, figure, svg text, code")]
        .filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 1)
        .map((e) => e.outerHTML.slice(0, 200))"""
    assert tab.evaluate(cut) == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= A4_PX
    scrolling = """[...document.querySelectorAll("*")]
        .filter((e) => e.checkVisibility() && /auto|scroll/.test(getComputedStyle(e).overflow))
        .map((e) => e.className)"""
    assert tab.evaluate(scrolling) == []
    context.close()


OVERLAPS = """[...document.querySelectorAll('.spark')].flatMap((spark) => {
  const line = spark.getBoundingClientRect();
  return [...spark.closest('.card').querySelectorAll('h3, .state-line, dt, dd')].filter((text) => {
    const range = document.createRange();
    range.selectNodeContents(text);
    return [...range.getClientRects()].some((box) => box.width > 0 && box.right > line.left && box.left < line.right
      && box.bottom > line.top && box.top < line.bottom);
  }).map((text) => text.textContent);
})"""


@pytest.mark.parametrize(("width", "language"), sampled(2, [(1280, "en"), (1280, "zh"), (400, "zh"), (400, "en")]))
def test_no_text_of_a_card_lies_under_its_line(tmp_path, window, width, language):
    made_study.failed(tmp_path / "study")
    seen = window(tmp_path / "study", viewport={"width": width, "height": 900}).go(f"/?lang={language}")
    assert seen.tab.locator(".spark").count() == 3
    assert seen.tab.evaluate(OVERLAPS) == []


STRETCHED = """[...document.querySelectorAll('.wide table:not(.verdicts)')].filter((table) => {
  const shown = table.getBoundingClientRect().width;
  table.style.width = 'max-content';
  const needed = table.getBoundingClientRect().width;
  table.style.width = '';
  return shown > needed + 1;
}).length"""


def test_a_table_is_as_wide_as_its_columns(tmp_path, window):
    """Other than one of verdicts, whose intervals have the rest of the page: see test_lists_and_zoom.py."""
    made_study.finished(tmp_path / "study")
    seen = window(tmp_path / "study").go("/ranking")
    assert seen.tab.locator(".wide table").count() == 4
    assert seen.tab.evaluate(STRETCHED) == 0


def test_a_table_of_learned_scalars_fits_beside_another(tmp_path, window):
    made_files.everything(tmp_path / "study")
    seen = window(tmp_path / "study").go("/scalars")
    seen.tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert seen.tab.locator(".family .wide").count() > 0
    cut = (
        "[...document.querySelectorAll('.family .wide')].filter((one) => one.scrollWidth > one.clientWidth + 1).length"
    )
    assert seen.tab.evaluate(cut) == 0
