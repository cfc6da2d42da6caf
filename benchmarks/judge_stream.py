"""Streams of proposals: false keeps, runs and power of `addnorm judge`, beside gates as people write them.

    python benchmarks/judge_stream.py            # 200 streams of 1000 proposals each, some minutes
    python benchmarks/judge_stream.py 40 200

The tests run the same functions with fewer and shorter streams.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from addnorm.statistics.stream import StreamRule, log_e_value

PROBES = (1, 10, 100, 1000)
Draw = Callable[[np.random.Generator, int], np.ndarray]


def normal(rng: np.random.Generator, size: int) -> np.ndarray:
    return rng.normal(size=size)


def heavy(rng: np.random.Generator, size: int) -> np.ndarray:
    return rng.standard_t(5, size=size) / np.sqrt(5 / 3)


@dataclass
class Outcome:
    """Streams of one scenario."""

    false: np.ndarray
    """False keeps of each stream."""
    kept: np.ndarray
    runs: np.ndarray
    """Runs of each stream, those of baselines included."""
    power: dict[tuple[int, float], float]
    """Share of streams that keep an improvement by so many standard deviations as proposal of that number."""
    power_runs: dict[tuple[int, float], float]
    progress: np.ndarray
    """Improvement of the last baseline over the first."""


@dataclass
class State:
    """Streams beside each other: the baseline and the pooled variance of each."""

    rng: np.random.Generator
    draw: Draw
    truth: np.ndarray
    mean: np.ndarray
    number: np.ndarray
    squares: np.ndarray
    df: np.ndarray
    runs: np.ndarray
    against: np.ndarray
    """Proposals that were decided against the present baseline."""

    def add_baseline_runs(self, which: np.ndarray, target: np.ndarray) -> None:
        """Run baselines up to a number of runs; Welford's update."""
        while (short := which & (self.number < target)).any():
            y = self.truth + self.draw(self.rng, len(self.truth))
            gap = y - self.mean
            number = self.number + 1
            new = self.number > 0
            self.squares += np.where(short & new, gap**2 * self.number / number, 0.0)
            self.df += short & new
            self.mean = np.where(short, self.mean + gap / number, self.mean)
            self.number = np.where(short, number, self.number)
            self.runs += short


def proposal(
    state: State, rule: StreamRule, number: int, keeps: np.ndarray, truth: np.ndarray, noise: float, *, record: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Judge one proposal in every stream: where it is kept, and its runs. With `record`, its runs join the pooled variance."""
    size = len(truth)
    open_, kept, used = np.ones(size, bool), np.zeros(size, bool), np.zeros(size, int)
    mean, own = np.zeros(size), np.zeros(size)
    for runs in range(1, rule.most_runs + 1):
        y = truth + noise * state.draw(state.rng, size)
        gap = y - mean
        own = np.where(open_, own + gap**2 * (runs - 1) / runs, own)
        mean = np.where(open_, mean + gap / runs, mean)
        used += open_
        at = np.flatnonzero(open_)
        df = state.df[at] + runs - 1
        variance = (state.squares[at] + own[at]) / df
        log_e = log_e_value(state.mean[at] - mean[at], runs, state.number[at], variance, df)
        keep, discard = rule.decide(log_e, runs, number, keeps[at])
        kept[at] = keep
        open_[at] = ~(keep | discard)
        if not open_.any():
            break
    if record:
        state.squares += own
        state.df += used - 1
    return kept, used


def simulate(
    streams: int,
    proposals: int,
    *,
    share: float = 0.0,
    effect: float = 2.0,
    noise: float = 1.0,
    draw: Draw = normal,
    rule: StreamRule | None = None,
    probes: tuple[float, ...] = (),
    seed: int = 0,
) -> Outcome:
    """Judge streams of proposals.

    Args:
        share: of the proposals that improve the present baseline by `effect`; the others equal it.
        effect: in standard deviations of one run of a baseline.
        noise: standard deviation of a run of a proposal without effect, in those of a baseline.
        draw: the noise.
        rule: the rule; the default one if not given.
        probes: improvements whose power is measured at some places, without a consequence for the stream.
    """
    rule = rule or StreamRule()
    rng = np.random.default_rng([seed, streams, proposals])
    zero = np.zeros(streams)
    state = State(
        rng,
        draw,
        zero.copy(),
        zero.copy(),
        zero.astype(int),
        zero.copy(),
        zero.astype(int),
        zero.astype(int),
        zero.astype(int),
    )
    everywhere = np.ones(streams, bool)
    state.add_baseline_runs(everywhere, np.full(streams, rule.baseline_runs))
    keeps, false = np.zeros(streams, int), np.zeros(streams, int)
    power, power_runs = {}, {}
    for number in range(1, proposals + 1):
        if number in PROBES:
            for size in probes:
                kept, used = proposal(state, rule, number, keeps, state.truth - size, 1.0, record=False)
                power[number, size], power_runs[number, size] = float(kept.mean()), float(used.mean())
        better = rng.random(streams) < share
        truth = state.truth - effect * better
        kept, used = proposal(state, rule, number, keeps, truth, noise, record=True)
        state.runs += used
        keeps += kept
        false += kept & ~better
        state.against += 1
        state.truth = np.where(kept, truth, state.truth)
        state.number = np.where(kept, 0, state.number)
        state.mean = np.where(kept, 0.0, state.mean)
        state.against = np.where(kept, 0, state.against)
        targets = np.array([rule.baseline_target(int(each)) for each in state.against])
        state.add_baseline_runs(everywhere, targets)
    return Outcome(false, keeps, state.runs, power, power_runs, -state.truth)


def gates(
    streams: int, proposals: int, sizes: tuple[float, ...]
) -> dict[str, tuple[float, float, float, dict[float, float]]]:
    """Other gates on streams without effect: streams with a false keep, false keeps per stream, runs per proposal, power.

    Power is that at the last proposal of such a stream.
    """
    rng = np.random.default_rng(1)
    results = {}
    best = rng.normal(size=streams)
    false = np.zeros(streams, int)
    for _ in range(proposals):
        y = rng.normal(size=streams)
        false += y < best
        best = np.minimum(best, y)
    greedy = {size: float((rng.normal(size=streams) - size < best).mean()) for size in sizes}
    results["greedy, 1 run"] = (float((false > 0).mean()), float(false.mean()), 1.0, greedy)
    for name, runs, level in (
        ("t test, 3 runs, p < 0.05", 3, 0.05),
        ("t test, 3 runs, Bonferroni", 3, 0.05 / proposals),
        ("t test, 12 runs, Bonferroni", 12, 0.05 / proposals),
    ):
        base = rng.normal(size=(streams, 8))
        critical = student.ppf(1 - level, 8 + runs - 2)

        def keeps(size: float, base: np.ndarray = base, runs: int = runs, critical: float = critical) -> np.ndarray:
            y = rng.normal(size=(streams, runs)) - size
            pooled = (7 * base.var(axis=1, ddof=1) + (runs - 1) * y.var(axis=1, ddof=1)) / (6 + runs)
            return np.asarray((base.mean(axis=1) - y.mean(axis=1)) / np.sqrt(pooled * (1 / 8 + 1 / runs)) > critical)

        false = sum((keeps(0.0).astype(int) for _ in range(proposals)), np.zeros(streams, int))
        results[name] = (
            float((false > 0).mean()),
            float(false.mean()),
            float(runs),
            {s: float(keeps(s).mean()) for s in sizes},
        )
    return results


def main() -> None:
    streams, proposals = (int(word) for word in (sys.argv[1:3] or ("200", "1000")))
    null = simulate(streams, proposals, probes=(1.0, 2.0, 3.0))
    print(f"{streams} streams of {proposals} proposals")
    print(f"without effect: streams with a false keep {np.mean(null.false > 0):.3f}, {_per_proposal(null, proposals)}")
    for (number, size), rate in null.power.items():
        print(
            f"  power at proposal {number}, improvement {size:g} sd: {rate:.2f} with {null.power_runs[number, size]:.1f} runs"
        )
    for name, (any_false, false, runs, power) in gates(streams, proposals, (1.0, 2.0, 3.0)).items():
        powers = ", ".join(f"{size:g} sd {rate:.2f}" for size, rate in power.items())
        falsely = f"streams with a false keep {any_false:.2f}, {false:.1f} per stream"
        print(f"{name}: {falsely}, {runs:g} runs per proposal; power {powers}")
    for name, options in {
        "one in ten improves by 2 sd": {"share": 0.1},
        "one in ten improves by 1 sd": {"share": 0.1, "effect": 1.0},
        "without effect, heavy tails (t5)": {"draw": heavy},
        "without effect, proposals 1.5 times as noisy": {"noise": 1.5},
        "without effect, proposals twice as noisy": {"noise": 2.0},
        "without effect, proposals half as noisy": {"noise": 0.5},
    }.items():
        made = simulate(streams, proposals, **options)  # type: ignore[arg-type]
        fdr = np.mean(made.false / np.maximum(made.kept, 1))
        print(
            f"{name}: streams with a false keep {np.mean(made.false > 0):.3f}, false share of keeps {fdr:.3f}, "
            f"keeps {made.kept.mean():.1f}, {_per_proposal(made, proposals)}, progress {made.progress.mean():.1f} sd"
        )


def _per_proposal(made: Outcome, proposals: int) -> str:
    return f"runs per proposal {made.runs.mean() / proposals:.2f}"


if __name__ == "__main__":
    main()
