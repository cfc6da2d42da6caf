"""V -> G V, O -> O G^-1 within a key head: d_h²."""

from addnorm.symmetry.families._signature import Signature

NAME = "basis of values"


def claims(signature: Signature) -> bool:
    """True if a direction is of this family."""
    return bool(signature.linear & {"value", "average"}) and not signature.linear & {"sum", "embedding"}
