"""Inspection computes with as many threads as training did, and leaves the process as it was."""

import torch

from addnorm.insight.flow.runs import _threads


def test_threads_are_those_of_training_and_come_back() -> None:
    before = torch.get_num_threads()
    with _threads(before + 1):
        inside = torch.get_num_threads()
    assert (inside, torch.get_num_threads()) == (before + 1, before)
