"""axe-core finds nothing wrong with any page, in both languages, light and dark, wide and narrow.

Every rule of axe counts, its best practices included.
"""

import json
from pathlib import Path
from typing import Any

import pytest

import made_files
import made_study
from addnorm.store import write_json
from addnorm.store.notes import add_note, add_tag

ARE_MANY = 14
LOOKS = [(language, scheme) for language in ("en", "zh") for scheme in ("light", "dark")]
STUDY = made_study.addresses("v4m5", "base")
CURVES = "/curves?metric=train.loss&metric=eval.loss&versus=base&mode=seeds&smooth=0.9&x=tokens"
HOME = (
    "/",
    "/?query=nothing",
    "/compare?study=all&study=failed",
    "/compare?study=all&study=half",
    "/compare?study=all",
)


def everything(folder: Path) -> None:
    """A study with all that a page can show, its notes and its log."""
    made_files.everything(folder)
    add_note(folder, "A note.\nOf two lines.")
    add_tag(folder, "baseline")
    add_note(folder, "Of one model.", variant="base")
    (folder / "base0-s0" / "log.txt").write_text("step 1\n" * 10_000, encoding="utf-8")


def many(folder: Path) -> None:
    """A study whose models are rows."""
    models = {f"width={w},depth={w % 3}": {**made_study.model_spec(), "width": w} for w in range(ARE_MANY)}
    study = made_study.make(folder, models=models, references=["width=0,depth=0"], seeds=(0, 1))
    for run in study.runs()[:-1]:
        made_study.finish(run)


STUDIES = {
    "all": everything,
    "empty": made_study.make,
    "half": made_study.half_done,
    "failed": lambda folder: made_files.measure(made_study.failed(folder)),
    "many": many,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of every kind of study."""
    folder = tmp_path_factory.mktemp("axe") / "runs"
    for name, make in STUDIES.items():
        make(folder / name)
    (folder / "damaged").mkdir()
    write_json(folder / "damaged" / "study.json", {})
    return folder


def pages_of(study: str) -> list[str]:
    """Addresses of a study's pages under the page of all studies."""
    if study == "home":
        return list(HOME)
    own = [path for path in STUDY if study != "many" or not path.startswith(("/model", "/log"))]
    lists = ["/?hide=1-2&group=model.depth", "/ranking?query=depth"] if study == "many" else [CURVES]
    return [f"/study/{study}{path}" for path in (*own, *lists)]


def findings(seen: Any, path: str, look: tuple[str, str]) -> list[str]:
    """What axe finds wrong with a page."""
    from axe_playwright_python.sync_playwright import Axe

    language, _ = look
    seen.go(f"{path}{'&' if '?' in path else '?'}lang={language}")
    if "/curves" in path or "/model" in path:
        seen.tab.wait_for_timeout(200)  # the charts are drawn
    seen.tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    found = Axe().run(seen.tab).response["violations"]
    return [f"{path} {each['id']}: {json.dumps([node['html'][:200] for node in each['nodes'][:3]])}" for each in found]


CASES = [(study, look, width) for study in (*STUDIES, "home") for look in LOOKS for width in (1280, 375)]


@pytest.mark.thorough
@pytest.mark.parametrize(("study", "look", "width"), CASES)
def test_axe_finds_nothing_on_any_page(runs, window, study, look, width):
    seen = window(runs, color_scheme=look[1], viewport={"width": width, "height": 900})
    assert [each for path in pages_of(study) for each in findings(seen, path, look)] == []


@pytest.mark.parametrize(
    ("path", "look", "width"),
    [
        ("/compare?study=all&study=half", ("zh", "dark"), 375),
        ("/study/all/", ("en", "light"), 1280),
        ("/study/all/log?run=base0-s0", ("zh", "light"), 1280),
        ("/study/many/ranking", ("en", "dark"), 375),
    ],
)
def test_axe_finds_nothing_on_some_pages(runs, window, path, look, width):
    seen = window(runs, color_scheme=look[1], viewport={"width": width, "height": 900})
    assert findings(seen, path, look) == []


def test_axe_finds_what_is_wrong(runs, window):
    """The check itself: a picture without a text, and a text that cannot be read."""
    seen = window(runs, java_script_enabled=True)
    seen.go("/?lang=en")
    seen.tab.evaluate(
        "document.querySelector('main').insertAdjacentHTML('beforeend', '<img><p id=faint>faint</p>');"
        "document.querySelector('#faint').style.color = '#ddd'"
    )
    from axe_playwright_python.sync_playwright import Axe

    assert {"image-alt", "color-contrast"} <= {each["id"] for each in Axe().run(seen.tab).response["violations"]}
