"""Description of the measurements and statistics, with the study's own values."""

from collections.abc import Mapping
from typing import Any

from addnorm.errors import AddnormError
from addnorm.reporting.reading.inspections import insights
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import View
from addnorm.statistics.ranking import Ranking
from addnorm.statistics.result import FEWEST_SEEDS
from addnorm.store.peeks import peeks
from addnorm.words import phrases


class MethodSection(Section):
    """Method, looks and limits."""

    order = 180
    in_report = "end"
    sources = frozenset({"study", "table"})

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        return {"method": method(snapshot, view.language)}


def method(snapshot: Snapshot, language: str) -> list[tuple[str, list[str]]]:
    """Headings with their sentences."""
    t = phrases(language)
    parts = {
        "statistics": _statistics(snapshot),
        "looks": _looks(snapshot),
        "insight": _insight(snapshot),
        "limits": _limits(snapshot),
    }
    return [
        (t(f"method.{part}"), [t(f"method.{key}", **values) for key, values in sentences])
        for part, sentences in parts.items()
        if sentences
    ]


_Sentences = list[tuple[str, dict[str, object]]]


def _spec(snapshot: Snapshot) -> Mapping[str, Any]:
    return snapshot.spec(snapshot.variants[0]) if snapshot.variants else {}


def _statistics(snapshot: Snapshot) -> _Sentences:
    ranking = snapshot.ranking
    if ranking is None:
        return []
    percent = f"{100 * ranking.confidence:g} %"
    unpaired, in_nats = ranking.unpaired, ranking.measure.in_nats
    unit = ranking.measure.unit or ""
    sentences: _Sentences = [("model_unpaired" if unpaired else "model", {})]
    if not unpaired and not in_nats:
        sentences = [("model_plain", {"name": ranking.measure.name})]
    if ranking.noise_sd is not None:
        noise = {"sd": f"{ranking.noise_sd:.2g}", "df": ranking.noise_df}
        sentences.append(("noise", noise) if in_nats else ("noise_plain", {**noise, "unit": unit}))
    sentences += [
        ("error_unpaired" if unpaired else "error", {}),
        *_text(ranking),
        ("holm", {"family": ranking.family, "alpha": f"{100 * (1 - ranking.confidence):g} %"}),
        ("intervals", {"confidence": percent}),
        ("equivalence", {"margin": f"{ranking.margin:g}"})
        if in_nats
        else ("equivalence_plain", {"margin": f"{ranking.margin:g}", "unit": unit}),
        ("few_unpaired" if unpaired else "few", {"fewest": FEWEST_SEEDS}),
        ("own_interval_unpaired" if unpaired else "own_interval", {"confidence": percent}),
        ("tiers", {}),
        ("repeats", {}),
    ]
    if ranking.tuning is not None:
        sentences.append(("tuned", {"seeds": ", ".join(map(str, ranking.tuning.seeds))}))
    if ranking.others:
        names = ", ".join(of.measure.name for of in ranking.others)
        sentences.append(
            ("together" if ranking.together else "apart", {"names": names, "count": 1 + len(ranking.others)})
        )
    if not ranking.noise_even:
        sentences.append(("uneven", {}))
    if ranking.set_apart:
        sentences.append(("set_apart", {"names": ", ".join(ranking.set_apart)}))
    if ranking.noisy_references:
        sentences.append(("noisy", {"names": ", ".join(ranking.noisy_references)}))
    return sentences


def _text(ranking: Ranking) -> _Sentences:
    """Sampling error of the text beside that of the seeds, over all comparisons for which both are known."""
    known = [
        (comparison.text_error, comparison.standard_error)
        for row in ranking.variants
        for comparison in row.versus.values()
        if comparison.text_error is not None and comparison.standard_error is not None
    ]
    if not known:
        return []
    texts, seeds = zip(*known, strict=True)
    ranges = {"low": min(texts), "high": max(texts), "low_seeds": min(seeds), "high_seeds": max(seeds)}
    return [("text", {name: f"{value:.2g}" for name, value in ranges.items()})]


def _looks(snapshot: Snapshot) -> _Sentences:
    if snapshot.source == "table":
        return [("looks_of_table", {})]
    try:
        known = [look for look in peeks(snapshot.path) if look.get("finished", 0) > 0]
    except AddnormError as error:
        return [("looks_unknown", {"reason": str(error)})]
    sentences: _Sentences = [("looked", {"count": len(known)})]
    later = snapshot.ranking.added_after_look if snapshot.ranking is not None else ()
    sentences.append(("added", {"seeds": ", ".join(map(str, later))}) if later else ("none_added", {}))
    return sentences


def _insight(snapshot: Snapshot) -> _Sentences:
    if snapshot.source == "table":
        return []  # the parts that a table cannot have are listed with their reasons
    known = list(insights(snapshot).values())
    if not known:
        return [("not_inspected", {})]
    data = known[0]["data"]
    return [
        (
            "inspected",
            {
                "runs": len(known),
                "all": len(snapshot.runs),
                "sequences": data["sequences"],
                "maps": data["map_sequences"],
                "seq": data["seq"],
            },
        )
    ]


def _limits(snapshot: Snapshot) -> _Sentences:
    sentences: _Sentences = [("of_table", {})]
    if snapshot.is_study:
        sentences = [("scale", {"corpus": _spec(snapshot).get("corpus", {}).get("kind", "?")})]
    waiting = [run for run in snapshot.runs if not run.is_over]
    lost = [run for run in snapshot.runs if run.state in ("failed", "diverged")]
    if waiting:
        sentences.append(("provisional", {"count": len(waiting), "all": len(snapshot.runs)}))
    if lost:
        sentences.append(("lost", {"names": ", ".join(run.run for run in lost)}))
    return sentences
