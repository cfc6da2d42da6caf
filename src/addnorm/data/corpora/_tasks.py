"""Tasks with a known optimum: what their corpora have in common, and their random numbers.

A line is one episode: a prompt, and answers at fixed places. All lines of a task have one length, so that the places of the
answers in the token file are known, and windows hold whole episodes (`addnorm.data.episodes`).
"""

from abc import abstractmethod
from collections.abc import Iterator, MutableSequence
from dataclasses import dataclass
from typing import TypeVar

from addnorm.data.corpora import CorpusSpec, Document
from addnorm.data.corpora._split import is_held_out, position, require_held_out
from addnorm.data.episodes import Episodes
from addnorm.errors import InputError
from addnorm.fields import require, require_at_least

Item = TypeVar("Item")
_MASK = 2**64 - 1
_LINES = 256
"""Lines of a document."""
_LEAST_PROMPTS = 100
"""Different prompts that a task must have: of fewer, those that are held out would be a handful."""


class Draws:
    """Random whole numbers of SplitMix64, in integer arithmetic, so that they are the same on every machine."""

    def __init__(self, state: int) -> None:
        self._state = state

    def below(self, bound: int) -> int:
        """A number in [0, bound), with a bias below 1e-17 for the bounds used here."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((mixed ^ (mixed >> 31)) * bound) >> 64

    def shuffle(self, items: MutableSequence[Item]) -> None:
        """Put the items into a random order (Fisher-Yates)."""
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]

    def shuffled(self, items: str) -> str:
        """The letters in a random order."""
        order = list(items)
        self.shuffle(order)
        return "".join(order)

    def text(self, letters: str, length: int) -> str:
        """Independent letters, each uniform."""
        return "".join(letters[self.below(len(letters))] for _ in range(length))


@dataclass(frozen=True, kw_only=True)
class TaskSpec(CorpusSpec):
    """Base of the tasks' specs.

    Raises:
        FieldError: a field is out of range.
        InputError: the task has fewer than 100 different prompts.
    """

    num_lines: int = 40_000
    """Lines of both sides together; each line is an independent episode."""
    seed: int = 0
    """Another seed draws other lines."""
    held_out: float = 0.05
    """Share of all possible lines that are for evaluation. The hash of a line decides, so no line is on both sides."""
    label_noise: float = 0.0
    """Probability with which a printed answer is replaced by a uniform one, which may be the right one."""

    def __post_init__(self) -> None:
        require_held_out(self)
        require_at_least(self, 2, "num_lines")
        require(self, "label_noise", 0 <= self.label_noise < 1, "a probability of at least 0 and below 1")
        self._check()
        if (prompts := self._num_prompts()) < _LEAST_PROMPTS:
            raise InputError(
                f"corpus {self.kind}: expected settings with at least {_LEAST_PROMPTS} different prompts, so that some can be "
                f"held out, got {prompts}. Make the task larger."
            )

    @property
    def episodes(self) -> Episodes:
        """Layout, optimum and chance, all from the fields alone."""
        return Episodes.with_label_noise(
            tokens=len(self._line(Draws(0))) + 1, answers=self._places(), shares=self._shares(), noise=self.label_noise
        )

    def documents(self) -> Iterator[Document]:
        """Yield the lines of both sides, in documents of 256 lines."""
        sides: dict[bool, list[str]] = {False: [], True: []}
        for number in range(self.num_lines):
            draws = Draws(position(f"{self.seed}/{number}", self.kind))
            line = self._line(draws)
            # Before the noise: all printed forms of a prompt are on one side.
            held = is_held_out(line, self.held_out)
            sides[held].append(self._noisy(line, draws) if self.label_noise else line)
        for held, name in ((False, "train"), (True, "held-out")):
            for first in range(0, len(sides[held]), _LINES):
                # No newline at the end: the separator of documents takes its place, so that episodes stay aligned.
                text = "\n".join(sides[held][first : first + _LINES])
                yield Document(f"{self.kind}/{name}/{first // _LINES:06d}", text, held)

    def _noisy(self, line: str, draws: Draws) -> str:
        letters = list(line)
        for place in self._places():
            if draws.below(2**53) < self.label_noise * 2**53:
                letters[place] = self._answers()[draws.below(len(self._answers()))]
        return "".join(letters)

    @abstractmethod
    def _check(self) -> None:
        """Check the task's own fields."""

    @abstractmethod
    def _line(self, draws: Draws) -> str:
        """A line with its right answers, which its prompt determines; ASCII, without the newline."""

    @abstractmethod
    def _places(self) -> tuple[int, ...]:
        """Places of the answers in a line, counted from 0."""

    @abstractmethod
    def _answers(self) -> str:
        """All possible answers, a character each."""

    def _shares(self) -> tuple[float, ...]:
        """Share of lines in which each of them is right."""
        return (1 / len(self._answers()),) * len(self._answers())

    @abstractmethod
    def _num_prompts(self) -> int:
        """Number of different prompts, or a lower bound of it."""
