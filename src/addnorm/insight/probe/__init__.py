"""Flow through any model that maps tokens to logits, measured from recorded passes; see decision 0045.

`probe` returns FLOW of `addnorm.insight.flow`, measured by the same code on a recording of another maker. What only our models
have is absent (own_share, depth matrices, gradients of sites and of the stream). Changes are branches' outputs that join the
stream. The gradient of a layer is that of all modules in it: a sink belongs to the whole model in ours, and to its layer there.

    missing          what could not be found in this model, each as one sentence; `missing_notes` in a file are their notes
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import nn

from addnorm.insight.flow.measure import Windows, measures
from addnorm.insight.probe.recording import Logits, recorded
from addnorm.training.objective import Scored


def probe(model: nn.Module, batches: Sequence[Scored], maps: Sequence[Scored], logits_of: Logits) -> dict[str, Any]:
    """Measure a model in evaluation mode; it is not changed.

    Args:
        model: reads tokens.
        batches: batches for the loss, gradients, the stream and the read-out.
        maps: batches for attention.
        logits_of: applies the model.

    Returns:
        FLOW of `addnorm.insight.flow` without depth matrices, and `missing`. Without logits there is no loss, no gradient and
        no early exit: `loss` is None, and the other keys are absent.

    Raises:
        InputError: the model has no list of layers that are called one after the other.
    """
    return measures(model, partial(recorded, model, logits_of), Windows(batches=batches, maps=maps))


__all__ = ["probe"]
