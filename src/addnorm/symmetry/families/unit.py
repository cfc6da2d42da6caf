"""A hidden unit that enters homogeneously, by a gate's product or a ReLU: up -> c up, down -> down / c. One per unit."""

from addnorm.symmetry.families._signature import Signature

NAME = "scale of a unit"


def claims(signature: Signature) -> bool:
    """True if a direction is of this family."""
    return "unit" in signature.linear and not signature.linear & {"sum", "embedding"}
