r"""Matrices whose rows and columns add up to one, from unrestricted numbers.

    M_0 = exp(logits),        M_t = M_{t-1} / (sums of its columns, then of its rows, by turns)

The backward pass goes through the rounds again and keeps their matrices. With G_t the gradient of log M_t, which is
M_t ⊙ (gradient of M_t), dividing by the sums of an axis is undone by

    G_{t-1} = G_t - M_t ⊙ (sum of G_t along that axis)

because each logarithm loses the logarithm of its sum, whose derivatives are the entries of M_t. G_0 is the gradient of the
logits.

On a CPU, rounds that change nothing are left out: once the sums of both axes are one up to rounding, so are those of all later
rounds, whose matrices are equal up to rounding; and of these rounds, undoing one changes no G whose sums are zero up to
rounding. On other devices the processor would have to wait for the sums, and every round is computed.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.kernels.depth_mixing.two_forms import Gradients, TwoForms

Logits = Float[Tensor, "streams streams *positions"]
_POSITIONS = 2048
"""Positions of a chunk: the matrices of twenty rounds of four streams take 5 MiB."""


def sinkhorn(logits: Logits, rounds: int) -> Logits:
    """Make a matrix whose rows and columns add up to one, by turns: `rounds` times columns, then rows.

    Rows add up to one exactly up to rounding, columns nearly: streams that are equal stay equal. The first two axes are target
    and source stream; the positions come last, so that sums over the few streams run over long rows.
    """
    return _Sinkhorn(rounds)(logits)


class _Sinkhorn(TwoForms):
    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def plain(self, logits: Tensor) -> Tensor:
        matrix = torch.exp(logits - logits.amax(dim=(0, 1), keepdim=True))
        for _ in range(self.rounds):
            matrix = matrix / matrix.sum(dim=0, keepdim=True)
            matrix = matrix / matrix.sum(dim=1, keepdim=True)
        return matrix

    def fast(self, logits: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        flat = logits.flatten(2) if logits.ndim > 2 else logits.unsqueeze(-1)
        out = torch.empty_like(flat, memory_format=torch.contiguous_format)
        for part in _spans(flat):
            matrix = _start(flat[..., part])
            for done in range(self.rounds):
                of_columns = matrix.sum(dim=0, keepdim=True)
                if _changes_nothing(done, of_columns):
                    break
                matrix.div_(of_columns)
                matrix.div_(matrix.sum(dim=1, keepdim=True))
            out[..., part] = matrix
        return out.view(logits.shape), ()

    def gradients(self, grad: Tensor, needed: Sequence[bool], kept: tuple[Tensor, ...], logits: Any) -> Gradients:
        flat, above = (
            each.flatten(2) if each.ndim > 2 else each.unsqueeze(-1) for each in (logits, grad.reshape(logits.shape))
        )
        out = torch.empty_like(flat, memory_format=torch.contiguous_format)
        for part in _spans(flat):
            matrix, matrices = _start(flat[..., part]), []
            for done in range(self.rounds):
                of_columns = matrix.sum(dim=0, keepdim=True)
                if _changes_nothing(done, of_columns):
                    break
                matrices.append(matrix / of_columns)
                matrix = matrices[-1] / matrices[-1].sum(dim=1, keepdim=True)
                matrices.append(matrix)
            of_logarithm = matrix * above[..., part]
            for _ in range(self.rounds - len(matrices) // 2):  # the rounds left out
                of_logarithm.addcmul_(matrix, of_logarithm.sum(dim=1, keepdim=True), value=-1)
                total = of_logarithm.sum(dim=0, keepdim=True)
                of_logarithm.addcmul_(matrix, total, value=-1)
                if _is_zero(total, torch.linalg.vector_norm(of_logarithm, ord=torch.inf)):
                    break
            for axis in (1, 0) * (len(matrices) // 2):
                total = of_logarithm.sum(dim=axis, keepdim=True)
                of_logarithm.addcmul_(matrices.pop(), total, value=-1)
            out[..., part] = of_logarithm
        return (out.view(logits.shape),)


def _start(logits: Tensor) -> Tensor:
    """Return the exponentials of one chunk, contiguous; a common factor does not matter."""
    return torch.exp((logits - logits.amax(dim=(0, 1), keepdim=True)).contiguous())


def _changes_nothing(done: int, of_columns: Tensor) -> bool:
    """Return True if no further round changes a matrix whose rows add up to one, by the sums of its columns.

    False on other devices than a CPU. Only after every second round, because the question costs a third of one.
    """
    may_ask = of_columns.device.type == "cpu" and done % 2 == 1
    return may_ask and _is_zero(of_columns - 1, of_columns.new_ones(()))


def _is_zero(sums: Tensor, size: Tensor) -> bool:
    """Return True for sums of few terms of this size that are zero up to rounding."""
    allowed = 2 * sums.shape[0] * sums.shape[1] * torch.finfo(sums.dtype).eps
    return bool(torch.linalg.vector_norm(sums, ord=torch.inf) <= allowed * size)


def _spans(logits: Tensor) -> Iterator[slice]:
    positions = logits.shape[-1]
    step = _POSITIONS if logits.device.type == "cpu" else max(1, positions)
    return (slice(start, min(positions, start + step)) for start in range(0, positions, step))
