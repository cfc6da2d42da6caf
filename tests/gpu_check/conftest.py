"""Tests of what runs on a GPU, for machines without one; see run.py, which starts them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "paper"))

import counters

from addnorm.data import Dataset, prepare
from addnorm.data.corpora.synthetic import Synthetic
from addnorm.data.tokenizers.bytes import Bytes

# Elsewhere these files are not even imported: they ask Triton to compile, where the other tests need its interpreter, and
# Triton can be told only once in a process.
collect_ignore_glob = [] if counters.IS_HERE else ["test_*.py"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder is marked `paper`."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("paper")


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Tokens to train on."""
    return prepare(Synthetic(), Bytes(), tmp_path_factory.mktemp("data") / "data")
