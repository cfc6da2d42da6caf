"""The laws that every mechanism keeps, built-in or a user's own: `addnorm.testing.check`."""

from pathlib import Path

from addnorm.catalogue import Spec
from addnorm.errors import BrokenLaw

__all__ = ["BrokenLaw", "check"]


def check(mechanism: Spec | type[Spec] | str | Path) -> None:
    """Check that a mechanism keeps every law, in small models on the CPU; takes a few seconds.

    The laws: the model runs, twice with the same result; inputs stay as they are; shapes, dtypes and devices are kept;
    gradients are finite; no position reads a later one; padding and cached decoding change nothing; a state dict restores
    the model; the seed alone decides the start; analyses see its stream; it equals what it says it equals. What a file lacks
    in style is a warning. docs/guide/own-mechanism.md has a table of them.

    Args:
        mechanism: a spec, such as `MyNorm(eps=1e-6)`; a spec's class, whose fields then need defaults; or the path of a
            plug-in file that defines one spec.

    Raises:
        BrokenLaw: the first law that the mechanism breaks, with the numbers and advice (an `InputError`).
        InputError: no mechanism, a field without a default, or a file that cannot be imported.

    Example:
        >>> from addnorm.residual.scale import Scale
        >>> check(Scale(alpha=0.3))
        >>> check("my_residual.py")
    """
    from addnorm.testing.contract import check_any  # torch takes seconds to import

    check_any(mechanism)
