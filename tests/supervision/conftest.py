"""Studies that nothing disturbed, trained once for all tests of this process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from eight_runs import trained_calmly, warm_server
from kills import calm_weather


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the study of the storms. Read it only."""
    return calm_weather(tmp_path_factory.mktemp("storm"))


@pytest.fixture(scope="session")
def calm_eight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the study of eight runs. Read it only."""
    return trained_calmly(tmp_path_factory.mktemp("eight"))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Socket of a process that forks workers and supervisors."""
    with warm_server(tmp_path_factory.mktemp("warm")) as path:
        yield path
