"""The shift of a norm against the biases of all that read it: c -> c + d, bias -> bias - W d. One per channel."""

from addnorm.symmetry.families._signature import Signature

NAME = "shift into the next bias"


def claims(signature: Signature) -> bool:
    """True if a direction is of this family."""
    return "gain" in signature.shifted or ("shift" in signature.shifted and "norm" in signature.shifted)
