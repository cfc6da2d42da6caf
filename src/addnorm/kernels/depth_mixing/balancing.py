"""`sinkhorn` on a GPU: one kernel for all rounds, whose matrices of a few streams stay in registers.

As torch's operations, twenty rounds are 120 kernels forward and as many backward at every site, each of which does almost
nothing.

The backward pass needs the matrix after every division, last first. Kept, they would be 2 · rounds · n² numbers of every
position in memory; they are computed anew from the logits instead. That is rounds² / 2 further rounds of n² divisions, which a
GPU does in about the time that the traffic would take (an estimate: nothing was timed on a card).
"""

# Triton has no type information, and its compiler reads the signatures itself.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-untyped"

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.interpreter import InterpretedFunction

MOST_STREAMS = 8
"""Streams whose matrices fit a thread's registers."""
ENTRIES, WARPS = 1024, 4
"""Numbers of a program's matrices, and its groups of 32 threads: 8 numbers in each. With more, those of eight streams are
spilled to memory."""


@triton.jit
def _divided(matrix, eps, AXIS: tl.constexpr):
    """Divide by the sums along an axis. Streams that only fill the block up to a power of two stay 0."""
    total = tl.sum(matrix, axis=AXIS) + eps
    return matrix / tl.expand_dims(tl.where(total > 0, total, 1.0), AXIS)


@triton.jit
def _softmax(logits, at, valid):
    """The softmax over target streams, axis 1, in float32."""
    x = tl.load(logits + at, mask=valid, other=float("-inf")).to(tl.float32)
    largest = tl.max(x, axis=1)
    exponential = tl.exp(x - tl.expand_dims(tl.where(largest == float("-inf"), 0.0, largest), 1))
    return _divided(exponential, 0.0, 1)


@triton.jit
def _places(positions, STREAMS: tl.constexpr, BLOCK_STREAMS: tl.constexpr, BLOCK: tl.constexpr):
    """(positions, target streams, source streams, which are there) of a program's block."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    place = tl.expand_dims(tl.expand_dims(place, 1), 2)
    stream = tl.arange(0, BLOCK_STREAMS)
    target, source = tl.expand_dims(tl.expand_dims(stream, 0), 2), tl.expand_dims(tl.expand_dims(stream, 0), 1)
    return place, target, source, (place < positions) & (target < STREAMS) & (source < STREAMS)


@triton.jit
def balance(
    logits, out, positions, target_step, source_step, position_step, eps,
    STREAMS: tl.constexpr, BLOCK_STREAMS: tl.constexpr, ROUNDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    place, target, source, valid = _places(positions, STREAMS, BLOCK_STREAMS, BLOCK)
    at = place * position_step + target * target_step + source * source_step
    matrix = tl.where(valid, _softmax(logits, at, valid) + eps, 0.0)
    matrix = _divided(matrix, eps, 2)
    for _ in range(ROUNDS - 1):
        matrix = _divided(_divided(matrix, eps, 1), eps, 2)
    tl.store(out + (place * STREAMS + target) * STREAMS + source, matrix, mask=valid)


@triton.jit
def differentiate_balance(
    logits, above, gradient, positions, target_step, source_step, position_step,
    above_target, above_source, above_position, eps,
    STREAMS: tl.constexpr, BLOCK_STREAMS: tl.constexpr, ROUNDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    place, target, source, valid = _places(positions, STREAMS, BLOCK_STREAMS, BLOCK)
    at = place * position_step + target * target_step + source * source_step
    softmax = _softmax(logits, at, valid)
    start = tl.where(valid, softmax + eps, 0.0)
    above_at = place * above_position + target * above_target + source * above_source
    # of the matrix until the last round is entered, and from then on of its logarithm
    of_logarithm = tl.load(above + above_at, mask=valid, other=0.0).to(tl.float32)
    for undone in range(ROUNDS):
        matrix = start
        for _ in range(ROUNDS - 1 - undone):
            matrix = _divided(_divided(matrix, eps, 2), eps, 1)
        by_rows = _divided(matrix, eps, 2)
        if undone == 0:
            of_logarithm *= by_rows
        of_logarithm -= by_rows * tl.expand_dims(tl.sum(of_logarithm, axis=2), 2)
        if undone < ROUNDS - 1:
            of_logarithm -= matrix * tl.expand_dims(tl.sum(of_logarithm, axis=1), 1)
    # Without eps a softmax may be 0, and so is what it passes on.
    of_softmax = of_logarithm * softmax / tl.where(softmax + eps > 0, softmax + eps, 1.0)
    of_logits = of_softmax - softmax * tl.expand_dims(tl.sum(of_softmax, axis=1), 1)
    tl.store(gradient + (place * STREAMS + target) * STREAMS + source, of_logits, mask=valid)


INTERPRETED = isinstance(balance, InterpretedFunction)
"""True if the kernels run in Triton's interpreter (TRITON_INTERPRET=1 when this module was first imported)."""


def balanced(logits: Tensor, rounds: int, eps: float) -> Tensor:
    """The matrices of logits [target, source, position], laid out with positions first."""
    out = _empty(logits)
    streams, _, positions = logits.shape
    steps = (logits.stride(0), logits.stride(1), logits.stride(2))
    sizes = launch_of(streams, rounds)
    balance[(triton.cdiv(positions, sizes["BLOCK"]),)](logits, out, positions, *steps, eps, **sizes)
    return out


def balanced_gradient(logits: Tensor, above: Tensor, rounds: int, eps: float) -> Tensor:
    """The gradient of the logits, from that of the matrices; all [target, source, position]."""
    out = _empty(logits)
    streams, _, positions = logits.shape
    steps = [each.stride(axis) for each in (logits, above) for axis in range(3)]
    sizes = launch_of(streams, rounds)
    programs = (triton.cdiv(positions, sizes["BLOCK"]),)
    differentiate_balance[programs](logits, above, out, positions, *steps, eps, **sizes)
    return out


def _empty(logits: Tensor) -> Tensor:
    streams, _, positions = logits.shape
    return torch.empty(positions, streams, streams, dtype=logits.dtype, device=logits.device).permute(1, 2, 0)


def launch_of(streams: int, rounds: int) -> dict[str, int]:
    """Constants and settings of a launch."""
    filled = triton.next_power_of_2(streams)
    block = max(1, ENTRIES // filled**2)
    return {"STREAMS": streams, "BLOCK_STREAMS": filled, "ROUNDS": rounds, "BLOCK": block, "num_warps": WARPS}
