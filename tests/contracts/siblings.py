"""Every sibling of every mechanism room, with each of its choices: read from the catalogue, so a new file is in at once."""

from dataclasses import fields
from itertools import product
from typing import Literal, get_args, get_origin, get_type_hints

from addnorm.catalogue import MECHANISM_ROOMS, ROOMS, Doc, Spec

CHECKED = ("ignores_padding", "decodes_with_a_cache")
"""Laws that run with the shape checker: between them they call every annotated function, in whole passes and cached ones,
padded and not, causal and masked. The others call the same ones again, and the checker makes a pass three times slower."""


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
