"""Shortcuts of the rank rule and of demands: the same answers as singular values give, and no work for repeated equations."""

import numpy as np
import pytest
import torch
from null_checks import audited, counted
from torch import nn

from addnorm.redundancy.algebra import rank as rules
from addnorm.redundancy.algebra.rank import conditioned, fewer_rows, kernel_and_clarity, rank
from addnorm.redundancy.graph.equations import without_repeats
from addnorm.redundancy.graph.shift import DenseTerm, DiagonalTerm


def _matrix(rows: int, columns: int, values: list[float], seed: int = 0) -> np.ndarray:
    """A matrix with given singular values."""
    draw = np.random.default_rng(seed)
    left = np.linalg.qr(draw.standard_normal((rows, len(values))))[0]
    right = np.linalg.qr(draw.standard_normal((columns, len(values))))[0]
    return np.asarray((left * np.array(values)) @ right.T)


@pytest.mark.parametrize(("rows", "columns"), [(7, 7), (20, 7), (7, 20), (7, 8), (1, 3), (3, 1)])
@pytest.mark.parametrize("smallest", [1.0, 1e-3, 1e-6, 1e-8, 1e-13, 0.0])
def test_ranks_and_kernels_are_those_of_the_singular_values(rows: int, columns: int, smallest: float) -> None:
    count = min(rows, columns)
    matrix = _matrix(rows, columns, [*np.linspace(2, 1, count - 1), smallest])
    expected = np.linalg.matrix_rank(
        matrix, tol=1e-10 * max(1.0, np.linalg.norm(matrix, 2)) * min(rows, columns) ** 0.5
    )
    if count == 1 and smallest:
        expected = 1  # compared with itself, it is not small
    assert rank(matrix) == expected
    kernel, _ = kernel_and_clarity(matrix)
    assert kernel.shape == (columns, columns - expected)
    assert np.abs(kernel.T @ kernel - np.eye(kernel.shape[1])).max(initial=0.0) <= 1e-12
    assert np.abs(matrix @ kernel).max(initial=0.0) <= 1e-9 * np.abs(matrix).max(initial=1e-300)
    if expected == count:
        assert conditioned(matrix)[0] == (rows <= columns)


def test_columns_of_zeros_are_null_and_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    decomposed: list[tuple[int, ...]] = []
    svd = rules.svd
    monkeypatch.setattr(rules, "svd", lambda a, **options: decomposed.append(tuple(a.shape)) or svd(a, **options))
    places = [0, 2, 3, 7, 8]
    matrix = np.zeros((6, 9))
    matrix[:, places] = _matrix(6, 5, [2.0, 1.5, 1.0, 1.0, 0.0])
    kernel, clear = kernel_and_clarity(matrix)
    assert kernel.shape == (9, 5)
    assert clear
    assert np.abs(kernel.T @ kernel - np.eye(5)).max() <= 1e-12
    assert np.abs(matrix @ kernel).max() <= 1e-12
    assert decomposed == [(5, 5)]


def test_fewer_rows_have_the_same_singular_values() -> None:
    matrix = np.zeros((40, 12))
    matrix[3:33, 4:9] = _matrix(30, 5, [3.0, 2.0, 1.0, 1e-4, 0.0])
    fewer = fewer_rows(torch.from_numpy(matrix)).numpy()
    assert fewer.shape == (5, 12)
    before, after = (np.linalg.svd(each, compute_uv=False)[:5] for each in (matrix, fewer))
    assert np.abs(before - after).max() <= 1e-14 * 40  # float64's rounding, per row
    assert not np.delete(fewer, range(4, 9), axis=1).any()
    wide = torch.from_numpy(_matrix(4, 12, [1.0, 1.0, 1.0, 1.0]))
    assert torch.equal(fewer_rows(torch.cat([wide, torch.zeros(2, 12)])), wide)


def test_singular_values_are_not_computed_where_the_rank_is_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a decomposition")

    matrix = np.random.default_rng(0).standard_normal((40, 40))
    monkeypatch.setattr(rules, "svd", refuse)
    monkeypatch.setattr(rules, "_reduce", refuse)
    assert rank(matrix) == 40
    assert kernel_and_clarity(matrix)[0].shape == (40, 0)
    assert kernel_and_clarity(matrix[:38])[0].shape == (40, 2)
    assert conditioned(matrix)[0]


def test_squares_decide_nothing_below_their_rounding() -> None:
    assert rules._smallest(_matrix(9, 9, [*[1.0] * 8, 1e-3])) == pytest.approx(1e-3, rel=1e-3)
    assert not rules._smallest(_matrix(9, 9, [*[1.0] * 8, 1e-7]))
    assert not rules._smallest(np.full((2, 2), 1e160))


def test_repeated_entries_are_dropped_unless_a_map_differs() -> None:
    numbers = torch.tensor([[0.0, 1.0, 1.0, 1.0, 2.0]]).double()
    other = torch.tensor([[0.0, 0.0, 3.0, 3.0, 3.0]]).double()
    one = without_repeats({0: DenseTerm(numbers, 0.0)})
    assert one[0].reduced == (3,)
    both = without_repeats({0: DenseTerm(numbers, 0.0), 1: DenseTerm(other, 0.0)})
    assert both[0].reduced == both[1].reduced == (4,)  # entries 2 and 3 repeat in both
    diagonal = DiagonalTerm(torch.ones(5).double(), 0, 1, 0.0)
    assert without_repeats({0: DenseTerm(numbers, 0.0), 1: diagonal})[0].reduced == (5,)
    assert without_repeats({}) == {}


class Image(nn.Module):
    """Patches of an image behind a class token, between norms: the patches' bias moves all tokens but one."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 6, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, 6))
        self.first, self.second, self.out = nn.LayerNorm(6), nn.LayerNorm(6), nn.Linear(6, 3)
        self.mix = nn.Linear(6, 6)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        patches = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(image), -1, -1), patches], dim=1)
        x = x + self.mix(self.first(x))
        return self.out(self.second(x).mean(1))


def test_counts_of_an_image_model_are_those_of_its_jacobian() -> None:
    torch.manual_seed(0)
    case = audited(Image().eval(), torch.randn(2, 3, 16, 16))
    assert case.analysis.space.dim == counted(case)
    assert case.analysis.space.dim > 0
