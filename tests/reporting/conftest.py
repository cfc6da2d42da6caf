"""Reports without their pictures, for tests of what stands around them."""

from collections.abc import Iterator

import pytest

EMPTY_PICTURE = b'<svg xmlns="http://www.w3.org/2000/svg"/>'


@pytest.fixture
def blank_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn, and every file of one is the same empty picture: rendering them is most of a report's time."""
    monkeypatch.setattr("addnorm.reporting.figures.saved", lambda figure, kind: EMPTY_PICTURE)


@pytest.fixture(scope="module")
def blank_pictures_in_module() -> Iterator[None]:
    """The same for the fixtures of a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("addnorm.reporting.figures.saved", lambda figure, kind: EMPTY_PICTURE)
        yield
