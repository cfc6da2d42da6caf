r"""Two tasks with a known optimal loss: induction and associative recall.

    induction            abqz|abqz         the second half repeats the first
    associative_recall   k3a7|a7k3         letters with digits, then the same pairs in another order

Why: the effect of a residual connection on copying and look-up shows after thousands of steps instead of millions, and the
optimal loss is known. A line of `induction` with n symbols has at least n ln 26 nats: its first half is random, its second
determined. A line of `associative_recall` with n pairs has at least ln(26!/(26-n)!) + n ln 10 + ln n! nats: the distinct keys,
their digits, and the order of the second half, whose digits are determined. Every document is ASCII and the same on every
machine, because the random numbers are SplitMix64 in integer arithmetic.

Source: Olsson et al. 2022, "In-context Learning and Induction Heads", arXiv:2209.11895; Arora et al. 2023, "Zoology",
arXiv:2312.04927 (multi-query associative recall); SplitMix64: Steele et al. 2014, doi:10.1145/2660193.2660195.
Differs from the source: lines of letters and digits instead of token ids, so that any tokenizer can be used. Whole lines are
scored; the corpora `induction` and `recall` score the answers alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from string import ascii_lowercase, digits
from typing import Literal

from addnorm.data.corpora import CorpusSpec, Document
from addnorm.data.corpora._split import hold_out, position, require_held_out
from addnorm.data.corpora._tasks import Draws
from addnorm.fields import require, require_at_least


@dataclass(frozen=True, kw_only=True)
class Synthetic(CorpusSpec):
    """Spec of a generated corpus.

    Raises:
        FieldError: a field is out of range.
    """

    task: Literal["induction", "associative_recall"] = "induction"
    num_documents: int = 200
    """Number of documents."""
    num_lines: int = 64
    """Lines per document; each line is an independent task."""
    num_symbols: int = 16
    """Letters in half of an induction line, or pairs of an associative-recall line (at most 26, as keys are distinct)."""
    seed: int = 0
    held_out: float = 0.05
    """Share of the documents for evaluation."""

    def __post_init__(self) -> None:
        require_held_out(self)
        require_at_least(self, 2, "num_documents")  # one of them is held out
        require_at_least(self, 1, "num_lines", "num_symbols")
        distinct = self.task != "associative_recall" or self.num_symbols <= len(ascii_lowercase)
        require(self, "num_symbols", distinct, "at most 26, the number of distinct keys of associative_recall")

    def documents(self) -> Iterator[Document]:
        """Yield all documents, named by their numbers."""
        names = [f"{self.task}/{number:06d}" for number in range(self.num_documents)]
        held = hold_out(names, self.held_out)
        line = _induction if self.task == "induction" else _associative_recall
        for name in names:
            draws = Draws(position(f"{self.seed}/{name}", "synthetic"))
            yield Document(name, "".join(line(draws, self.num_symbols) for _ in range(self.num_lines)), name in held)


def _induction(draws: Draws, symbols: int) -> str:
    half = "".join(ascii_lowercase[draws.below(26)] for _ in range(symbols))
    return f"{half}|{half}\n"


def _associative_recall(draws: Draws, symbols: int) -> str:
    keys = draws.shuffled(ascii_lowercase)[:symbols]
    value = {key: digits[draws.below(10)] for key in keys}
    first = "".join(key + value[key] for key in keys)
    second = "".join(key + value[key] for key in draws.shuffled(keys))
    return f"{first}|{second}\n"
