"""The study that nothing disturbed, trained once for all tests of this process."""

from pathlib import Path

import pytest
from kills import calm_weather


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its folder. Read it only."""
    return calm_weather(tmp_path_factory.mktemp("storm"))
