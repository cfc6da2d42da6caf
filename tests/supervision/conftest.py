"""Studies that nothing disturbed, trained once for all tests of this process, and clusters that are a few lines each."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from eight_runs import trained_calmly, warm_server
from fake_ray import FakeRay
from fake_slurm import FakeSlurm
from kills import calm_weather
from small_study import trained_small

from addnorm.supervision.executors import _slurm_commands
from addnorm.supervision.executors import ray as ray_executor


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the study of the storms. Read it only."""
    return calm_weather(tmp_path_factory.mktemp("storm"))


@pytest.fixture(scope="session")
def calm_eight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the study of eight runs. Read it only."""
    return trained_calmly(tmp_path_factory.mktemp("eight"))


@pytest.fixture(scope="session")
def calm_small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the smallest study. Read it only."""
    return trained_small(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Socket of a process that forks workers and supervisors."""
    with warm_server(tmp_path_factory.mktemp("warm")) as path:
        yield path


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """In place of Slurm's commands."""
    fake = FakeSlurm()
    monkeypatch.setattr(_slurm_commands, "ask", fake.ask)
    monkeypatch.setattr(_slurm_commands, "missing_command", lambda: fake.missing)
    return fake


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """In place of a cluster of Ray."""
    fake = FakeRay()
    monkeypatch.setattr(ray_executor, "RayCluster", lambda address: fake)
    monkeypatch.setattr(ray_executor, "missing_module", lambda: fake.not_installed)
    return fake
