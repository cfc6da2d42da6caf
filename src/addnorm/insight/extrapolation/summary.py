"""Summary of a study's evaluations: statistics over seeds per length and bucket, with verdicts. No torch here."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float64

from addnorm.errors import InputError
from addnorm.insight.extrapolation.run_record import find_evaluation, read_record
from addnorm.statistics import FEWEST_SEEDS, Ranking, Result, rank
from addnorm.statistics.measure import perplexity
from addnorm.statistics.over_seeds import half_interval
from addnorm.store import RunFolder, RunStatus, StudyFolder
from addnorm.store.extension import seeds_again
from addnorm.store.results import measure_of_study
from addnorm.words import Sentence, say

Scoring = Literal["window", "ending"]
CONFIDENCE = 0.95
"""Simultaneous confidence of all verdicts and intervals at all lengths."""


@dataclass(frozen=True, kw_only=True)
class SwitchedVariant:
    """A variant with the switches that are applied: one line of the tables and plots."""

    variant: str
    switch: str
    settings: tuple[Any, ...]

    @property
    def label(self) -> str:
        """`base`, or `base +yarn`."""
        return self.variant if self.switch == "none" else f"{self.variant} +{self.switch}"


@dataclass(frozen=True, kw_only=True)
class RunAtLength:
    """One run at one length."""

    run: RunFolder
    state: str
    reason: str | None
    evaluation: Mapping[str, Any] | None
    weights: str | None
    """SHA-256 of the weights' file."""


@dataclass(frozen=True, kw_only=True)
class EvaluatedRun:
    """A run's status and its recorded evaluations."""

    run: RunFolder
    status: RunStatus
    record: Mapping[str, Any] | None

    @staticmethod
    def of(run: RunFolder, problem: str | None) -> "EvaluatedRun":
        """Read the run's files; without a record if its evaluation failed with `problem`."""
        status = run.status()
        return EvaluatedRun(
            run=run,
            status=status,
            record=read_record(run) if status.state == "finished" and problem is None else None,
        )

    def cell(self, line: SwitchedVariant, length: int, problem: str | None) -> RunAtLength:
        """The run at one length."""
        state, record = self.status.state, self.record
        evaluation = (
            None if record is None else find_evaluation(record["evaluations"], line.switch, list(line.settings), length)
        )
        return RunAtLength(
            run=self.run,
            state=state if evaluation is not None or state != "finished" else "blocked",
            reason=problem or self.status.reason,
            evaluation=evaluation,
            weights=None if record is None else record["basis"]["weights"],
        )


def summarise(
    folder: StudyFolder,
    lines: Sequence[SwitchedVariant],
    lengths: Sequence[int],
    *,
    trained: int,
    scoring: Scoring,
    references: Sequence[str],
    margin: float,
    problems: Mapping[str, str],
) -> dict[str, Any]:
    """Summarise a study's records in the form that `addnorm extrapolate --json` prints.

    The confidence is shared among the lengths (Bonferroni), so verdicts and intervals of all lengths hold together.

    Args:
        folder: the study.
        lines: variants and switches to compare.
        lengths: in tokens.
        trained: the train length in tokens.
        scoring: the losses that are ranked: of every position, or of the targets at the segments' ends.
        references: variants, without switches, that all lines are compared with.
        margin: in the unit of the loss.
        problems: runs that could not be evaluated, with the reason.

    Raises:
        InputError: runs were evaluated on different text.
    """
    # Bonferroni over lengths; within a length, the ranking's own procedure controls its comparisons.
    confidence = 1 - (1 - CONFIDENCE) / len(lengths)
    variants, second = {line.variant for line in lines}, seeds_again(folder.plan)
    measure = measure_of_study(folder)
    evaluated = [
        EvaluatedRun.of(run, problems.get(run.name)) for run in folder.runs() if run.spec["variant"] in variants
    ]
    text = _one_text([each.record["basis"] for each in evaluated if each.record is not None])
    rows: list[dict[str, Any]] = []
    rankings: dict[str, Any] = {}
    warnings: list[Sentence] = []
    for length in lengths:
        # At the train length switches are the identity, so lines with a switch repeat the plain line and are not ranked.
        ranked = [line for line in lines if line.switch == "none" or length > trained]
        cells = {
            line.label: [
                each.cell(line, length, problems.get(each.run.name))
                for each in evaluated
                if each.run.spec["variant"] == line.variant
            ]
            for line in lines
        }
        ranking = rank(
            [_result(folder, line, cell, length, scoring) for line in ranked for cell in cells[line.label]],
            measure=measure,
            references=references,
            margin=margin,
            confidence=confidence,
            second=second,
        )
        rankings[str(length)] = ranking.to_json()
        warnings += [say("at_length", length=length, said=warning) for warning in ranking.warnings]
        for line in lines:
            first = [cell for cell in cells[line.label] if cell.run.spec["seed"] not in second]
            of_line = ranking if line in ranked else None
            rows.append(_row(line, length, trained, first, scoring, confidence, of_line))
    return {
        "study": folder.name,
        "plan_hash": folder.plan_hash,
        "metric": measure.name,
        "unit": measure.unit,
        "trained": trained,
        "lengths": list(lengths),
        "scoring": scoring,
        "ending": trained // 2,
        **text,
        "lines": [{"label": line.label, "variant": line.variant, "switch": line.switch} for line in lines],
        "references": list(references),
        "margin": margin,
        "confidence": CONFIDENCE,
        "intervals_over": "seeds",
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
            f"expected runs that were evaluated on one text, got {len(texts)} different texts. Evaluate them again."
        )
    data_hash, segment_tokens, num_segments = texts.pop()
    return {"data_hash": data_hash, "stretch": segment_tokens, "stretches": num_segments}


def _result(folder: StudyFolder, line: SwitchedVariant, cell: RunAtLength, length: int, scoring: Scoring) -> Result:
    scores = {} if cell.evaluation is None else cell.evaluation[scoring]
    finite = scores.get("loss") is not None
    diverged = cell.evaluation is not None and not finite
    return Result(
        run=cell.run.name if line.switch == "none" or cell.evaluation is None else f"{cell.run.name} +{line.switch}",
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
    line: SwitchedVariant,
    length: int,
    trained: int,
    cells: Sequence[RunAtLength],
    scoring: Scoring,
    confidence: float,
    ranking: Ranking | None,
) -> dict[str, Any]:
    evaluations = [cell.evaluation for cell in cells if cell.evaluation is not None]
    return {
        **row_of(line, length, trained, evaluations, scoring, confidence),
        "values": [
            {"run": cell.run.name, "seed": cell.run.spec["seed"], "state": cell.state, "reason": cell.reason}
            | {
                name: None if cell.evaluation is None else cell.evaluation[scoring][name]
                for name in ("loss", "accuracy")
            }
            for cell in cells
        ],
        "versus": {}
        if ranking is None
        else {name: comparison.to_json() for name, comparison in ranking[line.label].versus.items()},
    }


def row_of(
    line: SwitchedVariant,
    length: int,
    trained: int,
    evaluations: Sequence[Mapping[str, Any]],
    scoring: Scoring,
    confidence: float,
) -> dict[str, Any]:
    """Means over evaluations of one line at one length, with intervals, of the whole windows and by position."""
    evaluations = [evaluation for evaluation in evaluations if evaluation[scoring]["loss"] is not None]
    scores = [evaluation[scoring] for evaluation in evaluations]
    return {
        "label": line.label,
        "variant": line.variant,
        "switch": line.switch,
        "length": length,
        "multiple": length // trained,
        "seeds": len(scores),
        **_means(scores, confidence),
        "targets": scores[0]["count"] if scores else None,
        "buckets": [
            _bucket([evaluation["buckets"][index] for evaluation in evaluations], confidence)
            for index in range(_num_buckets(evaluations))
        ],
    }


def _num_buckets(evaluations: Sequence[Mapping[str, Any]]) -> int:
    return len(evaluations[0]["buckets"]) if evaluations else 0


def _bucket(of_runs: Sequence[Mapping[str, Any]], confidence: float) -> dict[str, Any]:
    finite = [bucket for bucket in of_runs if bucket["loss"] is not None]
    ends = {"from": of_runs[0]["from"], "to": of_runs[0]["to"]}
    return {**ends, **_means(finite, confidence), "targets": of_runs[0]["count"]}


def _means(scores: Sequence[Mapping[str, Any]], confidence: float) -> dict[str, Any]:
    """Means over evaluations with a loss, with intervals."""
    loss, accuracy = (_over_seeds([score[name] for score in scores], confidence) for name in ("loss", "accuracy"))
    return {
        "loss": loss["mean"],
        "loss_interval": loss["interval"],
        "accuracy": accuracy["mean"],
        "accuracy_interval": accuracy["interval"],
        "perplexity": _perplexity(loss["mean"]),
    }


def over_segments(sums: Float64[np.ndarray, "segment 3"], confidence: float) -> dict[str, Any]:
    """Intervals of one model's loss and accuracy over segments of text, around its values on the whole text.

    Args:
        sums: nats, hits and count of each segment.
        confidence: of each interval.
    """
    sums = sums[sums[:, 2] > 0]
    intervals: dict[str, Any] = {}
    for name, column in (("loss", 0), ("accuracy", 1)):
        reach = _reach(sums[:, column] / sums[:, 2], confidence)
        mean = float(sums[:, column].sum() / sums[:, 2].sum()) if len(sums) else math.nan
        known = reach is not None and math.isfinite(mean) and math.isfinite(reach)
        intervals[f"{name}_interval"] = [mean - reach, mean + reach] if known and reach is not None else None
    return intervals


def _perplexity(loss: float | None) -> float | None:
    """Perplexity of the mean loss, limited to what a float can represent."""
    return None if loss is None else perplexity(loss)


def _over_seeds(values: Sequence[float], confidence: float) -> dict[str, Any]:
    """Mean and t interval; no interval with fewer seeds than a verdict needs."""
    if not values:
        return {"mean": None, "interval": None}
    mean, reach = float(np.mean(values)), _reach(values, confidence)
    return {"mean": mean, "interval": None if reach is None else [mean - reach, mean + reach]}


def _reach(values: Sequence[float] | Float64[np.ndarray, " value"], confidence: float) -> float | None:
    """Half of the t interval of a mean; None for fewer values than a verdict needs seeds."""
    return half_interval(values, confidence) if len(values) >= FEWEST_SEEDS else None
