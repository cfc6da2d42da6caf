"""The part that is equal in all channels of a stream that only layer norms read: every writer's part along it, per
row of tables and per column of matrices, and every reader's part along the direction that the norm removed."""

from addnorm.symmetry.families._signature import Signature

NAME = "mean of the stream"


def claims(signature: Signature) -> bool:
    """True if a direction is of this family."""
    return signature.free
