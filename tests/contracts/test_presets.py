"""Every preset, at toy size, keeps every law."""

import pytest

from addnorm import preset
from addnorm.blocks.contract import shrunk
from addnorm.blocks.laws import LAWS
from addnorm.blocks.presets import PRESETS


@pytest.mark.parametrize("preset_name", PRESETS)
def test_preset_keeps_the_laws(preset_name: str) -> None:
    spec = shrunk(preset(preset_name))
    for law in LAWS.values():
        law(spec)
