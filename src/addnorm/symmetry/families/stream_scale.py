"""The scale of a stream that only norms read, where a norm's eps is too small for float64 to see (BERT's 1e-12).

It is a near-symmetry that is counted, because no measurement tells it from an exact one. With a larger eps it is reported as
near."""

from addnorm.symmetry.families._signature import Signature

NAME = "scale of the stream, up to eps"


def claims(signature: Signature) -> bool:
    """True if a direction is of this family: none, since it is told by the equations that it breaks, not by roles."""
    del signature
    return False
