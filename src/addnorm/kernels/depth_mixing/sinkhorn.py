r"""Matrices whose rows and columns add up to one, from unrestricted numbers.

    M_1 = softmax(logits over targets) + eps,        M_t = M_{t-1} / (sums of its rows, then of its columns, by turns, + eps)

The backward pass goes through the rounds again and keeps their matrices. With G_t the gradient of log M_t, which is
M_t ⊙ (gradient of M_t), dividing by the sums of an axis is undone by

    G_{t-1} = G_t - M_t ⊙ (sum of G_t along that axis)

because each logarithm loses the logarithm of its sum + eps, whose derivatives are the entries of M_t, with eps and without. The
softmax s loses H = G_1 ⊙ s / (s + eps) to its logarithm, and the logits get H - s ⊙ (sum of H over targets).

Without eps, on a CPU, rounds that change nothing are left out: once the sums of both axes are one up to rounding, so are those
of all later rounds, whose matrices are equal up to rounding; and of these rounds, undoing one changes no G whose sums are zero
up to rounding. On other devices the processor would have to wait for the sums, and every round is computed: on a GPU in one
kernel.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.kernels import has_compiler
from addnorm.kernels.depth_mixing.two_forms import Gradients, TwoForms

Logits = Float[Tensor, "streams streams *positions"]
_POSITIONS = 2048
"""Positions of a chunk: the matrices of twenty rounds of four streams take 5 MiB."""


def sinkhorn(logits: Logits, rounds: int, eps: float = 0.0) -> Logits:
    """Make a matrix whose rows and columns add up to one, by turns: `rounds` times columns, then rows.

    Rows add up to one exactly up to rounding and eps, columns nearly: streams that are equal stay equal. The first two axes are
    target and source stream; the positions come last, so that sums over the few streams run over long rows. eps is added to the
    first softmax and to every divisor, as implementations of mHC do.
    """
    return _Sinkhorn(rounds, eps)(logits)


class _Sinkhorn(TwoForms):
    def __init__(self, rounds: int, eps: float) -> None:
        self.rounds, self.eps = rounds, eps

    def plain(self, logits: Tensor) -> Tensor:
        matrix = torch.softmax(logits, dim=0) + self.eps
        matrix = matrix / (matrix.sum(dim=1, keepdim=True) + self.eps)
        for _ in range(self.rounds - 1):
            matrix = matrix / (matrix.sum(dim=0, keepdim=True) + self.eps)
            matrix = matrix / (matrix.sum(dim=1, keepdim=True) + self.eps)
        return matrix

    def fast(self, logits: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        flat = logits.flatten(2) if logits.ndim > 2 else logits.unsqueeze(-1)
        if _has_kernel(flat):
            from addnorm.kernels.depth_mixing.balancing import balanced

            return balanced(flat, self.rounds, self.eps).unflatten(-1, logits.shape[2:] or (1,)).view(logits.shape), ()
        out = torch.empty_like(flat, memory_format=torch.contiguous_format)
        for part in _spans(flat):
            _, out[..., part] = self._balanced(flat[..., part], kept=None)
        return out.view(logits.shape), ()

    def gradients(self, grad: Tensor, needed: Sequence[bool], kept: tuple[Tensor, ...], logits: Any) -> Gradients:
        flat, above = (each.flatten(2) if each.ndim > 2 else each.unsqueeze(-1) for each in (logits, grad))
        if _has_kernel(flat):
            from addnorm.kernels.depth_mixing.balancing import balanced_gradient

            gradient = balanced_gradient(flat, above, self.rounds, self.eps)
            return (gradient.unflatten(-1, logits.shape[2:] or (1,)).view(logits.shape),)
        out = torch.empty_like(flat, memory_format=torch.contiguous_format)
        for part in _spans(flat):
            matrices: list[Tensor] = []
            softmax, matrix = self._balanced(flat[..., part], matrices)
            of_logarithm = matrix * above[..., part]
            for _ in range(self.rounds - len(matrices) // 2):  # the rounds left out
                of_logarithm.addcmul_(matrix, of_logarithm.sum(dim=1, keepdim=True), value=-1)
                total = of_logarithm.sum(dim=0, keepdim=True)
                of_logarithm.addcmul_(matrix, total, value=-1)
                if _is_zero(total, torch.linalg.vector_norm(of_logarithm, ord=torch.inf)):
                    break
            for axis in ((1, 0) * (len(matrices) // 2))[:-1]:  # all but the first matrix, which is the softmax's
                total = of_logarithm.sum(dim=axis, keepdim=True)
                of_logarithm.addcmul_(matrices.pop(), total, value=-1)
            if self.eps:
                of_logarithm.mul_(softmax / (softmax + self.eps))
            out[..., part] = of_logarithm.addcmul_(softmax, of_logarithm.sum(dim=0, keepdim=True), value=-1)
        return (out.view(logits.shape),)

    def _balanced(self, logits: Tensor, kept: list[Tensor] | None) -> tuple[Tensor, Tensor]:
        """(the first softmax, the last matrix) of one chunk, contiguous; the matrix after every division is put into `kept`."""
        softmax = torch.softmax(logits.contiguous(), dim=0)
        matrix = softmax + self.eps if self.eps else softmax
        for done in range(self.rounds):
            if done:
                of_columns = matrix.sum(dim=0, keepdim=True)
                if not self.eps and _changes_nothing(done, of_columns):
                    break
                matrix = _divide(matrix, of_columns + self.eps if self.eps else of_columns, in_place=kept is None)
            if kept is not None:
                kept.append(matrix)
            of_rows = matrix.sum(dim=1, keepdim=True)
            matrix = _divide(matrix, of_rows + self.eps if self.eps else of_rows, in_place=kept is None)
            if kept is not None:
                kept.append(matrix)
        return softmax, matrix


def _divide(matrix: Tensor, sums: Tensor, *, in_place: bool) -> Tensor:
    return matrix.div_(sums) if in_place else matrix / sums


def _has_kernel(logits: Tensor) -> bool:
    """Return True where all rounds are one kernel: on a GPU, in float32, if Triton can compile it."""
    if logits.device.type != "cuda" or logits.dtype != torch.float32 or not has_compiler():
        return False
    from addnorm.kernels.depth_mixing.balancing import MOST_STREAMS

    return len(logits) <= MOST_STREAMS


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
