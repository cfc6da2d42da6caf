r"""Residual noise of a study: how large it is, whether variants differ in it, and whether a reference is noisier than the rest.

**Additive model.** With every variant and every seed at a level of its own,

    y(variant, seed) = mu + alpha_variant + beta_seed + epsilon,     sigma^2 = RSS / (n - rank).

Why: all variants start from the same weights and see the same batches at one seed, so beta_seed is common to all of them.
Without it the noise of a paired difference is left. Pooled over all variants it has (variants - 1)(seeds - 1) degrees of
freedom, where one pair alone has seeds - 1. Least squares over the cells that exist treats missing runs without a special
case; with every cell present, RSS is the interaction sum of squares of the two-way table without replication.

Source: Scheffé 1959, "The Analysis of Variance", chapter 4; unbalanced tables: any text on linear models.
Differs from the source: nothing.

**Equal variance.** With s_v^2 the residual variance of variant v on d_v degrees of freedom, Bartlett's statistic tests equal
variances at 5 %. Where it rejects, the variances are modelled as drawn around a common level with d_0 degrees of freedom,

    var(log s_v^2) - mean trigamma(d_v / 2) = trigamma(d_0 / 2),

and a pair with n shared seeds is tested on min(pooled df, d_0 + n - 1) degrees of freedom instead of the pooled ones.

Why: the larger of the pooled and the pair's own standard error protects against a noisy pair only as far as n - 1 degrees of
freedom can detect it. Where other variants show that noise differs, that uncertainty has to widen the tail. With three
references five times as noisy as fifteen variants and 3 seeds, false claims fall from 19 % to 9 %; with equal noise the
power falls by one or two points.

Source: Bartlett 1937, Proc. R. Soc. A 160, 268-282; d_0: Smyth 2004, Stat. Appl. Genet. Mol. Biol. 3, article 3, 6.2.
Differs from the source: Smyth also shrinks the variances; here only the degrees of freedom are taken.

**Noisy references.** For a set A of references (each one alone, and all together) with residual variance s_A^2 on d_A
degrees of freedom, and s_o^2 on d_o of all other variants, A is noisy if F = s_A^2 / s_o^2 is significant at 5 % (one alone)
or 10 % (all together; an only one at 14 %). A pair of a noisy reference and another variant then has at least

    se^2 = (s_A^2 + s_o^2) / n    on at most    (s_A^2 + s_o^2)^2 / (s_A^4 / d_A + s_o^4 / d_o)    degrees of freedom,

and a pair within A has 2 s_A^2 / n on d_A.

Why: one reference takes part in as many comparisons as there are variants, with the same noise in all of them. If its
variance is underestimated, all of them are wrong together, which neither the pooled noise nor a pair's own corrects at three
seeds. The floor only raises standard errors and lowers degrees of freedom, so it makes no claim easier.

Source: Satterthwaite 1946, Biometrics Bull. 2, 110-114; the F test of two variances: any text.
Differs from the source: used as a floor, and only where the F test rejects. Residuals of the additive model share the seed
levels, so the two variances are not quite independent; the tests simulate the resulting error rates.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import chdtrc, fdtrc, polygamma

from addnorm.errors import InputError

EQUAL_VARIANCE_LEVEL = 0.05
"""Probability that Bartlett's test rejects equal variances that are equal."""
ONE_REFERENCE_LEVEL = 0.05
"""Probability that a reference of equal noise is found noisy by itself."""
ALL_REFERENCES_LEVEL = 0.10
"""Probability that references of equal noise are found noisy together."""
ONLY_REFERENCE_LEVEL = 0.14
"""The same where there is one reference, whose noise all comparisons share."""
ROUNDING = 8 * np.finfo(float).eps
"""Deviations of runs that differ by an exact constant, relative to the largest loss: rounding, not a noise estimate."""
# With missing runs, degrees of freedom of one variant are traces of a projection, and need not be whole. Below a half, the
# logarithm of its variance has a spread of several units, and one such variant would decide Bartlett's test.
_LEAST_DF = 0.5
"""Variants with fewer residual degrees of freedom carry no information on their own variance."""
_SINGULAR = 1e-9
"""Share of the largest eigenvalue below which an eigenvalue is rounding: those that are not are at least about 1 / cells."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Residual noise of one table or of a batch of tables."""

    sd: Float[np.ndarray, "*batch"]
    """Pooled standard deviation of epsilon; NaN where `df` is 0."""
    df: Int[np.ndarray, "*batch"]
    """Residual degrees of freedom."""
    variant_sd: Float[np.ndarray, "*batch variant"]
    """Residual standard deviation of each variant by itself; NaN where it has no residual."""
    variant_df: Float[np.ndarray, "*batch variant"]
    """Residual degrees of freedom of each variant, which need not be whole."""
    own_squares: Float[np.ndarray, "*batch variant"]
    """RSS - RSS_{-v}: by how much the residual sum of squares falls if the variant is left out."""
    own_df: Int[np.ndarray, "*batch variant"]
    """By how many degrees of freedom it falls; the seeds that the variant shares with others, less one, if they connect."""

    @cached_property
    def prior_df(self) -> Float[np.ndarray, "*batch"]:
        """d_0 where Bartlett's test rejects equal variances, infinite elsewhere."""
        return _prior_df_if_unequal(self.variant_sd**2, self.variant_df)


def fit_noise(
    values: Float[np.ndarray, "*batch variant seed"], present: Bool[np.ndarray, "*some variant seed"]
) -> Noise:
    """Fit the additive model to the cells that exist and estimate its residual noise.

    Args:
        values: losses; entries outside `present` are ignored.
        present: which variant has a counted run at which seed, for all tables of the batch or for each of them.

    Raises:
        InputError: a table without a cell.
    """
    if not present.any(axis=(-2, -1)).all():
        raise InputError("additive model: expected at least one finished run, got none.")
    fit = _fit_of(present)
    cells = np.where(present, values, 0.0)
    # The mean is subtracted first: losses near 2.5 with noise near 0.001 would otherwise lose three digits to cancellation.
    centred = cells - (cells.sum(axis=(-2, -1)) / present.sum(axis=(-2, -1)))[..., None, None]
    centred = np.where(present, centred, 0.0)
    within = np.where(present, centred - (centred.sum(axis=-1) / np.maximum(present.sum(axis=-1), 1))[..., None], 0.0)
    # Normal equations with the variant levels eliminated, see `_Fit`. They are solved with a pseudoinverse since seed levels
    # are defined up to a constant for each connected block of cells. Residuals do not depend on that constant; levels would, so
    # `fit_levels` solves its own problem and checks the rank.
    levels = np.einsum("...st,...t->...s", fit.inverse, within.sum(axis=-2))
    residual = within - np.einsum("...vst,...t->...vs", fit.centring, levels)
    squares = (residual**2).sum(axis=-1)
    own_squares = np.einsum("...vs,...vst,...vt->...v", residual, fit.deletion, residual)
    batch = squares.shape[:-1]
    known = fit.variant_df > 1e-9
    variances = np.where(known, squares / np.where(known, fit.variant_df, 1.0), np.nan)
    df = np.broadcast_to(fit.df, batch)
    return Noise(
        # numpy turns an array without axes into a scalar; the fields stay arrays for every batch shape.
        sd=np.asarray(np.where(df > 0, np.sqrt(squares.sum(axis=-1) / np.maximum(df, 1)), np.nan)),
        df=df,
        variant_sd=np.sqrt(variances),
        variant_df=np.broadcast_to(fit.variant_df, squares.shape),
        own_squares=own_squares,
        own_df=np.broadcast_to(fit.own_df, squares.shape),
    )


@dataclass(frozen=True, kw_only=True)
class _Fit:
    """Matrices of the least-squares fit that depend on the pattern of cells alone, for one pattern or one of each table.

    The variant levels are eliminated: with C_v the centring over the cells of variant v, the seed levels solve
    sum_v C_v b = sum_v C_v y_v, and the residual of v is C_v (y_v - b). Its covariance is sigma^2 (C_v - C_v A^+ C_v) with
    A = sum_v C_v, and e_v' (C_v - C_v A^+ C_v)^+ e_v is the fall of RSS if the variant is left out.
    """

    centring: Float[np.ndarray, "*batch variant seed seed"]
    """C_v."""
    inverse: Float[np.ndarray, "*batch seed seed"]
    """A^+."""
    deletion: Float[np.ndarray, "*batch variant seed seed"]
    """(C_v - C_v A^+ C_v)^+."""
    df: Int[np.ndarray, "*batch"]
    variant_df: Float[np.ndarray, "*batch variant"]
    own_df: Int[np.ndarray, "*batch variant"]


def _fit_of(present: Bool[np.ndarray, "*batch variant seed"]) -> _Fit:
    batch, shape = present.shape[:-2], present.shape[-2:]
    # Most tables of a batch have one pattern; a pseudoinverse for each of them would take most of the time.
    flat = present.reshape(-1, shape[0] * shape[1])
    _, first, which = np.unique(np.packbits(flat, axis=-1), axis=0, return_index=True, return_inverse=True)
    weight = flat[first].reshape(-1, *shape).astype(float)
    if len(weight) == 1 and _is_block(weight[0]):
        return _fit_of_block(weight[0], batch)
    count = np.maximum(weight.sum(axis=-1), 1.0)[..., None, None]
    centring = weight[..., None] * np.eye(shape[1]) - weight[..., None] * weight[..., None, :] / count
    inverse = np.linalg.pinv(centring.sum(axis=-3), rcond=_SINGULAR, hermitian=True)
    covariance = centring - centring @ inverse[:, None] @ centring
    # RSS - RSS_{-v} without refitting: the residuals e_v have covariance sigma^2 C, and e_v' C^+ e_v is the part of RSS that
    # belongs to v. `rcond` must lie between rounding (1e-15) and the smallest true eigenvalue (about 1 / cells): too large a
    # value drops degrees of freedom, too small a one divides by rounding.
    deletion = np.linalg.pinv(covariance, rcond=_SINGULAR, hermitian=True)
    variant_df = np.trace(covariance, axis1=-2, axis2=-1)
    own_df = np.einsum("...st,...ts->...", deletion, covariance)
    each = which.reshape(batch)
    return _Fit(
        centring=centring[each],
        inverse=inverse[each],
        deletion=deletion[each],
        df=np.asarray(np.rint(variant_df.sum(axis=-1)).astype(int)[each]),
        variant_df=variant_df[each],
        own_df=np.rint(own_df).astype(int)[each],
    )


def _is_block(weight: Float[np.ndarray, "variant seed"]) -> bool:
    """True if every variant that has a cell has one at every seed that another has."""
    return bool(weight.sum() == weight.any(axis=1).sum() * weight.any(axis=0).sum())


# Without missing runs, all C_v of the n variants are one projection C, so that A = n C, A^+ = C / n, and the covariance is
# (1 - 1 / n) C. Pseudoinverses would take the cube of the seeds: 10,000 runs of ten variants took minutes.
def _fit_of_block(weight: Float[np.ndarray, "variant seed"], batch: tuple[int, ...]) -> _Fit:
    own, at = weight.any(axis=1).astype(float), weight.any(axis=0).astype(float)
    variants, seeds = own.sum(), at.sum()
    centring = np.diag(at) - np.outer(at, at) / max(seeds, 1.0)
    share = 1 - 1 / variants if variants > 1 else 0.0
    each = own[:, None, None] * centring
    variant_df = own * share * (seeds - 1)
    own_df = np.rint(own * (seeds - 1) * (share > 0)).astype(int)
    return _Fit(
        centring=np.broadcast_to(each, (*batch, *each.shape)),
        inverse=np.broadcast_to(centring / max(variants, 1.0), (*batch, *centring.shape)),
        deletion=np.broadcast_to(each / share if share else np.zeros_like(each), (*batch, *each.shape)),
        df=np.asarray(np.broadcast_to(np.rint(variant_df.sum()).astype(int), batch)),
        variant_df=np.broadcast_to(variant_df, (*batch, variant_df.size)),
        own_df=np.broadcast_to(own_df, (*batch, own_df.size)),
    )


def fit_levels(
    values: Float[np.ndarray, "variant seed"], present: Bool[np.ndarray, "variant seed"]
) -> Float[np.ndarray, " variant"]:
    """Least-squares level of each variant at the average seed; NaN for a variant without a cell.

    Where the cells fall into blocks that share neither a variant nor a seed, seed effects cannot be separated from variant
    effects, and the plain means are returned.
    """
    levels = np.full(present.shape[0], np.nan)
    rows, columns = np.nonzero(present)
    known = present.any(axis=1)
    if rows.size == 0:
        return levels
    if _is_block(present.astype(float)):
        levels[known] = values[known][:, present.any(axis=0)].mean(axis=1)
        return levels
    cells = values[rows, columns]
    fitted, _, rank, _ = np.linalg.lstsq(_design(rows, columns, present.shape), cells - cells.mean(), rcond=None)
    if rank < known.sum() + present.any(axis=0).sum() - 1:
        levels[known] = [values[row][present[row]].mean() for row in np.flatnonzero(known)]
        return levels
    variants, seeds = fitted[: known.size], fitted[known.size :][present.any(axis=0)]
    levels[known] = cells.mean() + variants[known] + seeds.mean()
    return levels


def at_every_seed(
    values: Float[np.ndarray, "*batch variant seed"],
    present: Bool[np.ndarray, "variant seed"],
    constant: Bool[np.ndarray, " variant"],
) -> tuple[Float[np.ndarray, "*batch variant seed"], Bool[np.ndarray, "variant seed"]]:
    """Give constant variants their one value at every seed.

    Args:
        values: numbers of the cells; entries outside `present` are ignored.
        present: which variant has a counted run at which seed.
        constant: which variants are constant.

    Returns:
        `values` and `present` with those cells filled.
    """
    known = (constant & present.any(axis=-1))[:, None]
    one = np.where(present, values, 0.0).sum(axis=-1) / np.maximum(present.sum(axis=-1), 1)
    return np.where(known, one[..., None], values), present | known


def _design(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, ...]) -> Float[np.ndarray, "cell level"]:
    """Design matrix with one indicator per variant and per seed."""
    design = np.zeros((rows.size, shape[0] + shape[1]))
    cell = np.arange(rows.size)
    design[cell, rows] = 1.0
    design[cell, shape[0] + columns] = 1.0
    return design


def bartlett_p(variances: Float[np.ndarray, "*batch variant"], df: Float[np.ndarray, "*some variant"]) -> np.ndarray:
    """P value of Bartlett's test of equal variances, shape `batch`; variants without degrees of freedom take no part."""
    known = df > 0
    number, total = known.sum(axis=-1), df.sum(axis=-1)
    least = np.where(known, variances, 1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        pooled = (least * df).sum(axis=-1) / total
        statistic = total * np.log(pooled) - (df * np.log(least)).sum(axis=-1)
        inverse = np.where(known, 1 / np.where(known, df, 1.0), 0.0).sum(axis=-1)
        correction = 1 + (inverse - 1 / total) / (3 * (number - 1))
        return np.asarray(chdtrc(number - 1, np.maximum(statistic / correction, 0.0)))


def prior_df(variances: Float[np.ndarray, "*batch variant"], df: Float[np.ndarray, "*some variant"]) -> np.ndarray:
    """Smyth's d_0, shape `batch`: small where variances scatter widely, infinite where no more than chance explains."""
    known = df > 0
    number = known.sum(axis=-1)
    logs = np.log(np.where(known, variances, 1.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (logs.sum(axis=-1) / number)[..., None]
        scatter = np.where(known, (logs - mean) ** 2, 0.0).sum(axis=-1) / (number - 1)
        by_chance = np.where(known, polygamma(1, np.where(known, df, 1.0) / 2), 0.0).sum(axis=-1) / number
    excess = scatter - by_chance
    return np.where(excess > 0, 2 * _inverse_trigamma(np.asarray(np.maximum(excess, 1e-6))), np.inf)


def _prior_df_if_unequal(
    variances: Float[np.ndarray, "*batch variant"], df: Float[np.ndarray, "*some variant"]
) -> np.ndarray:
    known = np.broadcast_to(df >= _LEAST_DF, variances.shape)
    seen = np.where(known, variances, 0.0)
    # A variant without any residual is as unequal as can be; the floor keeps its logarithm finite.
    seen = np.maximum(seen, 1e-12 * seen.max(axis=-1, keepdims=True) + np.finfo(float).tiny)
    counted = np.where(known, df, 0.0)
    unequal = np.asarray(known.sum(axis=-1) >= 3) & (bartlett_p(seen, counted) < EQUAL_VARIANCE_LEVEL)
    df_of_prior = np.full(unequal.shape, np.inf)
    df_of_prior[unequal] = prior_df(seen[unequal], counted[unequal])
    return df_of_prior


def _inverse_trigamma(target: np.ndarray) -> np.ndarray:
    """Newton's method on 1 / trigamma, which is convex (Smyth 2004, appendix)."""
    # The start lies on the side from which Newton's steps on 1 / trigamma never overshoot; 15 steps reach rounding for every
    # target.
    root = 0.5 + 1 / target
    for _ in range(15):
        value = polygamma(1, root)
        root = root + value * (1 - value / target) / polygamma(2, root)
    return np.asarray(root)


@dataclass(frozen=True, kw_only=True)
class NoiseFloor:
    """Least noise of each pair because of noisy references, for one table or a batch with the same missing cells."""

    variance: Float[np.ndarray, "*batch pair"]
    """Least variance of the paired difference at one seed; 0 without a noisy reference."""
    df: Float[np.ndarray, "*batch pair"]
    """Largest number of degrees of freedom; infinite without a noisy reference."""
    noisy: Bool[np.ndarray, "*batch variant"]
    """True for references that are noisy, alone or together."""


def noise_floor(
    noise: Noise,
    pairs: Int[np.ndarray, "pair 2"],
    references: Int[np.ndarray, " reference"],
    retained: Bool[np.ndarray, "*batch variant"],
) -> NoiseFloor:
    """Test references against the other variants and derive the floor for their pairs.

    Args:
        noise: noise of the retained variants.
        pairs: indices of the two variants of each pair.
        references: indices of the variants whose noise many pairs share.
        retained: variants that are not set apart; the others take no part.
    """
    batch, variants = noise.variant_sd.shape[:-1], noise.variant_sd.shape[-1]
    variance = np.zeros((*batch, len(pairs)))
    df = np.full((*batch, len(pairs)), np.inf)
    noisy = np.zeros((*batch, variants), bool)
    known = retained & (noise.variant_df >= _LEAST_DF)
    squares = np.where(known, noise.variant_sd**2, 0.0) * noise.variant_df
    # The sets: each reference alone, and all together.
    member = np.eye(variants, dtype=bool)[references]
    levels = np.full(len(references), ONE_REFERENCE_LEVEL)
    if len(references) > 0:
        member = np.concatenate([member, member.any(axis=0, keepdims=True)])
        levels = np.append(levels, ALL_REFERENCES_LEVEL if len(references) > 1 else ONLY_REFERENCE_LEVEL)
    inside, others = retained[..., None, :] & member, known[..., None, :] & ~member
    inside_df, other_df = ((noise.variant_df[..., None, :] * part).sum(axis=-1) for part in (inside, others))
    with np.errstate(invalid="ignore", divide="ignore"):
        inside_var = (squares[..., None, :] * inside).sum(axis=-1) / inside_df
        other_var = (squares[..., None, :] * others).sum(axis=-1) / other_df
        rejected = (inside_var > other_var) & (fdtrc(inside_df, other_df, inside_var / other_var) < levels)
        mixed_df = (inside_var + other_var) ** 2 / (inside_var**2 / inside_df + other_var**2 / other_df)
    # What must hold for the F test: the set is complete (no member was set apart or lacks a variance), and at least two others
    # are left. The residuals of two variants are equal up to sign; fewer than two others give no variance to compare with.
    complete = (known[..., None, :] | ~inside).all(axis=-1) & inside.any(axis=-1)
    rejected &= complete & (others.sum(axis=-1) >= 2)
    noisy |= (rejected[..., None] & inside).any(axis=-2)
    for place in np.flatnonzero(rejected.any(axis=tuple(range(rejected.ndim - 1)))):
        # Of half a million pairs of a thousand variants, a thousand have one of them.
        members_in_pair = np.add(member[place][pairs[:, 0]], member[place][pairs[:, 1]], dtype=int)
        touched = np.flatnonzero(members_in_pair)
        both_retained = retained[..., pairs[touched, 0]] & retained[..., pairs[touched, 1]]
        for number, least_variance, most_df in (
            (1, inside_var + other_var, mixed_df),
            (2, 2 * inside_var, inside_df),
        ):
            # Sets overlap (one reference, all references): the largest floor and the fewest degrees of freedom win, each by
            # itself. That is stricter than either set alone, never looser.
            applies = rejected[..., place, None] & (members_in_pair[touched] == number) & both_retained
            least, most = variance[..., touched], df[..., touched]
            variance[..., touched] = np.where(applies, np.maximum(least, least_variance[..., place, None]), least)
            df[..., touched] = np.where(applies, np.minimum(most, most_df[..., place, None]), most)
    return NoiseFloor(variance=variance, df=df, noisy=noisy)
