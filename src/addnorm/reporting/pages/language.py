"""The pages' words, English and Chinese: one file per language in `words/`, the same keys in each.

Every sentence that a page prints itself stands there. Names from a study, reasons of failures and logs are data and are
printed as they are. What the statistics say comes as notes (`addnorm.statistics.sentence`), which have words here too. What
the mechanisms' docstrings say in English stands in `words/mechanisms.zh.toml` in Chinese.
"""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from addnorm.errors import UnknownName

LANGUAGES = {"en": "English", "zh": "中文"}
"""Code and own name of each language; the first is spoken where no other is asked for."""
_WORDS = Path(__file__).parent / "words"


@dataclass(frozen=True)
class Phrases:
    """One language's words."""

    language: str
    words: Mapping[str, str]

    def __call__(self, key: str, /, **values: object) -> str:
        """The phrase of that key, with its places filled in.

        Raises:
            KeyError: no such key, or a place without a value.
        """
        return self.words[key].format_map(values) if values else self.words[key]

    def note(self, note: Any) -> str | None:
        """What a note says; None if it is of a code that these words do not know, or is no note.

        Args:
            note: of a `Sentence`, or as a file holds it: `{"code", "values"}`.
        """
        if not isinstance(note, dict):
            return None
        try:
            return self._noted(note)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            return None  # a file of another version's, or of nobody's: its own text is shown instead

    def _noted(self, note: Any) -> str:
        if not isinstance(note, dict):
            return str(note)
        if "joint" in note:
            return self.words[f"joint.{note['joint']}"].join(map(self._noted, note["parts"]))
        values = {
            name: value if isinstance(value, int | float) else self._noted(value)
            for name, value in note["values"].items()
        }
        return self.words[f"note.{note['code']}"].format_map(values)


@functools.cache
def mechanism_words(language: str) -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """What the mechanisms' docstrings say, by room, kind and part (`summary`, `why`, `differs`).

    Empty for English, which the docstrings themselves are written in.
    """
    path = _WORDS / f"mechanisms.{language}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


@functools.cache
def phrases(language: str) -> Phrases:
    """The words of a language.

    Raises:
        UnknownName: a language that the pages do not speak.
    """
    if language not in LANGUAGES:
        raise UnknownName("language", language, LANGUAGES)
    content = tomllib.loads((_WORDS / f"{language}.toml").read_text(encoding="utf-8"))
    return Phrases(language, {f"{room}.{key}": text for room, keys in content.items() for key, text in keys.items()})


def preferred(accept_language: str) -> str:
    """The language that a browser's Accept-Language prefers among ours; the first of ours if it names none of them."""
    best, chosen = 0.0, next(iter(LANGUAGES))
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
