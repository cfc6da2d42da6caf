"""Errors that a user can cause, and the form of their messages.

A message names the offender, then what was expected and what arrived ("expected …, got …"), then what to do. The nearest
known name and the known values come last. The command line prints the message alone and exits with 2 for `InputError` and 1
for `JobError`.
"""

import warnings
from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["AddnormError", "AddnormWarning", "InputError", "JobError", "UnknownName"]


class AddnormError(Exception):
    """Base of every error that addnorm raises on purpose.

    Example:
        >>> try:
        ...     addnorm.preset("lama")
        ... except AddnormError as error:
        ...     print(error)
        no preset 'lama'. Did you mean 'llama'? Known: ...
    """


class InputError(AddnormError, ValueError):
    """Wrong input of the user: a name, a field, a file, a size. The command line exits with 2.

    Example:
        >>> try:
        ...     addnorm.rank("runs/nothing")
        ... except InputError as error:
        ...     print(error)
        runs/nothing...
    """


class UnknownName(InputError):
    """A name that is not among the known ones.

    Example:
        >>> print(UnknownName("norm", "rsm", ["layer", "rms"]))
        no norm 'rsm'. Did you mean 'rms'? Known: layer, rms.
    """

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        known = sorted(known)
        super().__init__(f"no {kind} {name!r}.{did_you_mean(name, known)} Known: {', '.join(known) or 'none'}.")


class BrokenLaw(InputError):
    """A mechanism breaks a law that all mechanisms keep.

    Args:
        law: name of the law.
        finding: the observation, with numbers.
        advice: how to correct it.
        offender: the mechanism, for the message.

    Example:
        >>> try:
        ...     raise BrokenLaw("causal", "position 3 reads position 4.", "Mask later positions.", "residual 'mine'")
        ... except BrokenLaw as error:
        ...     print(error)
        residual 'mine' breaks the law 'causal': position 3 reads position 4. Mask later positions.
    """

    def __init__(self, law: str, finding: str, advice: str, offender: str = "the model") -> None:
        super().__init__(f"{offender} breaks the law '{law}': {finding} {advice}")
        self.law, self.finding, self.advice = law, finding, advice


class JobError(AddnormError, RuntimeError):
    """Failed work on correct input: a run died, the disk is full. The command line exits with 1.

    Example:
        >>> issubclass(JobError, RuntimeError)
        True
    """


_OF_TORCH = ("tokenizers", "torch")
"""Packages of the extra `torch`, which an installation that only judges runs of other code does not have."""


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """Say how to install a package that is missing by choice; None for every other package."""
    missing = (error.name or "").partition(".")[0]
    if missing not in _OF_TORCH:
        return None
    return (
        f"this needs {missing}, which is not installed. Install what builds, trains and audits models: pip install "
        "'addnorm[torch]'."
    )


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Suggest the nearest known name as ` Did you mean 'add'?`, or return an empty string if none is near."""
    near = nearest_name(name, known)
    return f" Did you mean {near!r}?" if near is not None else ""


def nearest_name(name: object, known: Iterable[object]) -> str | None:
    """Find the known name that is most similar to `name`; None if none is similar or `name` is not a string."""
    near = get_close_matches(name, [str(entry) for entry in known], n=1, cutoff=0.6) if isinstance(name, str) else []
    return near[0] if near else None


class AddnormWarning(UserWarning):
    """A side effect failed, such as writing a file beside the result; the result itself is valid.

    Example:
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     warn("the page will not show these verdicts")
        >>> caught[0].category.__name__
        'AddnormWarning'
    """


def warn(message: str) -> None:
    """Issue an `AddnormWarning`; the default of functions that take `say`."""
    warnings.warn(message, AddnormWarning, stacklevel=3)
