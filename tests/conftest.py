"""Fixtures for the whole suite."""

import atexit
import gc
import os
import re
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:
    # Registered before all other exits, and so the last of them. Freeing what the end of the process frees takes seconds.
    atexit.register(os._exit, 0)

import hypothesis
import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined: the kernels then run, slowly, on this machine

from addnorm.store import Lock, StudyFolder
from addnorm.study.loading import load_study
from cpu_seconds import CpuSeconds
from suite_folders import SHAPE_FOLDERS
from train_here import train_here

torch.set_num_threads(1)
# No test fails for the seconds that an example takes to draw or to run: machines differ four-fold.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")
WITHOUT_CHECKER = ("compiled", "plain", "thorough")
"""Marks of tests that run without the shape checker; of thorough ones, those like them in `make test` run with it."""


def pytest_configure(config: pytest.Config) -> None:
    """Count processor seconds, and keep what addnorm remembers for a user out of the tester's home."""
    os.environ["ADDNORM_STATE"] = tempfile.mkdtemp(prefix="addnorm-state-")
    config.pluginmanager.register(CpuSeconds(), "cpu-seconds")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector from what is never garbage: the modules and the tests themselves.

    A pass over these two million objects takes 0.6 s, and all passes together an eighth of the processor seconds. Passes
    become rarer too: after them everything looks young, so that a full one would follow every few tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # All is freed at the exit, since libraries written in C++ print what is left, but not before: pytest collects
        # garbage when it ends.
        atexit.register(gc.unfreeze)
        gc.set_threshold(5_000, 20, 20)
        gc.enable()


@cache
def runs_without_the_checker(path: Path) -> bool:
    """True for a file of tests that is marked as a whole."""
    marked = r"^pytestmark = pytest\.mark\.(plain|compiled)\b"
    return re.search(marked, path.read_text(encoding="utf-8"), re.MULTILINE) is not None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out of the session with the shape checker what it would import and then deselect: that takes seconds."""
    if config.getoption("jaxtyping_packages") and collection_path.match("test_*.py"):
        return runs_without_the_checker(collection_path) or None
    return None


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that run with the shape checker."""
    own, folders = Path(__file__).parent, dict.fromkeys(item.path for item in items)
    for path in folders:
        folders[path] = path.relative_to(own).parts[0] if path.is_relative_to(own) else ""
    for item in items:
        if folders[item.path] in SHAPE_FOLDERS and not any(map(item.get_closest_marker, WITHOUT_CHECKER)):
            item.add_marker("shapes")


TINY_STUDY = """
name: tiny
about: Small enough for tests.
margin: 0.01
references: [base]
seeds: [0, 1, 2]
corpus: {kind: synthetic, num_documents: 20}
tokenizer: bytes
training: {steps: 6, batch: 2, seq: 16, log_every: 2, eval_every: 3, eval_sequences: 4, checkpoint_every: 2}
model: {preset: base, width: 16, depth: 2, heads: 2, kv_heads: 1, hidden: 16, max_seq: 16}
variants:
  base: {}
  v4m5: {preset: v4m5}
"""


@pytest.fixture(scope="session")
def tiny_study_text() -> str:
    """A study file that trains in seconds."""
    return TINY_STUDY


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a study that workers have finished, trained once for all test processes. Read it only."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    out, lock = root / "finished-study", Lock(root / "finished-study.lock")
    while not lock.try_acquire():
        time.sleep(0.2)
    try:
        if not out.exists():
            file = root / "tiny.yaml"
            file.write_text(TINY_STUDY, encoding="utf-8")
            folder = train_here(load_study(file), out)
            assert {entry["state"] for entry in folder.status()["runs"]} == {"finished"}
        StudyFolder(out)
    finally:
        lock.release()
    return out


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
