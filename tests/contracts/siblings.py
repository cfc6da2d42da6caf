"""Every sibling of every mechanism room, with each of its choices: read from the catalogue, so a new file is in at once."""

from dataclasses import fields, replace
from itertools import product
from typing import Literal, get_args, get_origin, get_type_hints

import torch

from addnorm.catalogue import MECHANISM_ROOMS, ROOMS, Doc, Spec
from addnorm.model.spec import ModelSpec
from addnorm.testing.laws import SEQ, some_tokens


def settings_of(room: str, kind: str) -> list[Spec]:
    """The sibling with its default settings, and with every combination of its choices and switches."""
    cls = ROOMS[room].spec_class(kind)
    hints = get_type_hints(cls)
    options = {}
    for field in fields(cls):
        if get_origin(hints[field.name]) is Literal:
            options[field.name] = get_args(hints[field.name])
        elif hints[field.name] is bool:
            options[field.name] = (False, True)
    combinations = (dict(zip(options, values, strict=True)) for values in product(*options.values()))
    return list(dict.fromkeys([cls(), *(cls(**chosen) for chosen in combinations)]))


def siblings(*rooms: str) -> list[tuple[str, str]]:
    """(room, kind) of every sibling."""
    return [(room, kind) for room in rooms or MECHANISM_ROOMS for kind in ROOMS[room].kinds()]


def mechanisms(*rooms: str) -> list[tuple[str, Spec]]:
    """(room, spec) of every sibling in every setting."""
    return [(room, spec) for room, kind in siblings(*rooms) for spec in settings_of(room, kind)]


def name(room: str, spec: Spec) -> str:
    """A readable test id."""
    chosen = [str(getattr(spec, field.name)) for field in fields(spec) if getattr(spec, field.name) != field.default]
    return "-".join([room, spec.kind, *chosen])


def calls_every_annotated_function(spec: ModelSpec) -> None:
    """Passes for the shape checker, which makes one several times slower: whole and cached, padded and not, causal and masked.

    The laws compute the same with numbers to compare, without the checker.
    """
    tokens, padding = some_tokens(spec), torch.arange(SEQ) < torch.tensor([[5], [SEQ]])
    with torch.no_grad():
        causal = spec.build()
        causal.train()(tokens)
        causal.eval()(tokens, padding=padding)
        cache = causal.new_cache()
        for piece in tokens.split([5, 1, 3], dim=1):  # a prompt, a decoded row, several rows
            causal(piece, cache=cache)
        # Windows and forgetting look back from a position, so a masked model has neither.
        masked = replace(spec, objective="masked", windows=(None,), forgetting=None)
        masked.build().eval()(tokens, padding=padding)


def missing_from(doc: Doc) -> list[str]:
    """What a sibling's docstring lacks."""
    parts = {
        "a summary of one sentence": doc.summary.endswith(".") and len(doc.summary) <= 160,
        "an indented formula": bool(doc.formula),
        "Why:": bool(doc.why),
        "Source:": bool(doc.source),
        "Differs from the source:": bool(doc.differs),
    }
    return [part for part, present in parts.items() if not present]
