"""A site of files in a browser: opened from the disk and below another address, every page of it, in both languages."""

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import made_files
from addnorm.reporting.site import write_site


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("site")
    made_files.everything(root / "study")
    write_site(root / "study", root / "space" / "below" / "study")
    return root / "space"


@pytest.fixture(params=["file", "sub-path"])
def start(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """Address of the site's folder."""
    if request.param == "file":
        yield (folder / "below" / "study").as_uri()
        return
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/below/study"
    server.shutdown()
    server.server_close()


def test_every_page_is_reached_and_styled_without_a_fault(chromium: Any, start: str, folder: Path) -> None:
    context = chromium.new_context(viewport={"width": 390, "height": 800}, java_script_enabled=False)
    tab, troubles = context.new_page(), list[str]()
    tab.on("console", lambda said: troubles.append(said.text))
    tab.on("requestfailed", lambda failed: troubles.append(failed.url))
    waiting, seen = [f"{start}/index.html"], set[str]()
    while waiting:
        address = waiting.pop()
        if address in seen:
            continue
        seen.add(address)
        tab.goto(address)
        links = tab.locator("a[href]")
        hrefs = [tab.locator("a[href]").nth(place).get_attribute("href") for place in range(links.count())]
        for href in hrefs:
            if href and not href.startswith(("#", "http")):
                directory = address.rpartition("/")[0]
                while href.startswith("../"):
                    href, directory = href[3:], directory.rpartition("/")[0]
                waiting.append(f"{directory}/{href.partition('#')[0]}")
    assert {address.removeprefix(start) for address in seen} == {
        f"/{path.relative_to(folder / 'below' / 'study').as_posix()}" for path in folder.rglob("*.html")
    }
    assert troubles == []
    tab.goto(f"{start}/zh/index.html")
    # Of the style sheet: without it, a page has the browser's margin.
    margin = tab.locator("body").bounding_box()
    assert margin is not None
    assert margin["x"] == 0
    assert tab.locator("main h1").inner_text() == "总览"
    tab.get_by_role("link", name="English").click()
    assert tab.url == f"{start}/index.html"
    context.close()
