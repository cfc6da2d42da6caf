"""Masked-LM corruption: 15 % of the positions are scored; of those 80 % are hidden, 10 % replaced, 10 % left.

Source: Devlin et al. 2018, "BERT", arXiv:1810.04805, section 3.1 and appendix A.1.
Differs from the source: drawn anew at every step (RoBERTa's dynamic masking, arXiv:1907.11692); every position may be
drawn, separators too; the mask is the id after the vocabulary, so that it never stands for text.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int64

from addnorm.data.draws import MASKS, below, unit, words
from addnorm.errors import InputError


class Masked(NamedTuple):
    """What a masked model is given and asked for."""

    inputs: Int64[np.ndarray, "batch seq"]
    targets: Int64[np.ndarray, "batch seq"]
    """The tokens as they were."""
    scored: Bool[np.ndarray, "batch seq"]
    """Where the loss counts; true at one position of the batch at least."""


def mask_tokens(
    tokens: Int64[np.ndarray, "batch seq"], *, vocab: int, mask_id: int, seed: int, step: int, rate: float = 0.15
) -> Masked:
    """Corrupt a batch as a pure function of (seed, step); the tokens given are not changed.

    Args:
        vocab: random replacements are drawn from [0, vocab).
        mask_id: id that hides a token, `Dataset.mask_id` = vocab; the model then has vocab + 1 entries.
        rate: expected share of scored positions.

    Raises:
        InputError: the rate is not in (0, 1], or the mask is an id that text uses.
    """
    if not 0 < rate <= 1:
        raise InputError(f"the mask rate is a share of the positions, above 0 and at most 1; got {rate}.")
    if mask_id < vocab:
        raise InputError(f"the mask must be no id of the text: ids below {vocab} are, got {mask_id}. Take {vocab}.")
    choice, action, replacement = words(seed, step, MASKS, 3 * tokens.size).reshape(3, tokens.size)
    chance = unit(choice)
    scored = chance < rate
    scored[chance.argmin()] = True
    dice = unit(action).reshape(tokens.shape)
    scored = scored.reshape(tokens.shape)
    inputs = tokens.copy()
    inputs[scored & (dice < 0.8)] = mask_id
    replaced = scored & (dice >= 0.8) & (dice < 0.9)
    inputs[replaced] = below(replacement, vocab).reshape(tokens.shape)[replaced]
    return Masked(inputs, tokens.copy(), scored)
