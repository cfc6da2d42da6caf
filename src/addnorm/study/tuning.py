"""Tuning of a study: axes whose best value is chosen for each variant, on seeds that take no part in the comparison."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from addnorm.fields import FieldError, check_fields


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Axes over which every variant is tuned before the comparison, and the seeds of tuning.

    Example:
        >>> Tuning(seeds=(100, 101), over={"training.optimizer.learning_rate": [1e-3, 3e-3]}).seeds
        (100, 101)

    Raises:
        FieldError: no seeds, a repeated one or one out of range.
    """

    seeds: tuple[int, ...]
    """Seeds of the tuning runs. The study's own seeds are others."""
    over: Mapping[str, object] = field(default_factory=dict)
    """Axes for all variants: paths of fields, as in a grid, each with at least two values."""
    own: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Further axes of single variants; for the same field, the variant's own axis counts."""

    def __post_init__(self) -> None:
        for name in ("seeds",):  # in Python too, a list is accepted
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        check_fields(self, "tune")
        if not self.seeds or len(set(self.seeds)) != len(self.seeds) or not all(0 <= n < 2**63 for n in self.seeds):
            expected = "expected at least one tuning seed, distinct and in [0, 2**63)"
            raise FieldError("tune", "seeds", f"{expected}, got {list(self.seeds)}.")

    def require_apart(self, seeds: tuple[int, ...]) -> None:
        """Refuse tuning seeds on which the variants are compared too.

        Raises:
            FieldError: a seed is in both.
        """
        common = sorted(set(self.seeds) & set(seeds))
        if common:
            raise FieldError(
                "tune",
                "seeds",
                f"expected other seeds than those of the comparison, got {', '.join(map(str, common))} in both. A value that "
                "is chosen and judged on one seed looks better than it is. Name other tuning seeds.",
            )
