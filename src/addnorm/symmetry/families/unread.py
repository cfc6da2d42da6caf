"""The part of a writer's result that no reader reads: where all that follows ignores r of n channels' directions, every column
of the writer has r free numbers."""

from addnorm.symmetry.families._signature import Signature

NAME = "subspace that no reader reads"


def claims(signature: Signature) -> bool:
    """True if a direction is of this family."""
    return signature.unread
