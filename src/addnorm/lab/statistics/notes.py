"""What a reader must know before believing a ranking, one sentence each."""

from addnorm.lab.statistics.ranking import Ranking
from addnorm.lab.statistics.table import Table


def notes(ranking: Ranking, table: Table) -> tuple[str, ...]:
    """Everything that limits the ranking; empty when nothing does."""
    return (
        *_plan(ranking, table),
        *_losses(table),
        *_too_few(ranking),
        *_uneven(ranking),
        *_noisy_references(ranking),
        *_references(ranking),
        *_accuracy(ranking),
    )


def _plan(ranking: Ranking, table: Table) -> list[str]:
    found = []
    if ranking.provisional:
        open_runs = [r for runs in table.runs.values() for r in runs if not r.ended]
        found.append(f"provisional: {len(open_runs)} runs have not ended. Verdicts can change when they do.")
    if ranking.added_after_look:
        seeds = ", ".join(str(seed) for seed in ranking.added_after_look)
        found.append(
            f"seeds added after results had been seen: {seeds}. The error rates hold for a number of seeds fixed "
            "beforehand; looking, adding and looking again makes false claims more likely."
        )
    unplanned = [r for runs in table.runs.values() for r in runs if not r.planned and r.state == "finished"]
    unseen = sorted({r.seed for r in unplanned} - set(ranking.added_after_look))
    if unseen:
        found.append(
            f"not in the first plan, and counted: {_seeds(unseen)}, added before any ranking had been shown with results."
        )
    return found


def _losses(table: Table) -> list[str]:
    found = []
    for name, runs in table.runs.items():
        lost = [run for run in runs if run.state in ("failed", "diverged")]
        if lost:
            kinds = dict.fromkeys((run.state, run.reason) for run in lost)
            ends = "; ".join(
                f"{_seeds([r.seed for r in lost if (r.state, r.reason) == (state, reason)])} {state}"
                + (f" ({reason})" if reason else "")
                for state, reason in kinds
            )
            rest = any(run.state == "finished" for run in runs)
            found.append(f"{name}: {ends}." + (f" Its mean is over what is left of {len(runs)} seeds." if rest else ""))
    return found


def _seeds(seeds: list[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(str(seed) for seed in seeds)}"


def _too_few(ranking: Ranking) -> list[str]:
    once = {frozenset((row.variant, other)): c for row in ranking.variants for other, c in row.versus.items()}
    comparisons = [c for c in once.values() if c.difference is not None]
    if not comparisons or any(c.verdict is not None for c in comparisons):
        return []
    repeated = [f"{row.variant} ({row.seeds})" for row in ranking.variants if row.seeds > 1 and row.same_as is None]
    found = [
        "no verdict: no comparison has 3 shared seeds, so the order as listed is not supported. "
        + (f"More than one distinct run: {', '.join(repeated)}." if repeated else "No variant has two distinct runs.")
    ]
    if ranking.noise_df == 0:
        found.append(
            "the runs themselves cannot say how large the noise is: no two variants share two seeds "
            "(0 residual degrees of freedom)."
        )
    needed = sorted(c.seeds_needed for c in comparisons if c.seeds_needed is not None)
    if needed:
        known = (
            f"assumed {ranking.assumed_sd}" if ranking.assumed_sd is not None else f"measured {ranking.noise_sd:.4g}"
        )
        found.append(
            f"what it would take, if one run's standard deviation is {known} nats and the differences stand: "
            f"{needed[(len(needed) - 1) // 2]} seeds per variant decide half of the {len(needed)} comparisons, "
            f"{needed[-1]} decide all."
        )
    return found


def _uneven(ranking: Ranking) -> list[str]:
    if ranking.noise_even:
        return []
    spread = sorted((row.residual_sd, row.variant) for row in ranking.variants if row.residual_sd is not None)
    (least, quiet), (most, noisy) = spread[0], spread[-1]
    return [
        f"variants differ in noise: from {quiet} ({least:.2g} nats between seeds) to {noisy} ({most:.2g}). "
        "The tests allow for it with fewer degrees of freedom; more seeds help more than usual."
    ]


def _noisy_references(ranking: Ranking) -> list[str]:
    if not ranking.noisy_references:
        return []
    return [
        f"possibly noisier than the rest: {' and '.join(ranking.noisy_references)}. Comparisons with a reference that "
        "looks so rest on the references' own noise, with few degrees of freedom. Even noise looks so in one study of "
        "six; more seeds tell."
    ]


def _references(ranking: Ranking) -> list[str]:
    return [
        f"references {' and '.join(line)} cannot be told apart: there is no tier between them."
        for line in ranking.lines
        if len(line) > 1
    ]


def _accuracy(ranking: Ranking) -> list[str]:
    told: set[frozenset[str]] = set()
    found = []
    for row in ranking.variants:
        for other, comparison in row.versus.items():
            pair = frozenset((row.variant, other))
            if comparison.accuracy_agrees is not False or comparison.verdict in ("undecided", "equivalent", "failed"):
                continue
            if pair in told or comparison.difference is None or comparison.accuracy_difference is None:
                continue
            told.add(pair)
            found.append(
                f"accuracy and loss disagree on {row.variant} against {other}: loss {comparison.difference:+.4f}, "
                f"accuracy {100 * comparison.accuracy_difference:+.2f} points."
            )
    return found
