"""What happened to the runs: failures with their logs, resumes with their proofs, and the plan they were frozen with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from addnorm.errors import AddnormError
from addnorm.reporting.pages.contained import contained
from addnorm.reporting.pages.snapshot import RunView, Snapshot
from addnorm.store import Milestones, RunFolder


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A run that failed, diverged or is blocked."""

    run: RunView
    log: tuple[str, ...]
    """Last lines of its worker's log."""
    is_outside: bool
    """Whether the log lies outside the study's folder and was therefore not read."""


@dataclass(frozen=True, kw_only=True)
class Resume:
    """One attempt after the first."""

    attempt: int
    time: float | None
    resumed_from: int
    replayed: tuple[tuple[int, int], ...]
    """First and last of the steps that were done again and came out equal to the last bit."""
    replayed_steps: int
    rejected: tuple[str, ...]
    """Checkpoints that were passed over, with the reason."""
    differs: str | None
    """What did not come out equal."""
    is_at_work: bool
    """Whether the attempt has not ended and may yet repeat steps."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """A run that was interrupted and gone on with."""

    run: RunView
    resumes: tuple[Resume, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The frozen plan."""

    study: str
    about: str
    plan_hash: str
    addnorm: str
    data_hash: str
    tokenizer_hash: str
    margin: float | None
    references: tuple[str, ...]
    seeds: tuple[int, ...]
    variants: int
    runs: int
    extensions: tuple[tuple[str, tuple[int, ...], float | None, bool], ...]
    """Plan hash, seeds, time, whether results had been looked at."""
    shared: tuple[tuple[str, str], ...]
    """What all runs share: training, corpus, tokenizer, as path and value."""


def failures(snapshot: Snapshot) -> list[Failure]:
    """Runs that need somebody's attention, in plan order."""
    found = []
    for run in snapshot.runs:
        if run.state in ("failed", "diverged", "blocked"):
            folder = RunFolder(snapshot.path / run.run)
            inside = contained(snapshot.path, folder.log_path)
            kept = (folder.ending() or {}).get("log") if contained(snapshot.path, folder.path) else None
            log = [str(line) for line in kept] if isinstance(kept, list) else folder.last_words() if inside else []
            found.append(Failure(run=run, log=tuple(log), is_outside=not inside and folder.log_path.exists()))
    return found


class Proofs:
    """The resume proofs of a study's runs; each events file is read once, and then what was added."""

    def __init__(self) -> None:
        self._read: dict[str, Milestones] = {}

    def __call__(self, snapshot: Snapshot) -> list[Proof]:
        """A proof per run that took more than one attempt, in plan order."""
        found = []
        for run in snapshot.runs:
            path = snapshot.path / run.run / "events.jsonl"
            if run.attempts > 1 and contained(snapshot.path, path):
                milestones = self._read.setdefault(run.run, Milestones(path))
                try:
                    resumes = _resumes(run, milestones.look())
                except AddnormError:
                    resumes = ()  # the run is shown as blocked, with this very reason
                found.append(Proof(run=run, resumes=resumes))
        return found


def plan(snapshot: Snapshot) -> Plan:
    """The frozen plan, with the seeds that were added to it."""
    content = snapshot.plan
    spec = snapshot.spec(snapshot.variants[0]) if snapshot.variants else {}
    margin = content.get("margin")
    return Plan(
        study=snapshot.study,
        about=str(content.get("about", "")),
        plan_hash=str(content["plan_hash"]),
        addnorm=str(content.get("addnorm_version", "")),
        data_hash=str(content.get("data_hash", "")),
        tokenizer_hash=str(content.get("tokenizer_hash", "")),
        margin=float(margin) if isinstance(margin, int | float) else None,
        references=snapshot.references,
        seeds=tuple(content.get("seeds", ())),
        variants=len(snapshot.variants),
        runs=len(snapshot.runs),
        extensions=tuple(
            (str(e["plan_hash"]), tuple(e["seeds"]), e.get("time"), bool(e.get("looked")))
            for e in content.get("extensions", [])
        ),
        shared=tuple(flat({name: spec[name] for name in ("training", "corpus", "tokenizer") if name in spec}).items()),
    )


def flat(value: Mapping[str, Any], path: str = "") -> dict[str, str]:
    """Nested mappings as path and text: `training.optimizer.betas`, `[0.9, 0.95]`."""
    found: dict[str, str] = {}
    for name, entry in value.items():
        here = f"{path}.{name}" if path else str(name)
        if isinstance(entry, Mapping):
            found.update(flat(entry, here))
        else:
            found[here] = _said(entry)
    return found


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_said, value))}]"
    return "null" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _resumes(run: RunView, milestones: list[dict[str, Any]]) -> tuple[Resume, ...]:
    found = []
    for attempt in sorted({event["attempt"] for event in milestones} - {1}):
        events = [event for event in milestones if event["attempt"] == attempt]
        start = next((event for event in events if event["type"] == "start"), None)
        spans = [
            (int(e["first"]), int(e["last"])) for e in events if e["type"] == "replayed" and e.get("equal") is True
        ]
        bad = next((e for e in events if e["type"] == "diverged"), None)
        found.append(
            Resume(
                attempt=attempt,
                time=events[0].get("time"),
                resumed_from=int(start["resumed_from"]) if start is not None else 0,
                replayed=_merged(spans),
                replayed_steps=sum(last - first + 1 for first, last in _merged(spans)),
                rejected=tuple(f"{e.get('checkpoint')}: {e.get('reason')}" for e in events if e["type"] == "rejected"),
                differs=str(bad.get("reason")) if bad is not None else None,
                is_at_work=run.state == "running" and attempt == run.attempts,
            )
        )
    return tuple(found)


def _merged(spans: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)
