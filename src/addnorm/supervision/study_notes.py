"""Notes about a study before it is trained: fields that are replaced, variants that are equal, few seeds."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import combinations

from addnorm.data.corpora import CorpusSpec
from addnorm.model.presets import PRESETS
from addnorm.model.spec import ModelSpec
from addnorm.statistics import FEWEST_SEEDS
from addnorm.study.definition import Study
from addnorm.supervision.prepared import FittedStudy
from addnorm.words import point_name

_INSTEAD = {"held_out_path": "held_out", "held_out_split": "held_out"}
"""Fields of corpora that make another one unused."""


def study_notes(fitted: FittedStudy) -> list[str]:
    """Sentences about a study that was fitted to its data."""
    return [
        *_replaced(fitted.given, fitted.study),
        *_unused(fitted.given.corpus),
        *_equal(fitted.study),
        *_uncompared(fitted.study),
    ]


def seeds_note(study: Study) -> list[str]:
    """A sentence about too few seeds for any verdict."""
    seeds = len(study.seeds)
    if len(study.variants) < 2 or seeds >= FEWEST_SEEDS:
        return []
    return [f"$.seeds: {seeds} seed(s), but a verdict needs {FEWEST_SEEDS}: nothing will be decided."]


def _replaced(study: Study, fitted: Study) -> Iterator[str]:
    given: dict[tuple[str, int, int], list[str]] = {}
    defaults = {ModelSpec().vocab, *(make().vocab for make in PRESETS.values())}  # of models that were given none
    for name, model in study.variants.items():
        now = fitted.variants[name]
        if not isinstance(model, ModelSpec) or not isinstance(now, ModelSpec):
            continue
        if model.max_seq != now.max_seq:
            given.setdefault(("max_seq", model.max_seq, now.max_seq), []).append(name)
        if model.vocab != now.vocab and model.vocab not in defaults:
            given.setdefault(("vocab", model.vocab, now.vocab), []).append(name)
    reasons = {
        "max_seq": "training.seq; lower that to keep it",
        "vocab": "the ids of the tokenizer; name the variant in the study's own_vocab to keep a larger table",
    }
    for (field, value, taken), names in given.items():
        yield f"{field}: {value} is replaced by {taken}, {reasons[field]}. Variants: {', '.join(names)}."


def _unused(corpus: CorpusSpec) -> Iterator[str]:
    defaults = {field.name: field.default for field in fields(corpus)}
    for name, unused in _INSTEAD.items():
        if getattr(corpus, name, None) is not None and getattr(corpus, unused) != defaults[unused]:
            yield f"$.corpus.{unused}: {getattr(corpus, unused)} is not used, because {name} is given."
    yield from corpus.notes()


def _uncompared(study: Study) -> Iterator[str]:
    compared = {name for pair in study.pairs for name in pair} if study.pairs else set(study.variants)
    if alone := [point_name(name) for name in study.variants if name not in compared]:
        yield (
            f"$.compare: compared with nothing, since no reference has their values on the axes that both have: "
            f"{', '.join(alone)}. Give a reference these values, or write compare: all."
        )


def _equal(fitted: Study) -> Iterator[str]:
    references = fitted.references or tuple(fitted.variants)[:1]
    alike: Mapping[str, tuple[object, object]] = {
        name: (model, fitted.training_of(name)) for name, model in fitted.variants.items()
    }
    for one, other in combinations(fitted.variants, 2):
        if alike[one] == alike[other]:
            role = " (a reference)" if {one, other} & set(references) else ""
            yield f"$.variants.{other}: the same model and training as {one}{role}: the two differ in their names alone."
