"""The part of a matrix that reads what its input never holds: of n numbers that are a linear image of r < n others, every row
of a reader has n - r free numbers."""

from addnorm.symmetry.families._signature import Signature

NAME = "subspace that a reader never sees"


def claims(signature: Signature) -> bool:
    """True if a direction is of this family."""
    return signature.unseen
