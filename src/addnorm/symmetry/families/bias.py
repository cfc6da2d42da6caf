"""Redundant biases, as the audit proves them: a key bias, which a softmax ignores; a value bias, which the output's
bias can take over; a bias of a branch, which a later one can."""

from addnorm.symmetry.families._signature import Signature

NAME = "redundant bias"


def claims(signature: Signature) -> bool:
    """True if a direction is of this family."""
    return True
