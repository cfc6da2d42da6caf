"""`addnorm.speedup`: what variants are worth in compute, time or steps of the reference."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from addnorm.errors import InputError, warn
from addnorm.statistics.effects.equal_loss import EqualLoss, steps_to_equal_loss
from addnorm.statistics.effects.speedup import SizeRuns, Speedup
from addnorm.statistics.effects.speedup import speedup as fitted_speedup
from addnorm.statistics.measure import Metric
from addnorm.statistics.run_tables import Run, Source
from addnorm.store.questions.source import (
    SizedSource,
    compared_variants,
    is_study,
    own_reference,
    read_curves,
    read_sizes,
    record_peek,
    relative_costs,
)
from addnorm.store.study import Batch, StudyFolder
from addnorm.words import Sentence
from addnorm.words import say as say_sentence

Verdict = Literal["worth more", "worth less", "undecided"]


@dataclass(frozen=True, kw_only=True)
class Worths:
    """Worth of every variant in units of the reference's compute or steps; the confidence is that of all intervals."""

    reference: str
    of: Literal["compute", "time", "steps"]
    measure: Metric
    confidence: float
    sizes: tuple[str, ...]
    variants: Mapping[str, Speedup | EqualLoss]
    warnings: tuple[Sentence, ...]
    costs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Of `steps` of a study: FLOPs (`compute`) and seconds (`time`) of a step of every variant over those of the reference."""
    again: Mapping[str, Speedup | EqualLoss] = field(default_factory=dict)
    """On the second batch of seeds, of variants that are worth more or less on the first; these intervals hold together."""

    def __getitem__(self, variant: str) -> Speedup | EqualLoss:
        """The answer for that variant.

        Raises:
            KeyError: no such variant.
        """
        return self.variants[variant]

    def verdict(self, variant: str) -> Verdict:
        """`worth more` or `worth less` than the reference's, where the interval is wholly above or below 1."""
        return _verdict(self.variants[variant])

    def is_found_again(self, variant: str) -> bool | None:
        """True if the second batch of seeds gives the verdict of the first; None if it does not test it."""
        return _verdict(self.again[variant]) == self.verdict(variant) if variant in self.again else None

    def worth_in(
        self, variant: str, cost: Literal["compute", "time"]
    ) -> tuple[float, tuple[float, float] | None] | None:
        """Worth of the variant's compute or time to equal loss, and its interval; None where the cost is not known."""
        relative = self.costs.get(variant, {}).get(cost)
        if relative is None:
            return None
        answer = self.variants[variant]
        interval = answer.interval
        ends = None if interval is None else (interval[0] / relative, interval[1] / relative)
        return answer.worth / relative, ends

    def to_json(self) -> dict[str, Any]:
        """The answers as plain JSON values."""
        return {
            "reference": self.reference,
            "of": self.of,
            "metric": self.measure.name,
            "unit": self.measure.unit,
            "confidence": self.confidence,
            "sizes": list(self.sizes),
            "variants": [
                {"variant": name, "verdict": self.verdict(name), **answer.to_json()}
                | self._costs_json(name)
                | self._again_json(name)
                for name, answer in self.variants.items()
            ],
            "warnings": [str(warning) for warning in self.warnings],
        }

    def _costs_json(self, variant: str) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for cost in ("compute", "time"):
            if (worth := self.worth_in(variant, cost)) is not None:
                made[cost] = {"relative": self.costs[variant][cost], "worth": worth[0], "interval": worth[1]}
        return {"costs": made} if made else {}

    def _again_json(self, variant: str) -> dict[str, Any]:
        again, same = self.again.get(variant), self.is_found_again(variant)
        return {} if again is None else {"again": {"worth": again.worth, "interval": again.interval, "found": same}}


def _verdict(answer: Speedup | EqualLoss) -> Verdict:
    if answer.interval is None or answer.interval[0] <= 1 <= answer.interval[1]:
        return "undecided"
    return "worth more" if answer.interval[0] > 1 else "worth less"


@dataclass(frozen=True, kw_only=True)
class _Batch:
    """Runs of one batch of seeds, and how they answer for a variant, its reference and a confidence."""

    variants: Sequence[str]
    measure: Metric
    notes: tuple[Sentence, ...]
    sizes: tuple[str, ...]
    answer: Callable[[str, str, float], tuple[Speedup | EqualLoss, Sequence[Sentence]]]


def speedup(
    source: Source,
    *,
    of: Literal["compute", "time", "steps"] = "compute",
    sizes: Sequence[str | Path] = (),
    reference: str | None = None,
    variants: Sequence[str] = (),
    limit: float | None = None,
    exponent: float | None = None,
    confidence: float = 0.95,
    columns: Mapping[str, str] | None = None,
    unit: str | None = None,
    is_look: bool = True,
    say: Callable[[str], None] = warn,
) -> Worths:
    """Estimate what variants are worth: a factor on the compute, or on the steps, that the reference needs for their loss.

    The command is `addnorm rank --as speedup`, `--as time` or `--as steps`.

    Args:
        source: a table, or the folder of a study. For `compute`, a table has one row per run with the column `compute` (FLOPs,
            hours, or another cost), at two sizes or more. For `steps`, one row per run and evaluation, with the column `step`.
        of: what the factor is on: compute; the time of training, of studies; or steps, to equal loss. Steps of a study are also
            given in its FLOPs and in its time.
        sizes: folders of studies with the same variants in other sizes, where the source is one.
        reference: the first variant unless given.
        variants: the only variants to compare; all others unless given.
        limit: loss that no compute goes below; fitted unless given.
        exponent: of the law of the loss; fitted unless given.
        confidence: of all intervals together.
        columns: names of the columns, also of `size`, `compute` and `step`.
        unit: of the loss, for what is shown.
        is_look: False where the look at a study's results is recorded otherwise.
        say: receives a message if the look cannot be recorded; by default a Python warning.

    Raises:
        InputError: the table cannot be read or lacks compute or steps, or its losses follow no falling law.
        UnknownName: no such variant.

    Example:
        >>> rows = [
        ...     {"variant": v, "seed": s, "compute": c, "loss": 1.6 + 88 * (m * c) ** -0.1 + 0.001 * np.sin(5 * s + c % 7)}
        ...     for v, m in (("base", 1.0), ("deep", 1.3))
        ...     for c in (1e17, 1e18, 1e19)
        ...     for s in range(3)
        ... ]
        >>> worth = addnorm.speedup(rows)
        >>> round(worth["deep"].worth, 2), worth.verdict("deep")
        (1.3, 'worth more')
    """
    if not 0.5 < confidence < 1:
        raise InputError(f"confidence: expected a number between 0.5 and 1, got {confidence}. For 95 % give 0.95.")
    if of == "steps":
        if limit is not None or exponent is not None:
            raise InputError(
                "steps: expected no limit or exponent, got one. They belong to a law of compute: leave them out."
            )
        if sizes:
            raise InputError(
                "steps: expected one size, got further ones. They belong to a law of compute: leave them out."
            )

    def read(batch: Batch) -> _Batch:
        if of == "steps":
            return _read_steps(source, columns, unit, batch)
        table = read_sizes(source, columns, None, unit, further=sizes, time=of == "time", batch=batch)
        return _of_sizes(table, limit, exponent)

    first = read("first")
    base, chosen = _chosen(first.variants, reference or own_reference(source), variants)
    answers, notes = _answers(first, base, chosen, confidence)
    studies = [StudyFolder(str(study)) for study in (source, *sizes)] if is_study(source) else []
    tested = [name for name in _twice(studies, base, chosen) if _verdict(answers[name]) != "undecided"]
    again = _answers(read("second"), base, tested, confidence)[0] if tested else {}
    costs = relative_costs(studies[0], base) if of == "steps" and studies else {}
    if of == "time" or costs:
        notes = (*notes, say_sentence("time_of_machine"))
    for study in studies if is_look else ():
        record_peek(study, say)
    return Worths(
        reference=base,
        of=of,
        measure=first.measure,
        confidence=confidence,
        sizes=first.sizes,
        variants=answers,
        warnings=tuple(dict.fromkeys((*first.notes, *notes))),
        costs=costs,
        again=again,
    )


def _read_steps(source: Source, columns: Mapping[str, str] | None, unit: str | None, batch: Batch) -> _Batch:
    curves, measure, notes = read_curves(source, columns, unit, batch)
    return _Batch(
        variants=tuple(curves),
        measure=measure,
        notes=(*notes, say_sentence("steps_of_longer_runs")),
        sizes=(),
        answer=lambda name, base, each: (steps_to_equal_loss(curves[name], curves[base], confidence=each), ()),
    )


def _of_sizes(table: SizedSource, limit: float | None, exponent: float | None) -> _Batch:
    def answer(name: str, base: str, each: float) -> tuple[Speedup, list[Sentence]]:
        of_sizes = _sizes(table, name, base)
        worth = fitted_speedup(of_sizes, limit=limit, exponent=exponent, confidence=each)
        return worth, _about(name, worth, of_sizes, limit)

    return _Batch(
        variants=table.variants,
        measure=table.measure,
        notes=table.warnings,
        sizes=tuple(at.size for at in table.sizes),
        answer=answer,
    )


def _answers(
    batch: _Batch, base: str, names: Sequence[str], confidence: float
) -> tuple[dict[str, Speedup | EqualLoss], tuple[Sentence, ...]]:
    """Answers whose intervals hold together, by variant, and what is to be said of them."""
    answers: dict[str, Speedup | EqualLoss] = {}
    notes: list[Sentence] = []
    for name in names:
        answers[name], about = batch.answer(name, base, 1 - (1 - confidence) / len(names))
        notes += about
    return answers, tuple(notes)


def _twice(studies: Sequence[StudyFolder], base: str, names: Sequence[str]) -> list[str]:
    """Variants with a second batch of seeds in every study; none before the whole of it has finished."""
    batches = [study.runs("second") for study in studies]
    if not studies or any(run.status().state != "finished" for runs in batches for run in runs):
        return []
    both = set.intersection(*({run.spec["variant"] for run in runs} for runs in batches))
    return [name for name in names if {name, base} <= both]


def _chosen(known: Sequence[str], reference: str | None, variants: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    base, chosen = compared_variants(known, reference, variants)
    if not chosen:
        raise InputError(
            f"speedup: expected a variant beside the reference {base!r}, got none. Add its runs to the table."
        )
    return base, chosen


def _sizes(table: SizedSource, name: str, base: str) -> list[SizeRuns]:
    made = []
    for at in table.sizes:
        own, other = ({run.seed: run for run in at.runs if run.variant == each} for each in (name, base))
        if not own or not other:
            continue
        made.append(
            SizeRuns(
                size=at.size,
                reference=_losses(other),
                variant=_losses(own),
                reference_compute=_compute(other, at.size),
                variant_compute=_compute(own, at.size),
                shared_seeds=own.keys() == other.keys(),
            )
        )
    if not made:
        raise InputError(
            f"{name}: expected a size that {base!r} has runs of too, got none. Where both differ in compute, name the column "
            "of sizes with --columns size=NAME."
        )
    return made


def _losses(runs: Mapping[int, Run]) -> np.ndarray:
    return np.array([runs[seed].loss if runs[seed].loss is not None else np.inf for seed in sorted(runs)], dtype=float)


def _compute(runs: Mapping[int, Run], size: str) -> float:
    spent = [run.compute for run in runs.values()]
    known = [each for each in spent if each is not None]
    if len(known) < len(spent):
        where = next(run.where for run in runs.values() if run.compute is None)
        raise InputError(
            f"{where}: expected the compute of the run{f' of size {size}' if size else ''}, got none. Name its column, such as "
            "FLOPs or hours, with --columns compute=NAME."
        )
    return float(np.mean(known))


def _about(name: str, answer: Speedup | EqualLoss, sizes: Sequence[SizeRuns], limit: float | None) -> list[Sentence]:
    notes = []
    if isinstance(answer, Speedup) and answer.outside:
        notes.append(say_sentence("speedup_outside", variant=name, sizes=", ".join(answer.outside)))
    if len(sizes) == 2 and limit is None:
        notes.append(say_sentence("speedup_two_sizes"))
    if answer.interval is None:
        notes.append(say_sentence("speedup_without_noise", variant=name))
    return notes
