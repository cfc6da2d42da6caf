"""Models of every kind train on a GPU: nothing is left on the CPU, and nothing between two steps waits for the device."""

from collections import Counter
from pathlib import Path

import counters
import pytest
from trained import Kind, kinds, trainer

from addnorm.data import Dataset, prepare
from addnorm.data.corpora.synthetic import Synthetic
from addnorm.data.tokenizers.bytes import Bytes

KINDS = list(kinds())


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder: Path = tmp_path_factory.mktemp("data") / "data"
    return prepare(Synthetic(), Bytes(), folder)


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_a_step_mixes_no_devices_and_waits_for_nothing(kind: Kind, dataset: Dataset) -> None:
    made = trainer(kind, dataset, "cuda")
    made.train_step()  # the first step makes what outlives it: buffers, states, tables
    with counters.waits() as waits:
        made.train_step()
    assert waits == Counter()
    made.evaluate()
