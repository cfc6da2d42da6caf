r"""The noise that is left when every variant and every seed has its own level.

    y(variant, seed) = mu + alpha_variant + beta_seed + epsilon,     sigma^2 = RSS / (n - rank)

Why: all variants see the same start and the same batches at one seed, so a seed is good or bad for all of them alike.
Taking beta_seed out leaves the noise that a paired difference has. Pooling it over all variants gives
(variants - 1)(seeds - 1) degrees of freedom where one pair alone has seeds - 1.

The fit is least squares over the cells that exist, so missing runs need no special case: with every cell present RSS is
the interaction sum of squares of the two-way table without replication.

Source: Scheffé 1959, "The Analysis of Variance", chapter 4; unbalanced case: any text on linear models.
Differs from the source: nothing.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from addnorm.errors import InputError
from addnorm.statistics.equal_variance import trusted_df


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The pooled residual noise of one table, or of a batch of tables with the same missing cells."""

    sd: Float[np.ndarray, "*batch"]
    """Standard deviation of epsilon; not a number where `df` is 0."""
    df: int
    """Residual degrees of freedom."""
    variant_sd: Float[np.ndarray, "*batch variant"]
    """Residual standard deviation of each variant by itself; not a number where it has no residual."""
    variant_df: Float[np.ndarray, " variant"]
    """Residual degrees of freedom of each variant, which need not be whole."""
    trusted_df: Float[np.ndarray, "*batch"]
    """How far the variants' noise is alike (`evenness`): infinite where nothing speaks against it."""


def fit_noise(values: Float[np.ndarray, "*batch variant seed"], present: Bool[np.ndarray, "variant seed"]) -> Noise:
    """Fit the additive model to the cells that exist.

    Args:
        values: losses; entries outside `present` are ignored.
        present: which variant has a counted run at which seed.

    Raises:
        InputError: no cell is present.
    """
    rows, columns = np.nonzero(present)
    if rows.size == 0:
        raise InputError("the additive model needs at least one finished run, got none.")
    cells = values[..., rows, columns]
    basis = _column_space(rows, columns, present.shape)
    # The mean goes first: losses near 2.5 with noise near 0.001 would otherwise lose three digits to cancellation.
    centred = cells - cells.mean(axis=-1, keepdims=True)
    residual = centred - (centred @ basis) @ basis.T
    df = rows.size - basis.shape[1]
    batch = cells.shape[:-1]
    if df == 0:
        nothing = np.full((*batch, present.shape[0]), np.nan)
        return Noise(
            sd=np.full(batch, np.nan),
            df=0,
            variant_sd=nothing,
            variant_df=np.zeros(present.shape[0]),
            trusted_df=np.full(batch, np.inf),
        )
    member = (rows[:, None] == np.arange(present.shape[0])).astype(float)
    variant_df = (1 - (basis**2).sum(axis=1)) @ member
    known = variant_df > 1e-9
    squares = residual**2 @ member
    variances = np.where(known, squares / np.where(known, variant_df, 1.0), np.nan)
    return Noise(
        # numpy turns an array without axes into a scalar; the fields stay arrays whatever the batch.
        sd=np.asarray(np.sqrt(squares.sum(axis=-1) / df)),
        df=df,
        variant_sd=np.sqrt(variances),
        variant_df=variant_df,
        trusted_df=trusted_df(variances, variant_df),
    )


def fit_levels(
    values: Float[np.ndarray, "variant seed"], present: Bool[np.ndarray, "variant seed"]
) -> Float[np.ndarray, " variant"]:
    """Least-squares level of each variant at the average seed; not a number for a variant without a cell.

    Where the cells fall apart into blocks that share neither a variant nor a seed, seed effects cannot be told from
    variants, and the plain means are returned.
    """
    levels = np.full(present.shape[0], np.nan)
    rows, columns = np.nonzero(present)
    known = present.any(axis=1)
    if rows.size == 0:
        return levels
    cells = values[rows, columns]
    fitted, _, rank, _ = np.linalg.lstsq(_design(rows, columns, present.shape), cells - cells.mean(), rcond=None)
    if rank < known.sum() + present.any(axis=0).sum() - 1:
        levels[known] = [values[row][present[row]].mean() for row in np.flatnonzero(known)]
        return levels
    variants, seeds = fitted[: known.size], fitted[known.size :][present.any(axis=0)]
    levels[known] = cells.mean() + variants[known] + seeds.mean()
    return levels


def _column_space(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, ...]) -> Float[np.ndarray, "cell rank"]:
    """Orthonormal basis of what the variant and seed levels can explain; its rank counts disconnected blocks too."""
    design = _design(rows, columns, shape)
    left, singular, _ = np.linalg.svd(design, full_matrices=False)
    return left[:, singular > singular[0] * max(design.shape) * np.finfo(float).eps]


def _design(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, ...]) -> Float[np.ndarray, "cell level"]:
    """One indicator per variant and per seed."""
    design = np.zeros((rows.size, shape[0] + shape[1]))
    cell = np.arange(rows.size)
    design[cell, rows] = 1.0
    design[cell, shape[0] + columns] = 1.0
    return design
