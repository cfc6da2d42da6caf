"""What a script adds to pages of many models, and to charts whose points lie outside a zoom."""

import re

import pytest

import made_study
from addnorm.store import Index
from addnorm.store.notes import add_note, notes

ROWS = "[...document.querySelectorAll('.models tr[data-text]')].filter((row) => !row.hidden).length"
INK = """(() => {
  const canvas = document.querySelector('.plot canvas'), at = canvas.getContext('2d');
  const { data } = at.getImageData(canvas.width / 2, 0, 1, canvas.height);
  const colours = new Set();
  for (let k = 0; k < data.length; k += 4) if (data[k + 3] > 200) colours.add([data[k], data[k + 1], data[k + 2]].join());
  return colours.size;
})()"""
"""Number of opaque colours in the middle column of the first chart."""


def test_what_one_types_hides_the_other_rows_at_once(tmp_path, window):
    models = {
        f"depth={d},width={w}": {**made_study.model_spec(), "depth": d, "width": w}
        for d in range(2, 6)
        for w in range(5)
    }
    made_study.make(tmp_path / "study", models=models, seeds=(0,), references=("depth=2,width=0",))
    seen = window(tmp_path / "study").go("/")
    search = seen.tab.locator("[data-search]")
    for typed, rows in (("depth=3", 5), ("width=4 depth=3", 1), ("nothing", 0), ("", 20)):
        search.fill(typed)
        seen.wait(f"{ROWS} === {rows}")
        assert seen.tab.locator("[data-count]").inner_text() == str(rows)
    seen.tab.locator("select[name=group]").select_option("model.depth")
    seen.tab.wait_for_selector("tr.group")
    assert seen.tab.locator("tr.group").count() == 4
    seen.tab.go_back()
    seen.tab.wait_for_selector("tr.group", state="detached")
    seen.go("/curves")
    seen.tab.locator("[data-search]").fill("depth=5")
    seen.tab.get_by_role("button", name="None", exact=True).click()
    seen.tab.get_by_role("button", name="All", exact=True).first.click()
    chosen = "[...document.querySelectorAll('[name=variant]:checked')].map((one) => one.value)"
    assert set(seen.tab.evaluate(chosen)) >= {f"depth=5,width={w}" for w in range(5)}


def test_a_zoom_between_two_points_keeps_the_lines(tmp_path, window):
    """Held-out loss is known at steps 10, 20, 30 and 40 alone."""
    study = made_study.finished(tmp_path / "study")
    Index(study.path).sync()
    seen = window(study.path).go("/curves?metric=eval.loss&first=22&last=28")
    seen.wait("document.querySelector('.plot').dataset.first === '22'")
    seen.wait(f"{INK} >= 3", seconds=5)
    saved = seen.tab.locator("[data-file=csv]").get_attribute("href")
    assert "first=22" in saved
    assert "metric=eval.loss" in saved


def test_chosen_models_are_hidden_and_back_shows_them(tmp_path, window):
    models = {f"width={w}": {**made_study.model_spec(), "width": w} for w in range(20)}
    study = made_study.make(tmp_path / "study", models=models, seeds=(0,), references=("width=0",))
    seen = window(study.path).go("/")
    for place in (3, 4, 17):
        seen.tab.locator(f"input[name=pick][value='{place}']").check()
    with study.runs()[3].claim() as events:  # a row that is sent anew keeps its tick
        made_study.train(study.runs()[3], events, 0, 10)
        seen.wait("document.querySelector('[data-live=card-3]').innerText.includes('640')")
    seen.tab.get_by_role("button", name="Hide chosen").click()
    seen.tab.wait_for_url("**/?hide=3-4.17")
    seen.wait(f"{ROWS} === 17")
    seen.tab.go_back()
    seen.wait(f"{ROWS} === 20")
    seen.go("/?hide=3")
    seen.tab.locator("[data-search]").fill("width=1")
    seen.tab.get_by_role("button", name="Choose all").click()
    seen.tab.get_by_role("button", name="Only chosen").click()
    seen.wait("document.querySelectorAll('.models tr[data-text]').length === 11")
    seen.tab.get_by_role("link", name="Show the 9 hidden").click()
    seen.wait("document.querySelectorAll('.models tr[data-text]').length === 11")
    assert "hide" not in seen.tab.url, "the words that were searched for stay"
    assert "query=width%3D1" in seen.tab.url


def test_charts_share_a_zoom_that_back_undoes_and_say_values_at_the_cursor(tmp_path, window):
    study = made_study.finished(tmp_path / "study")
    seen = window(study.path, viewport={"width": 1280, "height": 1800}).go("/curves?metric=train.loss&metric=eval.loss")
    both = "[...document.querySelectorAll('.plot')].map((one) => `${one.dataset.first}-${one.dataset.last}`).join()"
    seen.wait(f"{both} === '0-40,0-40'")
    place = seen.tab.locator(".u-over").nth(1).bounding_box()
    middle = place["y"] + place["height"] / 2
    seen.tab.mouse.move(place["x"] + place["width"] * 0.5, middle)
    seen.wait("[...document.querySelectorAll('.tip')].every((tip) => !tip.hidden)")  # one cursor for both
    _, *rows = seen.tab.locator(".tip").nth(1).inner_text().splitlines()
    lines = seen.tab.request.get(f"{seen.url}/curves.json?metric=eval.loss").json()["series"]
    at_twenty = {line["label"]: line["values"][line["steps"].index(20)] for line in lines}
    assert {row.split()[0]: float(row.split()[1]) for row in rows} == pytest.approx(at_twenty, rel=1e-4)
    seen.tab.mouse.down()
    seen.tab.mouse.move(place["x"] + place["width"] * 0.95, middle, steps=4)
    seen.tab.mouse.up()
    seen.wait(f"/^(19|20|21)-(37|38|39),\\1-\\2$/.test({both})")
    drawn = "document.querySelectorAll('.legend li').length"
    assert seen.tab.evaluate(drawn) == 3
    seen.wait(f"{INK} >= 3", seconds=5)
    assert "first=" in seen.tab.evaluate("location.search")
    seen.tab.go_back()
    seen.wait(f"{both} === '0-40,0-40'")


def test_a_note_that_is_being_written_survives_the_news(tmp_path, window):
    study = made_study.make(tmp_path / "study")
    seen = window(study.path).go("/")
    seen.tab.locator(".notes summary").click()
    seen.tab.locator("textarea").fill("half a thou")
    seen.tab.evaluate("document.querySelector('textarea').setSelectionRange(4, 4)")
    add_note(study.path, "from elsewhere")
    seen.wait("document.querySelector('.notes').innerText.includes('from elsewhere')")
    assert seen.tab.locator("textarea").input_value() == "half a thou"
    assert seen.tab.evaluate("[document.activeElement.tagName, document.activeElement.selectionStart]") == [
        "TEXTAREA",
        4,
    ]
    seen.tab.locator("textarea").fill("a whole thought")
    seen.tab.get_by_role("button", name="Add").first.click()
    seen.wait("location.hash === '#notes' && document.querySelectorAll('.one-note').length === 2")
    assert [note.text for note in notes(study.path).notes] == ["a whole thought", "from elsewhere"]


def test_the_list_of_studies_moves_without_a_reload(tmp_path, window):
    study = made_study.make(tmp_path / "runs" / "one")
    made_study.finished(tmp_path / "runs" / "two")
    seen = window(tmp_path / "runs").go("/?lang=en")
    seen.wait("document.querySelectorAll('.study-row .facts').length === 2")
    seen.loads = 0
    made_study.finish(study.runs()[0])
    said = "document.querySelector('.studies').innerText.replace(/\\s+/g, ' ')"
    seen.wait(f"{said}.includes('1 finished 8 queued 11.1 % of all steps done')")
    assert seen.loads == 0
    for box in seen.tab.locator("[name=study]").all():
        box.check()
    seen.tab.get_by_role("button", name="Compare the two chosen").click()
    seen.tab.wait_for_selector(".sides")
    seen.go("/study/one/log?run=base0-s0&lang=en")
    seen.tab.wait_for_selector("text=The worker has written nothing.")


def test_the_caption_says_what_a_point_is_at_every_zoom(tmp_path, window, monkeypatch):
    monkeypatch.setattr("addnorm.reporting.sections.curves.reading.PARTS", 20)
    study = made_study.finished(tmp_path / "study")
    seen = window(study.path).go("/curves?lang=en")
    said = "document.querySelector('#curves-note').innerText"
    seen.wait(f"{said}.includes('Mean over the seeds that have reached each step')")
    seen.wait(f"{said}.includes('Each point is the mean of up to 3 steps')")
    seen.tab.get_by_role("button", name="Zoom in").click()
    seen.wait(f"{said}.includes('Each point is the mean of up to 2 steps')")
    seen.tab.get_by_role("button", name="Zoom in").click()
    seen.wait(f"!{said}.includes('Each point')")


def test_no_zoom_is_offered_or_lost_before_the_curves_are_known(tmp_path, window):
    seen = window(made_study.finished(tmp_path / "study").path)
    held = []
    asked = re.compile(r"/curves\.json")
    seen.tab.route(asked, lambda route: held.append(route))
    with seen.tab.expect_request(asked):
        seen.go("/curves?lang=en")
    tools = seen.tab.get_by_role("button", name="Zoom in")
    assert not tools.is_visible()
    seen.tab.locator(".plot").first.press("+")
    assert "last=" not in seen.tab.url
    held.pop().continue_()
    tools.click()
    seen.wait("location.search.includes('last=30')")


@pytest.mark.parametrize(("width", "least"), [(1440, 0.85), (390, 0.9)])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_tables_and_charts_use_the_screen(tmp_path, window, width, least, language):
    made_study.finished(tmp_path / "study")
    seen = window(tmp_path / "study", viewport={"width": width, "height": 900})
    for page, selector in (("/ranking", ".verdicts"), ("/curves", ".plot"), ("/", ".cards")):
        seen.go(f"{page}?lang={language}")
        shown = seen.tab.locator(selector).first.bounding_box()
        assert shown["width"] >= least * width, page
        assert seen.tab.evaluate("document.documentElement.scrollWidth") <= width, page
