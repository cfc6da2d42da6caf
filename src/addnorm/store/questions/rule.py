"""`addnorm.rule`: does a table satisfy a written rule, and how often does chance alone satisfy it?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from addnorm.errors import InputError, UnknownName
from addnorm.statistics.measure import Direction, Metric
from addnorm.statistics.pairs.comparison import negated
from addnorm.statistics.rules import RuleCheck, SizeLosses, WrittenRule, check_rule, read_rule
from addnorm.statistics.run_tables import Run, Source
from addnorm.store.questions.source import SizedSource, own_reference, read_sizes
from addnorm.words import Sentence, say


@dataclass(frozen=True, kw_only=True)
class RuleResult:
    """Every variant of a table under a rule. Effects are positive where the variant is better."""

    rule: WrittenRule
    measure: Metric
    reference: str | None
    sizes: tuple[str, ...]
    variants: tuple[RuleCheck, ...]
    warnings: tuple[Sentence, ...]

    def __getitem__(self, variant: str) -> RuleCheck:
        """The row of that variant.

        Raises:
            KeyError: no such variant.
        """
        return {row.variant: row for row in self.variants}[variant]

    def to_json(self) -> dict[str, Any]:
        """The answers as plain JSON values."""
        return {
            "rule": {
                "name": self.rule.name,
                "source": self.rule.source,
                "conditions": [{"kind": type(each).__name__, **each.to_json()} for each in self.rule.conditions],
            },
            "metric": self.measure.name,
            "unit": self.measure.unit,
            "better": self.measure.better,
            "reference": self.reference,
            "sizes": list(self.sizes),
            "variants": [row.to_json() for row in self.variants],
            "warnings": [str(warning) for warning in self.warnings],
        }


def rule(
    source: Source,
    written: str | Path | Mapping[str, Any],
    *,
    reference: str | None = None,
    variants: Sequence[str] = (),
    noise: float | None = None,
    columns: Mapping[str, str] | None = None,
    direction: Direction | None = None,
    unit: str | None = None,
) -> RuleResult:
    """Ask whether a table satisfies a written rule, and simulate how often chance alone does.

    The command is `addnorm rank --rule`.

    Args:
        source: as for `rank`; rules on several sizes need a table with a column `compute` or `size`.
        written: name of a shipped rule, a YAML file, or its content.
        reference: the variant that a rule compares with; the first one unless given. Not used by a rule on a fixed number.
        variants: the only variants to check; all others unless given.
        noise: standard deviation of one run in the simulation; estimated from the table unless given.
        columns: names of the columns of a table; also `size`, `compute` and `throughput`.
        direction: the better direction of the column `loss`.
        unit: of that column.

    Raises:
        InputError: the rule or the table cannot be read, or the table lacks what the rule needs.
        UnknownName: no such rule or variant.

    Example:
        >>> losses = (3.2760, 3.2771, 3.2778, 3.2765, 3.2783)
        >>> rows = [{"variant": "idea", "seed": s, "loss": x} for s, x in enumerate(losses)]
        >>> checked = addnorm.rule(rows, "modded-nanogpt")["idea"]
        >>> checked.verdict, checked.rates[0].about, checked.rates[0].rate < 0.015
        ('passes', 'just not enough', True)
    """
    asked = WrittenRule.of(written, "rule") if isinstance(written, Mapping) else read_rule(written)
    applied = asked.mirrored() if asked.better == "higher" else asked
    table = read_sizes(source, columns, direction, unit)
    if table.measure.better != asked.better:
        raise InputError(
            f"rule {asked.name}: expected a metric of which {asked.better} is better, got {table.measure.name}, of which "
            f"{table.measure.better} is. Check the column, or write better: {table.measure.better} into the rule."
        )
    for name in (*variants, *([reference] if reference is not None else [])):
        if name not in table.variants:
            raise UnknownName("variant", name, table.variants)
    base = None
    if asked.compares:
        base = reference or own_reference(source) or table.variants[0]
    chosen = tuple(variants) or tuple(name for name in table.variants if name != base)
    if not chosen:
        raise InputError(
            f"rule {asked.name}: expected a variant beside the reference {base!r}, got none. Add its runs to the table."
        )
    warnings = list(table.warnings)
    if asked.unit and table.measure.unit not in (None, asked.unit):
        warnings.append(say("rule_unit", rule=asked.name, unit=asked.unit, got=str(table.measure.unit)))
    rows = []
    for name in chosen:
        losses = _losses(table, name, base, asked)
        row = check_rule(applied, losses, variant=name, reference=base, noise=noise)
        if asked.better == "higher":
            means, others = tuple(map(negated, row.mean)), tuple(0.0 - mean for mean in row.reference_mean)
            row = replace(row, mean=means, reference_mean=others)
        rows.append(row)
    return RuleResult(
        rule=asked,
        measure=table.measure,
        reference=base,
        sizes=tuple(each.size for each in table.sizes),
        variants=tuple(rows),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _losses(table: SizedSource, name: str, base: str | None, asked: WrittenRule) -> list[SizeLosses]:
    made = []
    sign = 1.0 if asked.better == "lower" else -1.0
    for at in table.sizes:
        own, other = ([run for run in at.runs if run.variant == each] for each in (name, base))
        if not own or (base is not None and not other):
            continue
        speeds = [_mean(runs, "throughput") for runs in (own, other)]
        made.append(
            SizeLosses(
                size=at.size,
                variant=_values(own, sign),
                reference=_values(other, sign) if base is not None else None,
                variant_compute=_mean(own, "compute"),
                reference_compute=_mean(other, "compute"),
                relative_throughput=1.0 if None in speeds else (speeds[0] or 1.0) / (speeds[1] or 1.0),
            )
        )
    if not made:
        raise InputError(f"{name}: expected a size that {base!r} has runs of too, got none.")
    return made


def _values(runs: Sequence[Run], sign: float) -> np.ndarray:
    # A run that diverged is as bad as can be in either direction.
    return np.array([sign * run.loss if run.loss is not None and np.isfinite(run.loss) else np.inf for run in runs])


def _mean(runs: Sequence[Run], name: str) -> float | None:
    known = [value for run in runs if (value := getattr(run, name)) is not None]
    return float(np.mean(known)) if known and len(known) == len(runs) else None
