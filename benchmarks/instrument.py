"""The instrument, simulated: quiet pairs, uneven seed effects, the level of equivalence, stuck runs, two batches.

    python benchmarks/instrument.py                     # all of it; about 10 minutes on one core
    python benchmarks/instrument.py quiet stuck --tables 500

Each section compares the method in use with the one without its precaution, on the same tables. False claims are shares of
tables with at least one, with the upper end of a one-sided 99.9 % Clopper-Pearson interval. docs/decisions/0079-found-again.md
explains the choices. Scenarios marked `fresh` chose nothing: they were simulated once, after the levels were fixed.
"""

import argparse
from collections.abc import Callable, Mapping

import numpy as np
from scipy.stats import beta

from addnorm.statistics import Result, rank
from addnorm.statistics.multiple_testing import decide, equivalence_p, holm
from addnorm.statistics.pairs.paired_tests import PairedTests, paired_tests
from addnorm.statistics.stuck_runs import stuck_cells

SIGMA, MARGIN = 0.002, 0.005
Levels = Mapping[str, float]
NORMAL: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray] = lambda rng, shape: rng.normal(size=shape)  # noqa: E731


def heavy_tails(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_t(4, size=shape) / np.sqrt(2)


def skewed(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.gamma(2.0, size=shape) / np.sqrt(2)


def pairs_with(references: int, variants: int) -> np.ndarray:
    """Every pair that one of the first variants takes part in."""
    return np.array([(a, b) for a in range(references) for b in range(a + 1, variants)])


def rate(happened: np.ndarray) -> str:
    count = int(happened.sum())
    most = beta.ppf(0.999, count + 1, happened.size - count) if count < happened.size else 1.0
    return f"{100 * happened.mean():.1f} ({100 * most:.1f})"


def tested(values: np.ndarray, references: int, levels: Levels) -> tuple[np.ndarray, PairedTests]:
    """Claimed direction of every pair by Holm's procedure at 5 %, and the tests."""
    variants, seeds = values.shape[-2:]
    pairs = pairs_with(references, variants)
    tests = paired_tests(values, np.ones((variants, seeds), bool), pairs, np.arange(references), **levels)
    return np.where(holm(tests.p_value, len(pairs)) <= 0.05, np.sign(tests.difference), 0.0), tests


def table(title: str, columns: list[str], rows: Mapping[str, list[str]]) -> None:
    print(f"\n{title}\n\n| scenario | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for name, cells in rows.items():
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def near_copies(
    rng: np.random.Generator,
    tables: int,
    references: int,
    variants: int,
    seeds: int,
    times: float,
    sds: float,
    copies: int,
) -> np.ndarray:
    """So many variants are the first reference with a share `times` of a pair's noise, and `sds` of their own sd away."""
    noise = rng.normal(size=(tables, variants, seeds))
    own = times * np.sqrt(2)
    for copy in range(references, references + copies):
        noise[:, copy] = noise[:, 0] + own * (rng.normal(size=(tables, seeds)) + sds)
    return 2.5 + SIGMA * (noise + 3 * rng.normal(size=(tables, 1, seeds)))


def quiet(tables: int) -> None:
    without: Levels = {"quiet_level": 0.0}
    rows = {}
    for seeds in (3, 4, 5, 8):
        for references in (1, 3):
            for times in (0.1, 0.2):
                rng = np.random.default_rng([seeds, references])
                values = near_copies(rng, tables, references, 13, seeds, times, 5.0, 1)
                place = int(np.flatnonzero((pairs_with(references, 13) == [0, references]).all(axis=-1))[0])
                found = [
                    100 * (tested(values, references, levels)[0][:, place] == -1).mean() for levels in ({}, without)
                ]
                rows[f"{seeds} seeds, {references} reference(s), {times:g} of the noise"] = [
                    f"{each:.0f} %" for each in found
                ]
    table("Near-copies, 5 of their own sd apart, 13 variants: found", ["in use", "pooled noise"], rows)
    wide = np.random.default_rng(1).permutation(np.geomspace(0.25, 4, 13))
    kinds: dict[str, tuple[int, np.ndarray, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]]] = {
        "4 variants, even": (1, np.ones(4), NORMAL),
        "18 variants, even": (1, np.ones(18), NORMAL),
        "18 variants, 3 references, even": (3, np.ones(18), NORMAL),
        "13 variants, noise from 1 to 16": (1, wide, NORMAL),
        "5 variants, two 10 times": (1, np.array([1, 1, 1, 10, 10.0]), NORMAL),
        "fresh: half of 18 variants 5 times": (3, np.where(np.arange(18) % 2, 5.0, 1.0), NORMAL),
        "fresh: heavy tails (t4)": (2, np.ones(10), heavy_tails),
        "fresh: skewed (gamma 2)": (2, np.ones(10), skewed),
        "fresh: 24 variants, four 0.05 times": (2, np.r_[np.ones(20), np.full(4, 0.05)], NORMAL),
    }
    for seeds in (4, 5, 7):
        rows = {}
        for name, (references, spread, draw) in kinds.items():
            rng = np.random.default_rng([seeds, spread.size])
            noise = 3 * rng.normal(size=(tables, 1, seeds)) + spread[:, None] * draw(rng, (tables, spread.size, seeds))
            found = [(tested(2.5 + SIGMA * noise, references, levels)[0] != 0).any(axis=-1) for levels in ({}, without)]
            rows[name] = [rate(each) for each in found]
        for copies in (3, 6):
            values = near_copies(np.random.default_rng([seeds, copies]), tables, 1, 13, seeds, 0.1, 0.0, copies)
            found = [(tested(values, 1, levels)[0] != 0).any(axis=-1) for levels in ({}, without)]
            rows[f"{copies} near-copies of the reference that do not differ"] = [rate(each) for each in found]
        table(f"False claims in %, {seeds} seeds", ["in use", "pooled noise"], rows)


def seed_effects(tables: int) -> None:
    rows = {}
    for references, variants in ((1, 13), (1, 18), (2, 18), (3, 13), (3, 18), (5, 18)):
        for felt, spread in ((0.0, 1.5), (0.0, 3.0), (0.5, 3.0), (0.0, 5.0)):
            rng = np.random.default_rng([references, variants])
            of_seed = np.where(np.arange(variants) < references, felt, 1.0)[:, None] * spread
            noise = of_seed * rng.normal(size=(tables, 1, 3)) + rng.normal(size=(tables, variants, 3))
            found = [
                (tested(2.5 + SIGMA * noise, references, levels)[0] != 0).any(axis=-1)
                for levels in ({}, {"seed_effect_level": 0.0})
            ]
            rows[
                f"{variants} variants, {references} reference(s) feel {felt:g} of a seed effect of {spread:g} sigma"
            ] = [rate(each) for each in found]
    table("Uneven seed effects, 3 seeds: false claims in %", ["in use", "without the contrast"], rows)
    rows = {}
    for references, variants in ((1, 4), (1, 13), (3, 13), (3, 18), (5, 18)):
        for seeds in (3, 5):
            rng = np.random.default_rng([references, variants, seeds])
            level = np.where(np.arange(variants) < references, 0.0, 3.0)[:, None]
            noise = (
                level + 3 * rng.normal(size=(tables // 2, 1, seeds)) + rng.normal(size=(tables // 2, variants, seeds))
            )
            differs = pairs_with(references, variants)[:, 1] >= references
            found = [
                (tested(2.5 + SIGMA * noise, references, levels)[0] == -1)[:, differs].mean()
                for levels in ({}, {"seed_effect_level": 0.0})
            ]
            rows[f"{variants} variants, {references} reference(s), {seeds} seeds"] = [
                f"{100 * each:.1f} %" for each in found
            ]
    table("Power for 3 sigma, even seed effects", ["in use", "without the contrast"], rows)


def stuck(tables: int) -> None:
    """Share of studies with a warning, of those with at least one stuck and one other run; the stuck model is the last one."""
    rows = {}
    for seeds in (4, 5, 8, 12):
        for variants in (3, 6, 13):
            cells = []
            for gap in (10, 15, 30):
                rng = np.random.default_rng([seeds, variants, gap])
                lost = rng.random((tables, seeds)) < 0.1
                lost = lost[lost.any(axis=-1) & ~lost.all(axis=-1)]
                noise = 3 * rng.normal(size=(len(lost), 1, seeds)) + rng.normal(size=(len(lost), variants, seeds))
                noise[:, -1] += gap * lost
                found = warned(2.5 + SIGMA * noise)
                right = (found[:, -1] == lost).all(axis=-1) & ~found[:, :-1].any(axis=(-2, -1))
                cells.append(f"{100 * found.any(axis=(-2, -1)).mean():.0f} / {100 * right.mean():.0f} %")
            rng = np.random.default_rng([seeds, variants])
            shape = (tables // 4, variants, seeds)
            noise = (
                3 * rng.normal(size=(tables // 4, 1, seeds)) + rng.normal(size=shape) + 100 * (rng.random(shape) < 0.5)
            )
            cells.append(f"{100 * warned(2.5 + SIGMA * noise).any(axis=(-2, -1)).mean():.0f} %")
            for draw, times in ((NORMAL, 1.0), (NORMAL, 10.0), (heavy_tails, 1.0)):
                rng = np.random.default_rng([seeds, variants])
                noise = 3 * rng.normal(size=(tables // 4, 1, seeds)) + draw(rng, (tables // 4, variants, seeds))
                noise[:, -1] *= times
                cells.append(f"{100 * warned(2.5 + SIGMA * noise).any(axis=(-2, -1)).mean():.1f} %")
            rows[f"{variants} variants, {seeds} seeds"] = cells
    gaps = [f"gap of {gap} sigma: warned / right runs" for gap in (10, 15, 30)]
    half = "half of everybody's runs, by 100 sigma: warned"
    table(
        "Stuck runs: warnings, and false ones", [*gaps, half, "even", "one 10 times as noisy", "heavy tails (t4)"], rows
    )


def two_batches(tables: int) -> None:
    """Share of studies with a verdict of the first batch, with one that is found again, and of true differences found again."""
    rows = {}
    for name, spread, level in (
        ("even", np.ones(6), np.zeros(6)),
        ("reference 3 times as noisy", np.r_[3.0, np.ones(5)], np.zeros(6)),
        ("noise from 1 to 16", np.geomspace(0.25, 4, 6), np.zeros(6)),
        ("even, two of five differ by 3 sigma", np.ones(6), np.array([0, 0, 0, 0, 3.0, 3.0])),
        ("even, two of five differ by 4 sigma", np.ones(6), np.array([0, 0, 0, 0, 4.0, 4.0])),
    ):
        for seeds in (3, 5):
            rng = np.random.default_rng(seeds)
            # Every study that finds something is ranked with both batches, which is slow where most do.
            shape = (tables // 10 if level.any() else tables, 6, 2 * seeds)
            noise = 3 * rng.normal(size=(shape[0], 1, 2 * seeds)) + spread[:, None] * rng.normal(size=shape)
            values = 2.5 + SIGMA * (level[:, None] + noise)
            erring = (tested(values[..., :seeds], 1, {})[0] != 0).any(axis=-1)
            false, true, found = 0, 0, 0
            for losses in values[erring]:
                ranking = rank(runs_of(losses), references=["v0"], second=range(seeds, 2 * seeds), margin=1e-9)
                for_all = {name: ranking[f"v{name}"].versus["v0"].again for name in range(1, 6)}
                again = {name for name, of in for_all.items() if of is not None and of.state == "found again"}
                false += any(level[name] == 0 for name in again)
                found += sum(level[name] != 0 and of is not None for name, of in for_all.items())
                true += sum(level[name] != 0 for name in again)
            happened = np.arange(shape[0]) < false
            share = f"{100 * true / found:.0f} %" if found else "-"
            rows[f"{name}, {seeds} + {seeds} seeds"] = [f"{100 * erring.mean():.1f}", rate(happened), share]
    table("Two batches", ["a verdict in the first", "a false one found again, %", "true ones found again"], rows)


def runs_of(losses: np.ndarray) -> list[Result]:
    return [
        Result(variant=f"v{variant}", seed=seed, loss=float(loss))
        for variant, row in enumerate(losses)
        for seed, loss in enumerate(row)
    ]


def warned(values: np.ndarray) -> np.ndarray:
    everything = np.ones(values.shape[1:], bool)
    return np.array([stuck_cells(losses, everything)[0] for losses in values])


def equivalence(tables: int) -> None:
    rows = {}
    for seeds in (3, 5, 10):
        for variants in (3, 6, 13):
            for sigma in (0.0005, 0.001, 0.002, 0.004):
                rng = np.random.default_rng([seeds, variants])
                level = np.where(np.arange(variants) < 2, 0.0, MARGIN)
                noise = 3 * rng.normal(size=(tables, 1, seeds)) + rng.normal(size=(tables, variants, seeds))
                values, pairs = 2.5 + level[:, None] + sigma * noise, pairs_with(1, variants)
                found = decide(
                    values,
                    np.ones((variants, seeds), bool),
                    pairs,
                    np.array([0]),
                    family=len(pairs),
                    confidence=0.95,
                    margin=MARGIN,
                )
                p, true = equivalence_p(found.tests, margin=MARGIN), -np.sign(level[1:])
                wrong = (found.claimed != 0) & (found.claimed != true)
                cells = []
                for equal in (found.equivalent, len(pairs) * p < 0.05, 2 * len(pairs) * p < 0.05):
                    false = (wrong | (equal & (true != 0))).any(axis=-1)
                    cells.append(f"{rate(false)} / {100 * equal[:, 0].mean():.0f} %")
                rows[f"{variants} variants, {seeds} seeds, sigma {sigma:g}"] = cells
    title = "One variant equal, the others at the margin: false claims in % / the equal one is found so"
    table(title, ["in use", "alpha / m for all", "alpha / 2m for all"], rows)


SECTIONS = {
    "quiet": quiet,
    "seed-effects": seed_effects,
    "equivalence": equivalence,
    "stuck": stuck,
    "two-batches": two_batches,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", help=", ".join(SECTIONS))
    parser.add_argument("--tables", type=int, default=8000)
    options = parser.parse_args()
    for name in options.sections or SECTIONS:
        SECTIONS[name](options.tables)


if __name__ == "__main__":
    main()
