"""The sizes and the sites for which mechanisms are built."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from addnorm.errors import InputError

__all__ = ["Place", "Role", "Shape"]

Role = Literal["attention", "feedforward", "parallel"]
"""Kind of a site: what its branch is, or, of a pair of gated attention units, what each stands for; "parallel" for a site with
both.

Example:
    >>> role: Role = "feedforward"
    >>> Place(index=1, layer=0, role=role).role
    'feedforward'
"""


@dataclass(frozen=True)
class Place:
    """The place of one site in depth, where one branch, or several in parallel, read and write the stream.

    Example:
        >>> Place(index=3, layer=1, role="feedforward").layer
        1
    """

    index: int
    """Number of sites before this one."""
    layer: int
    """0-based layer; layer m of the formulas is `layer + 1`."""
    role: Role
    """Kind of the site."""


def first_sites(sites: Sequence[Place]) -> list[int]:
    """Return the index of every layer's first site."""
    return [place.index for place in sites if not place.index or sites[place.index - 1].layer != place.layer]


def last_sites(sites: Sequence[Place]) -> list[int]:
    """Return the index of every layer's last site."""
    return [index - 1 for index in first_sites(sites)[1:]] + [len(sites) - 1]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of one model, the argument of `spec.build(shape)`.

    Raises:
        InputError: a size is not positive, or heads do not divide evenly.

    Example:
        >>> Shape(width=64, depth=4, heads=4, kv_heads=2, hidden=128, max_seq=64).head_dim
        16
    """

    width: int
    """Entries of the hidden stream per position."""
    depth: int
    """Number of layers."""
    heads: int
    """Query heads per layer."""
    kv_heads: int
    """Key and value heads per layer; each serves heads / kv_heads query heads."""
    hidden: int
    """Width inside the feed-forward branch."""
    max_seq: int
    """Longest sequence for which the model is built."""
    key_dim: int | None = None
    """Entries of one query or key head; None for width / heads."""

    def __post_init__(self) -> None:
        for name in ("width", "depth", "heads", "kv_heads", "hidden", "max_seq"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"{name}: expected a whole number of at least 1, got {value!r}.")
        if self.width % self.heads:
            raise InputError(
                f"heads must divide the width: width {self.width} / heads {self.heads} leaves "
                f"{self.width % self.heads}. Choose heads from {_divisors(self.width)}."
            )
        if self.heads % self.kv_heads:
            raise InputError(
                f"kv_heads must divide heads: heads {self.heads} / kv_heads {self.kv_heads} leaves "
                f"{self.heads % self.kv_heads}. Choose kv_heads from {_divisors(self.heads)}."
            )

    @property
    def head_dim(self) -> int:
        """Entries of one query or key head, and of one value head unless `key_dim` is set."""
        return self.width // self.heads if self.key_dim is None else self.key_dim

    @property
    def value_dim(self) -> int:
        """Entries of one value head: those of a query head, or `hidden` in a gated attention unit, which sets `key_dim`."""
        return self.width // self.heads if self.key_dim is None else self.hidden


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0 and d <= 128]
