r"""Induction: after letters that occurred before comes what came after them, the last time that they did.

    cabacbda|ba=c|cb=d        with context 2: `ba` was followed by `c`, and `cb` by `d`

    answer = s_{i+k},  i = the last place with s_i … s_{i+k-1} = the asked letters

Why: the attention pattern of an induction head, which takes two layers: one that marks every place with what came before it,
one that looks for the mark. With a context of k letters, the mark has to hold k of them.

Source: Olsson et al. 2022, "In-context learning and induction heads", arXiv:2209.11895; for k letters: Edelman et al. 2024,
"The evolution of statistical induction heads", arXiv:2402.11004 (n-grams in context).
Differs from the source: questions after the sequence, so that the answer alone is scored, and it is determined.
"""

from dataclasses import dataclass
from string import ascii_lowercase

from addnorm.data.corpora._tasks import Draws, TaskSpec
from addnorm.fields import require


@dataclass(frozen=True, kw_only=True)
class Induction(TaskSpec):
    """Spec of induction.

    Raises:
        FieldError: a field is out of range.
        InputError: there are fewer than 100 different prompts.
    """

    context: int = 2
    """Letters that have to agree: the difficulty."""
    letters: int = 6
    """Different letters; with fewer, more places agree in a part of the context only."""
    length: int = 24
    """Letters of the sequence, more than `context`."""
    questions: int = 4
    """Questions of a line."""

    def _check(self) -> None:
        require(self, "letters", 2 <= self.letters <= 26, "a whole number from 2 to 26")
        require(self, "length", 2 <= self.length <= 1000, "a whole number from 2 to 1000")
        require(self, "context", 1 <= self.context < self.length, f"from 1 to below length, {self.length}")
        require(self, "questions", 1 <= self.questions <= 100, "a whole number from 1 to 100")

    def _line(self, draws: Draws) -> str:
        sequence = draws.text(self._answers(), self.length)
        return sequence + "".join(self._question(sequence, draws) for _ in range(self.questions))

    def _question(self, sequence: str, draws: Draws) -> str:
        place = draws.below(self.length - self.context)
        asked = sequence[place : place + self.context]
        # Without its last letter: an occurrence at the very end is followed by nothing.
        last = sequence[:-1].rfind(asked)
        return f"|{asked}={sequence[last + self.context]}"

    def _places(self) -> tuple[int, ...]:
        question = self.context + 3
        return tuple(self.length + question * (number + 1) - 1 for number in range(self.questions))

    def _answers(self) -> str:
        return ascii_lowercase[: self.letters]

    def _num_prompts(self) -> int:
        return self.letters**self.length  # the sequences; each has at least one question
