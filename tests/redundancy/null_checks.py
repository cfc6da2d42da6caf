"""Checks of a claimed null space in float64: moves along it, and its dimension by the Jacobian."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from addnorm.redundancy.algebra.linear_map import dense
from addnorm.redundancy.execution.generic_weights import generic
from addnorm.redundancy.execution.inputs import Inputs, bind
from addnorm.redundancy.execution.observation import Observe, Observed
from addnorm.redundancy.execution.tracked_parameters import TrackedParameters, track_parameters
from addnorm.redundancy.graph.null_space import Delta, NullSpace
from addnorm.redundancy.graph.static_analysis import StaticAnalysis, analyse

ROUNDING = 1e-9
"""Largest change of a float64 output, relative to its size: a unit move through some tens of operations with gains of
order one leaves 1e-14, and models that cast to float32 inside are not among those moved."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One audited model."""

    model: nn.Module
    inputs: Any
    tracked: TrackedParameters
    analysis: StaticAnalysis
    observe: Observe
    training: bool

    @property
    def dims(self) -> dict[str, tuple[int, int]]:
        """(redundant, absorbable) of every parameter that has any of either."""
        space = self.analysis.space
        both = {name: (len(space.redundant(name)), space.absorbable(name)) for name in self.tracked.names}
        return {name: each for name, each in both.items() if any(each)}


def spanned(tracked: TrackedParameters, basis: torch.Tensor) -> NullSpace:
    """The space of independent rows, float [dim, tracked.size], all of which form one component."""
    parts = {each.name: basis[:, each.offset : each.offset + each.size].double() for each in tracked.entries}
    moved = {name: each.T.contiguous() for name, each in parts.items() if each.any()}
    return NullSpace(tracked, {name: {0: dense(len(each), each)} for name, each in moved.items()})


def contains(space: NullSpace, delta: dict[str, torch.Tensor]) -> bool:
    """Test whether a change is a null vector: it is its own projection, up to rounding."""
    near = space.project(delta)
    away = [
        near.get(name, torch.zeros(())) - delta.get(name, torch.zeros(())).double()
        for name in near.keys() | delta.keys()
    ]
    whole = sum(float(each.double().square().sum()) for each in delta.values())
    return sum(float(each.square().sum()) for each in away) <= ROUNDING**2 * whole


def audited(
    model: nn.Module, inputs: Any, *, observe: Observe = "logits", training: bool = False, track: str = "bias"
) -> Case:
    """Track the parameters and analyse the model."""
    tracked = track_parameters(model, inputs, track=track)
    analysis = analyse(model, inputs, tracked=tracked, observe=observe, training=training)
    return Case(model=model, inputs=inputs, tracked=tracked, analysis=analysis, observe=observe, training=training)


def outputs(case: Case, model: nn.Module, inputs: Inputs, delta: Delta | None = None) -> torch.Tensor:
    """All observed numbers of a float64 model in one vector; batch statistics are not kept."""
    watched = Observed(model, case.observe)
    watched.train(case.training)
    replaced = {f"model.{name}": each.clone() for name, each in model.named_buffers()}
    replaced |= {f"model.{name}": new for name, new in case.tracked.moved(model, delta or {}).items()}
    with torch.no_grad(), torch.random.fork_rng([]):
        torch.manual_seed(0)  # the same dropout before and after a move
        outputs = torch.func.functional_call(watched, replaced, inputs.args, inputs.kwargs)
    return torch.cat([each.reshape(-1) for each in outputs])


def fresh(inputs: Any, seed: int) -> Inputs:
    """Other data of the same shapes: new floating-point tensors in float64, tokens in their own range, masks kept."""
    bound, generator = bind(inputs), torch.Generator().manual_seed(seed)

    def drawn(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return torch.randn(value.shape, generator=generator, dtype=torch.float64)
        if isinstance(value, torch.Tensor) and value.dtype == torch.int64 and value.unique().numel() > 2:
            return torch.randint(int(value.min()), int(value.max()) + 1, value.shape, generator=generator)
        return value

    return _each(bound, drawn)


def _each(inputs: Inputs, function: Callable[[Any], Any]) -> Inputs:
    """The inputs with a function applied to every argument."""
    return Inputs(
        args=tuple(map(function, inputs.args)), kwargs={name: function(value) for name, value in inputs.kwargs.items()}
    )


class RoundingChooses(Exception):
    """A model's discrete choice, such as the two largest of equal scores, falls one way or another with rounding alone."""


def change(case: Case, space: NullSpace, model: nn.Module, *, moves: int = 2, size: float = 1.0) -> float:
    """Largest relative change of the output over some random moves along a space, on fresh inputs.

    Raises RoundingChooses if a change could be rounding's: numbers moved in their last digits change the output as much.
    """
    model, worst = copy.deepcopy(model).double(), 0.0
    for seed in range(moves):
        inputs = fresh(case.inputs, seed)
        before = outputs(case, model, inputs)
        delta = {name: size * each for name, each in space.sample(torch.Generator().manual_seed(seed)).items()}
        moved = _relative(outputs(case, model, inputs, delta), before)
        if moved > ROUNDING and moved <= 10 * _change_by_rounding(case, model, inputs, before):
            raise RoundingChooses(f"input {seed}: the move changes the output by {moved:.1e}, and so does rounding")
        worst = max(worst, moved)
    return worst


def _relative(after: torch.Tensor, before: torch.Tensor) -> float:
    return float((after - before).abs().max() / before.abs().max().clamp_min(1e-3))


def _change_by_rounding(case: Case, model: nn.Module, inputs: Inputs, before: torch.Tensor) -> float:
    """Largest relative change of the output with the last digits of all parameters and inputs, over some draws.

    A relative step of 1e-13 stays some orders of magnitude below ROUNDING unless the output jumps. A tie falls the other way in
    about half of the draws.
    """
    generator, worst = torch.Generator().manual_seed(0), 0.0

    def nudged(value: Any) -> Any:
        if not (isinstance(value, torch.Tensor) and value.is_floating_point()):
            return value
        return value * (1 + 1e-13 * torch.randn(value.shape, generator=generator, dtype=value.dtype))

    for _ in range(8):
        near = copy.deepcopy(model)
        with torch.no_grad():
            for parameter in near.parameters():
                parameter.copy_(nudged(parameter))
        worst = max(worst, _relative(outputs(case, near, _each(inputs, nudged)), before))
    return worst


def hold(case: Case) -> None:
    """Neither the generic nor the given model changes along its null space."""
    assert change(case, case.analysis.space, generic(case.model)) <= ROUNDING
    assert change(case, case.analysis.own_null_space(), case.model) <= ROUNDING


def counted(case: Case, *, rounding: float = 1e-8) -> int:
    """Nullity of the output's Jacobian over all tracked coordinates at generic weights, on enough inputs together."""
    model = generic(case.model).double()
    if not case.tracked.size:
        return 0
    zero = torch.zeros(case.tracked.size, dtype=torch.float64)
    rows: list[torch.Tensor] = []
    # A random projection to as many numbers as there are coordinates keeps the rank. Too few rows could only count too many
    # directions, which no claim would equal.
    while len(rows) < 4 or sum(map(len, rows)) < 4 * case.tracked.size:
        response = _response(case, model, fresh(case.inputs, 100 + len(rows)), case.tracked.size + 4)
        rows.append(_jacobian(response, zero))
    matrix = torch.cat(rows)
    values = torch.linalg.svdvals(matrix)
    # Models have gains of order one. Where nothing has an effect, the combinations leave rounding errors alone.
    return case.tracked.size - int((values > rounding * values.max().clamp_min(1.0)).sum())


def _jacobian(response: Callable[[torch.Tensor], torch.Tensor], at: torch.Tensor) -> torch.Tensor:
    """The Jacobian, all rows in one backward pass where torch can batch it."""
    at = at.clone().requires_grad_(True)
    numbers = response(at)
    if not numbers.requires_grad:
        return torch.zeros(len(numbers), len(at), dtype=torch.float64)
    units = torch.eye(len(numbers), dtype=torch.float64)
    options: dict[str, Any] = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
    try:
        return torch.autograd.grad(numbers, at, units, is_grads_batched=True, **options)[0]
    # A warning is an error here: vmap warns of operations that it would run row by row.
    except (RuntimeError, UserWarning):
        return torch.stack([torch.autograd.grad(numbers, at, unit, **options)[0] for unit in units])


def _response(case: Case, model: nn.Module, inputs: Inputs, most: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """The output's numbers, or if there are more than `most`, so many random combinations of them, by a move."""
    watched = Observed(model, case.observe)
    watched.train(case.training)
    held = dict(model.named_parameters(remove_duplicate=False))
    buffers = {f"model.{name}": each.clone() for name, each in model.named_buffers()}

    def response(vector: torch.Tensor) -> torch.Tensor:
        replaced: dict[str, torch.Tensor] = dict(buffers)
        for name, part in case.tracked.split(vector).items():
            new = held[name].detach() + part
            replaced.update({f"model.{alias}": new for alias in case.tracked[name].aliases})
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            outputs = torch.func.functional_call(watched, replaced, inputs.args, inputs.kwargs)
        numbers = torch.cat([each.reshape(-1) for each in outputs])
        if len(numbers) <= most:
            return numbers
        weights = torch.randn(most, len(numbers), generator=torch.Generator().manual_seed(0), dtype=numbers.dtype)
        return weights @ numbers

    return response
