"""One model's own page: its mechanisms' formulas, its spec, and how it differs from the reference."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from markupsafe import Markup

from addnorm.catalogue import JOINT_ROOMS, MECHANISM_ROOMS, ROOMS
from addnorm.errors import InputError
from addnorm.reporting.formats.formula import typeset
from addnorm.reporting.formats.spec import flat
from addnorm.reporting.reading.foreign import Foreign, foreign_in
from addnorm.reporting.reading.study_files import content_of
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import MODEL_PAGE, View
from addnorm.words import phrases

_PLACES = {"bias": "qk_bias"}
"""Field of a model's spec that holds a room's mechanism, where it is not named like the room."""


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """One mechanism of the model."""

    room: str
    kind: str
    texts: Mapping[str, str] = field(default_factory=dict)
    """`summary`, `why` and `differs`; empty if the docstring has none, English if there is no translation."""
    is_translated: bool = True
    formula: Markup = field(default_factory=Markup)
    """Typeset; only the lines that hold for this model; empty for a plugin's mechanism."""
    source: str = ""
    is_known: bool = False
    """False for a plugin's mechanism: pages do not open files that a study names."""
    is_plain: bool = False

    @property
    def stands_out(self) -> bool:
        """True for a joint other than a standard Transformer's, which the page shows first."""
        return not self.is_plain and self.room in (*JOINT_ROOMS, "block")


@dataclass(frozen=True, kw_only=True)
class SpecField:
    """One line of the spec."""

    path: str
    value: str
    reference: str | None
    """The reference's value if it differs, else None."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """Everything known of a model before it is trained."""

    variant: str
    reference: str | None
    """The first reference that is not the model itself; the page compares the two."""
    mechanisms: tuple[Mechanism, ...]
    fields: tuple[SpecField, ...]
    differences: tuple[SpecField, ...]
    """Of the model and its training."""
    foreign: Foreign | None
    """None for a model of this library."""
    attention: tuple[str, ...] = ()
    """The ways that attention took on the runs' devices, with the reasons; empty before they begin."""


class ModelSection(Section):
    """Formulas, spec and difference to the reference."""

    order = 70
    absence = "setup"
    pages = (MODEL_PAGE,)
    in_report = "model"

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        return {"model": model(snapshot, view.variant or "", view.language)}


def model(snapshot: Snapshot, variant: str, language: str = "en") -> Model:
    """The model's page."""
    own, foreign = snapshot.spec(variant).get("model"), foreign_in(snapshot.spec(variant))
    built = own.get("patch") if foreign is not None and isinstance(own, Mapping) else own
    reference = next((name for name in snapshot.references if name != variant), None)
    lines = _lines(snapshot.spec(variant))
    theirs = _lines(snapshot.spec(reference)) if reference is not None else dict(lines)
    fields = tuple(
        SpecField(
            path=path,
            value=lines.get(path, "–"),
            reference=theirs.get(path, "–") if lines.get(path) != theirs.get(path) else None,
        )
        for path in dict.fromkeys([*lines, *theirs])
    )
    return Model(
        variant=variant,
        reference=reference,
        mechanisms=mechanisms(built, language) if isinstance(built, Mapping) else (),
        fields=tuple(each for each in fields if each.path in lines and not each.path.startswith("training.")),
        differences=tuple(
            each for each in fields if each.reference is not None and _is_compared(each.path, lines, theirs)
        ),
        foreign=foreign,
        attention=_attention(snapshot, variant),
    )


def _attention(snapshot: Snapshot, variant: str) -> tuple[str, ...]:
    taken = [
        content_of(snapshot, f"{run.run}/env.json").get("attention") for run in snapshot.runs if run.variant == variant
    ]
    return tuple(dict.fromkeys(each for each in taken if isinstance(each, str)))


_OF_FOREIGN = ("python", "checkpoint")
"""Fields that only a model of others has: where it is from."""
_NOT_COMPARED = ("kind", "content")
"""Fields of such a model that its page says in words, and the digest of its files."""


def _is_compared(path: str, *both: Mapping[str, str]) -> bool:
    """False for fields of a model of this library that is compared with one of others, which has none of them."""
    foreign = [lines for lines in both if any(name in lines for name in _OF_FOREIGN)]
    if not foreign or path.startswith("training."):
        return True
    return path not in _NOT_COMPARED and any(path in lines for lines in foreign)


def _lines(spec: Mapping[str, Any]) -> dict[str, str]:
    """The model's settings by path, and those of its training below `training`."""
    parts = (spec.get("model", {}), {"training": spec.get("training", {})})
    return {path: value for part in parts if isinstance(part, Mapping) for path, value in flat(part).items()}


def mechanisms(spec: Mapping[str, Any], language: str = "en") -> tuple[Mechanism, ...]:
    """The mechanisms that a model is built with, each with the formulas that hold for it.

    Args:
        spec: the model's spec, as the study's plan holds it.
        language: of the texts.
    """
    if isinstance(spec.get("gau"), Mapping):  # written as in earlier versions
        spec = {**spec, "block": {"kind": "gau", **spec["gau"]}}
    built = []
    for name in MECHANISM_ROOMS:
        place = spec.get(_PLACES.get(name, name))
        kind = place.get("kind") if isinstance(place, Mapping) else None
        if isinstance(kind, str) and _is_built(name, spec):
            built.append(_mechanism(name, kind, spec, language))
    return tuple(sorted(built, key=lambda mechanism: not mechanism.stands_out))


def _is_built(room: str, spec: Mapping[str, Any]) -> bool:
    """False for a mechanism that the spec names but the model does not use."""
    if room == "bias":
        switches = spec.get("bias")
        return isinstance(switches, Mapping) and bool(switches.get("q") or switches.get("k"))
    return room != "norm" or _has_norms(spec.get("placement"))


def _has_norms(placement: object) -> bool:
    if not isinstance(placement, Mapping) or placement.get("kind") not in ROOMS["placement"].kinds():
        return True  # a plugin's; pages do not open files that a study names
    try:
        spec = ROOMS["placement"].make(**placement)
    except InputError:
        return True  # settings of another version's
    return any(value is True for value in asdict(spec.sockets()).values())


def _mechanism(room: str, kind: str, spec: Mapping[str, Any], language: str) -> Mechanism:
    if kind not in ROOMS[room].kinds():
        return Mechanism(room=room, kind=kind)
    doc = ROOMS[room].doc(kind)
    written = {"summary": doc.summary, "why": doc.why, "differs": "" if doc.differs == "nothing." else doc.differs}
    words = phrases(language)
    keys = {part: f"mechanism.{room}.{kind}.{part}" for part in written}
    return Mechanism(
        room=room,
        kind=kind,
        texts={part: text and words.translation(keys[part], text) for part, text in written.items()},
        is_translated=language == "en" or all(keys[part] in words.words for part, text in written.items() if text),
        formula=typeset(doc.formula_in(spec), language),
        source=doc.source,
        is_known=True,
        is_plain=kind == ROOMS[room].plain,
    )
