"""Set-up of a study in sentences: models, data, training, and how rates were chosen. Every setting is in one of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from addnorm.catalogue import MECHANISM_ROOMS
from addnorm.reporting.formats.measured import RankingFormats
from addnorm.reporting.formats.numbers import quantity, times
from addnorm.reporting.formats.spec import NULL, flat
from addnorm.reporting.reading.study_files import content_of, counted_costs
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import View
from addnorm.words import Phrases, phrases

_PARTS = ("model", "training", "corpus", "tokenizer")
_RATE = "training.optimizer.learning_rate"
_ABSENT = "–"
_NAMED_FIRST = ("residual", "scores", "placement", "norm", "position", "block", "qk_bias", "qk_norm")
"""Fields of a model's parts in the order of the sentence that names them; those of other rooms follow."""


class SetupSection(Section):
    """The set-up."""

    order = 15
    absence = "setup"
    in_report = "study"

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        return {
            "setup": setup(snapshot, view.language),
            "differing": own_settings(snapshot),
            "base": next(iter(snapshot.references or snapshot.variants), ""),
        }


def setup(snapshot: Snapshot, language: str) -> list[tuple[str, list[str]]]:
    """Headings with their sentences, which together name every setting that all runs share."""
    if not all(set(_PARTS) <= snapshot.spec(name).keys() for name in snapshot.variants) or not snapshot.variants:
        return []
    t, settings = phrases(language), _Shared(snapshot)
    parts = {
        "models": _models(snapshot, settings, t),
        "data": _data(snapshot, settings, t),
        "training": _training(snapshot, settings, t),
        "rates": [_rates(snapshot, t)],
    }
    # What no sentence has named stands at the end of its part, so that nothing is left out.
    for part, root in (("models", "model"), ("data", "corpus"), ("data", "tokenizer"), ("training", "training")):
        left = settings.left(root)
        if left:
            parts[part].append(t("setup.further", settings=t("joint.semicolon").join(left)))
    return [(t(f"setup.{part}"), sentences) for part, sentences in parts.items()]


def own_settings(snapshot: Snapshot) -> list[tuple[str, list[tuple[str, str]]]]:
    """The settings in which each model differs from the first reference: path and value."""
    base = next(iter(snapshot.references or snapshot.variants), None)
    # A module of the user's own has none of our fields, and that need not be said thirty times.
    own = {name for name in snapshot.variants if snapshot.spec(name).get("model", {}).get("kind") == "python"}
    return [
        (
            name,
            [
                (path, of[name])
                for path, of in snapshot.differing.items()
                if of[name] != of[base] and not (name in own and of[name] == _ABSENT)
            ],
        )
        for name in snapshot.variants
        if base is not None and name != base
    ]


class _Shared:
    """Settings that all models share. Each is named once."""

    def __init__(self, snapshot: Snapshot) -> None:
        spec = snapshot.spec(snapshot.variants[0])
        values = flat({part: spec[part] for part in _PARTS})
        self._left = {path: value for path, value in values.items() if path not in snapshot.differing}

    def take(self, **paths: str) -> dict[str, str] | None:
        """Values by name, which no other sentence needs to name; None if models differ in one of them."""
        if not set(paths.values()) <= self._left.keys():
            return None
        return {name: self._left.pop(path) for name, path in paths.items()}

    def part(self, path: str) -> str | None:
        """A part with its settings, `adamw (betas [0.9, 0.95], eps 1e-08)`; None if models differ in its kind."""
        kind = self._left.pop(f"{path}.kind", None)
        if kind is None:
            return None
        own = {at: value for at, value in self._left.items() if at.startswith(f"{path}.")}
        for at in own:
            del self._left[at]
        fields = ", ".join(f"{at.removeprefix(f'{path}.')} {value}" for at, value in own.items())
        return f"{kind} ({fields})" if fields else kind

    def left(self, root: str) -> list[str]:
        """List the settings that have not been named: path and value."""
        return [f"{path} = {value}" for path, value in self._left.items() if path.startswith(f"{root}.")]


def _sentence(t: Phrases, key: str, values: Mapping[str, str] | None) -> list[str]:
    return [] if values is None else [t(f"setup.{key}", **values)]


def _models(snapshot: Snapshot, settings: _Shared, t: Phrases) -> list[str]:
    comma = t("joint.comma")
    sentences = [t("setup.compared", count=len(snapshot.variants), names=comma.join(snapshot.variants))]
    if snapshot.references:
        sentences.append(t("setup.references", names=comma.join(snapshot.references)))
    sentences += _sentence(t, "width", settings.take(width="model.width", hidden="model.hidden"))
    sentences += _sentence(t, "depth", settings.take(depth="model.depth"))
    heads = settings.take(heads="model.heads", kv_heads="model.kv_heads")
    if heads is not None and heads["kv_heads"] == NULL:
        heads["kv_heads"] = heads["heads"]
    sentences += _sentence(t, "heads", heads)
    sentences += _sentence(t, "length", settings.take(length="model.max_seq"))
    others = [room for room in MECHANISM_ROOMS if room not in (*_NAMED_FIRST, "bias")]  # the field of "bias" is qk_bias
    parts = [
        f"{field} {part}" for field in (*_NAMED_FIRST, *others) if (part := settings.part(f"model.{field}")) is not None
    ]
    if parts:
        sentences.append(t("setup.parts", parts=t("joint.semicolon").join(parts)))
    counts = [of["parameters"] for of in counted_costs(snapshot).values() if "parameters" in of]
    if counts:
        least, most = quantity(min(counts)), quantity(max(counts))
        key = "parameters" if least == most else "parameters_between"
        sentences.append(t(f"setup.{key}", least=least, most=most))
    return sentences


def _data(snapshot: Snapshot, settings: _Shared, t: Phrases) -> list[str]:
    sentences = []
    corpus, tokenizer = settings.part("corpus"), settings.part("tokenizer")
    vocab = settings.take(vocab="model.vocab")
    if corpus is not None:
        sentences.append(t("setup.corpus", corpus=corpus))
    data = content_of(snapshot, "data/dataset.json")
    train, held = data.get("train"), data.get("held")
    if isinstance(train, dict) and isinstance(held, dict) and "tokens" in train and "tokens" in held:
        sentences.append(
            t(
                "setup.amount",
                train=quantity(train["tokens"]),
                documents=train.get("documents", "?"),
                held=quantity(held["tokens"]),
                held_documents=held.get("documents", "?"),
            )
        )
    if tokenizer is not None:
        sentences.append(t("setup.tokenizer", tokenizer=tokenizer))
    return sentences + _sentence(t, "vocab", vocab)


def _training(snapshot: Snapshot, settings: _Shared, t: Phrases) -> list[str]:
    spec = snapshot.spec(snapshot.variants[0])
    training, objective = spec["training"], settings.take(objective="model.objective")
    sentences = []
    steps = settings.take(steps="training.steps", batch="training.batch", seq="training.seq")
    if steps is not None:
        sentences.append(t("method.trained", **steps))
        tokens = int(training["steps"]) * int(training["batch"]) * int(training["seq"])
        sentences.append(t("setup.tokens", tokens=quantity(tokens)))
        if snapshot.train_tokens:
            sentences.append(t("setup.passes", share=times(tokens / snapshot.train_tokens)))
    seeds = sorted({run.seed for run in snapshot.runs})
    sentences.append(t("setup.seeds", seeds=", ".join(map(str, seeds))))
    optimizer, schedule = settings.part("training.optimizer"), settings.part("training.schedule")
    sentences += [t("setup.optimizer", optimizer=optimizer)] if optimizer else []
    sentences += [t("setup.schedule", schedule=schedule)] if schedule else []
    clip = settings.take(clip="training.clip")
    sentences += _sentence(t, "clip" if clip != {"clip": NULL} else "not_clipped", clip)
    sentences += _sentence(t, "precision", settings.take(precision="training.precision"))
    scored = settings.take(sequences="training.eval_sequences")
    last = settings.take(sequences="training.final_sequences")  # not there unless it is set
    if last is not None and steps is not None:
        code = "scored_all" if last["sequences"] == "all" else "scored"
        sentences.append(t(f"method.{code}", **last, seq=steps["seq"]))
    elif scored is not None and steps is not None:
        sentences.append(t("method.scored", **scored, seq=steps["seq"]))
    if objective is not None:
        code = "masked" if objective["objective"] == "masked" else "causal"
        sentences.append(t(f"method.{code}", unit=RankingFormats.of_measure(snapshot.measure, t).unit))
    sentences.append(t("method.paired_apart" if "training.batch" in snapshot.differing else "method.paired"))
    return sentences


def _rates(snapshot: Snapshot, t: Phrases) -> str:
    tuning = snapshot.plan.get("tune")
    if isinstance(tuning, dict):
        axes: Sequence[str] = list(dict.fromkeys(axis for of in tuning.get("over", {}).values() for axis in of))
        return t("setup.tuned", axes=", ".join(axes), seeds=", ".join(map(str, tuning.get("seeds", ()))))
    return t("setup.own_rates" if _RATE in snapshot.differing else "setup.one_rate")
