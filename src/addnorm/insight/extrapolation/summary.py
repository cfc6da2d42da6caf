"""A study's evaluations put together: over seeds, per length and bucket, with the verdicts of the ranking. No torch here."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import stdtrit

from addnorm.errors import InputError
from addnorm.insight.extrapolation.recorded import find, read
from addnorm.statistics import FEWEST_SEEDS, Ranking, Result, rank
from addnorm.store import RunFolder, RunStatus, StudyFolder
from addnorm.words import Sentence, say

Scoring = Literal["window", "ending"]
CONFIDENCE = 0.95
"""Of everything that is said of all lengths together."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A variant with the switches that were on: one line of the tables and plots."""

    variant: str
    switch: str
    settings: tuple[Any, ...]

    @property
    def label(self) -> str:
        """`base`, or `base +yarn`."""
        return self.variant if self.switch == "none" else f"{self.variant} +{self.switch}"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run at one length."""

    run: RunFolder
    state: str
    reason: str | None
    entry: Mapping[str, Any] | None
    """Its evaluation; None if there is none."""
    weights: str | None


@dataclass(frozen=True, kw_only=True)
class Known:
    """What the files say of one run."""

    run: RunFolder
    status: RunStatus
    recorded: Mapping[str, Any] | None

    @staticmethod
    def of(run: RunFolder, problem: str | None) -> "Known":
        """Read the run's files, unless it could not be evaluated."""
        status = run.status()
        return Known(
            run=run,
            status=status,
            recorded=read(run) if status.state == "finished" and problem is None else None,
        )

    def cell(self, line: Line, length: int, problem: str | None) -> Cell:
        """The run at one length."""
        state, kept = self.status.state, self.recorded
        entry = None if kept is None else find(kept["evaluations"], line.switch, list(line.settings), length)
        return Cell(
            run=self.run,
            state=state if entry is not None or state != "finished" else "blocked",
            reason=problem or self.status.reason,
            entry=entry,
            weights=None if kept is None else kept["basis"]["weights"],
        )


def summarise(
    folder: StudyFolder,
    lines: Sequence[Line],
    lengths: Sequence[int],
    *,
    trained: int,
    scoring: Scoring,
    references: Sequence[str],
    margin: float,
    problems: Mapping[str, str],
) -> dict[str, Any]:
    """Everything that `addnorm extrapolate --json` prints, from the files of the runs.

    The confidence is shared among the lengths (Bonferroni), so verdicts and intervals of all lengths hold together.

    Args:
        folder: the study.
        lines: what is compared.
        lengths: in tokens.
        trained: the train length in tokens.
        scoring: the losses that are ranked: of every position, or of the targets at the stretches' ends.
        references: variants that all lines are compared with, without a switch.
        margin: in nats per token.
        problems: runs that could not be evaluated, with the reason.

    Raises:
        InputError: runs that were evaluated on different text.
    """
    confidence = 1 - (1 - CONFIDENCE) / len(lengths)
    variants = {line.variant for line in lines}
    known = [Known.of(run, problems.get(run.name)) for run in folder.runs() if run.spec["variant"] in variants]
    text = _one_text([one.recorded["basis"] for one in known if one.recorded is not None])
    rows: list[dict[str, Any]] = []
    rankings: dict[str, Any] = {}
    warnings: list[Sentence] = []
    for length in lengths:
        # At the train length a switch changes nothing: its line repeats the plain one and is not ranked.
        ranked = [line for line in lines if line.switch == "none" or length > trained]
        cells = {
            line.label: [
                one.cell(line, length, problems.get(one.run.name))
                for one in known
                if one.run.spec["variant"] == line.variant
            ]
            for line in lines
        }
        ranking = rank(
            [_result(folder, line, cell, length, scoring) for line in ranked for cell in cells[line.label]],
            references=references,
            margin=margin,
            confidence=confidence,
        )
        rankings[str(length)] = ranking.to_json()
        warnings += [say("at_length", length=length, said=warning) for warning in ranking.warnings]
        rows += [
            _row(line, length, trained, cells[line.label], scoring, confidence, ranking if line in ranked else None)
            for line in lines
        ]
    return {
        "study": folder.name,
        "plan_hash": folder.plan_hash,
        "trained": trained,
        "lengths": list(lengths),
        "scoring": scoring,
        "ending": trained // 2,
        **text,
        "lines": [{"label": line.label, "variant": line.variant, "switch": line.switch} for line in lines],
        "references": list(references),
        "margin": margin,
        "confidence": CONFIDENCE,
        "rows": rows,
        "rankings": rankings,
        "warnings": [str(warning) for warning in warnings],
        "notes": [warning.note for warning in warnings],
        "problems": dict(problems),
    }


def _one_text(bases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    texts = {tuple(basis[name] for name in ("data_hash", "stretch", "stretches")) for basis in bases}
    if len(texts) != 1:
        raise InputError(
            f"runs can be compared on one text alone, these were evaluated on {len(texts)}. Evaluate anew."
        )
    data_hash, stretch, stretches = texts.pop()
    return {"data_hash": data_hash, "stretch": stretch, "stretches": stretches}


def _result(folder: StudyFolder, line: Line, cell: Cell, length: int, scoring: Scoring) -> Result:
    scores = {} if cell.entry is None else cell.entry[scoring]
    finite = scores.get("loss") is not None
    diverged = cell.entry is not None and not finite
    return Result(
        run=cell.run.name if line.switch == "none" or cell.entry is None else f"{cell.run.name} +{line.switch}",
        variant=line.label,
        seed=cell.run.spec["seed"],
        state="diverged" if diverged else cell.state,
        loss=scores.get("loss"),
        accuracy=scores.get("accuracy") if finite else None,
        perplexity=scores.get("perplexity"),
        content_hash=f"{cell.weights} {line.switch} {line.settings}" if finite else None,
        corpus_hash=folder.plan.get("data_hash"),
        tokenizer_hash=folder.plan.get("tokenizer_hash"),
        reason=say("not_finite", length=length) if diverged else cell.reason,
    )


def _row(
    line: Line,
    length: int,
    trained: int,
    cells: Sequence[Cell],
    scoring: Scoring,
    confidence: float,
    ranking: Ranking | None,
) -> dict[str, Any]:
    entries = [cell.entry for cell in cells if cell.entry is not None and cell.entry[scoring]["loss"] is not None]
    scores = [entry[scoring] for entry in entries]
    loss = _over_seeds([score["loss"] for score in scores], confidence)
    accuracy = _over_seeds([score["accuracy"] for score in scores], confidence)
    return {
        "label": line.label,
        "variant": line.variant,
        "switch": line.switch,
        "length": length,
        "multiple": length // trained,
        "seeds": len(scores),
        "loss": loss["mean"],
        "loss_interval": loss["interval"],
        "accuracy": accuracy["mean"],
        "accuracy_interval": accuracy["interval"],
        "perplexity": _perplexity(loss["mean"]),
        "targets": scores[0]["count"] if scores else None,
        "buckets": [
            _bucket([entry["buckets"][at] for entry in entries], confidence) for at in range(_num_buckets(entries))
        ],
        "values": [
            {"run": cell.run.name, "seed": cell.run.spec["seed"], "state": cell.state, "reason": cell.reason}
            | {name: None if cell.entry is None else cell.entry[scoring][name] for name in ("loss", "accuracy")}
            for cell in cells
        ],
        "versus": {}
        if ranking is None
        else {name: comparison.to_json() for name, comparison in ranking[line.label].versus.items()},
    }


def _num_buckets(entries: Sequence[Mapping[str, Any]]) -> int:
    return len(entries[0]["buckets"]) if entries else 0


def _bucket(entries: Sequence[Mapping[str, Any]], confidence: float) -> dict[str, Any]:
    known = [entry for entry in entries if entry["loss"] is not None]
    loss = _over_seeds([entry["loss"] for entry in known], confidence)
    accuracy = _over_seeds([entry["accuracy"] for entry in known], confidence)
    return {
        "from": entries[0]["from"],
        "to": entries[0]["to"],
        "loss": loss["mean"],
        "loss_interval": loss["interval"],
        "accuracy": accuracy["mean"],
        "accuracy_interval": accuracy["interval"],
        "perplexity": _perplexity(loss["mean"]),
        "targets": entries[0]["count"],
    }


def _perplexity(loss: float | None) -> float | None:
    """Of the mean loss; held where a float can hold it."""
    return None if loss is None else math.exp(min(loss, 700.0))


def _over_seeds(values: Sequence[float], confidence: float) -> dict[str, Any]:
    """Mean and t interval; no interval from fewer seeds than a verdict needs."""
    if not values:
        return {"mean": None, "interval": None}
    mean = float(np.mean(values))
    if len(values) < FEWEST_SEEDS:
        return {"mean": mean, "interval": None}
    reach = (
        float(stdtrit(len(values) - 1, (1 + confidence) / 2)) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    )
    return {"mean": mean, "interval": [mean - reach, mean + reach]}
