"""Methods for noise that differs between variants: false claims and power of each, on simulated studies.

    python benchmarks/noise_methods.py                      # all scenarios, 3 and 5 seeds; about 10 minutes on one core
    python benchmarks/noise_methods.py --tables 400 --seeds 3

Each method gives a p value for every pair of a variant and a reference; Holm's procedure at 5 % decides. `current` is the
method of `addnorm.statistics`. The others set variants apart whose noise is far above the rest, so that they widen no other
comparison; docs/decisions/0030-noisy-variants.md explains the choice between them.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from scipy.special import fdtrc, fdtri, ndtr, stdtr

from addnorm.statistics.multiple_testing import holm, paired_tests
from addnorm.statistics.noise import fit_noise

SIGMA = 0.002
VARIANTS, REFERENCES = 18, 3
LEVEL = 0.10
"""Probability that any variant is set apart where all are equally noisy."""
LEAST_NOTICED = 1e-6

Method = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""From losses [table, variant, seed], present cells, pairs and references to the differences and p values of all pairs."""


def current(
    values: np.ndarray, present: np.ndarray, pairs: np.ndarray, references: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The larger of the pooled and the pair's own standard error, Bartlett's test, floors for noisy references."""
    tests = paired_tests(values, present, pairs, references)
    return tests.difference, tests.p_value


def set_apart(values: np.ndarray, present: np.ndarray, level: float) -> np.ndarray:
    """Find variants [table, variant] whose residual variance is far above the rest, the noisiest first.

    A variant is set apart where the F test of its variance against the other retained variants' rejects at `level`, divided
    by the number of tests. More than half of the variants are always retained.
    """
    apart = np.zeros(values.shape[:2], bool)
    undecided = np.arange(len(values))
    while undecided.size:
        changed = []
        for mask, tables in grouped(apart, undecided):
            retained = ~mask
            if retained.sum() - 1 < 2 or 2 * (retained.sum() - 1) <= retained.size:
                continue
            noise = fit_noise(values[tables], present & retained[:, None])
            tested = np.flatnonzero(retained & (noise.variant_df >= 0.5))
            if tested.size < 3:
                continue
            own, own_df = noise.variant_sd[:, tested] ** 2, noise.variant_df[tested]
            squares = own * own_df
            rest = (squares.sum(axis=-1, keepdims=True) - squares) / (noise.df - own_df)
            p = fdtrc(own_df, noise.df - own_df, own / rest)
            place = p.argmin(axis=-1)
            rejected = p[np.arange(tables.size), place] * tested.size < level
            apart[tables[rejected], tested[place[rejected]]] = True
            changed.append(tables[rejected])
        undecided = np.concatenate(changed) if changed else undecided[:0]
    return apart


def grouped(apart: np.ndarray, tables: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield each set of variants that is set apart, with the tables that it is set apart in."""
    masks, group = np.unique(apart[tables], axis=0, return_inverse=True)
    for number, mask in enumerate(masks):
        yield mask, tables[group.ravel() == number]


def apart(
    values: np.ndarray,
    present: np.ndarray,
    pairs: np.ndarray,
    references: np.ndarray,
    *,
    level: float = LEVEL,
    weight: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Noisy variants set apart; `weight` is the share of the estimated probability of unnoticed ones that enters a test.

    Comparisons among retained variants use the current method on these alone. A comparison with a variant that was set
    apart uses the larger of the pair's own standard error and sqrt((s_a^2 + s_b^2) / n), on n - 1 degrees of freedom.

    Where variants were noticed, others like them may be among the retained ones. With r_k the variance ratio of the noticed
    variant k to the pooled variance, L_vk the likelihood ratio of retained variant v's residual variance under r_k and
    under 1, q_k the probability that such a variant is noticed, and V retained variants, the odds that v is of k's kind are
    o_vk = L_vk / (q_k V), and w_vk = weight * o_vk / (1 + sum_k o_vk). The p value of a and b becomes

        2 P(T > |d| / se) + sum_k 2 (w_ak + w_bk) Phi(-|d| / sqrt((1 + r_k) s_pooled^2 / n)).
    """
    is_apart = set_apart(values, present, level)
    first, second = pairs[:, 0], pairs[:, 1]
    both = present[first] & present[second]
    count = both.sum(axis=-1)
    difference, p = current(values, present, pairs, references)
    p = p.copy()
    for mask, tables in grouped(is_apart, np.arange(len(values))):
        if not mask.any():
            continue
        losses, retained = values[tables], ~mask
        inner = retained[first] & retained[second]
        tests = paired_tests(losses, present & retained[:, None], pairs[inner], references[retained[references]])
        pooled = tests.noise.sd[:, None] ** 2
        variance, df = np.where(retained, pooled, 0.0), np.zeros(mask.size)
        for variant in np.flatnonzero(mask):  # its residuals about the seed levels of the retained variants
            beside = fit_noise(losses, present & (retained | (np.arange(mask.size) == variant))[:, None])
            variance[:, variant], df[variant] = beside.variant_sd[:, variant] ** 2, beside.variant_df[variant]

        outer = ~inner
        one, other, n = first[outer], second[outer], count[outer]
        deviations = np.where(both[outer], losses[:, one] - losses[:, other], 0.0)
        deviations = np.where(both[outer], deviations - (deviations.sum(axis=-1) / n)[..., None], 0.0)
        own = (deviations**2).sum(axis=-1) / (n - 1) / n
        error = np.sqrt(np.maximum(own, (variance[:, one] + variance[:, other]) / n))
        p[np.ix_(tables, np.flatnonzero(outer))] = 2 * stdtr(n - 1, -np.abs(difference[tables][:, outer]) / error)

        ratio = variance[:, mask] / pooled
        tested = retained & (tests.noise.variant_df >= 0.5)
        noticed = fdtrc(df[mask], tests.noise.df, fdtri(df[mask], tests.noise.df, 1 - level / tested.sum()) / ratio)
        half_df = np.where(tested, tests.noise.variant_df, 0.0)[None, :, None] / 2
        share = np.where(tested, tests.noise.variant_sd**2, 0.0)[..., None] / pooled[..., None]
        likelihood = np.exp(half_df * (share * (1 - 1 / ratio[:, None]) - np.log(ratio[:, None])))
        odds = likelihood / (np.maximum(noticed, LEAST_NOTICED)[:, None] * tested.sum())
        chance = weight * odds / (1 + odds.sum(axis=-1, keepdims=True)) * tested[:, None]
        spread = np.sqrt((1 + ratio[:, None]) * pooled[..., None] / count[inner][None, :, None])
        tail = ndtr(-np.abs(difference[tables][:, inner, None]) / spread)
        doubt = 2 * ((chance[:, first[inner]] + chance[:, second[inner]]) * tail).sum(axis=-1)
        p[np.ix_(tables, np.flatnonzero(inner))] = np.minimum(tests.p_value + doubt, 1.0)
    return difference, p


METHODS: dict[str, Method] = {
    "current": current,
    "apart, no doubt": partial(apart, weight=0.0),
    "apart, 0.2 of doubt": partial(apart, weight=0.2),
    "apart, all doubt": partial(apart, weight=1.0),
}


def scenarios() -> dict[str, np.ndarray]:
    """Standard deviations of the variants in units of SIGMA; the first three variants are the references."""

    def noisy(*levels: float, references: bool = False) -> np.ndarray:
        spread = np.ones(VARIANTS)
        spread[: len(levels)] = levels
        return spread if references else spread[::-1].copy()

    wide = np.geomspace(0.25, 4, VARIANTS)
    return {
        "equal": np.ones(VARIANTS),
        "16 to 1, references quietest": wide,
        "16 to 1, references noisiest": wide[::-1].copy(),
        "16 to 1, shuffled": np.random.default_rng(1).permutation(wide),
        "one variant 5 times": noisy(5),
        "one variant 10 times": noisy(10),
        "one variant 100 times": noisy(100),
        "two variants 5 times": noisy(5, 5),
        "three variants 5 times": noisy(5, 5, 5),
        "10, 5, 3 and 2 times": noisy(10, 5, 3, 2),
        "half 5 times": np.where(np.arange(VARIANTS) % 2 == 1, 5.0, 1.0),
        "one reference 4 times": noisy(4, references=True),
        "one reference 10 times": noisy(10, references=True),
        "all references 3 times": noisy(3, 3, 3, references=True),
        "references 4, 2 and 1 times": noisy(4, 2, 1, references=True),
    }


def simulate(
    method: Method, spread: np.ndarray, effect: np.ndarray, seeds: int, tables: int, start: int
) -> tuple[float, float]:
    """Share of tables with a false claim, and share of the true differences that are claimed."""
    rng = np.random.default_rng([start, seeds])
    values = 2.5 + 3 * SIGMA * rng.normal(size=(tables, 1, seeds)) + SIGMA * effect[:, None]
    values = values + SIGMA * spread[:, None] * rng.normal(size=(tables, VARIANTS, seeds))
    pairs = np.array([(a, b) for a in range(VARIANTS) for b in range(a + 1, VARIANTS) if a < REFERENCES])
    difference, p = method(values, np.ones((VARIANTS, seeds), bool), pairs, np.arange(REFERENCES))
    claimed = np.where(holm(p, len(pairs)) <= 0.05, np.sign(difference), 0.0)
    true = np.sign(effect[pairs[:, 0]] - effect[pairs[:, 1]])
    false = ((claimed != 0) & (claimed != true)).any(axis=-1).mean()
    power = (claimed == true)[:, true != 0].mean() if (true != 0).any() else np.nan
    return float(false), float(power)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=2000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 5])
    options = parser.parse_args()
    nothing, many = np.zeros(VARIANTS), np.r_[np.zeros(REFERENCES), np.full(VARIANTS - REFERENCES, 3.0)]
    for seeds in options.seeds:
        print(f"\n{seeds} seeds: false claims / power for 3 sigma\n")
        print(f"| scenario | {' | '.join(METHODS)} |\n|---|{'---|' * len(METHODS)}")
        for name, spread in scenarios().items():
            cells = []
            for method in METHODS.values():
                false, _ = simulate(method, spread, nothing, seeds, options.tables, 1)
                _, power = simulate(method, spread, many, seeds, options.tables // 4, 2)
                cells.append(f"{100 * false:.1f} % / {100 * power:.0f} %")
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
