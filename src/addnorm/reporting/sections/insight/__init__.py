"""Inside a model, layer by layer, as `addnorm inspect` measured it; and the audit of one of its runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.figure import Figure, Rows
from addnorm.reporting.formats.numbers import mean, mean_of_known
from addnorm.reporting.formats.table import Column, ResultTable, dashed
from addnorm.reporting.layer_panel import LayerPanel, layer_panel, layer_values
from addnorm.reporting.measures import LayerMeasure, measures
from addnorm.reporting.reading import inspections
from addnorm.reporting.reading.checkpoints import inspect_command, missing_in
from addnorm.reporting.reading.study_files import content_of
from addnorm.reporting.section import Section
from addnorm.reporting.sections.insight.rows import checkpoint_table, insight_table, layer_rows
from addnorm.reporting.sections.insight.table import latex
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import CHECKPOINT_PAGE, MODEL_PAGE, View
from addnorm.store.measured import SKIPPED
from addnorm.words import Phrases, phrases

_OF_CHECKPOINTS = "Each checkpoint on the text that it was measured on"


@dataclass(frozen=True, kw_only=True)
class Insight:
    """Measurements of a model's inspected runs, or of a checkpoint."""

    panels: tuple[LayerPanel, ...]
    """Each with a line per moment."""
    moments: tuple[str, ...]
    """`start` and `end`; a checkpoint has no start."""
    seeds: tuple[int, ...]
    """Seeds whose runs were inspected; panels are means over them. None for a checkpoint."""
    missing: tuple[tuple[str, Any], ...]
    """Parts not found in the model of a run that others wrote: sentence and its note. A checkpoint's page has them above."""


def insight(snapshot: Snapshot, variant: str, language: str = "en") -> Insight:
    """The variant's inspected runs, or the checkpoint, layer by layer."""
    t = phrases(language)
    is_run = variant in snapshot.variants
    moments = ("start", "end") if is_run else ("end",)
    contents, seeds = list[Mapping[str, Any]](), list[int]()
    for place in snapshot.measured_in(variant):
        content = content_of(snapshot, f"{place.folder}/{inspections.NAME}")
        if all(isinstance(content.get(moment), dict) for moment in moments):
            contents.append(content)
            seeds += [] if place.seed is None else [place.seed]
    panels = (_panel(measure, contents, moments, t) for measure in measures().values())
    return Insight(
        panels=tuple(panel for panel in panels if panel is not None),
        moments=moments,
        seeds=tuple(sorted(seeds)),
        missing=missing_in(contents[0]) if contents and is_run else (),
    )


def _panel(
    measure: LayerMeasure, contents: Sequence[Mapping[str, Any]], moments: Sequence[str], t: Phrases
) -> LayerPanel | None:
    lines = []
    for moment in moments:
        of_runs = [layer_values(content[moment], measure.key) for content in contents]
        layers = {layer for of in of_runs for layer in of}
        lines.append({layer: mean([of[layer] for of in of_runs if layer in of]) for layer in layers})
    return layer_panel(measure, lines, t)


_AUDIT = "audit.json"
_VERDICTS = ("redundant", "partly_redundant", "foldable", "effective", "negligible", "unproved", "undecided")
"""Verdicts of an audit, as keys of phrases."""


@dataclass(frozen=True, kw_only=True)
class Audited:
    """The newest audit among a model's runs."""

    run: str
    counts: tuple[tuple[str, int, int], ...]
    """Verdict (of `_VERDICTS`), number of findings, numbers in those parameters."""
    findings: tuple[tuple[str, str, str, str], ...]
    """Parameter, verdict, redundant of all degrees of freedom, where it folds to; effective ones left out."""


def audited(snapshot: Snapshot, variant: str) -> Audited | None:
    """The audit of the first of the variant's runs that has one."""
    for run in snapshot.of(variant):
        content = content_of(snapshot, f"{run.run}/{_AUDIT}")
        findings = _findings(content)
        if findings:
            verdicts = list(dict.fromkeys(entry["verdict"] for entry in findings))
            return Audited(
                run=run.run,
                counts=tuple(
                    (verdict, len(of), sum(_whole(entry.get("size")) for entry in of))
                    for verdict in verdicts
                    if (of := [entry for entry in findings if entry["verdict"] == verdict])
                ),
                findings=tuple(
                    (
                        str(entry.get("parameter")),
                        entry["verdict"],
                        f"{_whole(entry.get('redundant_dof'))} / {_whole(entry.get('size'))}",
                        str(entry.get("fold_into") or ""),
                    )
                    for entry in findings
                    if entry["verdict"] != "effective"
                ),
            )
    return None


def _findings(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The audit's findings with their verdicts as phrases' keys; none where it is of another version."""
    findings = [
        {**entry, "verdict": str(entry.get("verdict")).replace(" ", "_")}
        for entry in content.get("findings", [])
        if isinstance(entry, dict)
    ]
    return findings if all(entry["verdict"] in _VERDICTS for entry in findings) else []


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


class InsightSection(Section):
    """Measures per layer: panels of one model, figures of all models side by side."""

    order = 150
    absence = "weights"
    pages = (MODEL_PAGE, CHECKPOINT_PAGE)
    in_report = "model"
    sources = frozenset({"study", "checkpoints"})
    run_files = (inspections.NAME, _AUDIT)
    study_files = (SKIPPED,)

    @property
    def figures(self) -> Sequence[Figure]:  # type: ignore[override]
        """One per measure."""
        return [_figure(measure) for measure in measures().values()]

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        variant = view.variant or ""
        return {
            "insight": insight(snapshot, variant, view.language),
            "audited": audited(snapshot, variant),
            "command": inspect_command(snapshot, variant),
            "reason": inspections.not_inspected(snapshot, phrases(view.language), [variant]).get(variant),
        }

    def files(self, snapshot: Snapshot) -> Mapping[str, str]:
        table, checkpoints = insight_table(snapshot), checkpoint_table(snapshot)
        tables = {f"insight-{key}.tex": text for key, text in latex(table).items()}
        of_runs = {"insight.csv": ResultTable.of(table).csv(), **tables} if table else {}
        as_variants = [{"variant": row["checkpoint"], "step": None, **row} for row in checkpoints]
        tables = {f"checkpoints-{key}.tex": text for key, text in latex(as_variants, _OF_CHECKPOINTS).items()}
        return of_runs | ({"checkpoints.csv": ResultTable.of(checkpoints).csv(), **tables} if checkpoints else {})


def _figure(measure: LayerMeasure) -> Figure:
    def rows(snapshot: Snapshot, t: Phrases) -> Rows:
        return layer_rows(snapshot, measure.key)

    return Figure(
        name=measure.name,
        caption=measure.caption,
        rows=rows,
        numbers=("start", "end"),
        draw=measure.figure,
        table=_figure_table,
    )


def _figure_table(rows: Rows, t: Phrases) -> ResultTable:
    mean = dashed(".4g", "–")
    columns = (
        Column("variant", t("common.model"), side="l"),
        Column("layer", t("scalars.layer")),
        Column("start", t("insight.at_start"), lambda values: mean(mean_of_known(values))),
        Column("end", t("insight.at_end"), lambda values: mean(mean_of_known(values))),
    )
    return ResultTable(columns, rows)
