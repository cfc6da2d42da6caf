"""What a script adds to pages of many models, and to charts whose points lie outside a zoom."""

import made_study
from addnorm.store import Index

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
