"""The static method: the null space read off the exported graph, constraint by constraint.

Every followed parameter moves freely at first. Going through the graph, each value carries the linear map from the
free coordinates to its own shift, as long as that shift does not depend on the data; each operation applies itself to
the map, or demands that the shift vanish or be constant along some axis. A demand is a linear equation between the
free coordinates and is solved at once (`elimination.py`). What is still free at the output is the null space.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from addnorm.audit.observe import Observe
from addnorm.audit.space import Space
from addnorm.audit.tracked import Tracked
from addnorm.errors import AddnormError


class NotExported(AddnormError):
    """`torch.export` cannot follow the model; the message says why. The numerical method still can."""


@dataclass(frozen=True, kw_only=True)
class Blocker:
    """A demand that takes freedom from one parameter."""

    op: str
    """The operation, as torch names it: `softmax`, `layer_norm`."""
    module: str
    """Path of the module that called it; empty for the model itself."""
    where: str
    """file:line of the call, the innermost outside torch; empty if unknown."""
    rank: int
    """Degrees of freedom of this parameter that the demand touches."""
    demand: str
    """What must hold: `unchanged`, or `constant along axis -1`."""


@dataclass(frozen=True, kw_only=True)
class StaticAnalysis:
    """What the static method found."""

    space: Space
    """The null space at generic weights (`generic.py`): what verdicts are about."""
    at_weights: Space
    """The null space at the model's own weights, at least as large: what a rewrite of this model uses."""
    blockers: Mapping[str, tuple[Blocker, ...]]
    """Per parameter, in the order of the graph; a parameter without any is redundant."""
    assumptions: tuple[str, ...]
    """What the proof takes for granted about the inputs, one sentence each."""
    nodes: int
    """Operations of the graph on the way to the observed output."""
    seconds: float


def analyse(
    model: nn.Module,
    inputs: object,
    *,
    tracked: Tracked,
    observe: Observe = "logits",
    training: bool = False,
) -> StaticAnalysis:
    """Analyse a model without running it. `model` stays as it is; torch's random state, default dtype and modes too.

    `torch.export` keeps global state, so exports of several threads take turns (a lock of this module); all else runs
    at once.

    Args:
        model: any module; not modified.
        inputs: example inputs (see `inputs.bind`); shapes are taken from them, values are not.
        tracked: what to follow, from `follow` on the same model.
        observe: what counts as the output.
        training: analyse the training mode (batch statistics, dropout) instead of evaluation.

    Raises:
        NotExported: `torch.export` fails on this model.
        InputError: the inputs do not fit.
    """
    raise NotImplementedError
