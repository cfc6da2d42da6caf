r"""Copying over distance: letters among blanks, and then the letters alone.

    b..ca....=bca      `among`: the letters stand at random places
    bca......=bca      `before`: they stand at the start

Why: what was read has to be kept over a distance, and found in order. At random places the distance differs from letter to
letter, so that a fixed offset does not suffice: the letters have to be counted, or each found from the one before it.

Source: Hochreiter and Schmidhuber 1997, doi:10.1162/neco.1997.9.8.1735; in this form Arjovsky et al. 2015, "Unitary evolution
recurrent neural networks", arXiv:1511.06464 (copying memory), and Gu and Dao 2023, "Mamba", arXiv:2312.00752 (selective
copying).
Differs from the source: nothing but sizes. The letters of the copy are inputs of those that follow, as in a language model.
"""

from dataclasses import dataclass
from math import comb
from string import ascii_lowercase
from typing import Literal

from addnorm.data.corpora._tasks import Draws, TaskSpec
from addnorm.fields import require


@dataclass(frozen=True, kw_only=True)
class Copying(TaskSpec):
    """Spec of copying over distance.

    Raises:
        FieldError: a field is out of range.
        InputError: there are fewer than 100 different prompts.
    """

    length: int = 8
    """Letters to copy."""
    blanks: int = 16
    """Blanks of a line, which are not copied: the distance."""
    place: Literal["among", "before"] = "among"
    """Place of the letters: random ones among the blanks, or before all of them."""
    letters: int = 8
    """Different letters."""

    def _check(self) -> None:
        require(self, "letters", 2 <= self.letters <= 26, "a whole number from 2 to 26")
        require(self, "length", 1 <= self.length <= 1000, "a whole number from 1 to 1000")
        require(self, "blanks", 0 <= self.blanks <= 1000, "a whole number from 0 to 1000")

    def _line(self, draws: Draws) -> str:
        copied = draws.text(self._answers(), self.length)
        if self.place == "before":
            return f"{copied}{'.' * self.blanks}={copied}"
        places, letters = [True] * self.length + [False] * self.blanks, iter(copied)
        draws.shuffle(places)
        return "".join(next(letters) if has_letter else "." for has_letter in places) + "=" + copied

    def _places(self) -> tuple[int, ...]:
        first = self.length + self.blanks + 1
        return tuple(range(first, first + self.length))

    def _answers(self) -> str:
        return ascii_lowercase[: self.letters]

    def _num_prompts(self) -> int:
        orders = comb(self.length + self.blanks, self.length) if self.place == "among" else 1
        return int(self.letters**self.length * orders)
