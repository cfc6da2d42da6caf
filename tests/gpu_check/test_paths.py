"""A step asks of a GPU what the table says, on every path of attention, and none falls back to float32 or to loops."""

import json
from unittest.mock import patch

import pytest
import torch
from paths import TABLE, models, step

from addnorm.kernels.grouped_attention.problem import AttentionProblem

KEPT = json.loads(TABLE.read_text())
MODELS = models()
BY_TILES = ("sum by tiles",)


@pytest.mark.parametrize("name", MODELS)
def test_a_step_asks_for_what_the_table_says(name: str) -> None:
    found = step(*MODELS[name])
    kept = KEPT[name]
    assert found == kept, "run `python tests/gpu_check/run.py --write`, and read the difference"


def test_the_table_has_every_path() -> None:
    assert set(KEPT) == set(MODELS)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in BY_TILES])
def test_every_path_of_auto_is_near_that_of_plain_attention(name: str) -> None:
    own, other = KEPT["own scores"], KEPT[name]
    # Weights of each pair of layers are multiplied into the queries, which are then laid side by side.
    assert other["launches"] <= (1.4 if name == "weight per pair" else 1.3) * own["launches"]
    assert other["products"].get("float32", 0) <= own["products"].get("float32", 0)
    assert other["attention"], "expected a fused kernel"


def test_a_fall_back_to_float32_is_caught() -> None:
    with patch.object(AttentionProblem, "tile_dtype", torch.float32):
        found = step(*MODELS["sum by tiles"])
    assert found["products"]["float32"] > KEPT["sum by tiles"]["products"].get("float32", 0)
