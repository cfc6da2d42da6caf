r"""k-hop recall: the answer is found by going from key to key, as many times as asked.

    fgabeccdgebfda=2a=f=1g=e        pairs, then questions: two hops from a (a, b, f), one from g

    x_0 = the asked letter,  x_{i+1} = next(x_i),  answer = x_k

Why: a layer of attention looks up one letter, so k hops by single look-ups need k layers; composing the look-ups with
themselves needs about log2 k. What a layer reads of earlier layers decides how soon both are found. The pairs are one cycle
through all letters, in random order: every letter has one next letter, and no number of hops leads back.

Source: Sanford et al. 2024, "Transformers, parallel computation, and logarithmic depth", arXiv:2402.09268, section 4 (k-hop
induction heads).
Differs from the source: the chain is given as pairs instead of a sequence of symbols, and the number of hops is asked for
in the line, from `least_hops` to `hops`.
"""

from dataclasses import dataclass
from math import factorial
from string import ascii_lowercase

from addnorm.data.corpora._tasks import Draws, TaskSpec
from addnorm.fields import require


@dataclass(frozen=True, kw_only=True)
class KHop(TaskSpec):
    """Spec of k-hop recall.

    Raises:
        FieldError: a field is out of range.
        InputError: there are fewer than 100 different prompts.
    """

    hops: int = 2
    """Most hops of a question, up to 9: the difficulty."""
    least_hops: int = 1
    """Fewest hops of a question; equal to `hops` for one number of hops alone."""
    letters: int = 8
    """Letters of the cycle, more than `hops`."""
    questions: int = 4
    """Questions of a line, each with a letter of its own."""

    def _check(self) -> None:
        require(self, "letters", 3 <= self.letters <= 26, "a whole number from 3 to 26")
        require(self, "hops", 1 <= self.hops <= min(9, self.letters - 1), "from 1 to 9, and fewer than letters")
        require(self, "least_hops", 1 <= self.least_hops <= self.hops, f"from 1 to hops, {self.hops}")
        require(self, "questions", 1 <= self.questions <= self.letters, f"from 1 to letters, {self.letters}")

    def _line(self, draws: Draws) -> str:
        cycle = draws.shuffled(self._answers())
        after = dict(zip(cycle, cycle[1:] + cycle[:1], strict=True))
        pairs = "".join(letter + after[letter] for letter in draws.shuffled(cycle))
        questions = draws.shuffled(cycle)[: self.questions]
        return pairs + "".join(self._question(letter, after, draws) for letter in questions)

    def _question(self, letter: str, after: dict[str, str], draws: Draws) -> str:
        hops, answer = self.least_hops + draws.below(self.hops - self.least_hops + 1), letter
        for _ in range(hops):
            answer = after[answer]
        return f"={hops}{letter}={answer}"

    def _places(self) -> tuple[int, ...]:
        return tuple(2 * self.letters + 5 * question + 4 for question in range(self.questions))

    def _answers(self) -> str:
        return ascii_lowercase[: self.letters]

    def _num_prompts(self) -> int:
        # The cycles, the order of the pairs, and the questions with their numbers of hops.
        asked = factorial(self.letters) // factorial(self.letters - self.questions)
        choices = (self.hops - self.least_hops + 1) ** self.questions
        return factorial(self.letters - 1) * factorial(self.letters) * asked * choices
