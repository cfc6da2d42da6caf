"""Redundant numbers that have walked far: no output shows them, and a low precision pays for them.

Training moves a bias without an effect only by rounding and by the optimizer. A fresh `torch.nn.Linear` draws biases of at
most one over the root of its inputs, other libraries start from zero; what is larger has walked. The cost depends on
another size: a bias adds to W x, and for inputs with entries of size one an entry of W x has about the size of the row of W.
A note gives both. Of two checkpoints of rxnmapper and rxnfp on the package index, an ALBERT's key bias (norm 0.72, largest
entry 0.32 for 256 inputs) is noted and twelve key biases of a BERT (at most 0.0021) are not.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, linalg, nn

from addnorm.redundancy.execution.parameter_uses import output_axis
from addnorm.redundancy.verdict.finding import Directions, Finding, idle_part

FAR = 2.0
"""Largest entry of a redundant part, in units of the largest entry of a fresh bias, from which it is noted."""


def drift_notes(findings: Sequence[Finding], model: nn.Module) -> tuple[str, ...]:
    """Return a sentence per parameter whose redundant part is larger than any initialisation makes it."""
    notes, parameters = [], dict(model.named_parameters())
    for each in findings:
        path, _, leaf = each.parameter.rpartition(".")
        weight = parameters.get(f"{path}.{leaf.replace('bias', 'weight')}".removeprefix("."))
        if not each.redundant_dof or "bias" not in leaf or weight is None or weight.dim() < 2:
            continue
        axis = output_axis(model.get_submodule(path), weight, parameters[each.parameter].numel())
        matrix = weight.detach().movedim(axis, 0).flatten(1)
        if len(matrix) != each.size:
            continue
        idle = _idle_entries(each.directions, parameters[each.parameter])
        at = int(idle.abs().argmax())
        largest, row = float(idle[at].abs()), float(linalg.vector_norm(matrix[at].double()))
        walked = largest * matrix.shape[1] ** 0.5
        if walked > FAR:
            notes.append(
                f"{each.parameter} has walked far where it cannot matter: an entry of {largest:.3g}, {walked:.2g} times the "
                f"largest of a fresh torch.nn.Linear and {largest / max(row, 1e-300):.2g} times the row of its weight. Where "
                "the sum is stored in low precision, as keys in a quantised cache, it takes that share of the range "
                "(`addnorm audit --kv-cache` measures it); `Audit.canonicalize` removes it"
            )
    return tuple(notes)


def _idle_entries(free: Directions, value: Tensor) -> Tensor:
    """The part of a parameter that cannot matter; of a basis, which depends on the weights, only whole entries."""
    part = idle_part(free, value)
    if part is not None or free.basis is None:
        return value.new_zeros(value.numel()) if part is None else part
    whole = (free.basis.square().sum(0) - 1).abs() < free.basis.shape[1] * 2**10 * torch.finfo(torch.float64).eps
    return value.detach().reshape(-1).to("cpu", torch.float64) * whole
