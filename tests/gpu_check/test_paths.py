"""A step asks of a GPU what the table says, on every path of attention, and none falls back to float32 or to loops."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compiling import MODULES
from paths import TABLE, cases, step

from addnorm.kernels.grouped_attention.launches import NARROW, SMALL_CARD

KEPT = json.loads(TABLE.read_text())
CASES = cases()
BY_TILES = ("sum by tiles",)
STREAMS = "balanced streams"


def require_as_kept(name: str, asked: dict[str, Any]) -> None:
    """Compare what a step asked for with the table."""
    assert asked == KEPT[name], "run `python tests/gpu_check/run.py --write`, and read the difference"


@pytest.mark.parametrize("name", CASES)
def test_a_step_asks_for_what_the_table_says(name: str) -> None:
    require_as_kept(name, step(CASES[name]))


def test_the_table_has_every_path() -> None:
    assert set(KEPT) == set(CASES)


@pytest.mark.parametrize("name", [name for name in CASES if name not in (*BY_TILES, STREAMS)])
def test_every_path_of_auto_is_near_that_of_plain_attention(name: str) -> None:
    own, other = KEPT["large, own scores" if name.startswith("large") else "own scores"], KEPT[name]
    assert other["launches"] <= 1.3 * own["launches"]
    assert other["products"].get("float32", 0) <= own["products"].get("float32", 0)
    assert other["attention"], "expected a fused kernel"


def test_a_summed_step_of_8_sequences_of_4096_costs_little_more_than_one_without_sums() -> None:
    own, summed = KEPT["large, own scores"], KEPT["large, sum"]
    assert summed["launches"] <= 1.3 * own["launches"]
    assert set(summed["products"]) == set(own["products"]) == {"bfloat16"}
    assert summed["peak MiB"] <= 1.25 * own["peak MiB"]


def test_balanced_streams_take_few_kernels() -> None:
    # Twenty rounds of divisions as operations of their own took nine times the launches of a plain step.
    assert KEPT[STREAMS]["launches"] <= 2.1 * KEPT["own scores"]["launches"]
    assert set(KEPT[STREAMS]["programs"]) == {"balance", "differentiate_balance"}


def test_kernels_are_launched_with_the_tables_warps() -> None:
    warps = {kernel: {row.warps for row in rows} for kernel, rows in NARROW.items()}
    launched = [(kernel, size[0]) for kernel, sizes in programs(KEPT) for size in sizes]
    assert {kernel for kernel, _ in launched} == set(MODULES) - {
        "sum_terms"
    }  # which runs where a pass is computed again
    assert all(count in warps[kernel] for kernel, count in launched)


def test_every_path_runs_on_a_card_with_the_least_shared_memory(tmp_path: Path) -> None:
    written = tmp_path / "paths.json"
    paths = Path(__file__).parent / "paths.py"
    subprocess.run([sys.executable, paths, written], env={**os.environ, "PAPER_CC": "89"}, check=True)
    small = json.loads(written.read_text())
    assert set(small) == set(KEPT)
    assert all(shared <= SMALL_CARD for _, sizes in programs(small) for _, shared in sizes)


def programs(table: dict[str, Any]) -> list[tuple[str, list[tuple[int, int]]]]:
    """Warps and bytes of shared memory of every kernel of every path."""
    return [
        (kernel, [(int(warps), int(shared)) for warps, shared in re.findall(r"(\d+) warps, (\d+) bytes", sizes)])
        for name, path in table.items()
        if name != STREAMS
        for kernel, sizes in path["programs"].items()
    ]
