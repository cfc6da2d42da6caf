"""Short forms of names that are the same in places, as those of a grid are."""

import hashlib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

from addnorm.words import point_name

NARROW = 22
"""Characters of a name that fit next to a bar on a phone."""
WIDE = 44
"""Characters that fit next to a bar on a desktop, and where a name may wrap: in a sentence, a heading, a legend."""
_BETWEEN = "·"
"""Values of a name: a sentence lists names with commas."""
_BREAK = re.compile(r"[-_./: ]")
"""Places where a name may be cut."""
_FEWEST_LETTERS = 3
"""Of a value that is cut."""
_SETTING = re.compile(r"(?:(.*)[= ])?(.*)")
"""A setting in a name: its key, if any, and its value."""


def short_names(names: Iterable[str], most: int = NARROW) -> Mapping[str, str]:
    """Each name without what all of them share, so that the difference is what fits.

    Names of a grid keep the values of the settings that differ. Others lose the start and the end that all long ones share.
    Names that are short enough all together stay as they are.

    Args:
        names: all names that are shown together.
        most: characters that fit.

    Example:
        >>> short_names(["scores=own,placement=pre,rate=0.001", "scores=own,placement=post,rate=0.003"])
        {'scores=own,placement=pre,rate=0.001': 'pre·0.001', 'scores=own,placement=post,rate=0.003': 'post·0.003'}
        >>> short_names(["a-model-of-great-length-with-scores", "a-model-of-great-length-without-them"])
        {'a-model-of-great-length-with-scores': '…with-scores', 'a-model-of-great-length-without-them': '…without-them'}
    """
    every = list(dict.fromkeys(names))
    if all(len(name) <= most for name in every):
        return {name: point_name(name) for name in every}
    kept = _settings(every, most) or _between([point_name(name) for name in every], most)
    cut = [name if len(name) <= most else f"{name[: most - 7]}…{name[-6:]}" for name in kept]
    # Two that are the same when cut are distinguished by their place.
    unique = [f"{name[: most - 4]}#{at + 1}" if cut.count(name) > 1 else name for at, name in enumerate(cut)]
    return dict(zip(every, unique, strict=True))


def _settings(names: Sequence[str], most: int) -> list[str]:
    """The values that differ, of names such as `base, depth 2` or `a=1,b=2` with the same keys; empty for other names.

    Where they do not fit side by side, the longest are cut first, never below the letters that distinguish the values of a
    setting, and never a number.
    """
    parts = [[_SETTING.fullmatch(part.strip()) for part in name.split(",")] for name in names]
    settings = [[matched.groups() for matched in of if matched is not None] for of in parts]
    keys = {tuple(key for key, _ in of) for of in settings}
    if len(names) < 2 or len(keys) > 1 or len(settings[0]) < 2:
        return []
    columns = list(zip(*([value for _, value in of] for of in settings), strict=True))
    differing = [column for column in columns if len(set(column)) > 1]
    fewest = [_fewest_letters(set(column)) for column in differing]
    letters = [max(map(len, column)) for column in differing]
    # Greedy: the longest column that may still lose a letter loses one, until all names fit. `fewest` is what keeps
    # the values of a setting apart, so that no two names become equal here; what still does not fit is cut, and
    # numbered, by the caller.
    while max(map(len, joined := _side_by_side(differing, letters))) > most and letters != fewest:
        longest = max((at for at in range(len(letters)) if letters[at] > fewest[at]), key=lambda at: letters[at])
        letters[longest] -= 1
    return joined


def _side_by_side(columns: Sequence[Sequence[str]], letters: Sequence[int]) -> list[str]:
    """A name per row, with so many letters of each column."""
    cut = [[value[:most] for value in column] for column, most in zip(columns, letters, strict=True)]
    return [_BETWEEN.join(values) for values in zip(*cut, strict=True)]


def _fewest_letters(distinct: set[str]) -> int:
    """Letters below which values are not cut: what distinguishes them, all of a number, which would be another."""
    longest = max(map(len, distinct))
    if any(value[:1].isdigit() or value[:1] in ("-", ".") for value in distinct):
        return longest
    enough = (k for k in range(_FEWEST_LETTERS, longest) if len({value[:k] for value in distinct}) == len(distinct))
    return next(enough, longest)


def _between(names: Sequence[str], most: int) -> list[str]:
    """The names without the start and the end that the long ones share."""
    long = [name for name in names if len(name) > most]
    start = _shared(long)
    end = _shared([name[start:][::-1] for name in long])
    left, right = "…" if start else "", "…" if end else ""
    return [f"{left}{name[start : len(name) - end]}{right}" if len(name) > most else name for name in names]


def _shared(names: Sequence[str]) -> int:
    """Length of the start that all names share, up to a place where a name may be cut."""
    if len(names) < 2:
        return 0
    same = sum(1 for _ in itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False)))
    return max((cut.end() for cut in _BREAK.finditer(names[0][:same])), default=0)


def file_name(name: str) -> str:
    """A variant's name as a part of a file's: letters, digits and the signs ._=- alone, different for different names."""
    plain = re.sub(r"[^A-Za-z0-9._=-]+", "_", name)
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"
