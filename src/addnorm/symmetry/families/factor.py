"""A learned factor, alone or per channel or head, that a matrix beside it can take over: a -> c a, W -> W / c; or several
factors of one value, of which only the sum counts."""

from addnorm.symmetry.families._signature import Signature

NAME = "learned factor of a branch"


def claims(signature: Signature) -> bool:
    """True if a direction is of this family."""
    # Where nothing acts, numbers are traded of which the model reads only a function, such as a product.
    return signature.factors or not (
        signature.linear or signature.shifted or signature.free or signature.unseen or signature.unread
    )
