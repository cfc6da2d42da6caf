"""Tests of what runs on a GPU, for machines without one; see run.py, which starts them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "paper"))

import counters


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder is marked `paper`, and skipped where there is no GPU of paper."""
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker("paper")
        if not counters.IS_HERE:
            item.add_marker(pytest.mark.skip(reason="needs the GPU of paper, which `make gpu-check` builds"))
