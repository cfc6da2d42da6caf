r"""Counting brackets: how many of each kind are open at the end.

    ([)(]=(1=[0        kinds close independently of each other

    answer for a kind = number of its opening brackets - number of its closing brackets

Why: a counter of each kind, over a distance. Attention gives means, so a count is a mean times a length; and every kind needs a
count of its own. Kinds need not be nested, so that no stack is asked for.

Source: Bhattamishra et al. 2020, "On the ability and limitations of Transformers to recognize formal languages",
arXiv:2009.11264 (Shuffle-Dyck); Suzgun et al. 2019, "LSTM networks can perform dynamic counting", arXiv:1906.03648.
Differs from the source: the counts are asked for, instead of which brackets may come next. At each step one of the allowed
brackets is drawn: a kind closes only if it is open, and opens only below `depth`.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cache
from string import digits

from addnorm.data.corpora._tasks import Draws, TaskSpec
from addnorm.fields import require

_KINDS = ("()", "[]", "{}")


@dataclass(frozen=True, kw_only=True)
class Brackets(TaskSpec):
    """Spec of counting brackets.

    Raises:
        FieldError: a field is out of range.
        InputError: there are fewer than 100 different prompts.
    """

    kinds: int = 2
    """Kinds of brackets, from 1 to 3."""
    depth: int = 5
    """Most brackets of a kind that are open at once, up to 9."""
    length: int = 24
    """Brackets of a line: the difficulty."""

    def _check(self) -> None:
        require(self, "kinds", 1 <= self.kinds <= len(_KINDS), "a whole number from 1 to 3")
        require(self, "depth", 1 <= self.depth <= 9, "a whole number from 1 to 9")
        require(self, "length", 1 <= self.length <= 1000, "a whole number from 1 to 1000")

    def _line(self, draws: Draws) -> str:
        opened, written = (0,) * self.kinds, ""
        for _ in range(self.length):
            moves = _moves(opened, self.depth)
            bracket, opened = moves[draws.below(len(moves))]
            written += bracket
        return written + "".join(f"={kind[0]}{digits[count]}" for kind, count in zip(_KINDS, opened, strict=False))

    def _places(self) -> tuple[int, ...]:
        return tuple(self.length + 3 * kind + 2 for kind in range(self.kinds))

    def _answers(self) -> str:
        return digits[: self.depth + 1]

    def _shares(self) -> tuple[float, ...]:
        return _shares(self.kinds, self.depth, self.length)

    def _num_prompts(self) -> int:
        paths = Counter({(0,) * self.kinds: 1})
        for _ in range(self.length):
            following: Counter[tuple[int, ...]] = Counter()
            for opened, count in paths.items():
                for _bracket, after in _moves(opened, self.depth):
                    following[after] += count
            paths = following
        return paths.total()


@cache
def _shares(kinds: int, depth: int, length: int) -> tuple[float, ...]:
    """Share of lines in which a kind has each count: the same for all kinds, because none is preferred."""
    chances = {(0,) * kinds: 1.0}
    for _ in range(length):
        following: dict[tuple[int, ...], float] = {}
        for opened, chance in chances.items():
            moves = _moves(opened, depth)
            for _bracket, after in moves:
                following[after] = following.get(after, 0.0) + chance / len(moves)
        chances = following
    return tuple(sum(chance for opened, chance in chances.items() if opened[0] == count) for count in range(depth + 1))


@cache
def _moves(opened: tuple[int, ...], depth: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The brackets that may come next, with the counts after them."""
    changes = ((kind, place, 1 - 2 * place) for kind in range(len(opened)) for place in (0, 1))
    return tuple(
        (_KINDS[kind][place], (*opened[:kind], opened[kind] + change, *opened[kind + 1 :]))
        for kind, place, change in changes
        if 0 <= opened[kind] + change <= depth
    )
