"""Flow through any model that maps tokens to logits, measured from recorded passes; see decision 0045.

`probe` returns FLOW of `addnorm.insight.flow`, measured by the same code on a recording of another maker. What only our models
have is absent (own_share, depth matrices of other rooms than the residual, gradients of sites and of the stream). Changes are
branches' outputs that join the stream. The gradient of a layer is that of all modules in it: a sink belongs to the whole model
in ours, and to its layer there.

    missing          what could not be found in this model, each as one sentence; `missing_notes` in a file are their notes
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from torch import Tensor, nn

from addnorm.errors import AddnormError, InputError
from addnorm.insight.depth.matrix import followed_matrices
from addnorm.insight.flow.measure import DEPTH_TOKENS, Windows, finite, measures
from addnorm.insight.probe.recording import Logits, recorded
from addnorm.redundancy.execution.memory import left_bytes
from addnorm.study.foreign import ForeignModel, logits_of
from addnorm.training.numerics import device_here
from addnorm.training.objective import Batch
from addnorm.training.run_weights import RunWeights
from addnorm.words import Sentence, say

_DEPTH_BYTES = 2**30
"""Memory for the contributions to all reads."""
_FEWEST_TOKENS = 8


def probe(model: nn.Module, batches: Sequence[Batch], maps: Sequence[Batch], logits_of: Logits) -> dict[str, Any]:
    """Measure a model in evaluation mode; it is not changed.

    Args:
        model: reads tokens.
        batches: batches for the loss, gradients, the stream and the read-out.
        maps: batches for attention.
        logits_of: applies the model.

    Returns:
        FLOW of `addnorm.insight.flow`, and `missing`. Without logits there is no loss, no gradient and no early exit: `loss` is
        None, and the other keys are absent; so is `depth` if the stream cannot be followed.

    Raises:
        InputError: the model has no list of layers that are called one after the other.
    """
    measured = measures(model, partial(recorded, model, logits_of), Windows(batches=batches, maps=maps))
    try:
        depth, missing = followed_matrices(model, _followed_tokens(model, maps[0].inputs, len(measured["layers"])))
    except InputError as error:
        return measured | {"missing": [*measured["missing"], say("no_depth", reason=str(error))]}
    return measured | {"depth": finite(depth), "missing": [*measured["missing"], *missing]}


def _followed_tokens(model: nn.Module, tokens: Tensor, layers: int) -> Tensor:
    """The tokens on which the stream is followed: as many of the first ones as `_DEPTH_BYTES` hold.

    Raises:
        InputError: the memory that is left does not hold a copy of the model in float64.
    """
    needed, left = 8 * sum(each.numel() for each in model.parameters()) + _DEPTH_BYTES, left_bytes()
    if left is not None and needed > left:
        raise InputError(
            f"expected {needed / 1e9:.1f} GB of memory for a copy in float64, got {left / 1e9:.1f} GB. Use a machine with more."
        )
    width = next((each.embedding_dim for each in model.modules() if isinstance(each, nn.Embedding)), 1)
    # Two branches a layer read all sources up to theirs; contributions and sources are stacked for every read.
    most = _DEPTH_BYTES // (8 * 2 * (2 * layers) ** 2 * width)
    return tokens[:1, : max(_FEWEST_TOKENS, min(DEPTH_TOKENS, most))]


def notes_of(missing: Sequence[Sentence]) -> dict[str, Any]:
    """The entries of a file that name parts which were not found."""
    return {"missing": [*map(str, missing)], "missing_notes": [sentence.note for sentence in missing]}


def probe_weights(weights: RunWeights, windows: Windows) -> dict[str, Any]:
    """Measure the start and the end of a run, for `inspect_run`; `missing` names the parts that were not found at the start.

    Raises:
        InputError: user code that is not given, files that have changed, or a model that cannot be measured, with the reason.
    """

    def probed(model: Callable[[], nn.Module]) -> dict[str, Any]:
        name = "the module"
        try:
            foreign = cast(ForeignModel, model())
            name = type(foreign.module).__name__
            return probe(foreign.module.to(device_here()), windows.batches, windows.maps, logits_of)
        except AddnormError:
            raise
        # A user's module may raise anything when it is built or measured, and torch anything about it. The other runs of
        # the study are measured all the same, and this one is named with its reason.
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise InputError(f"{name}: cannot be measured: {reason}") from error

    start, end = probed(weights.any_initial_model), probed(weights.any_model)
    # The same model; but a stream may be followed at the end alone, such as one whose branches write nothing at the start.
    missing = start.pop("missing")
    known = {each.note["code"] for each in missing}
    missing += [each for each in end.pop("missing") if each.note["code"] not in known]
    return notes_of(missing) | {"start": start, "end": end}


__all__ = ["notes_of", "probe", "probe_weights"]
