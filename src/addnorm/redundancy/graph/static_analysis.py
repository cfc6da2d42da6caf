"""The static method: the null space derived from the exported graph, constraint by constraint.

Every tracked parameter can move freely at first. Along the graph, each value carries the linear map from the free
coordinates to its own shift, as long as that shift does not depend on the data. Each operation either applies itself to
the map, or demands that the shift vanishes or is constant along some axis. A demand is a linear equation in the free
coordinates and is solved at once (`elimination.py`). The coordinates that are free after the output's demand span the
null space. See `derivation.md`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from addnorm.redundancy.execution.generic_weights import GenericWeights
from addnorm.redundancy.execution.observation import Observe
from addnorm.redundancy.execution.tracked_parameters import TrackedParameters
from addnorm.redundancy.graph.export import NotExported as NotExported
from addnorm.redundancy.graph.export import export
from addnorm.redundancy.graph.null_space import NullSpace
from addnorm.redundancy.graph.propagation import Blocker, propagate


@dataclass(frozen=True, kw_only=True)
class StaticAnalysis:
    """Results of the static method."""

    space: NullSpace
    """The null space at generic weights (`generic_weights.py`), to which the verdicts refer."""
    blockers: Mapping[str, tuple[Blocker, ...]]
    """Blocking operations per parameter, in the order of the graph. A parameter without any is redundant."""
    assumptions: tuple[str, ...]
    """Assumptions of the proof about the inputs, one sentence each."""
    own_null_space: Callable[[], NullSpace]
    """Computes the null space at the model's own weights, which contains `space`; a rewrite of the model uses it."""


def analyse(
    model: nn.Module,
    inputs: object,
    *,
    tracked: TrackedParameters,
    observe: Observe = "logits",
    training: bool = False,
    generic_copy: Callable[[], nn.Module] | None = None,
    on_node: Callable[[int, int], None] | None = None,
) -> StaticAnalysis:
    """Analyse a model without running it. The model, torch's random state, default dtype and modes are not changed.

    `torch.export` keeps global state, so exports in several threads are serialised by a lock.

    Args:
        model: any module.
        inputs: example inputs (see `inputs.bind`), of which only the shapes are used.
        tracked: the parameters to track, from `track_parameters` on the same model.
        observe: the observed output.
        training: analyse training mode (batch statistics, dropout) instead of evaluation.
        generic_copy: returns a copy of the model in float64 with generic weights, called once the export's own copy is
            freed; without it these weights are computed one by one.
        on_node: is called with the number of the graph's operations done and of all.

    Raises:
        NotExported: `torch.export` fails on this model.
        InputError: the inputs do not fit.
    """
    program = export(model, inputs, observe=observe, training=training)
    propagation = propagate(
        program, _generic_weights(model, generic_copy() if generic_copy else None), tracked, on_node
    )
    return StaticAnalysis(
        space=propagation.space,
        blockers=propagation.blockers,
        assumptions=propagation.assumptions,
        own_null_space=lambda: propagate(program, _tensors_of(model), tracked).space,
    )


def _generic_weights(model: nn.Module, generic_copy: nn.Module | None) -> Callable[[str], torch.Tensor]:
    """Generic numbers by name: parameters from the copy if there is one. Buffers keep the model's own precision."""
    computed = GenericWeights(model)
    copied = dict(generic_copy.named_parameters(remove_duplicate=False)) if generic_copy is not None else {}
    return lambda name: copied[name] if name in copied else computed.named(name)


def _tensors_of(model: nn.Module) -> Callable[[str], torch.Tensor]:
    """A model's parameters and buffers by each of their names."""
    tensors = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    return tensors.__getitem__
