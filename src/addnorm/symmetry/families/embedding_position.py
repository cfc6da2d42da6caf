"""A constant from the table of tokens to that of positions. One per channel, less what the mean of the stream has."""

from addnorm.symmetry.families._signature import Signature

NAME = "embedding against position"


def claims(signature: Signature) -> bool:
    """True if a direction is of this family."""
    return bool(signature.shifted & {"embedding"}) and "position" in signature.shifted
