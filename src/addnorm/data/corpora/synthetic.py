r"""Two tasks whose answers can be counted: induction and associative recall.

    induction            abqz|abqz         the second half repeats the first
    associative_recall   k3a7|a7k3         letters bound to digits, then asked for again in another order

Why: what a joint of the network does to copying and look-up shows in thousands of steps instead of millions, and the
best possible loss is known. A line of `induction` with n symbols costs at least n ln 26 nats: its first half is random,
its second is determined. A line of `associative_recall` with n pairs costs at least ln(26!/(26-n)!) + n ln 10 + ln n!
nats: the distinct keys, their digits, and the order in which the keys are asked for; the digits that answer are
determined. Every document is ASCII and the same on every machine: random numbers are SplitMix64 in whole numbers.

Source: Olsson et al. 2022, "In-context Learning and Induction Heads", arXiv:2209.11895; Arora et al. 2023, "Zoology",
arXiv:2312.04927 (multi-query associative recall); SplitMix64: Steele et al. 2014, doi:10.1145/2660193.2660195.
Differs from the source: letters and digits in lines of text instead of token ids, so that every tokenizer fits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from string import ascii_lowercase, digits
from typing import Literal

from addnorm.data.corpora import CorpusSpec, Document
from addnorm.data.corpora._split import hold_out, position, require_share
from addnorm.errors import InputError

_MASK = 2**64 - 1


@dataclass(frozen=True, kw_only=True)
class Synthetic(CorpusSpec):
    """Spec of a generated corpus.

    Raises:
        InputError: a field is out of range.
    """

    task: Literal["induction", "associative_recall"] = "induction"
    num_documents: int = 200
    """Number of documents."""
    num_lines: int = 64
    """Lines per document; every line is a task of its own."""
    num_symbols: int = 16
    """Letters of an induction line's half, or pairs of an associative-recall line (at most 26: keys are distinct)."""
    seed: int = 0
    held_out: float = 0.05
    """Share of the documents kept for evaluation."""

    def __post_init__(self) -> None:
        require_share(self.held_out)
        if self.num_documents < 2:
            raise InputError(f"num_documents must be at least 2, one of them to hold out; got {self.num_documents}.")
        for name in ("num_lines", "num_symbols"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.task == "associative_recall" and self.num_symbols > len(ascii_lowercase):
            raise InputError(
                f"associative_recall has 26 distinct keys, got num_symbols = {self.num_symbols}. Take at most 26."
            )

    def documents(self) -> Iterator[Document]:
        """All documents, numbered."""
        names = [f"{self.task}/{number:06d}" for number in range(self.num_documents)]
        held = hold_out(names, self.held_out)
        line = _induction if self.task == "induction" else _associative_recall
        for name in names:
            draws = _Draws(position(f"{self.seed}/{name}", "synthetic"))
            yield Document(name, "".join(line(draws, self.num_symbols) for _ in range(self.num_lines)), name in held)


class _Draws:
    """Random whole numbers by SplitMix64."""

    def __init__(self, state: int) -> None:
        self._state = state

    def below(self, bound: int) -> int:
        """A number in [0, bound); for our small bounds the bias is below 1e-17."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((mixed ^ (mixed >> 31)) * bound) >> 64

    def shuffled(self, items: str) -> str:
        """The items in a random order (Fisher-Yates)."""
        order = list(items)
        for last in range(len(order) - 1, 0, -1):
            other = self.below(last + 1)
            order[last], order[other] = order[other], order[last]
        return "".join(order)


def _induction(draws: _Draws, symbols: int) -> str:
    half = "".join(ascii_lowercase[draws.below(26)] for _ in range(symbols))
    return f"{half}|{half}\n"


def _associative_recall(draws: _Draws, symbols: int) -> str:
    keys = draws.shuffled(ascii_lowercase)[:symbols]
    value = {key: digits[draws.below(10)] for key in keys}
    told = "".join(key + value[key] for key in keys)
    asked = "".join(key + value[key] for key in draws.shuffled(keys))
    return f"{told}|{asked}\n"
