"""Queries of the null space, on spaces small enough to check by hand, and the rank rule."""

import numpy as np
import pytest
import torch
from null_checks import contains, spanned

from addnorm.errors import InputError, UnknownName
from addnorm.redundancy.algebra.linear_map import LinearMap, dense, identity
from addnorm.redundancy.algebra.rank import null_space, rank
from addnorm.redundancy.execution.tracked_parameters import TrackedParameter, TrackedParameters
from addnorm.redundancy.graph.null_space import NullSpace
from addnorm.redundancy.numeric.numerical_analysis import _sparse_null_space
from addnorm.redundancy.rewriting.folds import compensations


def tracked(**sizes: int) -> TrackedParameters:
    entries, at = [], 0
    for name, size in sizes.items():
        entries.append(
            TrackedParameter(
                name=name, aliases=(name, f"{name}.again"), shape=(size,), coordinates="entries", role="bias", offset=at
            )
        )
        at += size
    return TrackedParameters(entries=tuple(entries))


@pytest.fixture
def space() -> NullSpace:
    """k is free; o (2) absorbs v (2) by W and has its own all-ones direction; u cannot move."""
    weight = torch.tensor([[1.0, 2.0], [0.0, 1.0]], dtype=torch.float64)
    ones = torch.ones(2, 1, dtype=torch.float64)
    return NullSpace(
        tracked(k=3, v=2, o=2, u=1),
        {"k": {0: identity(3)}, "v": {1: identity(2)}, "o": {1: dense(2, -weight), 2: dense(2, ones)}},
    )


def test_the_numbers(space: NullSpace) -> None:
    assert space.dim == 6
    assert [(each.names, each.dim) for each in space.components] == [(("k",), 3), (("v", "o"), 3)]
    assert {name: len(space.redundant(name)) for name in "kvou"} == {"k": 3, "v": 1, "o": 1, "u": 0}
    assert {name: space.absorbable(name) for name in "kvou"} == {"k": 3, "v": 2, "o": 2, "u": 0}
    # v alone: W v is all-ones for v = W^-1 (1, 1) = (-1, 1).
    assert torch.allclose(space.redundant("v").abs(), torch.full((1, 2), 0.5**0.5, dtype=torch.float64))
    assert torch.allclose(space.redundant("o").diff(), torch.zeros(1, 1, dtype=torch.float64))


def test_two_free_vectors_that_cancel_move_a_third_parameter_alone() -> None:
    """a = z0 + z1, of which only b or c shows one: with the other two held, nothing is left; with a alone held, b is free."""
    both = {"a": {0: identity(3), 1: identity(3)}, "b": {0: identity(3)}}
    assert len(NullSpace(tracked(a=3, b=3), both).redundant("b")) == 3
    three = NullSpace(tracked(a=3, b=3, c=3), {**both, "c": {1: identity(3)}})
    assert [len(three.redundant(name)) for name in "abc"] == [0, 0, 0]


@pytest.mark.parametrize("seed", range(4))
def test_what_the_others_pin_does_not_depend_on_the_order_of_questions(seed: int) -> None:
    """Each parameter's own directions, asked in any order, are those of one system with all others held."""
    draws = np.random.default_rng(seed)
    names = [f"p{at}" for at in range(9)]
    maps = {
        name: {
            int(block): identity(2) if draws.random() < 0.7 else dense(2, torch.from_numpy(draws.normal(size=(2, 2))))
            for block in draws.choice(7, size=draws.integers(1, 4), replace=False)
        }
        for name in names
    }
    spaces = [NullSpace(tracked(**dict.fromkeys(names, 2)), maps) for _ in range(2)]
    for name in draws.permutation(names):
        spaces[0].redundant(str(name))
    whole = spaces[0].basis().numpy()
    for at, name in enumerate(names):
        held = np.delete(whole, [2 * at, 2 * at + 1], axis=1)
        own = null_space(held.T).T @ whole[:, 2 * at : 2 * at + 2]
        for each in spaces:
            assert len(each.redundant(name)) == (np.linalg.matrix_rank(own) if len(own) else 0), name
            assert np.linalg.matrix_rank(np.vstack([own, each.redundant(name).numpy()])) == len(each.redundant(name))


def test_both_forms_agree(space: NullSpace) -> None:
    again = spanned(space.tracked, space.basis())
    assert again.dim == space.dim
    for name in "kvou":
        assert again.absorbable(name) == space.absorbable(name)
        one, other = space.redundant(name), again.redundant(name)
        assert torch.allclose(one.T @ one, other.T @ other)
    delta = {name: torch.randn(each.size, dtype=torch.float64) for name, each in space.tracked.by_name.items()}
    delta = {name: delta[name] for name in "kvou"}
    for name, part in space.project(delta).items():
        assert torch.allclose(part, again.project(delta)[name])


def test_projection(space: NullSpace) -> None:
    vector = space.sample(torch.Generator().manual_seed(0))
    assert contains(space, vector)
    assert not contains(space, vector | {"u": torch.ones(1, dtype=torch.float64)})
    assert not contains(space, {"v": vector["v"]})
    for name, part in space.project(vector).items():
        assert torch.allclose(part, vector[name])
    away = {"v": torch.tensor([1.0, 0.0]), "o": torch.tensor([0.0, 3.0])}
    near = space.project(away)
    left = torch.cat([away[name].double() - near[name] for name in "vo"])
    basis = space.basis()[:, 3:7]
    assert torch.allclose(basis @ left, torch.zeros(6, dtype=torch.float64), atol=1e-12)


def test_folding(space: NullSpace) -> None:
    wanted = torch.tensor([1.0, 1.0], dtype=torch.float64)
    (fold,) = compensations(space, space.tracked["v.again"], wanted)
    assert fold.moved.keys() == {"o"}
    assert torch.equal(fold.moved["o"], torch.tensor([-3.0, -1.0], dtype=torch.float64))  # o = -W v
    assert contains(space, {"v": wanted, **fold.moved})
    assert list(compensations(space, space.tracked["u"], torch.ones(1).double())) == []
    (alone,) = compensations(space, space.tracked["k"], torch.ones(3).double())
    assert alone.moved == {}


def test_unknown_names_and_sizes(space: NullSpace) -> None:
    with pytest.raises(UnknownName, match="no tracked parameter 'kk'"):
        space.redundant("kk")
    with pytest.raises(InputError, match="expected a dense basis of at most"):
        NullSpace(tracked(k=6000), {"k": {0: identity(6000)}}).basis()


def test_maps_compose() -> None:
    first = LinearMap(height=3, rows=torch.tensor([2, 0]), matrix=None)
    second = dense(2, torch.arange(6, dtype=torch.float64).reshape(2, 3))
    third = LinearMap(height=4, rows=torch.tensor([3]), matrix=torch.ones(1, 2, dtype=torch.float64))
    whole = third.after(second).after(first)
    assert torch.equal(whole.dense(), third.dense() @ second.dense() @ first.dense())
    assert torch.equal(identity(3).after(first).dense(), first.dense())
    assert torch.equal(first.only(torch.tensor([1])).dense(), first.dense()[:, 1:])


def test_ranks_are_read_off_the_matrix_and_not_off_its_square() -> None:
    """Two columns at an angle of 1e-9: their Gram matrix is singular in float64, the columns are independent."""
    matrix = np.array([[1.0, 1.0], [0.0, 1e-9], [0.0, 0.0]])
    assert null_space(matrix).shape == (2, 0)
    assert rank(matrix) == 2
    matrix[1, 1] = 1e-13
    assert null_space(matrix).shape == (2, 1)
    assert rank(matrix) == 1


def test_null_space_of_known_rank() -> None:
    generator = np.random.default_rng(0)
    for rows, columns, known in ((30, 7, 4), (7, 30, 4), (5, 5, 5), (6, 3, 0)):
        matrix = generator.normal(size=(rows, known)) @ generator.normal(size=(known, columns))
        null = null_space(matrix)
        assert null.shape == (columns, columns - known)
        assert rank(matrix) == known
        assert np.abs(matrix @ null).max(initial=0) < 1e-12
        assert np.allclose(null.T @ null, np.eye(columns - known))
    assert np.array_equal(null_space(np.zeros((0, 3))), np.eye(3))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("error", [1e-12, 1e-9, 1e-8, 2e-8, 3e-8])
def test_sparse_vectors_of_a_measured_space_span_it(error: float, seed: int) -> None:
    # Each vector is exact for its own few parameters; together they have to be a basis, or a rewrite that solves for one
    # divides by the error with which gradients measured the space.
    draws = torch.Generator().manual_seed(seed)
    moved = [(0,), (3,), (0, 1), (1, 2), (2, 3), (3, 4), (1, 4, 5), (0, 2, 5), (0, 1, 2, 3)]
    vectors = torch.zeros(24, len(moved), dtype=torch.float64)
    for column, parameters in enumerate(moved):
        for at in parameters:
            vectors[4 * at : 4 * at + 4, column] = torch.randn(4, generator=draws, dtype=torch.float64)
    exact = torch.linalg.qr(vectors).Q
    measured = torch.linalg.qr(exact + error * torch.randn(exact.shape, generator=draws, dtype=torch.float64)).Q
    basis = _sparse_null_space(tracked(**{f"p{at}": 4 for at in range(6)}), measured).basis().double()
    assert basis.shape == (len(moved), 24)
    assert float(torch.linalg.svdvals(basis)[-1]) > 0.01
    span = torch.linalg.qr(basis.T).Q
    assert float((exact - span @ (span.T @ exact)).abs().max()) < 1e3 * error + 1e-12
