"""Which documents are held out: decided by their names alone, so that neither order, dates nor machines matter."""

import hashlib
from collections.abc import Sequence

from addnorm.errors import InputError


def position(name: str, purpose: str) -> int:
    """A name's place in [0, 2**64), evenly spread; `purpose` makes independent spreads of the same names."""
    digest = hashlib.blake2b(name.encode("utf-8"), digest_size=8, person=purpose.encode("ascii")).digest()
    return int.from_bytes(digest, "big")


def in_hash_order(names: Sequence[str], purpose: str) -> list[str]:
    """The names in an order that only they decide."""
    return sorted(names, key=lambda name: (position(name, purpose), name))


def hold_out(names: Sequence[str], share: float) -> frozenset[str]:
    """The names held out: the first `share` of them in hash order, at least one, never all; none of fewer than two."""
    count = min(max(1, round(share * len(names))), len(names) - 1)
    return frozenset(in_hash_order(names, "held-out")[: max(0, count)])


def is_held_out(name: str, share: float) -> bool:
    """The same decision for one name of a list too long to sort: true for a `share` of all names."""
    return position(name, "held-out") < share * 2**64


def require_share(share: float) -> None:
    """Raises:
    InputError: the share to hold out is not strictly between 0 and 1.
    """
    if not 0 < share < 1:
        raise InputError(f"held_out is the share of the text kept for evaluation, between 0 and 1; got {share!r}.")
