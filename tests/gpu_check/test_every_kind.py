"""Models of every kind train on a GPU: nothing is left on the CPU, and nothing between two steps waits for the device."""

from collections import Counter

import pytest
from trained import Kind, kinds, waits_of_a_step

from addnorm.data import Dataset

KINDS = list(kinds())


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_a_step_mixes_no_devices_and_waits_for_nothing(kind: Kind, dataset: Dataset) -> None:
    assert waits_of_a_step(kind, dataset) == Counter()
