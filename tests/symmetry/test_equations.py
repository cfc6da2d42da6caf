"""Elimination before singular values leaves the solutions as they are."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

from addnorm.symmetry.actions import equations
from addnorm.symmetry.actions.equations import Equations, negative, product_terms


def commuting(sizes: list[int], seed: int) -> Equations:
    """T A = A S for a chain of matrices A, with unknown T and S."""
    draws, made = np.random.default_rng(seed), Equations()
    left = made.unknowns(sizes[0], sizes[0])
    for one, other in itertools.pairwise(sizes):
        right = made.unknowns(other, other)
        matrix = draws.standard_normal((one, other))
        made.require(product_terms(left, matrix), negative(product_terms(matrix, right)))
        left = right
    return made


@pytest.mark.parametrize("sizes", [[5, 5, 5, 5], [4, 6, 6], [6, 4, 4]])
def test_solutions_are_those_of_singular_values(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    system = commuting(sizes, seed=1)
    wanted = system.solve().toarray()
    chosen: list[int] = []
    pivots = equations._pivots

    def counted(matrix: equations.sparse.csr_matrix) -> tuple[equations.Ids, equations.Ids, equations.Numbers]:
        made = pivots(matrix)
        chosen.append(len(made[0]))
        return made

    monkeypatch.setattr(equations, "_pivots", counted)
    monkeypatch.setattr(equations, "_MANY", 8)
    made = system.solve().toarray()
    assert sum(chosen) > 20, "the elimination that is tested must have had something to do"
    assert made.shape == wanted.shape
    basis = np.linalg.qr(wanted)[0]
    assert_allclose(basis @ (basis.T @ made), made, atol=1e-9)


def test_no_pivot_loses_more_than_a_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    """x + 1e-3 y + z + w / 2 = 0 defines any of them but y."""
    monkeypatch.setattr(equations, "_MANY", 0)
    matrix = equations.sparse.csr_matrix(np.array([[1.0, 1e-3, 1.0, 0.5]] * 3))
    rows, columns, numbers = equations._pivots(matrix)
    assert len(rows) == 1
    assert columns[0] != 1
    assert abs(numbers[0]) > 0.1
