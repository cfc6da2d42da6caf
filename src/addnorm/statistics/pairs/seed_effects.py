r"""References on which seeds act in another way than on the variants that they are compared with.

The additive model gives a seed one effect on all variants. Where the references feel it less than the others, or not at all,
something that depends on the seed is left in every difference with a reference, the same in all of them. Neither the pooled
noise nor a reference's own shows it: among three references that share it, each one's residuals are taken for noise of its own.

**Contrast.** Let RSS_A and RSS_o be the residual sums of squares of the R references and of the V - R other variants, each with
seed effects of its own, and RSS that of all with common ones. Under equal, normal noise

    F = ((RSS - RSS_A - RSS_o) / d) / ((RSS_A + RSS_o) / d_w)

has the F distribution with d and d_w degrees of freedom, with any cells missing. Where it is significant at 5 %, its numerator
is c^2 = sigma^2 + tau^2 / k with k = 1 / R + 1 / (V - R) and tau the spread over seeds of what the two groups do not share, and
the difference of a reference and another variant has at least

    se^2 = (k c^2 + (2 - k) s_w^2) / n        (that is, 2 sigma^2 + tau^2)

with s_w^2 = (RSS_A + RSS_o) / d_w, on at most Satterthwaite's degrees of freedom. This floor makes no claim easier. A single
reference is a variant that is noisier than the rest, which `noise` tests already.

Source: the F test of a linear hypothesis: Scheffé 1959, chapter 2; Satterthwaite 1946, Biometrics Bull. 2, 110-114.
Differs from the source: used as a floor, and only where the F test rejects.
"""

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import fdtrc

from addnorm.statistics.noise import Noise, NoiseFloor, fit_noise

SEED_EFFECT_LEVEL = 0.05
"""Probability that references on which seeds act as on the others are found to differ in that."""


def seed_effects(
    values: Float[np.ndarray, "*batch variant seed"],
    present: Bool[np.ndarray, "*some variant seed"],
    noise: Noise,
    pairs: Int[np.ndarray, "pair 2"],
    references: Int[np.ndarray, " reference"],
    *,
    level: float = SEED_EFFECT_LEVEL,
) -> NoiseFloor:
    """Test whether seeds act on the references as on the others, and derive the floor for their pairs.

    Args:
        values: losses; entries outside `present` are ignored.
        present: which retained variant has a counted run at which seed.
        noise: noise of the retained variants.
        pairs: indices of the two variants of each pair.
        references: indices of the variants that the others are compared with.
        level: at which the floor is applied; 0 applies none.

    Returns:
        The floor, and in `noisy` the references on which seeds act in a way of their own.
    """
    batch = noise.sd.shape
    member = np.zeros(present.shape[-2], bool)
    member[references] = True
    inside, outside = present & member[:, None], present & ~member[:, None]
    rows = [np.broadcast_to(part.any(axis=-1).sum(axis=-1), batch) for part in (inside, outside)]
    known = (rows[0] > 1) & (rows[1] > 1) if level else np.zeros(batch, bool)
    shape = (*batch, len(pairs))
    variance, df, noisy = np.zeros(shape), np.full(shape, np.inf), np.zeros((*batch, member.size), bool)
    if not known.any():
        return NoiseFloor(variance=variance, df=df, noisy=noisy)
    tables = values[known]
    cells = [np.broadcast_to(part, (*batch, *part.shape[-2:]))[known] for part in (inside, outside)]
    within = [fit_noise(tables, part) for part in cells]
    within_df = within[0].df + within[1].df
    within_squares = sum(np.where(part.df > 0, part.sd**2 * part.df, 0.0) for part in within)
    contrast_df = noise.df[known] - within_df
    contrast_squares = np.maximum(noise.sd[known] ** 2 * noise.df[known] - within_squares, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        contrast, rest = contrast_squares / contrast_df, within_squares / within_df
        possible = (contrast_df > 0) & (within_df > 0) & (rest > 0)
        rejected = possible & (fdtrc(contrast_df, within_df, contrast / rest) < level)
        share = 1 / rows[0][known] + 1 / rows[1][known]
        least = share * contrast + (2 - share) * rest
        most_df = least**2 / ((share * contrast) ** 2 / contrast_df + ((2 - share) * rest) ** 2 / within_df)
    # Of two references, and of two others, the part that the groups do not share cancels.
    between = member[pairs].sum(axis=-1) == 1
    variance[known] = np.where(rejected[:, None] & between, least[:, None], 0.0)
    df[known] = np.where(rejected[:, None] & between, most_df[:, None], np.inf)
    noisy[known] = rejected[:, None] & cells[0].any(axis=-1)
    return NoiseFloor(variance=variance, df=df, noisy=noisy)
