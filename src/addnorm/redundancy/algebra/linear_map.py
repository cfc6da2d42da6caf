"""Linear maps that exploit zero rows and the identity."""

from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True, kw_only=True)
class LinearMap:
    """y in R^height from x in R^width: y[rows] = matrix @ x, every other y is zero."""

    height: int
    rows: torch.Tensor
    """int64 [k], without repeats."""
    matrix: torch.Tensor | None
    """float64 [k, width]; None is the identity (k = width)."""
    regular: bool = False
    """True if it is proved, factor by factor, that only x = 0 gives y = 0; always True for the identity."""
    condition: float = 1.0
    """Upper bound of the ratio of the largest singular value to the smallest one that is not zero; infinite if unknown."""

    def __post_init__(self) -> None:
        if self.matrix is None:
            object.__setattr__(self, "regular", True)

    @property
    def width(self) -> int:
        """Number of inputs."""
        return len(self.rows) if self.matrix is None else self.matrix.shape[1]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return y for x of shape [width] or [width, columns]."""
        y = torch.zeros((self.height, *x.shape[1:]), dtype=torch.float64)
        y[self.rows] = x if self.matrix is None else self.matrix @ x
        return y

    def after(self, first: "LinearMap") -> "LinearMap":
        """Return the composition: this map applied to the result of `first`."""
        if self.matrix is None:
            if len(self.rows) == first.height == self.height and torch.equal(self.rows, torch.arange(self.height)):
                return first
            # Only rows are renamed, no number is touched: matrix, regularity and condition stay.
            return replace(first, height=self.height, rows=self.rows[first.rows])
        part = self.matrix if len(first.rows) == first.height and _ordered(first.rows) else self.matrix[:, first.rows]
        matrix = part if first.matrix is None else part @ first.matrix
        return LinearMap(
            height=self.height,
            rows=self.rows,
            matrix=matrix,
            regular=self.regular and first.regular,
            condition=self.condition * first.condition,
        )

    def plus(self, other: "LinearMap") -> "LinearMap":
        """Return the sum of two maps of equal shape."""
        # A sum of regular maps may vanish, so `regular` is not handed on.
        return dense(self.height, self.dense() + other.dense(), condition=max(self.condition, other.condition))

    def dense(self) -> torch.Tensor:
        """Return the matrix, float64 [height, width]."""
        whole = torch.zeros(self.height, self.width, dtype=torch.float64)
        if self.matrix is None:
            whole[self.rows, torch.arange(self.width)] = 1.0
        else:
            whole[self.rows] = self.matrix
        return whole

    def only(self, columns: torch.Tensor) -> "LinearMap":
        """Return the map restricted to some of its inputs (int64 [m])."""
        if self.matrix is None:
            return LinearMap(height=self.height, rows=self.rows[columns], matrix=None)
        return replace(self, matrix=self.matrix[:, columns])


def _ordered(rows: torch.Tensor) -> bool:
    return bool(torch.equal(rows, torch.arange(len(rows))))


def identity(size: int) -> LinearMap:
    """Return the map y = x."""
    return LinearMap(height=size, rows=torch.arange(size), matrix=None)


def dense(height: int, matrix: torch.Tensor, *, regular: bool = False, condition: float = 1.0) -> LinearMap:
    """Return the map y = matrix @ x."""
    return LinearMap(height=height, rows=torch.arange(height), matrix=matrix, regular=regular, condition=condition)
