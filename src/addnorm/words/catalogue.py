"""Lookup of phrases by key and language."""

import functools
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from addnorm.errors import UnknownName

LANGUAGES = {"en": "English", "zh": "中文"}
"""Code and own name of each language; the first is the default and the fallback."""
_DEFAULT = next(iter(LANGUAGES))


@dataclass(frozen=True)
class Phrases:
    """The phrases of one language."""

    language: str
    words: Mapping[str, str]
    """Phrases of this language by key; without those that are missing in it."""
    fallback: Mapping[str, str]
    """English phrases by key."""

    def __call__(self, key: str, /, **values: object) -> str:
        """The phrase of that key with its placeholders filled in; in English where it is not translated.

        Raises:
            KeyError: unknown key, or a placeholder without a value.
        """
        # A phrase without values is returned as it is, so that it may hold braces.
        text = self.words[key] if key in self.words else self.fallback[key]
        return text.format_map(values) if values else text

    def translation(self, key: str, english: str) -> str:
        """The translation of a text whose English is not in the catalogue; that English if there is none."""
        return self.words.get(key, english)

    def extended(self, english: Mapping[str, str]) -> "Phrases":
        """The same phrases and further English ones, which the catalogue's own take precedence over."""
        # The catalogue wins: a new section cannot change the words of the others by reusing a key.
        return replace(self, fallback={**english, **self.fallback})

    def note(self, note: Any) -> str | None:
        """The text of a sentence's note in this language; None if it cannot be expressed in it.

        Args:
            note: of a `Sentence`, or the same read from a file: `{"code", "values"}`.
        """
        if not isinstance(note, dict):
            return None
        try:
            return self._noted(note)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            return None  # untranslated, or written by another version: the caller shows the English text

    def _noted(self, note: Any) -> str:
        if not isinstance(note, dict):
            return str(note)
        # Notes nest: a value may be a note (a reason inside a warning), a list has a joint and parts. Only words of
        # this language are used here, without a fallback: half of a sentence in English would be worse than all of
        # it, which the caller has.
        if "joint" in note:
            return self.words[f"joint.{note['joint']}"].join(map(self._noted, note["parts"]))
        values = {
            name: value if isinstance(value, int | float) else self._noted(value)
            for name, value in note["values"].items()
        }
        return self.words[f"note.{note['code']}"].format_map(values)


@functools.cache
def phrases(language: str) -> Phrases:
    """The phrases of a language.

    Raises:
        UnknownName: not one of `LANGUAGES`.
    """
    if language not in LANGUAGES:
        raise UnknownName("language", language, LANGUAGES)
    return Phrases(language, _read(language), _read(_DEFAULT))


def preferred(accept_language: str) -> str:
    """The supported language that an HTTP Accept-Language header prefers; the default if it names none."""
    best, chosen = 0.0, _DEFAULT
    for entry in accept_language.split(","):
        name, _, quality = entry.partition(";")
        code = name.strip().lower().partition("-")[0]
        try:
            weight = float(quality.strip().removeprefix("q=")) if quality.strip() else 1.0
        except ValueError:
            continue
        if code in LANGUAGES and weight > best:
            best, chosen = weight, code
    return chosen


@functools.cache
def _read(language: str) -> Mapping[str, str]:
    phrases_by_key: dict[str, str] = {}
    for path in sorted((Path(__file__).parent / language).glob("*.toml")):
        phrases_by_key.update(_flat(tomllib.loads(path.read_text(encoding="utf-8"))))
    return phrases_by_key


def _flat(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value
