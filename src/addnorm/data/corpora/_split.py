"""The split into training and held-out documents, which depends on the documents' names only."""

import hashlib
from collections.abc import Sequence

from addnorm.data.corpora import CorpusSpec
from addnorm.fields import require


def position(name: str, purpose: str) -> int:
    """Hash of a name, uniform in [0, 2**64); each `purpose` has an independent hash."""
    # By name alone. A document stays on its side when others are added, and every study of a corpus holds out the same
    # text.
    digest = hashlib.blake2b(name.encode("utf-8"), digest_size=8, person=purpose.encode("ascii")).digest()
    return int.from_bytes(digest, "big")


def in_hash_order(names: Sequence[str], purpose: str) -> list[str]:
    """The names in the order of their hashes."""
    return sorted(names, key=lambda name: (position(name, purpose), name))


def hold_out(names: Sequence[str], share: float) -> frozenset[str]:
    """The held-out names: the first `share` in hash order, at least one and not all; none of fewer than two."""
    count = min(max(1, round(share * len(names))), len(names) - 1)
    return frozenset(in_hash_order(names, "held-out")[: max(0, count)])


def is_held_out(name: str, share: float) -> bool:
    """True for a `share` of all names: the decision for lists that are too long to sort."""
    return position(name, "held-out") < share * 2**64


def require_held_out(corpus: CorpusSpec) -> None:
    """Check the field `held_out` of a corpus.

    Raises:
        FieldError: the share is not strictly between 0 and 1.
    """
    share = getattr(corpus, "held_out")  # noqa: B009  the base class has no such field
    require(corpus, "held_out", 0 < share < 1, "a share of the text between 0 and 1")
