"""`addnorm.judge`: an endless stream of proposals, kept or discarded with one error rate for ever, in a ledger.

A ledger is a file of lines that are only ever added. The first line fixes the rule, the metric and the first baseline; every
other one is a run that counted, with the verdict that followed from it. Each line holds a hash of itself and of the line
before, and a reader decides everything again: a changed line, a missing one, or a verdict that does not follow from the runs is
an error.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from addnorm.errors import InputError
from addnorm.statistics import Result
from addnorm.statistics.measure import Direction
from addnorm.statistics.repeats import repeats
from addnorm.statistics.run_tables import Source
from addnorm.statistics.stream import EFFECTS, FUTILE, Proposal, StreamRule, StreamState
from addnorm.store.files import Damaged
from addnorm.store.lines import LineWriter, Record, read_lines
from addnorm.store.lock import Lock
from addnorm.store.questions.source import Runs, read_source
from addnorm.words import Sentence, say

_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A stream of proposals in its present state."""

    ledger: str
    metric: str
    unit: str | None
    better: Direction
    rule: StreamRule
    baseline: str
    baseline_runs: int
    baseline_missing: int
    """Runs of the baseline that are needed before the next proposal."""
    noise_sd: float | None
    """Standard deviation of one run within its variant."""
    proposals: tuple[Proposal, ...]
    """Every proposal, in order; the last one may be open."""
    baselines: tuple[Mapping[str, Any], ...]
    decided: tuple[Proposal, ...]
    """Proposals that this call decided."""
    recorded: int
    """Runs that this call added."""
    notes: tuple[Sentence, ...]
    """Runs that were given and do not count now, with the reason."""
    next: Sentence
    """The runs that are needed next."""

    @property
    def keeps(self) -> tuple[Proposal, ...]:
        """Proposals that were kept."""
        return tuple(proposal for proposal in self.proposals if proposal.verdict == "keep")

    @property
    def open(self) -> Proposal | None:
        """The open proposal."""
        return self.proposals[-1] if self.proposals and self.proposals[-1].verdict == "open" else None

    def __repr__(self) -> str:
        """One line; all numbers are in `to_json`."""
        kept = f"{len(self.keeps)} of {len(self.proposals)} proposals kept by {self.metric}, baseline {self.baseline}"
        return f"<Judgement: {kept}, {'none open' if self.open is None else f'{self.open.name} open'}. {self.next}>"

    def __getitem__(self, proposal: str) -> Proposal:
        """The proposal of that name.

        Raises:
            KeyError: no such proposal.
        """
        return {each.name: each for each in self.proposals}[proposal]

    def to_json(self) -> dict[str, Any]:
        """The stream as plain JSON values."""
        return {
            "ledger": self.ledger,
            "metric": self.metric,
            "unit": self.unit,
            "better": self.better,
            "rule": asdict(self.rule),
            "baseline": self.baseline,
            "baseline_runs": self.baseline_runs,
            "baseline_missing": self.baseline_missing,
            "noise_sd": self.noise_sd,
            "baselines": [dict(each) for each in self.baselines],
            "proposals": [proposal.to_json() for proposal in self.proposals],
            "decided": [proposal.name for proposal in self.decided],
            "open": None if self.open is None else self.open.name,
            "recorded": self.recorded,
            "notes": [str(note) for note in self.notes],
            "next": str(self.next),
        }


def judge(
    ledger: str | Path,
    propose: Source | None = None,
    *,
    baseline: str | None = None,
    alpha: float | None = None,
    baseline_runs: int | None = None,
    most_runs: int | None = None,
    columns: Mapping[str, str] | None = None,
    direction: Direction | None = None,
    unit: str | None = None,
) -> Judgement:
    """Judge proposals against a baseline that improves, one after another, without an end.

    Among all proposals that are ever kept, the expected share of those without an effect is at most `alpha`. Runs are added one
    by one until a proposal is decided. The command is `addnorm judge`.

    Args:
        ledger: file of the stream; made by the first call.
        propose: runs of the baseline and of proposals, as for `rank`; rows that are recorded already are passed over. Without
            it, the state is returned.
        baseline: first baseline, when the ledger is made; by default the first variant of `propose`.
        alpha: expected share of false keeps, when the ledger is made; 0.05 unless given.
        baseline_runs: runs of a baseline before the first proposal against it, when the ledger is made; 12 unless given.
        most_runs: runs after which a proposal is discarded, when the ledger is made; 20 unless given.
        columns: names of the columns `variant`, `seed` and `loss` of a table.
        direction: the better direction of the column `loss`, when the ledger is made.
        unit: of that column.

    Raises:
        InputError: no ledger and no runs, a setting that differs from the ledger's, a run that differs from its record, or runs
            that cannot be read.
        Damaged: the ledger was changed.
        JobError: the ledger cannot be read or written.

    Example:
        >>> losses = {"base": (2.91, 2.93, 2.92, 2.94, 2.90, 2.92), "idea": (2.80, 2.81, 2.79, 2.80)}
        >>> rows = [{"variant": v, "seed": s, "loss": x} for v, row in losses.items() for s, x in enumerate(row)]
        >>> judgement = addnorm.judge("stream.jsonl", rows, baseline_runs=6)
        >>> judgement["idea"].verdict, judgement["idea"].runs
        ('keep', 3)
    """
    path = Path(ledger)
    given = {"alpha": alpha, "baseline_runs": baseline_runs, "most_runs": most_runs}
    chosen = {name: value for name, value in given.items() if value is not None}
    runs = None if propose is None else _read(propose, columns, direction, unit)
    if runs is None:
        return _judged(path, None, chosen, baseline, unit)
    # From reading to writing, since a verdict follows from all lines before it.
    with Lock(path.with_name(f"{path.name}.lock")).held(
        lambda holder: f"{path}: expected a free ledger, got one that process {holder} is adding to. Try again."
    ):
        return _judged(path, runs, chosen, baseline, unit)


def _judged(
    path: Path, runs: Runs | None, chosen: Mapping[str, Any], baseline: str | None, unit: str | None
) -> Judgement:
    lines = read_lines(path)[0]
    if lines:
        start, state = _replayed(path, lines)
        given = {name: value for name, value in (("baseline", baseline), ("unit", unit)) if value is not None}
        _require_equal(path, start, {**chosen, **given}, runs)
        new_lines: list[Record] = []
    elif runs is None:
        raise InputError(
            f"{path}: expected a ledger, got {'an empty file' if path.exists() else 'no such file'}. Give the baseline's runs "
            "with --propose to make one."
        )
    else:
        start = _start(runs, baseline, StreamRule(**chosen))
        state = _state(start)
        new_lines = [start]
    decided, notes = _submit(path, state, () if runs is None else runs.results, new_lines)
    if new_lines:
        _append(path, str(lines[-1]["chain"]) if lines else "", new_lines)
    return Judgement(
        ledger=str(path),
        metric=start["metric"],
        unit=start["unit"],
        better=start["better"],
        rule=state.rule,
        baseline=state.baseline.variant,
        baseline_runs=len(state.baseline.values),
        baseline_missing=state.missing,
        noise_sd=state.noise_sd,
        proposals=tuple(state.proposals),
        baselines=state.progress,
        decided=tuple(decided),
        recorded=sum(line["event"] == "run" for line in new_lines),
        notes=(*(() if runs is None else runs.warnings), *notes),
        next=_next(state),
    )


def _append(path: Path, chain: str, lines: Sequence[Record]) -> None:
    """Add lines. After a crash in between, the same call adds the rest: recorded runs are passed over."""
    writer = LineWriter(path)
    try:
        for line in lines:
            chain = _chain(chain, line)
            writer.append({**line, "chain": chain})
        writer.sync()
    finally:
        writer.close()


def _read(source: Source, columns: Mapping[str, str] | None, direction: Direction | None, unit: str | None) -> Runs:
    if columns is not None and columns.get("seed") == "":
        raise InputError(
            "columns: expected a column of seeds, got none. A ledger tells by the seed which runs it has: number the runs of "
            "each variant."
        )
    return read_source(source, columns, direction, unit, fewest_seeds=1)


def _start(runs: Runs, baseline: str | None, rule: StreamRule) -> Record:
    names = tuple(dict.fromkeys(result.variant for result in runs.results))
    if baseline is not None and baseline not in names:
        raise InputError(f"baseline {baseline!r}: expected one of {', '.join(names)}.")
    return {
        "event": "start",
        "version": _VERSION,
        "metric": runs.measure.name,
        "unit": runs.measure.unit,
        "better": runs.measure.better,
        "baseline": baseline or names[0],
        **asdict(rule),
        "effects": list(EFFECTS),
        "futile": FUTILE,
    }


def _state(start: Record) -> StreamState:
    rule = StreamRule(alpha=start["alpha"], baseline_runs=start["baseline_runs"], most_runs=start["most_runs"])
    return StreamState(rule, start["baseline"], 1 if start["better"] == "lower" else -1)


def _chain(before: str, line: Record) -> str:
    return hashlib.sha256((before + json.dumps(line, sort_keys=True)).encode()).hexdigest()[:16]


def _replayed(path: Path, lines: Sequence[Record]) -> tuple[Record, StreamState]:
    """The first line and the state after all lines, each checked against its hash and decided anew."""
    start, chain = lines[0], ""
    if start.get("event") != "start":
        raise InputError(f"{path}: expected a ledger of addnorm judge, got another file of lines.")
    if start.get("version") != _VERSION or start.get("effects") != list(EFFECTS) or start.get("futile") != FUTILE:
        raise InputError(
            f"{path}: expected a ledger of version {_VERSION}, got version {start.get('version')} with another rule. Judge it "
            "with the version of addnorm that made it."
        )
    state = _state(start)
    for place, line in enumerate(lines, start=1):
        content = {name: value for name, value in line.items() if name != "chain"}
        chain = _chain(chain, content)
        if line.get("chain") != chain:
            raise Damaged(
                f"{path}, line {place}: expected a line as it was written, got one that was changed, moved, or follows one "
                "that was removed. A ledger is only ever added to: restore it from a copy, or begin a new one."
            )
        if place > 1:
            try:
                proposal = state.add(line["variant"], line["seed"], line["loss"])
            except (InputError, KeyError) as error:
                raise Damaged(f"{path}, line {place}: {error} Restore the ledger from a copy.") from error
            verdict = None if proposal is None else proposal.verdict
            if line["verdict"] != verdict:
                raise Damaged(
                    f"{path}, line {place}: expected verdict {verdict!r}, which follows from the runs, got "
                    f"{line['verdict']!r}. Restore the ledger from a copy."
                )
    return {name: value for name, value in start.items() if name != "chain"}, state


def _require_equal(path: Path, start: Record, settings: Mapping[str, Any], runs: Runs | None) -> None:
    if runs is not None:
        settings = {**settings, "metric": runs.measure.name, "better": runs.measure.better}
    for name, value in settings.items():
        if start[name] != value:
            raise InputError(
                f"{path}: expected {name} {start[name]!r} as in its first line, got {value!r}. It is fixed when the ledger is "
                "made."
            )


def _submit(
    path: Path, state: StreamState, results: Sequence[Result], new_lines: list[Record]
) -> tuple[list[Proposal], tuple[Sentence, ...]]:
    """Record the runs that count, in their order; those that count only after another is recorded come in a later pass."""
    decided: list[Proposal] = []
    pending: list[Result] = []
    unfinished = 0
    for result in results:
        if result.state not in ("finished", "diverged"):
            unfinished += 1
        elif (result.variant, result.seed) not in state.runs:
            pending.append(result)
        elif state.runs[result.variant, result.seed] != result.loss:
            raise InputError(
                f"{path}: has run {result.name} with loss {state.runs[result.variant, result.seed]}, got {result.loss}. A "
                "recorded run is never changed; give another run another seed."
            )
    waiting, copied = _without_copies(state, pending)
    while waiting:
        left = []
        for result in waiting:
            if state.role_of(result.variant) is None:
                left.append(result)
                continue
            proposal = state.add(result.variant, result.seed, result.loss)
            verdict = None if proposal is None else proposal.verdict
            new_lines.append(
                {
                    "event": "run",
                    "variant": result.variant,
                    "seed": result.seed,
                    "loss": result.loss,
                    "verdict": verdict,
                }
            )
            if proposal is not None and proposal.verdict != "open":
                decided.append(proposal)
        if len(left) == len(waiting):
            break
        waiting = left
    notes = [*copied, *_about(state, waiting), *([say("judge_unfinished", runs=unfinished)] if unfinished else [])]
    return decided, tuple(notes)


def _without_copies(state: StreamState, pending: Sequence[Result]) -> tuple[list[Result], list[Sentence]]:
    """Runs that repeat no other one of their variant in every digit, recorded or new, and a sentence for each that does."""
    recorded = [
        Result(variant=name, seed=seed, loss=loss) for (name, seed), loss in state.runs.items() if loss is not None
    ]
    copied = repeats([*recorded, *(result for result in pending if result.state == "finished")]).copies
    first = {(each.variant, each.loss): each for each in reversed(recorded)}
    kept, notes = [], []
    for result in pending:
        twin = first.setdefault((result.variant, result.loss), result)
        if twin is result or result.variant not in copied:
            kept.append(result)
        else:
            notes.append(say("copy", run=result.name, twin=twin.name, how=say("in_every_digit")))
    return kept, notes


def _about(state: StreamState, left: Sequence[Result]) -> list[Sentence]:
    """Reasons why runs that were given are not recorded, one sentence per variant."""
    verdicts = {proposal.name: proposal.verdict for proposal in state.proposals}
    counts: dict[str, int] = {}
    for result in left:
        counts[result.variant] = counts.get(result.variant, 0) + 1
    sentences = []
    for name, count in counts.items():
        if name == state.baseline.variant:
            code = "judge_baseline_full"
        elif any(name == each["variant"] for each in state.progress):
            code = "judge_former_baseline"
        elif name in verdicts and verdicts[name] != "open":
            code = "judge_after_discard"
        elif state.open_name is not None:
            code = "judge_waits_for_open"
        else:
            code = "judge_waits_for_baseline"
        sentences.append(
            say(code, variant=name, runs=count, open=state.open_name or "", baseline=state.baseline.variant)
        )
    return sentences


def _next(state: StreamState) -> Sentence:
    if state.missing:
        return say(
            "judge_next_baseline",
            baseline=state.baseline.variant,
            count=state.missing,
            runs=len(state.baseline.values),
            target=state.target,
        )
    if state.open_name is not None:
        proposal = state.proposals[-1]
        return say("judge_next_run", variant=proposal.name, runs=proposal.runs, most=state.rule.most_runs)
    return say("judge_next_proposal", baseline=state.baseline.variant)
