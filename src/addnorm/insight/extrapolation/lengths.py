"""Test lengths as multiples of the train length, and the buckets of positions that they make."""

import math
import re
from dataclasses import dataclass
from itertools import pairwise

from addnorm.errors import InputError

DEFAULT = "1x,2x,4x,8x"
_MULTIPLE = re.compile(r"([1-9][0-9]{0,5})x")


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """The lengths of one evaluation.

    Raises:
        InputError: no lengths, lengths that do not increase, or a train length below two tokens.
    """

    trained: int
    """Tokens per sequence in training."""
    multiples: tuple[int, ...]
    """Test lengths over the train length, increasing."""

    def __post_init__(self) -> None:
        if self.trained < 2:
            raise InputError(f"train length: expected at least two tokens, got {self.trained}.")
        if not self.multiples or self.multiples[0] < 1:
            raise InputError(
                f"lengths: expected multiples of the train length, at least 1x, got {_shown(self.multiples)}."
            )
        if any(b <= a for a, b in pairwise(self.multiples)):
            raise InputError(
                f"lengths: expected increasing multiples, got {_shown(self.multiples)}. "
                f"Give each once, the shortest first: --lengths {_shown(sorted(set(self.multiples)))}."
            )

    @property
    def tokens(self) -> tuple[int, ...]:
        """The lengths in tokens."""
        return tuple(self.trained * multiple for multiple in self.multiples)

    @property
    def longest(self) -> int:
        """The longest length in tokens."""
        return self.tokens[-1]

    @property
    def segment_tokens(self) -> int:
        """Tokens of a segment: the least common multiple of the lengths, so that all of them give the same targets."""
        return self.trained * math.lcm(*self.multiples)

    @property
    def ending(self) -> int:
        """Targets at the end of a segment that every length is compared on: the last half of a train length."""
        return self.trained // 2

    def edges(self, length: int) -> tuple[int, ...]:
        """Bounds of the buckets of positions in a window: 0, half the train length, every shorter test length, the end."""
        inner = sorted({self.ending, self.trained, *self.tokens})
        return (0, *(edge for edge in inner if edge < length), length)


def parse_lengths(text: str) -> tuple[int, ...]:
    """Parse `1x,2x,4x` to (1, 2, 4).

    Raises:
        InputError: a part has another form.
    """
    multiples = []
    for part in text.split(","):
        matched = _MULTIPLE.fullmatch(part.strip())
        if matched is None:
            raise InputError(
                f"lengths: expected whole multiples of the train length separated by commas, got {part.strip()!r} in {text!r}. "
                f"Give, for example, --lengths {DEFAULT}."
            )
        multiples.append(int(matched[1]))
    return tuple(multiples)


def _shown(multiples: tuple[int, ...] | list[int]) -> str:
    return ",".join(f"{multiple}x" for multiple in multiples) or "none"
