"""All weights of a float64 copy disturbed at random for a while, without a second copy of them.

    w  ->  w (1 ± 2⁻²⁶)  ->  w

What must hold: afterwards every number is bit for bit what it was. The trick: a float64 number that came from float32 has
24 significant bits, so w (1 ± 2⁻²⁶) needs at most 51 and is exact; and it is nearer to w than to any other float32
number, the nearest of which are 2⁻²⁵ away, so rounding to float32 gives w back. bfloat16 and float16 are float32 as well.
Parameters with more bits (a model in float64, a bias that was moved) are kept aside instead.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

STEP = 2.0**-26
"""Relative size of the disturbance: far above float64's rounding, far below what makes a model nonlinear."""
_PIECE = 2**20
"""Numbers drawn at once."""


@contextmanager
def disturbed(model: nn.Module, seed: int) -> Iterator[None]:
    """Every floating-point parameter of a copy in float64 times 1 ± `STEP`, signs drawn from `seed`; as before afterwards."""
    parameters = [parameter.detach() for parameter in model.parameters() if parameter.is_floating_point()]
    kept = [None if _is_float32(parameter) else parameter.clone() for parameter in parameters]
    generator = torch.Generator().manual_seed(seed)
    try:
        for parameter in parameters:
            for piece in _pieces(parameter):
                signs = torch.randint(0, 2, piece.shape, generator=generator, dtype=torch.int8)
                piece.mul_(1 + STEP * (2 * signs - 1).double())
        yield
    finally:
        for parameter, value in zip(parameters, kept, strict=True):
            if value is not None:
                parameter.copy_(value)
                continue
            for piece in _pieces(parameter):
                piece.copy_(piece.float())


def _is_float32(parameter: Tensor) -> bool:
    return all(torch.equal(piece.float().double(), piece) for piece in _pieces(parameter))


def _pieces(parameter: Tensor) -> tuple[Tensor, ...]:
    """Views of about a million numbers each."""
    if not parameter.numel():
        return ()
    rows = parameter.unsqueeze(0) if parameter.dim() == 0 else parameter
    return rows.split(max(1, _PIECE * rows.shape[0] // rows.numel()))
