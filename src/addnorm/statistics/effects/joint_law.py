r"""The common law of losses against compute, fitted jointly to several models:

    L_v(C) = limit + A_v C^-exponent,        one limit and one exponent for all, limit >= 0, A_v > 0.

Least squares on the mean losses, weighted by their runs. Given the exponent the law is linear in the limit and the A_v, so a
search over the exponent is enough. Two sizes do not determine the limit, which is 0 then.

Source: Hoffmann et al. 2022, arXiv:2203.15556 (the form of the law).
Differs from the source: one law of compute; limit and exponent are shared by the models that are compared.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import nnls

from addnorm.errors import InputError
from addnorm.fields import JsonFields

_EXPONENTS = np.geomspace(0.01, 2.0, 61)
"""Exponents that the search begins with; published ones lie between 0.03 and 0.6."""


@dataclass(frozen=True, kw_only=True)
class CurveLaw(JsonFields):
    """limit + coefficient · C^-exponent."""

    limit: float
    coefficient: float
    exponent: float

    def at(self, compute: float) -> float:
        """Loss of the model with that compute."""
        return self.limit + self.coefficient * compute**-self.exponent

    def compute_for(self, loss: float) -> float | None:
        """Compute with which the model has that loss; None for a loss that it never reaches."""
        above = loss - self.limit
        return (self.coefficient / above) ** (1 / self.exponent) if above > 0 else None


@dataclass(frozen=True, kw_only=True)
class SolvedLaw:
    """The law of every model, with compute in units of `exp(centre)`."""

    limit: float
    coefficients: Float[np.ndarray, " variant"]
    exponent: float
    centre: float

    def law(self, variant: int) -> CurveLaw:
        """The law of one model in its own unit of compute."""
        coefficient = float(self.coefficients[variant]) * math.exp(self.exponent * self.centre)
        return CurveLaw(limit=self.limit, coefficient=coefficient, exponent=self.exponent)


class JointLaw:
    """The joint fit of a fixed design.

    Args:
        compute: of a run of every model at every size.
        runs: number of runs behind every mean loss.
        limit: loss that no compute goes below; fitted unless given.
        exponent: of the law; fitted unless given.
    """

    def __init__(
        self,
        *,
        compute: Float[np.ndarray, "size variant"],
        runs: Int[np.ndarray, "size variant"],
        limit: float | None = None,
        exponent: float | None = None,
    ) -> None:
        self.limit = 0.0 if limit is None and len(compute) == 2 else limit
        self.exponent = exponent
        # Compute in units of its geometric mean: powers of 1e20 lose every digit of a least-squares fit.
        logs = np.log(compute)
        self.centre = float(logs[:, 0].mean())
        self.logs = logs - self.centre
        self.weights = np.sqrt(runs)

    def _solved(
        self, means: Float[np.ndarray, "size variant"], exponent: float
    ) -> tuple[float, Float[np.ndarray, " value"]]:
        """Sum of squares; the limit, and the coefficient of every model, none of them negative."""
        powers = np.exp(-exponent * self.logs)
        columns = [np.ones_like(powers), *(powers * own for own in np.eye(powers.shape[1]))]
        target = means if self.limit is None else means - self.limit
        columns = columns if self.limit is None else columns[1:]
        coefficients, size = nnls(self._rows(columns), (self.weights * target).ravel())
        return float(size**2), coefficients if self.limit is None else np.array([self.limit, *coefficients])

    def solve(self, means: Float[np.ndarray, "size variant"]) -> SolvedLaw:
        """The law that fits the mean losses best.

        Raises:
            InputError: the losses do not fall with compute.
        """
        exponent = self.exponent
        if exponent is None:
            costs = [self._solved(means, each)[0] for each in _EXPONENTS]
            place = int(np.argmin(costs))
            low, high = _EXPONENTS[max(place - 1, 0)], _EXPONENTS[min(place + 1, len(_EXPONENTS) - 1)]
            exponent = _smallest(lambda each: self._solved(means, each)[0], float(low), float(high))
        limit, *coefficients = self._solved(means, exponent)[1]
        if min(coefficients) <= 0:
            raise InputError("expected losses that a law of compute fits, got none that fall. Check the compute.")
        return SolvedLaw(limit=float(limit), coefficients=np.array(coefficients), exponent=exponent, centre=self.centre)

    def influence(self, solved: SolvedLaw, gradient: Float[np.ndarray, " value"]) -> Float[np.ndarray, "size variant"]:
        """Derivatives of a quantity by the mean losses, from the linearised fit; a parameter at its bound is held there.

        Args:
            solved: the fitted law.
            gradient: of the quantity, by the coefficient of every model, the exponent and the limit.
        """
        powers = np.exp(-solved.exponent * self.logs)
        columns = [*(powers * own for own in np.eye(powers.shape[1]))]
        kept = [*range(len(columns))]
        at_bound = not _EXPONENTS[0] * 1.001 < solved.exponent < _EXPONENTS[-1] * 0.999
        if self.exponent is None and not at_bound:
            columns.append(-solved.coefficients * powers * self.logs)
            kept.append(powers.shape[1])
        if self.limit is None and solved.limit > 0:
            columns.append(np.ones_like(powers))
            kept.append(powers.shape[1] + 1)
        row = gradient[kept] @ np.linalg.pinv(self._rows(columns), rcond=1e-10)
        return np.asarray(row.reshape(self.weights.shape) * self.weights)

    def _rows(self, columns: list[np.ndarray]) -> Float[np.ndarray, "mean value"]:
        return np.stack([(self.weights * each).ravel() for each in columns], axis=1)


def _smallest(cost: Callable[[float], float], low: float, high: float) -> float:
    """Golden-section search on the logarithm."""
    share = (math.sqrt(5) - 1) / 2
    a, b = math.log(low), math.log(high)
    for _ in range(40):
        c, d = b - share * (b - a), a + share * (b - a)
        a, b = (a, d) if cost(math.exp(c)) < cost(math.exp(d)) else (c, b)
    return math.exp((a + b) / 2)
