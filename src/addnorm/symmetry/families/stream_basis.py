"""A rotation of the stream, undone by all that reads it: w (w - 1) / 2 where every norm is an RMS norm, (w - 1)(w - 2) / 2
in the plane that a layer norm keeps."""

from addnorm.symmetry.families._signature import Signature

NAME = "basis of the stream"


def claims(signature: Signature) -> bool:
    """True if a direction is of this family."""
    return bool(signature.linear & {"sum", "embedding", "position", "normed"})
