"""Every Triton kernel, compiled at the settings that launch it, fits the cards and keeps its numbers in registers."""

import json
from dataclasses import replace

import pytest
import torch
from compiling import (
    CARDS,
    MI300,
    MI300_SHARED,
    MODULES,
    NVIDIA,
    Taken,
    compiled,
    compiled_balance,
    compiled_for_mi300,
    taken_of,
    taken_of_mi300,
)
from paths import TABLE
from triton.backends.compiler import GPUTarget

from addnorm.kernels.grouped_attention.launches import NARROW, WIDE, WIDTHS, Launch, usual_launch, widest

KEPT = json.loads(TABLE.read_text())
SPILLED = 64
"""Bytes of each thread that may be in memory; none in narrow attention with nothing but a mask, which most models have."""
EVERYTHING = {
    **dict.fromkeys(("HAS_DISTANCE", "HAS_PADDING", "DROPS", "SCALED", "BIAS_NEEDED", "WEIGHT_NEEDED"), True),
    "WINDOW": 256,
}
CASES = {
    "plain": {},
    "several terms": {"ALONE": False},
    "cap": {"CAPPED": True},
    "distance": {"HAS_DISTANCE": True, "BIAS_NEEDED": True},
    "matrix": {"HAS_BIAS": True, "BIAS_NEEDED": True},
    "everything": EVERYTHING,
    "everything, several terms": EVERYTHING | {"ALONE": False},
}
USUAL = ("plain", "distance", "everything")
NAMES = {torch.bfloat16: "bf16", torch.float32: "fp32"}
NARROWER = (16,)
"""Width that shares the first row of the launches with 32."""
ON_MI300 = 480
"""Bytes of each thread in memory on MI300, for which no setting was chosen: what is found there today, 120 numbers at most."""
OF_A_SUM = [kernel for kernel, module in MODULES.items() if module == "running"]


def _checks() -> list:
    """Two architectures with different instructions always, the others and rarer cases in the thorough tier."""
    checks = []
    for kernel in MODULES:
        for dtype in NAMES:
            for width in (width for width in (*NARROWER, *WIDTHS) if width <= widest(kernel, dtype)):
                for case in CASES if kernel not in OF_A_SUM else ("plain", "distance", "matrix", "everything"):
                    for card in CARDS:
                        cases = USUAL[:1] if width in NARROWER else USUAL
                        usual = dtype == torch.bfloat16 and (
                            (card == 89 and case in cases) or (card == 90 and case in cases[:2])
                        )
                        name = f"{kernel}-{NAMES[dtype]}-{width}-{case}-sm_{card}"
                        marks = () if usual else pytest.mark.thorough
                        checks.append(pytest.param(kernel, dtype, width, case, card, id=name, marks=marks))
    return checks


def is_biased(case: str) -> bool:
    return CASES[case].get("HAS_DISTANCE", False) or CASES[case].get("HAS_BIAS", False)


def taken(kernel: str, launch: Launch, dtype: torch.dtype, width: int, case: str, card: int) -> Taken:
    arguments = launch.arguments()
    return compiled(kernel, arguments, width=width, dtype=NAMES[dtype], capability=card, switches=CASES[case])


@pytest.mark.parametrize(("kernel", "dtype", "width", "case", "card"), _checks())
def test_a_kernel_fits_a_card(kernel: str, dtype: torch.dtype, width: int, case: str, card: int) -> None:
    found = taken(kernel, usual_launch(kernel, width, dtype, biased=is_biased(case)), dtype, width, case, card)
    assert found.shared <= CARDS[card]
    plain = case == "plain" and dtype == torch.bfloat16 and kernel not in OF_A_SUM
    assert found.spilled <= (0 if plain else SPILLED)
    assert found.tensor_cores == (dtype == torch.bfloat16)


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("streams", [2, 4, 8])
@pytest.mark.parametrize("kernel", ["balance", "differentiate_balance"])
def test_matrices_of_streams_stay_in_registers(kernel: str, streams: int, card: int) -> None:
    found = taken_of(compiled_balance(kernel, streams, GPUTarget("cuda", card, NVIDIA)))
    assert found.shared <= CARDS[card]
    assert found.spilled <= 8  # two numbers, on compute capability 10.0 and 12.0


@pytest.mark.thorough
@pytest.mark.parametrize("kernel", ["balance", "differentiate_balance"])
def test_matrices_of_streams_stay_in_registers_of_mi300(kernel: str) -> None:
    found = taken_of_mi300(compiled_balance(kernel, 4, MI300))
    assert found.shared <= MI300_SHARED
    assert found.spilled == 0


@pytest.mark.thorough
@pytest.mark.parametrize("width", [*NARROWER, *WIDTHS])
@pytest.mark.parametrize("kernel", MODULES)
def test_a_kernel_compiles_for_mi300(kernel: str, width: int) -> None:
    launch = usual_launch(kernel, width, torch.bfloat16)
    found = compiled_for_mi300(kernel, launch.arguments(), width=width, switches=CASES["plain"])
    assert found.shared <= MI300_SHARED
    assert found.spilled <= ON_MI300
    assert found.tensor_cores


@pytest.mark.parametrize(
    ("path", "switches"),
    [
        ("alibi", {"HAS_DISTANCE": True}),
        ("t5", {"HAS_DISTANCE": True, "BIAS_NEEDED": True}),
        ("window", {"WINDOW": 128}),
        ("cap", {"CAPPED": True}),
        ("sum, depth 4", {}),
    ],
)
def test_what_is_compiled_here_is_what_a_step_launches(path: str, switches: dict[str, bool | int]) -> None:
    # The same type of every argument, the same constants, the same alignment: each decides what lies in shared memory. A bias
    # that was compiled here in bfloat16, which is float32 in a model, once hid kernels that did not fit.
    for kernel, program in KEPT[path]["programs"].items():
        launch = usual_launch(kernel, 64, torch.bfloat16, biased="HAS_DISTANCE" in switches)
        made = compiled(kernel, launch.arguments(), width=64, dtype="bf16", capability=90, switches=switches)
        assert f"8 warps, {made.shared} bytes" in program.split("; "), kernel


def test_four_warps_and_more_stages_are_caught() -> None:
    # What was launched before there was a table: Triton's own numbers, four warps and three stages.
    usual = replace(usual_launch("differentiate_keys", 64, torch.bfloat16), rows=128, warps=4, stages=3)
    found = taken("differentiate_keys", usual, torch.bfloat16, 64, "everything", 89)
    assert found.spilled > SPILLED or found.shared > CARDS[89]


def test_the_kernels_of_a_sum_have_the_same_rows() -> None:
    for table in (NARROW, WIDE):
        assert len({tuple(row.rows for row in table[kernel]) for kernel in OF_A_SUM}) == 1


def test_every_width_takes_the_row_that_covers_it() -> None:
    for width, row in ((16, 0), (32, 0), (64, 1), (65, 2), (128, 2), (200, 3), (256, 3)):
        assert usual_launch("attend_rows", width, torch.bfloat16) == NARROW["attend_rows"][row]
