"""W -> G W, U -> U G^-1 where nothing but linear maps lies between: rank² for a product of two matrices."""

from addnorm.symmetry.families._signature import Signature

NAME = "basis between two linear maps"


def claims(signature: Signature) -> bool:
    """True if a direction is of this family."""
    return bool(signature.linear)
