"""The errors a user can cause, and the one way they are worded.

A message states the invariant and the offender, then what arrived, then what to do; the nearest known name and the
known values come last. The command line prints the message alone and exits 2 for `InputError`, 1 for `JobError`.
"""

import warnings
from collections.abc import Iterable
from difflib import get_close_matches


class AddnormError(Exception):
    """Base of every error that addnorm raises on purpose."""


class InputError(AddnormError, ValueError):
    """What the user gave is wrong: a name, a field, a file, a size. The command line exits 2."""


class UnknownName(InputError):
    """A name that no catalogue, study or table holds."""

    def __init__(self, what: str, name: object, known: Iterable[str]) -> None:
        known = sorted(known)
        super().__init__(f"no {what} {name!r}.{did_you_mean(name, known)} Known: {', '.join(known) or 'none'}.")


class JobError(AddnormError, RuntimeError):
    """The input was fine, the work failed: a run died, a disk is full. The command line exits 1."""


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """` Did you mean 'add'?` for the nearest known name, or an empty string when nothing is near."""
    near = nearest_name(name, known)
    return f" Did you mean {near!r}?" if near is not None else ""


def nearest_name(name: object, known: Iterable[object]) -> str | None:
    """The known name that is most similar to the given one; None if none is similar, or the given one is not a text."""
    near = get_close_matches(name, [str(entry) for entry in known], n=1, cutoff=0.6) if isinstance(name, str) else []
    return near[0] if near else None


class AddnormWarning(UserWarning):
    """A result is given, but something beside it could not be done."""


def warn(message: str) -> None:
    """Issue an `AddnormWarning`; the default of functions that take `say`."""
    warnings.warn(message, AddnormWarning, stacklevel=3)
