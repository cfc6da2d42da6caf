"""The sizes that every mechanism is built for."""

from dataclasses import dataclass

from addnorm.errors import InputError

__all__ = ["Shape"]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of one model; what `spec.build(shape)` receives.

    Raises:
        InputError: a size is not positive, or heads do not divide evenly.
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
    """Longest sequence that the model is meant for."""
    key_dim: int | None = None
    """Entries of one query or key head, where heads do not share the width; None where they do."""

    def __post_init__(self) -> None:
        for name in ("width", "depth", "heads", "kv_heads", "hidden", "max_seq"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, got {value!r}.")
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
        """Entries of one query or key head, and of one value head unless `key_dim` says otherwise."""
        return self.width // self.heads if self.key_dim is None else self.key_dim


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0 and d <= 128]
