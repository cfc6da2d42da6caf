"""Episodes: a corpus of lines of one length, whose answers stand at the same places of every line and alone are scored."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool

from addnorm.errors import InputError
from addnorm.fields import FieldError, JsonFields


@dataclass(frozen=True, kw_only=True)
class Episodes(JsonFields):
    """The layout of a task's lines, and what can be reached on its answers.

    Example:
        >>> task = Episodes.with_label_noise(tokens=4, answers=(2,), shares=(0.25,) * 4, noise=0.2)
        >>> round(task.optimum_accuracy, 4), task.chance_accuracy
        (0.85, 0.25)
        >>> task.scored(8)
        array([False,  True, False, False, False,  True, False, False])
    """

    tokens: int
    """Tokens of an episode, with the separator that ends it."""
    answers: tuple[int, ...]
    """Places of the scored tokens in an episode, counted from 0."""
    optimum_loss: float
    """Nats per answer of the best possible prediction from the prompt."""
    optimum_accuracy: float
    chance_loss: float
    """Nats per answer of the best prediction that does not depend on the prompt."""
    chance_accuracy: float

    @classmethod
    def of(cls, content: dict[str, Any]) -> "Episodes | None":
        """The entry of `dataset.json`, which only tasks have."""
        entry = content.get("episodes")
        return None if entry is None else cls(**{**entry, "answers": tuple(entry["answers"])})

    @classmethod
    def with_label_noise(
        cls, *, tokens: int, answers: tuple[int, ...], shares: tuple[float, ...], noise: float
    ) -> "Episodes":
        """Episodes whose answers are determined by the prompt, and then replaced by a uniform one with probability `noise`.

        Args:
            tokens, answers: the layout.
            shares: how often each possible answer is the right one.
            noise: the probability.
        """
        count = len(shares)
        wrong = noise / count
        right = 1 - noise + wrong
        printed = [share * (1 - noise) + wrong for share in shares]
        return cls(
            tokens=tokens,
            answers=answers,
            optimum_loss=_entropy([right] + [wrong] * (count - 1)),
            optimum_accuracy=right,
            chance_loss=_entropy(printed),
            chance_accuracy=max(printed),
        )

    def require(self, seq: int) -> None:
        """Make sure that windows of `seq` tokens hold whole episodes.

        Raises:
            FieldError: `seq` is not a multiple of an episode's tokens.
        """
        if seq % self.tokens:
            near = max(1, round(seq / self.tokens)) * self.tokens
            problem = f"expected a multiple of {self.tokens}, the tokens of an episode of the corpus, got {seq}"
            raise FieldError("study", "training.seq", f"{problem}. Otherwise a prompt would be cut. Set it to {near}.")

    def require_tokenizer(self, kind: str) -> None:
        """Make sure that every character is a token.

        Raises:
            FieldError: another tokenizer than bytes, which may join a prompt with its answer.
        """
        if kind != "bytes":
            expected = f"expected bytes, because every answer of the corpus is one character, got {kind}"
            raise FieldError("study", "tokenizer", f"{expected}. Set tokenizer: bytes.")

    def require_whole(self, *, tokenizer: str, tokens: tuple[int, ...]) -> None:
        """Make sure that the written token files hold whole episodes.

        Raises:
            FieldError: they were made with another tokenizer than bytes.
            InputError: a task's lines are not of one length.
        """
        self.require_tokenizer(tokenizer)
        if any(count % self.tokens for count in tokens):
            raise InputError(
                f"corpus: expected lines of {self.tokens - 1} ASCII characters, got {tokens} tokens in all."
            )

    def scored(self, seq: int) -> Bool[np.ndarray, "{seq}"]:
        """True where the target of a position is an answer, in a window that begins with an episode."""
        return np.isin(np.arange(1, seq + 1) % self.tokens, self.answers)

    def sentence(self) -> str:
        """Optimum and chance in words, for `addnorm plan`."""
        return (
            f"The loss is that of the answers alone: {len(self.answers)} of the {self.tokens} tokens of an episode. Optimum: "
            f"{self.optimum_loss:.4f} nats, accuracy {self.optimum_accuracy:.1%}. Without the prompt: {self.chance_loss:.4f} "
            f"nats, {self.chance_accuracy:.1%}."
        )


def _entropy(shares: list[float]) -> float:
    return math.fsum(-share * math.log(share) for share in shares if share > 0)
