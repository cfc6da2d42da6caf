"""Problems of an input with their paths, collected so that one error reports all of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from addnorm.errors import InputError, nearest_name

_LARGEST_REPORT = 10
"""Number of problems in one message."""
_LARGEST_VALUE = 80
"""Characters of a value in a message."""


class Problems:
    """A list of problems, each with the path of its place.

    Args:
        where: the file that the paths belong to, for the error.
        locate: adds the line of the file to a path.
    """

    def __init__(self, where: str = "", locate: Callable[[str], str] = str) -> None:
        self._where = where
        self.locate = locate
        self._problems: list[tuple[str, str]] = []

    def add(self, path: str, text: str) -> None:
        """Add a problem. A text that begins with a path of its own, `$.field: …`, belongs to the place below `path`."""
        if text.startswith("$."):
            below, _, text = text[1:].partition(": ")
            path += below
        self._problems.append((path, text))

    def add_with_line(self, path: str, text: str) -> None:
        """Add a problem whose place is shown with its line of the file."""
        self.add(self.locate(path), text)

    def texts(self) -> list[str]:
        """The problems without their paths."""
        return list(dict.fromkeys(text for _, text in self._problems))

    def __len__(self) -> int:
        return len(self._problems)

    def raise_any(self, since: int = 0) -> None:
        """Raise all problems as one error, if there are any.

        Args:
            since: number of problems that do not raise it alone.

        Raises:
            InputError: one line per problem, `$.path: expected …, got …`.
        """
        if len(self._problems) <= since:
            return
        # Each line once: an alias of a wrong value is decoded wherever it is used, and its problem has one place.
        lines = [f"{path}: {text}" for path, text in dict.fromkeys(self._problems)]
        if len(lines) > _LARGEST_REPORT:
            lines[_LARGEST_REPORT:] = [f"… and {len(lines) - _LARGEST_REPORT} more."]
        if self._where:
            first = lines[0] if len(lines) == 1 else f"{len(self._problems)} problems."
            lines = [f"{self._where}: {first}", *(lines if len(lines) > 1 else ())]
        raise InputError("\n".join(lines))


def nearest(name: object, known: Iterable[object]) -> str:
    """`, did you mean 'add'? Known: add, scale.`: the end of a sentence about an unknown name."""
    names = [str(entry) for entry in known]
    near = nearest_name(name, names)
    question = f", did you mean {near!r}?" if near is not None else "."
    return f"{question} Known: {', '.join(names) or 'none'}."


def shown(value: object) -> str:
    """A value as it is written in a study file, shortened."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"a mapping ({', '.join(str(key) for key in list(value)[:4])}{', …' if len(value) > 4 else ''})"
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return f"a list of {len(value)}"
    text = repr(value)
    return text if len(text) <= _LARGEST_VALUE else f"{text[:_LARGEST_VALUE]}…"
