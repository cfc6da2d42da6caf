"""Sentences that keep their code and values, so that a page can show them in another language.

    say("references_level", names=listed("and", ["v2m1", "base"]))
    == "references v2m1 and base cannot be distinguished: there is no tier between them."

A sentence is an English `str`. Its `note` holds the same as plain JSON values. Values may be sentences too.
"""

from collections.abc import Iterable
from typing import Any

from addnorm.words.catalogue import phrases


# A sentence is a `str`, so that whoever prints, joins or stores it needs to know nothing about languages: it is
# English. Its note travels along where code hands the object on, and into JSON where a writer stores `note` next to
# the text. Operations of `str` (`+`, `strip`, f-strings) return plain strings and lose it; build sentences from
# values with `say` and `listed`, never by adding.
#
# Codes are part of files: results of an earlier version hold them. A code may get other words in both languages, but
# a code that changes its meaning or its placeholders becomes a new one. A reader that does not know a code shows the
# stored English text.
class Sentence(str):
    """A text with the code and the values that it was made from.

    Args:
        text: in English.
        note: `{"code", "values"}`, or `{"joint", "parts"}` for a list.
    """

    note: dict[str, Any]

    def __new__(cls, text: str, note: dict[str, Any]) -> "Sentence":
        """Make a sentence; use `say` or `listed`."""
        made = super().__new__(cls, text)
        made.note = note
        return made

    def __getnewargs__(self) -> tuple[str, dict[str, Any]]:  # type: ignore[override]
        """Arguments that recreate the sentence when it is unpickled in another process."""
        return str(self), self.note


_NAMES = frozenset({"variant", "variants", "other", "others", "reference", "name", "which", "quiet", "noisy"})
"""Placeholders whose value may be the name of a variant."""


def point_name(name: str) -> str:
    """The name of a variant as people read it: `base · depth 2` for the point `base, depth 2` of a grid.

    Sentences list names with commas. What is typed, and what programs read, keeps the name.
    """
    return name.replace(", ", " · ")


def say(code: str, **values: str | int | float) -> Sentence:
    """The sentence of that code (`note.CODE` in the catalogue) with its placeholders filled in.

    Raises:
        KeyError: unknown code, or a placeholder without a value.
    """
    values = {
        key: point_name(value) if key in _NAMES and type(value) is str else value for key, value in values.items()
    }
    text = phrases("en")(f"note.{code}").format_map(values)
    return Sentence(text, {"code": code, "values": {name: _noted(value) for name, value in values.items()}})


def listed(joint: str, parts: Iterable[str | int]) -> Sentence:
    """Several parts joined into one text.

    Args:
        joint: `and`, `comma` or `semicolon` (`joint.JOINT` in the catalogue).
        parts: names, numbers or sentences.
    """
    kept = [point_name(part) if type(part) is str else part for part in parts]
    text = phrases("en")(f"joint.{joint}").join(map(str, kept))
    return Sentence(text, {"joint": joint, "parts": [_noted(part) for part in kept]})


def _noted(value: str | int | float) -> Any:
    return value.note if isinstance(value, Sentence) else value
