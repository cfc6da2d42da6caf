"""Kill -9 at any moment: nothing is lost, nothing counts twice, nobody is said to run who does not."""

from pathlib import Path

import pytest
from kills import Survivors, storm


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_a_study_survives_a_storm_of_kills(calm: Path, seed: int) -> None:
    found = storm(calm, calm.parent / f"storm-{seed}", seed, kills=14)
    print(found)
    assert sum(found.kills.values()) >= 10
    assert found.resumed >= 1  # else the storm only shows that a run can begin anew
    assert found.all_well, found


@pytest.mark.soak
def test_two_hundred_kills(calm: Path) -> None:
    kills, seed = 0, 100
    while kills < 200:
        found: Survivors = storm(calm, calm.parent / f"soak-{seed}", seed, kills=40)
        assert found.all_well, found
        kills += sum(found.kills.values())
        seed += 1
