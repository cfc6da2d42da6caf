"""The representative that low-bit weights lose least from, among those that only change bases.

Rounding to few bits is bad where a few entries of a row are much larger than the others. Gains put such entries there, and a
rotation of the stream spreads them over all channels. Candidates are compared by the change of the outputs on the example
inputs under 4-bit weights; the model as it is takes part, so that this error never grows. The error of the weights themselves
does not decide: relative to a matrix with one large column it is small, although rounding then loses all other columns.

Source: rotations as in QuaRot (Ashkboos et al. 2024, arXiv:2404.00456), balanced scales as in SmoothQuant (Xiao et al. 2022,
arXiv:2211.10438); here for any graph whose groups allow them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor, nn

from addnorm.redundancy.execution.copies import copy_of
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.observation import Observe
from addnorm.redundancy.rewriting.output_difference import flat_outputs
from addnorm.redundancy.verdict.finding import InJson
from addnorm.symmetry.bases.canonical import settle
from addnorm.symmetry.bases.change import Weights, centred_plane, fold_gains, places, put, rotation, transform
from addnorm.symmetry.bases.parts import RowRange, with_parts
from addnorm.symmetry.bases.solution import Cells

BITS = (8, 4)


@dataclass(frozen=True, kw_only=True)
class WeightError(InJson):
    """Errors of weights that are rounded to few bits, row by row, symmetrically."""

    weights: dict[int, float]
    """By bits: the root mean square of the rounding, relative to the weights', over all matrices."""
    outputs: dict[int, float]
    """By bits: the root mean square of the outputs' change, relative to the outputs'."""


def quantise_ready(
    cells: Cells,
    weights: Weights,
    cost: Callable[[Weights], float],
    *,
    parts: Mapping[str, RowRange] = MappingProxyType({}),
    seed: int = 0,
) -> tuple[str, Weights]:
    """Return the name and the weights of the candidate with the least cost.

    Args:
        cells: the cells.
        weights: in float64; not changed.
        cost: of a candidate's weights, such as `output_error`.
        parts: of weights that are read in parts.
        seed: of the rotations.
    """
    return min(_candidates(cells, weights, parts, seed), key=lambda each: cost(each[1]))


def _candidates(
    cells: Cells, weights: Weights, parts: Mapping[str, RowRange], seed: int
) -> Iterator[tuple[str, Weights]]:
    def changed(given: Weights, change: Callable[[Cells, Weights], object]) -> Weights:
        made = {name: each.clone() for name, each in given.items()}
        change(cells, with_parts(made, parts))
        return made

    def rotate(cells: Cells, weights: Weights) -> None:
        _rotate(cells, weights, seed)

    yield "as it is", weights
    folded = changed(weights, fold_gains)
    yield "gains folded", folded
    yield "gains folded, rotated", changed(folded, rotate)
    balanced = changed(weights, settle)
    yield "balanced", balanced
    yield "balanced, rotated", changed(balanced, rotate)


def _rotate(cells: Cells, made: Weights, seed: int) -> None:
    """Rotate streams and the bases of values at random, in place, which keeps all lengths."""
    generator = torch.Generator().manual_seed(seed)
    for at, given in places(cells).items():
        cell = cells.cells[at]
        if not given:
            continue
        if cell.kind in ("rotation", "matrix"):
            transform(made, given, _spread(cell.size, generator))
        elif cell.kind == "centred rotation":
            plane = centred_plane(cell.size)
            transform(made, given, plane @ _spread(cell.size - 1, generator) @ plane.T + 1 / cell.size)


def _spread(size: int, generator: torch.Generator) -> Tensor:
    """A Hadamard matrix with random signs where the size is a power of two, else a random rotation."""
    if size & (size - 1):
        return rotation(torch.randn(size, size, generator=generator, dtype=torch.float64))
    made = torch.ones(1, 1, dtype=torch.float64)
    while len(made) < size:
        made = torch.cat([torch.cat([made, made], 1), torch.cat([made, -made], 1)]) / 2**0.5
    signs = torch.randint(2, (size,), generator=generator).double() * 2 - 1
    return made * signs


def rounded(weight: Tensor, bits: int) -> Tensor:
    """Round a matrix to few bits, symmetrically, with one scale per row.

    Example:
        >>> rounded(torch.tensor([[1.0, 0.6, 0.1]]), 2)
        tensor([[1., 1., 0.]])
    """
    levels = 2 ** (bits - 1) - 1
    flat = weight.reshape(len(weight), -1)
    scale = flat.abs().amax(1, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny) / levels
    return (torch.round(flat / scale).clamp(-levels, levels) * scale).reshape(weight.shape)


@torch.no_grad()
def round_weights(model: nn.Module, bits: int) -> None:
    """Round all matrices of a model in place; see `rounded`."""
    for each in model.parameters():
        if each.dim() > 1 and each.is_floating_point():
            each.copy_(rounded(each, bits))


def weight_error(weights: Mapping[str, Tensor], bits: int) -> float:
    """The root mean square of the rounding of all matrices, each relative to its own, weighted by their sizes."""
    total, count = 0.0, 0
    for each in weights.values():
        if each.dim() > 1 and each.numel():
            size = float(each.square().sum())
            total += each.numel() * float((rounded(each, bits) - each).square().sum()) / size if size else 0.0
            count += each.numel()
    return float((total / count) ** 0.5) if count else 0.0


def errors(model: nn.Module, inputs: Inputs, observe: Observe) -> WeightError:
    """Measure a model with rounded weights against itself, on its example inputs."""
    wide = copy_of(model, torch.float32).eval()
    weights = {name: each.detach() for name, each in wide.named_parameters() if each.is_floating_point()}
    error = output_error(model, inputs, observe)
    return WeightError(
        weights={bits: weight_error(weights, bits) for bits in BITS},
        outputs={bits: error(weights, bits) for bits in BITS},
    )


def output_error(model: nn.Module, inputs: Inputs, observe: Observe) -> Callable[[Mapping[str, Tensor], int], float]:
    """Return the function from weights and bits to the relative change of a model's outputs when these, rounded, take the
    place of its own."""
    made = copy_of(model, torch.float32).eval()

    def outputs() -> Tensor:
        return torch.cat([each.floats.double().flatten() for each in flat_outputs(made, [inputs], observe, None)])

    before = outputs()
    finite = torch.isfinite(before)

    def error(weights: Mapping[str, Tensor], bits: int) -> float:
        put(made, weights)
        round_weights(made, bits)
        return float((outputs() - before)[finite].norm() / before[finite].norm())

    return error
