"""Every joint of shipped architectures against the same written down directly, in a hand-written decoder on its parameters."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from addnorm.catalogue import ROOMS

pytestmark = pytest.mark.plain  # numbers; the laws check the shapes

FILE = Path(__file__).parents[2] / "benchmarks" / "straightforward_joints.py"


def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location(FILE.stem, FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[FILE.stem] = module
    spec.loader.exec_module(module)
    return module


DIRECT = benchmark()


@pytest.fixture(autouse=True)
def in_float64() -> object:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("side", DIRECT.SIDES)
def test_logits_and_gradients_are_those_of_the_direct_form(side: str) -> None:
    torch.manual_seed(0)
    ours, direct = DIRECT.pair(side, 16, 4, 12)
    assert DIRECT.differ(ours.double(), direct, torch.randint(DIRECT.VOCAB, (2, 13))) < 1e-9


def test_a_form_that_is_not_the_joint_is_told_apart() -> None:
    ours, _ = DIRECT.pair("affine", 16, 4, 12)
    assert DIRECT.differ(ours.double(), DIRECT.Direct(ours), torch.randint(DIRECT.VOCAB, (2, 13))) > 1e-3


def test_every_residual_that_a_class_ships_has_a_direct_form() -> None:
    from addnorm.outside.hugging_face.shipped.reading import TABLES

    shipped = {kind for room, kind in (table.joint for table in TABLES.values()) if room == "residual"}
    assert shipped <= {side.partition(",")[0] for side in DIRECT.SIDES} <= {*DIRECT.SIDES}
    assert shipped <= {*ROOMS["residual"].kinds()}
