"""A real browser on real pages: Debian's chromium, driven by playwright; without either, these tests are skipped and say so."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from addnorm.web.serve import page, serving

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip, with a reason that the summary prints."""
    reason = "" if CHROMIUM else "no chromium on this machine: `apt-get install chromium` runs these tests"
    if find_spec("playwright") is None:
        reason = "no playwright: `pip install playwright` runs these tests"
    for item in items:
        if reason and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One browser for all tests of this process."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # Containers have no user namespaces for the sandbox, and often a tiny /dev/shm.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


class Window:
    """A browser tab that remembers everything that must not happen."""

    def __init__(self, context: Any, url: str) -> None:
        self.url = url
        self.tab = context.new_page()
        self.tab.set_default_timeout(20_000)
        self.troubles: list[str] = []
        self.requests: list[str] = []
        self.loads = 0
        self.tab.on(
            "console", lambda said: self.troubles.append(said.text) if said.type in ("error", "warning") else None
        )
        self.tab.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.on("load", lambda: setattr(self, "loads", self.loads + 1))

    def go(self, path: str) -> "Window":
        """Open a page, and wait until its connection to the server stands."""
        self.tab.goto(self.url + path)
        self.tab.wait_for_selector('[data-live-mark="live"]', state="attached")
        return self

    def wait(self, expression: str, seconds: float = 20.0) -> None:
        """Wait until a script's expression is true. Playwright's own waiting needs `eval`, which the page forbids.

        Raises:
            AssertionError: it did not become true.
        """
        end = time.monotonic() + seconds
        while not self._holds(expression):
            if time.monotonic() > end:
                raise AssertionError(f"{expression} did not become true; the page says: {self.tab.inner_text('main')}")
            self.tab.wait_for_timeout(30)

    def _holds(self, expression: str) -> bool:
        """False too where the page is loaded anew in the same moment, which ends a script."""
        from playwright.sync_api import Error

        try:
            self.tab.wait_for_load_state("domcontentloaded")
            return bool(self.tab.evaluate(expression))
        except Error as error:
            if "Execution context was destroyed" in str(error):
                return False
            raise

    def assert_well(self) -> None:
        """Nothing was complained about, and nobody else was asked for anything."""
        assert self.troubles == []
        assert [address for address in self.requests if not address.startswith(f"{self.url}/")] == []


@pytest.fixture
def window(chromium: Any) -> Iterator[Callable[..., Window]]:
    """Opens a tab on a folder's page; at the end, asserts that all went well in it."""
    with ExitStack() as stack:
        opened: list[Window] = []

        def make(folder: Path, **options: Any) -> Window:
            ready = page(folder, port=0)
            stack.enter_context(serving(ready))
            context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, "locale": "en-GB", **options})
            stack.callback(context.close)
            opened.append(Window(context, ready.url.rstrip("/")))
            return opened[-1]

        yield make
        for one in opened:
            one.assert_well()
