"""Inspection computes with as many threads as training did, and leaves the process as it was."""

import pytest
import torch

from addnorm.insight.flow.runs import _threads


def test_threads_are_those_of_training_and_come_back() -> None:
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError, match="broken"), _threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise RuntimeError("broken")
    assert torch.get_num_threads() == before
