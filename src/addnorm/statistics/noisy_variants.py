r"""Variants that are far noisier than the rest: set apart, so that they widen no comparison of the others.

**Setting apart.** Leaving variant v out lowers the residual sum of squares of the additive model (`noise`) from RSS to RSS_{-v}
and its degrees of freedom by d_v. Under equal, normal noise the two parts are independent, with any cells missing, and

    F_v = ((RSS - RSS_{-v}) / d_v) / (RSS_{-v} / df_{-v})

has the F distribution with d_v and df_{-v} degrees of freedom. Of V variants that can be tested, the one with the smallest p
value is set apart if p < 10 % (1 - 2 / V) / V; the rest is tested again while more than half of the variants are retained.

Why RSS_{-v}: among V variants, one that is n times as noisy leaves about (n / V)^2 of the variance in each of the others'
residuals, so that a ratio within one fit is at most about V^2 and notices nothing among three or four variants. Why 1 - 2 / V:
among few variants, the retained ones are those that lie closest by chance; without the factor three equally noisy variants have
5.5 % of false claims at three seeds, with it 4.3 %. Two variants show one noise only, and none is set apart.

**Comparisons with a variant u that was set apart.** Its variance s_u^2 is (RSS - RSS_{-u}) / d_u in the fit of the retained
variants and u; that of a retained variant is the pooled one. With n shared seeds,

    se = max( sd(differences) / sqrt(n),  sqrt((s_a^2 + s_b^2) / n) )    on n - 1 degrees of freedom.

**Doubt about the retained.** Where variants were noticed, others like them may not have been. With K variants set apart,
r_k = s_k^2 / sigma^2 of each of them, V retained variants that can be tested, q_k the probability that the F test notices a
variance ratio r_k, and s_v^2 = (RSS - RSS_{-v}) / d_v of a retained variant,

    L_vk = exp( d_v / 2 (s_v^2 / sigma^2 (1 - 1 / r_k) - log r_k) ),      o_vk = L_vk / (q_k V),
    c = min( 1, (K - 1 + 3 / V) / K ),                                    w_vk = c o_vk / (1 + sum_j o_vj)

are the likelihood ratio, the odds and the weight of "v is of k's kind". The upper tail of the error of a retained pair is

    P(error > x) = P(T > x / se) + sum_k (w_ak + w_bk) Phi(-x / sqrt((1 + r_k) sigma^2 / n)).

The p value (both sides), the simultaneous interval and the equivalence test all use this tail (`multiple_testing`).

Why c: 1 / q_k is the number of k's kind that exist for each one noticed, so that c = 1 would be right if every noisy variant
were one of a class. Then a single noisy variant would take most of the others' power again. So each further one counts fully,
and the first for 3 / V: fewer variants leave a noisy one more often unnoticed. docs/decisions/0030-noisy-variants.md has the
simulated rates of this choice and of others.

Source: the F test of a linear hypothesis (here: the cells of v have levels of their own): Scheffé 1959, chapter 2.
Differs from the source: stepwise, at a level that depends on V; the doubt is this project's.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import fdtrc, fdtri

from addnorm.statistics.noise import ROUNDING, Noise, fit_noise

SET_APART_LEVEL = 0.10
"""Probability that any of many equally noisy variants is set apart, before the test is repeated."""
FIRST_NOTICED = 3.0
"""Share of the doubt that the first variant set apart raises, times the number of retained variants."""
_LEAST_NOTICED = 1e-6
_LARGEST_LOG = 700.0


def set_apart(
    values: Float[np.ndarray, "*batch variant seed"],
    present: Bool[np.ndarray, "variant seed"],
    *,
    level: float = SET_APART_LEVEL,
) -> Bool[np.ndarray, "*batch variant"]:
    """Find the variants whose residual variance is far above that of the rest, the noisiest first.

    Args:
        values: losses; entries outside `present` are ignored.
        present: which variant has a counted run at which seed.
        level: of all first tests together.

    Raises:
        InputError: no cell is present.
    """
    batch, variants = values.shape[:-2], present.shape[0]
    tables = np.where(present, values, 0.0).reshape(-1, *present.shape)
    apart = np.zeros((len(tables), variants), bool)
    # What must hold: more than half of the variants that could be tested at first are retained. Otherwise "the rest" would be
    # the quiet minority, and every other variant would be called noisy. The count is that of the first fit: a variant that
    # becomes untestable because others were set apart must not lower the bar.
    tested_first = leaving_out_p(fit_noise(tables, present))[1].sum(axis=-1)
    # Tables of a batch take different numbers of steps. Each step refits only those in which the last step set a variant apart;
    # the simulations run ten thousand tables through this loop, and refitting all of them would take most of their time.
    open_tables = np.arange(len(tables))
    while open_tables.size:
        losses, retained = tables[open_tables], ~apart[open_tables]
        # One variant per step, the most significant first. Two noisy variants hide each other: while both are in the fit, each
        # inflates the variance that the other is compared with. Setting all significant ones apart at once would miss the
        # second and could take a quiet variant, whose residuals hold a share of the noisy ones' noise.
        p, tested = leaving_out_p(fit_noise(losses, present & retained[..., None]))
        place = p.argmin(axis=-1)
        least = np.take_along_axis(p, place[:, None], axis=-1)[:, 0]
        first = tested_first[open_tables]
        most_retained = 2 * (first - apart[open_tables].sum(axis=-1) - 1) > first
        rejected = np.flatnonzero((least < _critical_p(tested.sum(axis=-1), level)) & most_retained)
        open_tables, place = open_tables[rejected], place[rejected]
        if open_tables.size:
            apart[open_tables, place] = True
            # Where nothing but rounding is left without the variant, it is the only one that shows any noise.
            without = present & ~apart[open_tables][..., None]
            scale = np.max(np.abs(np.where(without, tables[open_tables], 0.0)), axis=(-2, -1))
            noiseless = fit_noise(tables[open_tables], without).sd <= ROUNDING * scale
            apart[open_tables[noiseless], place[noiseless]] = False
            open_tables = open_tables[~noiseless]
    return apart.reshape(*batch, variants)


def _critical_p(number: Int[np.ndarray, "*batch"], level: float) -> Float[np.ndarray, "*batch"]:
    """Largest p value at which one of `number` variants is set apart."""
    number = np.maximum(number, 2)
    return level * (1 - 2 / number) / number


def leaving_out_p(noise: Noise) -> tuple[Float[np.ndarray, "*batch variant"], Bool[np.ndarray, "*batch variant"]]:
    """P value of F_v for each variant, 1 where it cannot be tested, and which can."""
    left_df = noise.df[..., None] - noise.own_df
    tested = (noise.own_df > 0) & (left_df > 0)
    left = np.maximum((noise.sd**2 * noise.df)[..., None] - noise.own_squares, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = (noise.own_squares / noise.own_df) / (left / left_df)
        # Equal to the last digit, as two variants are: no ratio, and no variance to compare with.
        p = np.where(np.isnan(ratio), 1.0, fdtrc(noise.own_df, left_df, ratio))
    return np.where(tested, p, 1.0), tested


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """Contribution of unnoticed noisy variants to the tail of each pair's error; no component where none was set apart."""

    weight: Float[np.ndarray, "*batch pair component"]
    """Probability that one of the pair is of the kind of a variant that was set apart, as far as it counts."""
    sd: Float[np.ndarray, "*batch pair component"]
    """Standard error of the difference if it is."""


@dataclass(frozen=True, kw_only=True)
class OwnNoise:
    """The variants of each table that were set apart, with their own variance; a slot with 0 degrees of freedom is empty."""

    variant: Int[np.ndarray, "*batch slot"]
    variance: Float[np.ndarray, "*batch slot"]
    df: Int[np.ndarray, "*batch slot"]

    def merged(
        self, retained: Float[np.ndarray, "*batch some"], apart: Bool[np.ndarray, "*batch variant"]
    ) -> Float[np.ndarray, "*batch variant"]:
        """Variance of every variant: its own if it was set apart, else that of `retained`."""
        merged = np.broadcast_to(retained, apart.shape).copy()
        for slot in range(self.df.shape[-1]):
            place = self.variant[..., slot : slot + 1]
            others = np.take_along_axis(merged, place, axis=-1)
            filled = self.df[..., slot : slot + 1] > 0
            np.put_along_axis(merged, place, np.where(filled, self.variance[..., slot : slot + 1], others), axis=-1)
        return merged


def own_noise(
    values: Float[np.ndarray, "*batch variant seed"],
    present: Bool[np.ndarray, "variant seed"],
    apart: Bool[np.ndarray, "*batch variant"],
) -> OwnNoise:
    """Estimate the variance of each variant that was set apart beside the retained ones."""
    # A slot is the place of one variant that was set apart, so that tables with one and with three of them share arrays. Tables
    # with fewer leave slots empty (0 degrees of freedom); every reader masks by `df > 0`.
    slots = int(apart.sum(axis=-1).max(initial=0))
    # A stable sort puts those that are set apart first.
    variant = np.argsort(~apart, axis=-1, kind="stable")[..., :slots]
    variance, df = np.zeros(variant.shape), np.zeros(variant.shape, int)
    for slot in range(slots):
        filled = np.take_along_axis(apart, variant[..., slot : slot + 1], axis=-1)[..., 0]
        among = variant[filled][:, slot : slot + 1]
        compared = ~apart[filled]
        # Each one is measured with the retained variants alone: two that are set apart would take each other's noise for their
        # own.
        np.put_along_axis(compared, among, True, axis=-1)
        noise = fit_noise(values[filled], present & compared[..., None])
        squares, own_df = (np.take_along_axis(part, among, axis=-1)[:, 0] for part in (noise.own_squares, noise.own_df))
        df[filled, slot] = own_df
        variance[filled, slot] = squares / np.maximum(own_df, 1)
    return OwnNoise(variant=variant, variance=variance, df=df)


def doubt(
    noise: Noise,
    own: OwnNoise,
    pairs: Int[np.ndarray, "pair 2"],
    count: Int[np.ndarray, " pair"],
    *,
    share: float = 1.0,
    level: float = SET_APART_LEVEL,
) -> Doubt:
    """Weigh the possibility that a retained variant is of the kind of one that was set apart.

    Args:
        noise: noise of the retained variants.
        own: noise of the variants that were set apart.
        pairs: indices of the two variants of each pair.
        count: shared seeds of each pair.
        share: of the doubt that is counted; 0 for none.
        level: at which variants were set apart.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        pooled = noise.sd[..., None] ** 2
        ratio = np.where(own.df > 0, own.variance / pooled, np.nan)
        tested = leaving_out_p(noise)[1]
        number = tested.sum(axis=-1, keepdims=True)
        df = np.maximum(noise.df, 1)[..., None]
        # q_k, from the F test by which variants are set apart, with the same critical value. Were it larger than the real
        # probability of notice, the doubt would be too small, and pairs with an unnoticed noisy variant would be claimed too
        # often.
        noticed = fdtrc(own.df, df, fdtri(own.df, df, 1 - _critical_p(number, level)) / ratio)
        relative = noise.own_squares / pooled
        # log L_vk = (d_v / 2)(s_v^2 / sigma^2 (1 - 1 / r_k) - log r_k), with d_v s_v^2 = own_squares. Kept as a logarithm until
        # the last line: with r_k = 10^4, the case of a variant that fails to train, L_vk overflows.
        exponent = relative[..., None] * (1 - 1 / ratio[..., None, :])
        exponent = (exponent - noise.own_df[..., None] * np.log(ratio[..., None, :])) / 2
        odds = np.exp(np.minimum(exponent, _LARGEST_LOG)) / (np.maximum(noticed, _LEAST_NOTICED) * number)[..., None, :]
        odds = np.where(tested[..., None] & np.isfinite(odds), odds, 0.0)
        kinds = np.maximum((own.df > 0).sum(axis=-1), 1)
        counted = share * np.minimum((kinds - 1 + FIRST_NOTICED / number[..., 0]) / kinds, 1.0)
        weight = np.where(odds > 0, counted[..., None, None] * odds / (1 + odds.sum(axis=-1, keepdims=True)), 0.0)
        # The sum over both variants is a union bound: it may count the case that both are noisy twice, which can only widen the
        # tail.
        weight = weight[..., pairs[:, 0], :] + weight[..., pairs[:, 1], :]
        sd = np.sqrt((1 + ratio[..., None, :]) * pooled[..., None] / count[:, None])
    return Doubt(weight=np.where(np.isfinite(sd), weight, 0.0), sd=np.where(np.isfinite(sd), sd, 0.0))
