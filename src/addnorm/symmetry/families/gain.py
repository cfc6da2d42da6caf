"""The gain of a norm against the columns of what reads it: g_i -> c g_i, W_ji -> W_ji / c. One per channel."""

from addnorm.symmetry.families._signature import Signature

NAME = "gain into the next matrix"


def claims(signature: Signature) -> bool:
    """True if a direction is of this family."""
    return bool(signature.linear & {"gain"})
