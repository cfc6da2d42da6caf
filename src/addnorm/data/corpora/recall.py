r"""Associative recall: keys with values, then questions for the value of a key.

    ab3ba7aa1=aa1=ba7        two-letter keys: `ab` has 3, `ba` has 7, `aa` has 1

Why: looking up by content. With keys of one letter one layer of marks and one look-up suffice. Keys of several letters from
a small alphabet share letters, so that the whole key has to be put together before it can be compared.

Source: Arora et al. 2023, "Zoology: measuring and improving recall in efficient language models", arXiv:2312.04927
(multi-query associative recall).
Differs from the source: keys may have several letters; questions stand after all pairs.
"""

from dataclasses import dataclass
from itertools import product
from math import factorial
from string import ascii_lowercase, digits

from addnorm.data.corpora._tasks import Draws, TaskSpec
from addnorm.fields import require


@dataclass(frozen=True, kw_only=True)
class Recall(TaskSpec):
    """Spec of associative recall.

    Raises:
        FieldError: a field is out of range.
        InputError: there are fewer than 100 different prompts.
    """

    pairs: int = 8
    """Pairs of a line; their keys are distinct."""
    key_letters: int = 2
    """Letters of a key: the difficulty."""
    letters: int = 4
    """Different letters of keys."""
    questions: int = 4
    """Questions of a line, each for another key."""

    def _check(self) -> None:
        require(self, "letters", 2 <= self.letters <= 26, "a whole number from 2 to 26")
        require(self, "key_letters", 1 <= self.key_letters <= 3, "a whole number from 1 to 3")
        keys = self.letters**self.key_letters
        require(self, "pairs", 1 <= self.pairs <= keys, f"from 1 to {keys}, the number of different keys")
        require(self, "questions", 1 <= self.questions <= self.pairs, f"from 1 to pairs, {self.pairs}")

    def _line(self, draws: Draws) -> str:
        keys = ["".join(key) for key in product(ascii_lowercase[: self.letters], repeat=self.key_letters)]
        draws.shuffle(keys)
        pairs = [(key, digits[draws.below(10)]) for key in keys[: self.pairs]]
        listing = "".join(key + value for key, value in pairs)
        draws.shuffle(pairs)
        return listing + "".join(f"={key}{value}" for key, value in pairs[: self.questions])

    def _places(self) -> tuple[int, ...]:
        listing, question = self.pairs * (self.key_letters + 1), self.key_letters + 2
        return tuple(listing + question * (number + 1) - 1 for number in range(self.questions))

    def _answers(self) -> str:
        return digits

    def _num_prompts(self) -> int:
        keys = self.letters**self.key_letters
        listings = factorial(keys) // factorial(keys - self.pairs) * 10**self.pairs
        return listings * (factorial(self.pairs) // factorial(self.pairs - self.questions))
