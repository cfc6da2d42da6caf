"""Demands as systems of linear equations in the free coordinates."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from addnorm.redundancy.algebra.rank import kernel_and_clarity
from addnorm.redundancy.graph.shift import DenseTerm, DiagonalTerm, Term


def without_repeats(terms: Mapping[int, Term]) -> dict[int, Term]:
    """Return the maps without the entries along each axis that equal their predecessor in all maps: the tokens of an image, the
    inside of a padded grid.

    Equal entries give equal equations, and are constant along any axis if one of them is.
    """
    dims = max((len(term.reduced) for term in terms.values()), default=0)
    for axis in range(dims):
        varying = [term for term in terms.values() if isinstance(term, DenseTerm) and term.reduced[axis] > 1]
        if not varying or any(isinstance(term, DiagonalTerm) and term.axis == axis for term in terms.values()):
            continue
        # A diagonal axis is never thinned: its entries differ by construction. The entries that stay are the same for
        # all terms, so that equations still belong together.
        size = varying[0].reduced[axis]
        others = [at for at in range(dims + 1) if at != axis + 1]
        fresh = torch.ones(size, dtype=torch.bool)
        fresh[1:] = False
        for term in varying:
            one, next_one = (term.numbers.narrow(axis + 1, start, size - 1) for start in (0, 1))
            fresh[1:] |= (one != next_one).any(dim=others)
        if not bool(fresh.all()):
            kept = torch.nonzero(fresh).flatten()
            terms = {
                block: replace(term, numbers=term.numbers.index_select(axis + 1, kept))
                if isinstance(term, DenseTerm) and term.reduced[axis] > 1
                else term
                for block, term in terms.items()
            }
    return dict(terms)


def equations(term: Term, reduced: tuple[int, ...], together: Sequence[int]) -> torch.Tensor:
    """Return the map as a matrix [entries, coordinates]. The axes in `together` run fastest, so that the entries that a demand
    compares are neighbours."""
    given = term.dense() if isinstance(term, DiagonalTerm) else term
    numbers = given.numbers.expand(len(given.numbers), *reduced)
    order = [axis for axis in range(len(reduced)) if axis not in together] + list(together)
    return numbers.permute(0, *(axis + 1 for axis in order)).reshape(len(numbers), -1).T


def differences(matrix: torch.Tensor, group: int) -> torch.Tensor:
    """Return each entry of a group minus the group's first: zero if the shift is constant over the group."""
    split = matrix.reshape(-1, group, matrix.shape[1])
    return (split[:, 1:] - split[:, :1]).reshape(-1, matrix.shape[1])


def levelled(matrix: torch.Tensor, group: int, noise: float) -> torch.Tensor:
    """Set the entries of a group equal to its first if they differ from it only by rounding."""
    # Without this step the differences of equal entries are rounding errors of relative size one, which would count as
    # constraints and hide freedom.
    split = matrix.reshape(-1, group, matrix.shape[1])
    same = (split - split[:, :1]).abs() <= 16 * noise  # each of the two is off by at most 8 times the noise
    return torch.where(same, split[:, :1], split).reshape(matrix.shape)


def compressed(matrix: torch.Tensor) -> torch.Tensor:
    """Return equivalent equations, at most as many as coordinates."""
    # R has the null space of the rows. Rows are scaled first, because R mixes them: a demand on small weights would
    # drown in the rounding of one on large weights.
    kept = matrix[matrix.any(dim=1)]
    kept = kept / kept.norm(dim=1, keepdim=True)
    return torch.linalg.qr(kept, mode="r").R if len(kept) > kept.shape[1] else kept


def kernel_by_components(matrix: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """Return the null space [coordinates, k], and True if every rank is clear.

    Equations and coordinates form a bipartite graph; its connected components (heads, channels) are solved one by one, so that
    the singular values of one component are not compared with those of another, larger one.
    """
    rows, columns = matrix.shape
    # A singular value counts as zero relative to the largest of its matrix. Were all heads solved as one, a head whose
    # weights are 1e-11 of another's would be called free: a false proof.
    pattern = csr_matrix(matrix.ne(0).numpy())
    graph = csr_matrix(
        (np.ones(pattern.nnz), (pattern.nonzero()[0], rows + pattern.nonzero()[1])), shape=(rows + columns,) * 2
    )
    count, labels = connected_components(graph, directed=False)
    if count == 1:
        whole, clear = kernel_and_clarity(matrix.numpy())
        return torch.from_numpy(whole), clear
    parts, clear = [], True
    for each in range(count):
        equations_of, places = np.flatnonzero(labels[:rows] == each), np.flatnonzero(labels[rows:] == each)
        if len(places):
            part, part_clear = kernel_and_clarity(matrix.numpy()[np.ix_(equations_of, places)])
            parts.append((places, part))
            clear = clear and part_clear
    whole = np.zeros((columns, sum(part.shape[1] for _, part in parts)))
    start = 0
    for places, part in parts:
        whole[places, start : start + part.shape[1]] = part
        start += part.shape[1]
    return torch.from_numpy(whole), clear
