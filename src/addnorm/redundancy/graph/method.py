"""The static method: the null space read off the exported graph, constraint by constraint.

Every followed parameter moves freely at first. Going through the graph, each value carries the linear map from the
free coordinates to its own shift, as long as that shift does not depend on the data; each operation applies itself to
the map, or demands that the shift vanish or be constant along some axis. A demand is a linear equation between the
free coordinates and is solved at once (`elimination.py`). What is still free at the output is the null space.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn

from addnorm.redundancy.execution.generic_weights import Generic
from addnorm.redundancy.execution.observation import Observe
from addnorm.redundancy.execution.tracked_parameters import Tracked
from addnorm.redundancy.graph.export import NotExported as NotExported
from addnorm.redundancy.graph.export import Program, export
from addnorm.redundancy.graph.joint_space import Space
from addnorm.redundancy.graph.propagation import Blocker as Blocker
from addnorm.redundancy.graph.propagation import propagate


@dataclass(frozen=True, kw_only=True)
class StaticAnalysis:
    """What the static method found."""

    space: Space
    """The null space at generic weights (`generic.py`): what verdicts are about."""
    blockers: Mapping[str, tuple[Blocker, ...]]
    """Per parameter, in the order of the graph; a parameter without any is redundant."""
    assumptions: tuple[str, ...]
    """What the proof takes for granted about the inputs, one sentence each."""
    nodes: int
    """Operations of the graph on the way to the observed output."""
    seconds: float
    own_weights: Callable[[], Space]
    """Computes `at_weights`."""

    @cached_property
    def at_weights(self) -> Space:
        """The null space at the model's own weights, at least as large: what a rewrite of this model uses. Computed
        when first read, from the weights as they are then."""
        return self.own_weights()


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
    started = time.perf_counter()
    program = export(model, inputs, observe=observe, training=training)
    found = propagate(program, Generic(model).named, tracked)
    return StaticAnalysis(
        space=found.space,
        blockers=found.blockers,
        assumptions=found.assumptions,
        nodes=sum(node.op != "placeholder" for node in program.nodes),
        seconds=time.perf_counter() - started,
        own_weights=lambda: _space_of(program, model, tracked),
    )


def _space_of(program: Program, model: nn.Module, tracked: Tracked) -> Space:
    return propagate(program, _numbers(model), tracked).space


def _numbers(model: nn.Module) -> Callable[[str], torch.Tensor]:
    """A model's parameters and buffers by all their names."""
    held = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    return held.__getitem__
