r"""Composition of permutations: a line of permutations, and their product.

    cecdefdb=d        eight elements of S_3, applied from left to right, and their product

    answer = g_1 g_2 … g_n,    (g h)(i) = h(g(i))

The elements of S_m are the first m! letters, in the lexicographic order of their images; `a` is the identity.

Why: a running state, which a recurrent network keeps in one step. A Transformer of fixed depth has to multiply in parallel:
halves of halves, in about log2 n layers. For S_2 this is parity; S_3 and S_4 do not commute, so that counting does not help.

Source: Liu et al. 2022, "Transformers learn shortcuts to automata", arXiv:2210.10749; Merrill et al. 2024, "The illusion of
state in state-space models", arXiv:2404.08819.
Differs from the source: the last product alone is asked for, since a product that is written down shortens the next one to
a single step. S_5 has more elements than there are letters.
"""

from dataclasses import dataclass
from functools import cache
from itertools import permutations
from math import factorial
from string import ascii_lowercase

from addnorm.data.corpora._tasks import Draws, TaskSpec
from addnorm.fields import require


@dataclass(frozen=True, kw_only=True)
class Permutations(TaskSpec):
    """Spec of the composition of permutations.

    Raises:
        FieldError: a field is out of range.
        InputError: there are fewer than 100 different prompts.
    """

    items: int = 3
    """Items that are permuted, from 2 (parity) to 4 (24 permutations)."""
    length: int = 8
    """Permutations of a line: the difficulty."""

    def _check(self) -> None:
        require(self, "items", 2 <= self.items <= 4, "from 2 to 4, so that every permutation has a letter")
        require(self, "length", 1 <= self.length <= 1000, "a whole number from 1 to 1000")

    def _line(self, draws: Draws) -> str:
        factors = [draws.below(factorial(self.items)) for _ in range(self.length)]
        product = 0
        for factor in factors:
            product = _table(self.items)[product][factor]
        return "".join(ascii_lowercase[factor] for factor in factors) + "=" + ascii_lowercase[product]

    def _places(self) -> tuple[int, ...]:
        return (self.length + 1,)

    def _answers(self) -> str:
        return ascii_lowercase[: factorial(self.items)]

    def _num_prompts(self) -> int:
        return factorial(self.items) ** self.length


@cache
def _table(items: int) -> tuple[tuple[int, ...], ...]:
    """Number of the product `first, then second`, by their numbers."""
    elements = list(permutations(range(items)))
    number = {element: index for index, element in enumerate(elements)}
    return tuple(tuple(number[tuple(second[i] for i in first)] for second in elements) for first in elements)
