"""Temporary random perturbation of all weights of a float64 copy, without a second copy of them.

    w  ->  w (1 ± 2⁻²⁶)  ->  w

Afterwards every number must be bit for bit what it was. A float64 number converted from float32 has 24 significant
bits, so w (1 ± 2⁻²⁶) needs at most 51 and is exact. It is nearer to w than to any other float32 number, the nearest of
which are 2⁻²⁵ away, so rounding to float32 restores w. bfloat16 and float16 numbers are float32 numbers too. Parameters
with more bits (a model in float64, a bias that was moved) are cloned instead. Checked by
tests/redundancy/test_perturbation.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

STEP = 2.0**-26
"""Relative size of the perturbation: far above float64's rounding, small enough for a linear response of the model."""
_PIECE = 2**20
"""Number of signs drawn at once."""


@contextmanager
def perturbed(model: nn.Module, seed: int) -> Iterator[None]:
    """Multiply every floating-point parameter of a copy in float64 by 1 ± `STEP`, with signs drawn from `seed`, and
    restore it."""
    parameters = [parameter.detach() for parameter in model.parameters() if parameter.is_floating_point()]
    clones = [None if _is_float32(parameter) else parameter.clone() for parameter in parameters]
    generator = torch.Generator().manual_seed(seed)
    longest = max((piece.numel() for parameter in parameters for piece in _pieces(parameter)), default=0)
    # Signs cost more to draw than to use. Each piece reads them from another place, so that no two weights share them.
    signs = torch.randint(0, 2, (2 * longest,), generator=generator, dtype=torch.int8)
    factors = 1 + STEP * (2 * signs - 1).double()
    try:
        for parameter in parameters:
            for piece in _pieces(parameter):
                start = int(torch.randint(0, 2 * longest - piece.numel() + 1, (), generator=generator))
                piece.mul_(factors[start : start + piece.numel()].view(piece.shape))
        yield
    finally:
        for parameter, value in zip(parameters, clones, strict=True):
            if value is not None:
                parameter.copy_(value)
                continue
            for piece in _pieces(parameter):
                # The nearest float32 number is the original one; see above.
                piece.copy_(piece.float())


def _is_float32(parameter: Tensor) -> bool:
    return all(torch.equal(piece.float().double(), piece) for piece in _pieces(parameter))


def _pieces(parameter: Tensor) -> tuple[Tensor, ...]:
    """Views of about `_PIECE` numbers each."""
    if not parameter.numel():
        return ()
    rows = parameter.unsqueeze(0) if parameter.dim() == 0 else parameter
    return rows.split(max(1, _PIECE * rows.shape[0] // rows.numel()))
