"""What is wrong with an input, gathered so that it can be said at once."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from addnorm.errors import InputError

SHOWN = 10
"""At most this many problems are printed."""

_LONGEST = 80


class Problems:
    """A list of problems, each with the path of the place that has it."""

    def __init__(self) -> None:
        self._found: list[tuple[str, str]] = []

    def add(self, path: str, text: str) -> None:
        """Note a problem. A text that names a place below, as `$.field: …`, is put there."""
        if text.startswith("$."):
            below, _, text = text[1:].partition(": ")
            path += below
        self._found.append((path, text))

    def __len__(self) -> int:
        return len(self._found)

    def raise_any(self, where: str = "") -> None:
        """Raise what was found, if anything.

        Args:
            where: the file, or whatever else the paths are paths in.

        Raises:
            InputError: one line per problem, `$.path: what is wrong`.
        """
        if not self._found:
            return
        lines = [f"{path}: {text}" for path, text in dict.fromkeys(self._found)]
        if len(lines) > SHOWN:
            lines[SHOWN:] = [f"… and {len(lines) - SHOWN} more."]
        if where:
            lines = [f"{where}: {lines[0]}"] if len(lines) == 1 else [f"{where}: {len(self._found)} problems.", *lines]
        raise InputError("\n".join(lines))


def nearest(name: object, known: Iterable[object]) -> str:
    """`, did you mean 'add'? Known: add, scale.`: the end of a sentence about a name that is not known."""
    names = [str(entry) for entry in known]
    close = get_close_matches(name, names, n=1, cutoff=0.6) if isinstance(name, str) else []
    hint = f", did you mean {close[0]!r}?" if close else "."
    return f"{hint} Known: {', '.join(names) or 'none'}."


def shown(value: object) -> str:
    """A value as the writer of a study file knows it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"a mapping ({', '.join(str(key) for key in list(value)[:4])}{', …' if len(value) > 4 else ''})"
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return f"a list of {len(value)}"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
