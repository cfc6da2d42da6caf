r"""Whether every variant is equally noisy, and how far the pooled noise may be trusted when not.

With s_v^2 the residual variance of variant v and d_v its degrees of freedom, Bartlett's statistic tests equal variances
at 5 %. When it rejects, the variances are taken as drawn around a common level with d_0 degrees of freedom,

    var(log s_v^2) - mean trigamma(d_v / 2) = trigamma(d_0 / 2),

and a pair with n shared seeds is tested on min(pooled df, d_0 + n - 1) degrees of freedom instead of the pooled ones.

Why: the larger of two standard errors protects against a noisy pair only as well as n - 1 degrees of freedom can tell
that it is noisy. When other variants show that noise differs, that doubt must enter the tail. With three references
five times as noisy as fifteen variants, 3 seeds, this brings false claims from 19 % to 9 %; with equal noise it costs
one or two points of power.

Source: Bartlett 1937, Proc. R. Soc. A 160, 268-282; d_0: Smyth 2004, Stat. Appl. Genet. Mol. Biol. 3, article 3, 6.2.
Differs from the source: Smyth also shrinks the variances; here only the degrees of freedom are taken.
"""

import numpy as np
from jaxtyping import Float
from scipy.special import chdtrc, polygamma

LEVEL = 0.05
"""Chance that even noise is called uneven."""


def bartlett_p(variances: Float[np.ndarray, "*batch variant"], df: Float[np.ndarray, " variant"]) -> np.ndarray:
    """Chance of variances this different when all variants are equally noisy, shape `batch`."""
    number, total = df.size, df.sum()
    pooled = (variances * df).sum(axis=-1) / total
    statistic = total * np.log(pooled) - (df * np.log(variances)).sum(axis=-1)
    correction = 1 + ((1 / df).sum() - 1 / total) / (3 * (number - 1))
    return np.asarray(chdtrc(number - 1, np.maximum(statistic / correction, 0.0)))


def prior_df(variances: Float[np.ndarray, "*batch variant"], df: Float[np.ndarray, " variant"]) -> np.ndarray:
    """d_0 of each batch entry: small where variants differ much in noise, infinite where no more than chance makes."""
    excess = np.log(variances).var(axis=-1, ddof=1) - polygamma(1, df / 2).mean()
    return np.where(excess > 0, 2 * _inverse_trigamma(np.asarray(np.maximum(excess, 1e-6))), np.inf)


def trusted_df(variances: Float[np.ndarray, "*batch variant"], df: Float[np.ndarray, " variant"]) -> np.ndarray:
    """d_0 where Bartlett's test rejects, infinite elsewhere; shape `batch`.

    Args:
        variances: residual variance of each variant.
        df: residual degrees of freedom of each variant, which need not be whole.
    """
    known = df >= 0.5
    if known.sum() < 3:
        return np.full(variances.shape[:-1], np.inf)
    seen = variances[..., known]
    # A variant without any residual is as uneven as can be; the floor keeps its logarithm finite.
    seen = np.maximum(seen, 1e-12 * seen.max(axis=-1, keepdims=True) + np.finfo(float).tiny)
    return np.where(bartlett_p(seen, df[known]) < LEVEL, prior_df(seen, df[known]), np.inf)


def _inverse_trigamma(target: np.ndarray) -> np.ndarray:
    """Newton's method on 1 / trigamma, which is convex (Smyth 2004, appendix)."""
    root = 0.5 + 1 / target
    for _ in range(15):
        value = polygamma(1, root)
        root = root + value * (1 - value / target) / polygamma(2, root)
    return np.asarray(root)
