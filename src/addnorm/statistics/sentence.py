"""Sentences about results: English texts that know their code and their values, so that a page can translate them.

    say("references_level", names=listed("and", ["v2m1", "base"]))
    == "references v2m1 and base cannot be told apart: there is no tier between them."

A sentence is a `str` for whatever prints it. `note` is the same as plain JSON values. Parts of a sentence are sentences too.
"""

from collections.abc import Iterable
from typing import Any

SENTENCES = {
    "provisional": "provisional: {runs} runs have not ended. Verdicts can change when they do.",
    "added_after_look": "seeds added after results had been seen: {seeds}. The error rates hold for a number of seeds "
    "fixed beforehand; looking, adding and looking again makes false claims more likely.",
    "unplanned": "not in the first plan, and counted: {seeds}, added before any ranking had been shown with results.",
    "lost": "{variant}: {endings}.",
    "lost_some": "{variant}: {endings}. Its mean is over what is left of {seeds} seeds.",
    "ended": "{which} {state}",
    "ended_because": "{which} {state} ({reason})",
    "one_seed": "seed {seeds}",
    "several_seeds": "seeds {seeds}",
    "no_verdict": "no verdict: no comparison has 3 shared seeds, so the order as listed is not supported. No variant has "
    "two distinct runs.",
    "no_verdict_repeated": "no verdict: no comparison has 3 shared seeds, so the order as listed is not supported. More "
    "than one distinct run: {variants}.",
    "unknown_noise": "the runs themselves cannot say how large the noise is: no two variants share two seeds (0 residual "
    "degrees of freedom).",
    "what_it_takes": "what it would take, if one run's standard deviation is {known} nats and the differences stand: {half} "
    "seeds per variant decide half of the {comparisons} comparisons, {all} decide all.",
    "assumed": "assumed {sd}",
    "measured": "measured {sd:.4g}",
    "uneven": "variants differ in noise: from {quiet} ({least:.2g} nats between seeds) to {noisy} ({most:.2g}). The tests "
    "allow for it with fewer degrees of freedom; more seeds help more than usual.",
    "noisy_references": "possibly noisier than the rest: {names}. Comparisons with a reference that looks so rest on the "
    "references' own noise, with few degrees of freedom. Even noise looks so in one study of six; more seeds tell.",
    "references_level": "references {names} cannot be told apart: there is no tier between them.",
    "accuracy_disagrees": "accuracy and loss disagree on {variant} against {other}: loss {loss:+.4f}, accuracy {points:+.2f} "
    "points.",
    "copy": "{run} repeats {twin} {how}: a copy, not a replicate. Counted once.",
    "bit_for_bit": "bit for bit",
    "in_every_digit": "in every reported digit",
    "same_variant": "variant {copy} repeats variant {original} at every seed: the same computation under two names. Counted "
    "once.",
    "mislabelled": "{run} has the content of {twin}, a run of another variant: one of the two is mislabelled. {run} is left "
    "out.",
    "none_finished": "no run of {variant} finished: {endings}",
    "reference_not_finished": "no run of the reference {variant} finished: {endings}",
    "nothing_finished": "no run has finished yet",
    "nothing_shared": "{variant} and {other} share no finished seed",
    "one_shared": "{count} seed shared, a verdict needs {fewest}",
    "several_shared": "{count} seeds shared, a verdict needs {fewest}",
    "no_noise": "the difference is the same at every seed to the last digit, so there is no noise to judge it by",
    "certainly_lower": "certainly lower, by less than the margin",
    "certainly_higher": "certainly higher, by less than the margin",
    "diverged": "{variant} diverged at seed {seeds}; the surviving seeds alone flatter it",
    "reference_diverged": "the reference {variant} diverged at seed {seeds}; the surviving seeds alone flatter it",
    "two_names": "the same computation under two names",
    "at_length": "{length} tokens: {said}",
    "not_finite": "its loss at {length} tokens is not finite",
    "not_evaluated": "{run} could not be evaluated: {reason}",
    "fewer_windows": "the held-out text holds {windows} of the {asked} windows asked for.",
    "one_window": "one window of the longest length is too little to speak of other texts.",
    "two_objectives": "causal and masked models are asked for other tokens: compare each with its own kind.",
    "references_left_out": "references that were not chosen are left out: {names}.",
    "no_runs": "a ranking needs at least one run, got none.",
    "reference_twice": "every reference is named once: {reference!r} arrived twice.",
    "two_runs": "one run per variant and seed: variant {variant!r} has two at seed {seed} ({one} and {two}). Give the later "
    "attempt alone, or another seed.",
    "mixed_corpus": "only runs on one corpus can be ranked: {one} has corpus hash {hash_one}, {two} has {hash_two}. Rank them "
    "apart, or run one again on the other's corpus.",
    "mixed_tokenizer": "only runs on one tokenizer can be ranked: {one} has tokenizer hash {hash_one}, {two} has {hash_two}. "
    "Rank them apart, or run one again on the other's tokenizer.",
    "plan_lacks": "{path} is damaged: it has no {name!r}. Restore it from a copy.",
    "no_such_reference": "the plan compares with models that it does not train: {names}.",
    "cannot_rank": "the runs cannot be ranked: {reason}",
    "plugins_not_given": "{where} names mechanisms from {names}. They are code, so they are not loaded unasked: give the file "
    "with {way}.",
    "not_exported": "torch.export cannot follow this model: {reason}",
    "not_audited": "it cannot be audited: {reason}",
    "state_failed": "failed",
    "state_diverged": "diverged",
}
"""Every sentence by its code. Codes are stable; every language has words for each."""

JOINTS = {"and": " and ", "comma": ", ", "semicolon": "; "}
"""What stands between the parts of a listing."""


class Sentence(str):
    """A text that knows what it says.

    Args:
        text: in English.
        note: the same as `{"code", "values"}`, or as `{"joint", "parts"}` for a listing.
    """

    note: dict[str, Any]

    def __new__(cls, text: str, note: dict[str, Any]) -> "Sentence":
        """A sentence; use `say` or `listed`."""
        made = super().__new__(cls, text)
        made.note = note
        return made

    def __getnewargs__(self) -> tuple[str, dict[str, Any]]:  # type: ignore[override]
        """What a copy in another process is made from."""
        return str(self), self.note


def say(code: str, **values: str | int | float) -> Sentence:
    """The sentence of that code, with its places filled in; values may be sentences themselves.

    Raises:
        KeyError: no such code, or a place without a value.
    """
    return Sentence(SENTENCES[code].format_map(values), {"code": code, "values": _plain(values)})


def listed(joint: str, parts: Iterable[str | int]) -> Sentence:
    """Parts one after the other.

    Args:
        joint: one of `JOINTS`.
        parts: names, numbers or sentences.
    """
    found = list(parts)
    return Sentence(JOINTS[joint].join(map(str, found)), {"joint": joint, "parts": [_noted(part) for part in found]})


def _plain(values: dict[str, str | int | float]) -> dict[str, Any]:
    return {name: _noted(value) for name, value in values.items()}


def _noted(value: str | int | float) -> Any:
    return value.note if isinstance(value, Sentence) else value
