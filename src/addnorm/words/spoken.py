"""The language of the terminal, and messages in it.

The phrases of tables and summaries are looked up by key, as on pages. A message (an error, a note about a study) is made
where its cause is, in English, and may pass through several hands that put a path before it. It is translated where it is
printed: by its note if it is a `Sentence`, else by the English template that fits it. These templates are the notes of the
catalogue and the keys of `zh/messages.toml`; a test holds that the sources have them.
"""

import functools
import re
import string
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from addnorm.words.catalogue import LANGUAGES, Phrases, phrases
from addnorm.words.sentence import Sentence

_ENGLISH = "en"
_LANGUAGE = ContextVar("language of the terminal", default=_ENGLISH)
_PROSE = frozenset({"expected", "reason", "reasons", "problem", "parts"})
"""Placeholders whose value is itself words: a text with one that cannot be translated is not translated at all."""
_TERMS = frozenset({"kind", "what", "side"})
"""Placeholders whose value is a word, which is translated if it can be."""
_NAME = re.compile(r"[A-Z\d][\w.-]*|null|true|false|'[^']*'")
"""Prose that is the same in every language: `UTF-8`, `'causal'`."""
_NO_NAME = re.compile(r"[A-Z]|.* ")
"""Places that are words, not names."""
_ANYTHING = frozenset({"error", "example", "value", "command", "endings", "difference"})
"""Placeholders whose value may hold colons, such as another program's message."""
_FEWEST_LETTERS = 10
"""Of a note's own text, by which it can be recognised: `{which} {state}` would fit anything."""
_MOST_LETTERS = 4000
"""Longest message that is translated; a longer one is a log or a traceback."""
_Template = tuple[re.Pattern[str], str]


def environment_language(environment: Mapping[str, str]) -> str:
    """The supported language that the first of LC_ALL, LC_MESSAGES and LANG that is set names; the default for any other.

    Example:
        >>> environment_language({"LANG": "zh_CN.UTF-8"}), environment_language({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"})
        ('zh', 'en')
    """
    name = next((value for key in ("LC_ALL", "LC_MESSAGES", "LANG") if (value := environment.get(key))), "")
    code = re.split(r"[_.@-]", name.lower())[0]
    return code if code in LANGUAGES else _ENGLISH


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """Print in a language within this context.

    Raises:
        UnknownName: not one of `LANGUAGES`.
    """
    token = _LANGUAGE.set(phrases(language).language)
    try:
        yield
    finally:
        _LANGUAGE.reset(token)


def spoken() -> Phrases:
    """The phrases of the terminal's language."""
    return phrases(_LANGUAGE.get())


def translated(text: str, t: Phrases | None = None) -> str:
    """A message in a language; the English text as it is where a part of it cannot be translated.

    Args:
        text: a sentence, or a text that was made from one of the catalogue's or of the sources' templates.
        t: phrases of the language; those of the terminal if not given.
    """
    t = spoken() if t is None else t
    if t.language == _ENGLISH:
        return text
    if isinstance(text, Sentence) and (noted := t.note(text.note)) is not None:
        return noted
    if len(text) > _MOST_LETTERS:
        return text
    lines = [_message(line, t) if line.strip() else line for line in str(text).split("\n")]
    return text if None in lines else "\n".join(line for line in lines if line is not None)


# A message is `[place: ]* sentence+`. Places are names, paths and options, which stay; the sentences are recognised. What is
# tried first matters: the whole text, since a template may hold colons and full stops itself; then sentence after sentence;
# and only then the text behind the first colon, the second, ….
def _message(text: str, t: Phrases) -> str | None:
    indent, text = re.match(r"(\s*(?:! )?)(.*)", text, re.S).groups()  # type: ignore[union-attr]
    for start in (0, *(match.end() for match in re.finditer(r": ", text))):
        made = _sentences(text[start:], t)
        if made is not None:
            # A single word may be a name: of a folder, a column or a variant.
            places = [(_NO_NAME.match(place) and _whole(place, t)) or place for place in text[:start].split(": ")]
            return f"{indent}{': '.join(places)}{made}"
    return None


def _sentences(text: str, t: Phrases) -> str | None:
    if (made := _sentence(text, t)) is not None:
        return made
    for match in re.finditer(r"[.?!] +", text):
        first = _sentence(text[: match.end()].rstrip(), t)
        if first is not None:
            rest = _sentences(text[match.end() :], t)
            return None if rest is None else first + rest
    return None


def _sentence(text: str, t: Phrases) -> str | None:
    """A sentence by one template, with its full stop or without, or clause by clause."""
    made = _whole(text, t)
    if made is None and text.endswith(".") and (made := _whole(text[:-1], t)) is not None:
        return f"{made}。"
    *first, last = text.split("; ")
    if made is None and first:
        clauses = [*(_clause(part, t) for part in first), _sentence(last, t)]
        return None if None in clauses else "；".join(filter(None, clauses))
    return made


def _clause(text: str, t: Phrases) -> str | None:
    """A part of a sentence, whose template may be a sentence of its own."""
    made = _whole(text, t)
    return made if made is not None or (made := _whole(f"{text}.", t)) is None else made.removesuffix("。")


def _whole(text: str, t: Phrases) -> str | None:
    """The translation by the first template, of those with the most letters, that fits all of the text."""
    for pattern, translation in _templates(t.language):
        if (matched := pattern.fullmatch(text)) is None:
            continue
        values = {name: _value(name, value, t) for name, value in matched.groupdict().items()}
        if None not in values.values():
            return translation.format_map(values)
    return None


def _value(name: str, value: str, t: Phrases) -> str | None:
    made = _sentences(value, t) if name in _PROSE | _TERMS or " " in value else None  # `text` may be a name
    if made is None and name == "names":
        return value.replace(" and ", t.words["joint.and"])
    return value if made is None and (name not in _PROSE or _NAME.fullmatch(value)) else made


@functools.cache
def _templates(language: str) -> tuple[_Template, ...]:
    """Patterns of English texts with their translations, those with the most letters first."""
    t = phrases(language)
    pairs = [(key.removeprefix("message."), text) for key, text in t.words.items() if key.startswith("message.")]
    notes = {key: t.fallback[key] for key in t.words if key.startswith("note.")}
    pairs += [(english, t.words[key]) for key, english in notes.items() if _letters(english) >= _FEWEST_LETTERS]
    pairs.sort(key=lambda pair: -_letters(pair[0]))
    return tuple((_pattern(english), _unformatted(text)) for english, text in pairs)


def _letters(template: str) -> int:
    return sum(len(letters) for letters, *_ in string.Formatter().parse(template))


def _pattern(template: str) -> re.Pattern[str]:
    """Text with a value in the place of each placeholder: no value goes on into the next sentence or clause, or has a place
    before it."""
    parts, seen = [], set()
    for letters, name, _, _ in string.Formatter().parse(template):
        parts.append(re.escape(letters))
        if name is not None:
            value = r"(?:(?![.?!] [A-Z]).)+?" if name in _ANYTHING else r"(?:(?![.?!] [A-Z]|[:;] ).)+?(?<![^.\s]\.)"
            parts.append(f"(?P={name})" if name in seen else f"(?P<{name}>{value})")
            seen.add(name)
    return re.compile("".join(parts), re.S)


def _unformatted(translation: str) -> str:
    """A template for values that are texts already: `{size:.3f}` as `{size}`."""
    parts = string.Formatter().parse(translation)
    return "".join(
        letters.replace("{", "{{").replace("}", "}}") + ("" if name is None else f"{{{name}}}")
        for letters, name, _, _ in parts
    )
