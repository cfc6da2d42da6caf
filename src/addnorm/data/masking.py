"""Masked-LM corruption: 15 % of the positions are scored; of those 80 % are hidden, 10 % replaced, 10 % unchanged.

Source: Devlin et al. 2018, "BERT", arXiv:1810.04805, section 3.1 and appendix A.1.
Differs from the source: positions are drawn at every step (RoBERTa's dynamic masking, arXiv:1907.11692), separators included;
the mask's id follows the vocabulary, so it never occurs in text.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int64

from addnorm.data.draws import MASKS, below, unit, words
from addnorm.errors import InputError


class Masked(NamedTuple):
    """Inputs and targets of a masked model."""

    inputs: Int64[np.ndarray, "batch seq"]
    targets: Int64[np.ndarray, "batch seq"]
    """The original tokens."""
    scored: Bool[np.ndarray, "batch seq"]
    """True at the positions of the loss, of which a batch has at least one."""


def mask_tokens(
    tokens: Int64[np.ndarray, "batch seq"], *, vocab: int, mask_id: int, seed: int, step: int, rate: float = 0.15
) -> Masked:
    """Corrupt a batch as a pure function of (seed, step). The tokens are not modified.

    Args:
        tokens: the batch.
        vocab: random replacements are drawn from [0, vocab).
        mask_id: id of a hidden token, `Dataset.mask_id` = vocab; the model has vocab + 1 ids.
        seed, step: determine the random choices.
        rate: expected share of scored positions.

    Raises:
        InputError: the rate is not in (0, 1], or the mask is an id of the text.
    """
    if not 0 < rate <= 1:
        raise InputError(f"rate: expected a share above 0 and at most 1, got {rate}.")
    if mask_id < vocab:
        raise InputError(f"mask_id: expected an id from {vocab} on, which text does not use, got {mask_id}.")
    # Three words for every position, scored or not. In a batch of one shape, what happens at a position depends on
    # nothing but (seed, step, position), and a higher rate scores all positions of a lower one and more.
    choice, action, replacement = words(seed, step, MASKS, 3 * tokens.size).reshape(3, tokens.size)
    chance = unit(choice)
    scored = chance < rate
    # A batch without a scored position has no mean loss. The nearest to being scored is taken, so that no further word
    # is drawn.
    scored[chance.argmin()] = True
    action_chance = unit(action).reshape(tokens.shape)
    scored = scored.reshape(tokens.shape)
    inputs = tokens.copy()
    inputs[scored & (action_chance < 0.8)] = mask_id
    replaced = scored & (action_chance >= 0.8) & (action_chance < 0.9)
    inputs[replaced] = below(replacement, vocab).reshape(tokens.shape)[replaced]
    return Masked(inputs, tokens.copy(), scored)
