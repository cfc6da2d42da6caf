"""Every preset, at toy size, keeps every law."""

import pytest

from addnorm import preset
from addnorm.model.presets import PRESETS
from addnorm.testing.contract import shrunk
from addnorm.testing.laws import LAWS

pytestmark = pytest.mark.plain  # each of their mechanisms keeps these laws with the shape checker in test_siblings


@pytest.mark.parametrize("preset_name", PRESETS)
@pytest.mark.thorough
def test_preset_keeps_the_laws(preset_name: str) -> None:
    spec = shrunk(preset(preset_name), depth=2)
    for law in LAWS.values():
        law(spec)
