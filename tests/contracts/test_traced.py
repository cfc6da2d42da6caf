"""Every sibling exports, and compiles in every setting, to the same numbers."""

import pytest
from siblings import mechanisms, name, siblings
from tracing import compiles, exports

from addnorm import preset
from addnorm.catalogue import ROOMS, Spec
from addnorm.testing.contract import shrunk, tiny

pytestmark = pytest.mark.compiled

MECHANISMS = mechanisms()
every_mechanism = pytest.mark.parametrize(("room", "spec"), MECHANISMS, ids=[name(*m) for m in MECHANISMS])


@pytest.mark.parametrize(("room", "kind"), siblings())
def test_sibling_exports(room: str, kind: str) -> None:
    exports(tiny(room, ROOMS[room].make(kind), depth=2))


@every_mechanism
def test_sibling_compiles(room: str, spec: Spec) -> None:
    compiles(tiny(room, spec, depth=2))


# The rest of the presets differ from these in a score or stream residual alone, and every one of those is traced above.
@pytest.mark.parametrize("preset_name", ["gpt2", "bert", "realformer", "v3m3_2", "gau_alpha"])
def test_preset_exports_and_compiles(preset_name: str) -> None:
    spec = shrunk(preset(preset_name))
    exports(spec)
    compiles(spec)
