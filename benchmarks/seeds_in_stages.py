"""Seeds in stages against a fixed number of seeds: false claims, power and runs, on simulated studies.

    python benchmarks/seeds_in_stages.py                 # about 15 minutes on one core
    python benchmarks/seeds_in_stages.py --tables 200

The layout is that of Kuang (2025): 13 variants, 3 of them references, 33 comparisons. Every table goes through all stages of
`addnorm.statistics.seeds_in_stages` as `addnorm run --until decided` does it, with the code that ranks. The noise of one run,
sigma, is the 0.0023 nats that the source's author reports. docs/decisions/0039-seeds-in-stages.md has the table.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

from addnorm.statistics.multiple_testing import Decisions, Evidence, Rule, decide
from addnorm.statistics.published import kuang_2025
from addnorm.statistics.seeds_in_stages import SeedsInStages, needed, prospects

SIGMA, MARGIN, CONFIDENCE = 0.0023, 0.005, 0.95
EQUAL = 1e-12
"""Differences below this are none."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Studies of one kind."""

    level: np.ndarray
    """True mean of each variant in nats; the first ones are the references."""
    spread: np.ndarray
    """Noise of each variant in units of SIGMA."""
    references: int = 3

    @property
    def pairs(self) -> np.ndarray:
        number = self.level.size
        return np.array([(a, b) for a in range(min(self.references, number)) for b in range(a + 1, number)])

    @property
    def rule(self) -> Rule:
        return Rule(family=len(self.pairs), confidence=CONFIDENCE, margin=MARGIN)


def printed_layout() -> np.ndarray:
    """The losses that Kuang (2025) prints, references first."""
    table = kuang_2025()
    loss = {result.variant: result.loss for result in reversed(table.results)}
    first = [loss.pop(name) for name in table.references]
    repeats = {name for name in loss if name.endswith("_2") and name.removesuffix("_2") in loss and name[1] == "4"}
    return np.array([*first, *(value for name, value in loss.items() if name not in repeats and name != "base_2")])


def scenarios() -> dict[str, Scenario]:
    """Studies without any difference, with differences, and with uneven noise."""
    ones = np.ones(13)
    half = np.where(np.arange(13) % 2 == 1, 3 * SIGMA, 0.0)
    shuffled = np.random.default_rng(1).permutation(np.geomspace(0.25, 4, 13))
    return {
        "no differences": Scenario(level=0 * ones, spread=ones),
        "every second variant differs by 3 sigma": Scenario(level=half, spread=ones),
        "differences of 0, 1, 2 and 3 sigma": Scenario(level=SIGMA * (np.arange(13) % 4), spread=ones),
        "the losses that the source prints": Scenario(level=printed_layout(), spread=ones),
        "no differences, one variant 5 times as noisy": Scenario(
            level=0 * ones, spread=np.where(np.arange(13) == 12, 5, 1.0)
        ),
        "no differences, noise from 1 to 16": Scenario(level=0 * ones, spread=shuffled),
        "no differences, all references 2 times as noisy": Scenario(
            level=0 * ones, spread=np.where(np.arange(13) < 3, 2, 1.0)
        ),
        "no differences, 3 variants": Scenario(level=np.zeros(3), spread=np.ones(3), references=1),
    }


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One simulated study."""

    claimed: np.ndarray
    equivalent: np.ndarray
    runs: int


def losses(scenario: Scenario, rng: np.random.Generator, seeds: int) -> np.ndarray:
    noise = scenario.spread[:, None] * rng.normal(size=(scenario.level.size, seeds))
    return 2.5 + scenario.level[:, None] + SIGMA * (3 * rng.normal(size=(1, seeds)) + noise)


def in_stages(scenario: Scenario, values: np.ndarray, design: SeedsInStages) -> Outcome:
    """Train, look, and train what is open, until nothing is."""
    pairs, references, rule = scenario.pairs, np.arange(scenario.references), scenario.rule
    present = np.zeros(values.shape, bool)
    rows: tuple[int, ...] = tuple(range(values.shape[0]))
    evidence: Evidence | None = None
    for place, seeds in enumerate(design.looks):
        present[rows, design.looks[place - 1] if place else 0 : seeds] = True
        newer = Evidence.at(design.look(place, design.seeds), values, present, pairs, references, rule)
        evidence = newer if evidence is None else evidence.then(newer)
        decisions = evidence.decisions(rule)
        rows = needed(prospects(decisions, design, rule), pairs)
        if not rows:
            break
    return outcome(decisions, int(present.sum()))


def at_once(scenario: Scenario, values: np.ndarray, seeds: int) -> Outcome:
    """Every variant with the same number of seeds, looked at once."""
    present = np.ones((values.shape[0], seeds), bool)
    decisions = decide(
        values[:, :seeds],
        present,
        scenario.pairs,
        np.arange(scenario.references),
        family=scenario.rule.family,
        confidence=CONFIDENCE,
        margin=MARGIN,
    )
    return outcome(decisions, present.size)


def outcome(decisions: Decisions, runs: int) -> Outcome:
    return Outcome(claimed=decisions.claimed, equivalent=decisions.equivalent, runs=runs)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Over many studies."""

    false: float
    """Share of studies with any false claim: a direction that is not the true one, or equivalence beyond the margin."""
    most: float
    """Upper end of its one-sided 99.9 % Clopper-Pearson interval."""
    power: float
    """Share of the true differences that are claimed with the right direction."""
    decided: float
    """Share of the comparisons that are decided, by difference or by equivalence."""
    runs: float
    """Mean number of runs."""


def rates(scenario: Scenario, tables: int, study: Callable[[np.ndarray], Outcome], seeds: int) -> Rates:
    """Simulate studies; every method sees the same ones."""
    rng = np.random.default_rng(7)
    differences = scenario.level[scenario.pairs[:, 0]] - scenario.level[scenario.pairs[:, 1]]
    true = np.where(np.abs(differences) < EQUAL, 0.0, np.sign(differences))
    false, found, decided, runs = 0, [], [], []
    for _ in range(tables):
        ending = study(losses(scenario, rng, seeds))
        wrong = (ending.claimed != 0) & (ending.claimed != true)
        wrong |= ending.equivalent & (np.abs(differences) >= MARGIN)
        false += bool(wrong.any())
        found.append((ending.claimed == true)[true != 0].mean() if (true != 0).any() else np.nan)
        decided.append(((ending.claimed != 0) | ending.equivalent).mean())
        runs.append(ending.runs)
    return Rates(
        false=false / tables,
        most=float(beta.ppf(0.999, false + 1, tables - false)) if false < tables else 1.0,
        power=float(np.mean(found)),
        decided=float(np.mean(decided)),
        runs=float(np.mean(runs)),
    )


def fixed_for(scenario: Scenario, tables: int, wanted: float, seeds: int, measure: str) -> Iterator[tuple[int, Rates]]:
    """Fixed numbers of seeds up to the first whose power (or share of decisions) reaches `wanted`."""
    for count in range(3, seeds + 1):
        found = rates(scenario, tables, lambda values, count=count: at_once(scenario, values, count), seeds)
        yield count, found
        if getattr(found, measure) >= wanted:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=2000)
    parser.add_argument("--most", type=int, nargs="+", default=[10, 20])
    options = parser.parse_args()
    for most in options.most:
        design = SeedsInStages.planned((0, 1, 2), most)
        print(f"\nAt most {most} seeds, looks at {', '.join(map(str, design.looks))}\n")
        print(
            "| study | any false claim (upper end) | power | decided | runs | fixed seeds of that power | share of runs |"
        )
        print("|---|---|---|---|---|---|---|")
        for name, scenario in scenarios().items():
            found = rates(
                scenario,
                options.tables,
                lambda values, of=scenario, plan=design: in_stages(of, values, plan),
                max(20, most),
            )
            fixed, share = "–", "–"
            if np.isfinite(found.power):
                *_, (count, at) = fixed_for(scenario, options.tables // 4, found.power, max(20, most), "power")
                reached = at.power >= found.power
                fixed = f"{count}" if reached else f"> {count}"
                share = f"{'' if reached else '< '}{100 * found.runs / (count * scenario.level.size):.0f} %"
            power = "–" if np.isnan(found.power) else f"{100 * found.power:.0f} %"
            print(
                f"| {name} | {100 * found.false:.1f} ({100 * found.most:.1f}) % | {power} | {100 * found.decided:.0f} % "
                f"| {found.runs:.0f} | {fixed} | {share} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
