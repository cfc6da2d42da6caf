"""Every Triton kernel, compiled at the settings that launch it, fits the cards and keeps its numbers in registers."""

from dataclasses import replace

import pytest
import torch
from compiling import CARDS, MODULES, Taken, compiled

from addnorm.kernels.grouped_attention.launches import NARROW, SMALL_CARD, WIDE, WIDTHS, Launch, usual_launch, widest

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
    "everything": EVERYTHING,
}
NAMES = {torch.bfloat16: "bf16", torch.float32: "fp32"}
OF_A_SUM = [kernel for kernel, module in MODULES.items() if module == "running"]


def _checks() -> list:
    """Two architectures with different instructions always, the others and rarer cases in the thorough tier."""
    checks = []
    for kernel in MODULES:
        for dtype in NAMES:
            for width in (width for width in WIDTHS if width <= widest(kernel, dtype)):
                for case in CASES if kernel not in OF_A_SUM else ("plain", "everything"):
                    for card in CARDS:
                        usual = card in (89, 90) and dtype == torch.bfloat16 and case in ("plain", "everything")
                        name = f"{kernel}-{NAMES[dtype]}-{width}-{case}-sm_{card}"
                        marks = () if usual else pytest.mark.thorough
                        checks.append(pytest.param(kernel, dtype, width, case, card, id=name, marks=marks))
    return checks


def taken(kernel: str, launch: Launch, dtype: torch.dtype, width: int, case: str, card: int) -> Taken:
    arguments = launch.arguments()
    return compiled(kernel, arguments, width=width, dtype=NAMES[dtype], capability=card, switches=CASES[case])


@pytest.mark.parametrize(("kernel", "dtype", "width", "case", "card"), _checks())
def test_a_kernel_fits_a_card(kernel: str, dtype: torch.dtype, width: int, case: str, card: int) -> None:
    found = taken(kernel, usual_launch(kernel, width, dtype), dtype, width, case, card)
    assert found.shared <= min(CARDS[card], SMALL_CARD)
    plain = case == "plain" and dtype == torch.bfloat16 and kernel not in OF_A_SUM
    assert found.spilled <= (0 if plain else SPILLED)
    assert found.tensor_cores == (dtype == torch.bfloat16)


def test_four_warps_and_more_stages_are_caught() -> None:
    # What was launched before there was a table: Triton's own numbers, four warps and three stages.
    usual = replace(usual_launch("differentiate_keys", 64, torch.bfloat16), rows=128, warps=4, stages=3)
    found = taken("differentiate_keys", usual, torch.bfloat16, 64, "everything", 89)
    assert found.spilled > SPILLED or found.shared > CARDS[89]


def test_the_kernels_of_a_sum_have_the_same_rows() -> None:
    for table in (NARROW, WIDE):
        assert len({tuple(row.rows for row in table[kernel]) for kernel in OF_A_SUM}) == 1


def test_every_width_takes_the_row_that_covers_it() -> None:
    for width, row in ((16, 0), (64, 0), (65, 1), (128, 1), (200, 2), (256, 2)):
        assert usual_launch("attend_rows", width, torch.bfloat16) == NARROW["attend_rows"][row]
