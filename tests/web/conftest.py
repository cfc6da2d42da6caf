"""Made studies, and the page that shows them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import made_study
from addnorm.web.app import application
from addnorm.web.serve import page, serving

STUDIES = {
    "empty": made_study.make,
    "half done": made_study.half_done,
    "failed": made_study.failed,
    "finished": made_study.finished,
}


@pytest.fixture(params=STUDIES)
def study(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """Every kind of study in turn: its kind and its folder."""
    STUDIES[request.param](tmp_path / "study")
    return request.param, tmp_path / "study"


@pytest.fixture
def client() -> Callable[..., TestClient]:
    """Makes a client of a folder's page. The page looks once, when it is made."""

    def make(folder: Path, *, host: str = "127.0.0.1", token: str | None = None) -> TestClient:
        app = application(folder, host=host, token=token)
        return TestClient(app, base_url="http://127.0.0.1:8321", follow_redirects=False)

    return make


@pytest.fixture
def served() -> Iterator[Callable[[Path], str]]:
    """Serves a folder's page on a real port and gives its address, without the last stroke."""
    with ExitStack() as open_pages:

        def serve(folder: Path) -> str:
            ready = page(folder, port=0)
            open_pages.enter_context(serving(ready))
            return ready.url.rstrip("/")

        yield serve
