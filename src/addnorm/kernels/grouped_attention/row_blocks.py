"""Places of scores in a flat buffer of a GPU: blocks of query rows one after another, as wide as the keys that they may see."""

from addnorm.kernels.grouped_attention.problem import AttentionProblem

MOST_BLOCK_ROWS = 64
LEAST_BLOCK_ROWS = 16
"""Fewest rows of a product in a kernel."""


def on_device(problem: AttentionProblem) -> bool:
    """True if the sum is kept by kernels for a GPU, False if by tiles of a CPU."""
    return problem.value.is_cuda


def block_rows(problem: AttentionProblem) -> int:
    """Query rows of a block, a power of two; the same for every layer of a model."""
    rows = LEAST_BLOCK_ROWS
    while rows < min(problem.query, MOST_BLOCK_ROWS):
        rows *= 2
    return rows


def slab_entries(problem: AttentionProblem) -> int:
    """Entries of all blocks of one head of one sequence."""
    p, rows = problem, block_rows(problem)
    blocks = -(-p.query // rows)
    if not p.causal:
        return blocks * rows * p.key
    return sum(rows * min(p.key, (block + 1) * rows + p.offset) for block in range(blocks))
