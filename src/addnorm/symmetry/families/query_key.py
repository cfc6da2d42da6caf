"""Q -> G Q, K -> G^-T K within a key head and all its query heads: any G without positions (d_h²), those that commute with
a rotation by position (d_h: a complex number per pair), scales between the gains of two norms (half of d_h)."""

from addnorm.symmetry.families._signature import Signature

NAME = "basis of queries and keys"


def claims(signature: Signature) -> bool:
    """True if a direction is of this family."""
    return bool(signature.linear & {"query", "key"}) and not signature.linear & {"sum", "embedding"}
