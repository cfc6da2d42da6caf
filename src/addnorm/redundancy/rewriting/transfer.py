"""The rewrite of a small model, carried over to a larger one of its class and certified there.

The small model's recipe (`recipe.py`) is followed in every layer of the large one with the large one's own weights. Nothing is
taken on trust: the certificate compares both large models. Beside the model there is only what changes: unchanged weights are
shared, and float64 is computed operation by operation (`widen.py`).
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.copies import PROCESS, call
from addnorm.redundancy.execution.disturbance import STEP
from addnorm.redundancy.execution.float64 import Lift
from addnorm.redundancy.execution.fresh_inputs import cast
from addnorm.redundancy.execution.generic_weights import generic
from addnorm.redundancy.execution.inputs import Inputs, bind
from addnorm.redundancy.execution.observation import Observe, observed
from addnorm.redundancy.execution.widening import Widen, WidenDisturbed
from addnorm.redundancy.finding import Finding
from addnorm.redundancy.rewriting.certificate import Certificate, Compared, allowed, largest
from addnorm.redundancy.rewriting.recipe import Layers, Place, Step, Term, recipe
from addnorm.redundancy.rewriting.removal import make_zeros, take_out
from addnorm.redundancy.rewriting.strip import strip
from addnorm.redundancy.subject import Subject

_SAFETY = 2**8


def carry(
    subject: Subject, findings: Sequence[Finding], model: nn.Module, inputs: object, *, max_amplification: float
) -> tuple[nn.Module, Certificate]:
    """See `Audit.carry`."""
    if subject.verdicts is None or subject.training:
        raise InputError(
            "a rewrite is carried over from an audit in evaluation mode that found a null space. Audit the small model "
            "so first."
        )
    if type(model) is not type(subject.model):
        raise InputError(
            f"a rewrite is carried over between models of one class; {type(subject.model).__qualname__} was audited and "
            f"{type(model).__qualname__} arrived."
        )
    with PROCESS:
        _, small = strip(subject, findings, prefer=(), max_amplification=max_amplification)
        found = recipe(generic(subject.model, torch.float64), subject.verdicts, tuple(findings))
        layers = Layers(subject.model, model)
        left = [f"{name}: {why}" for name, why in found.left.items()]
        values, removed, refused = _followed(found.steps, layers, model, max_amplification, left)
        zeroed = {layers.place(name).template for name in small.zeroed}
        gone = [name for name in removed if layers.place(name).template not in zeroed]
        zeros = [name for name in removed if layers.place(name).template in zeroed]
        aliases = _aliases(model)
        precise, made = (
            _sharing(model, values, [aliases[name] for name in gone], [aliases[name] for name in zeros], dtype)
            for dtype in (torch.float64, None)
        )
        compared, lengths, drawn = _compared(model, precise, made, bind(inputs), subject.observe)
    return made, Certificate(
        removed=tuple(gone),
        zeroed=tuple(zeros),
        changed=tuple(name for name in values if name not in removed),
        reduced=(),
        refused=tuple(refused),
        scalars=sum(values[name].numel() for name in removed),
        compared=compared,
        lengths=lengths,
        fresh=drawn,
        left=tuple(left),
    )


def _followed(
    steps: Sequence[Step], layers: Layers, model: nn.Module, most: float, left: list[str]
) -> tuple[dict[str, Tensor], list[str], list[str]]:
    """New values of what changes, in float64, and the names of what goes and of what would be amplified too much."""
    own = dict(model.named_parameters(remove_duplicate=False))
    values: dict[str, Tensor] = {}
    removed: list[str] = []
    refused: list[str] = []

    def now(name: str) -> Tensor:
        return values[name] if name in values else own[name].detach().to("cpu", torch.float64)

    for step, name, named in _instances(steps, layers):
        every = [name, *(named(each) for each in _names(step))]
        lacking = [each for each in every if each not in own]
        if lacking or name in removed or not set(every[1 : 1 + len(step.moves)]).isdisjoint(removed):
            left.append(f"{name}: the full model has no place for its step" + (f" ({lacking[0]})" if lacking else ""))
            continue
        value = now(name).reshape(-1)
        changes: dict[str, Tensor] = {}
        for into, terms in step.moves.items():
            change = torch.zeros(own[named(into)].numel(), dtype=torch.float64)
            for term in terms:
                change += _applied(term, value, [now(named(factor.name)) for factor in term.factors])
            changes[named(into)] = change.reshape(own[named(into)].shape)
        largest_change = max((float(each.abs().max()) for each in changes.values()), default=0.0)
        if largest_change > most * float(value.abs().max()):
            refused.append(name)
            continue
        for into, change in changes.items():
            values[into] = now(into) + change
        values[name] = torch.zeros_like(now(name))
        removed.append(name)
    return values, removed, refused


def _applied(term: Term, vector: Tensor, weights: Sequence[Tensor]) -> Tensor:
    for factor, weight in reversed(list(zip(term.factors, weights, strict=True))):
        vector = factor(weight, vector)
    return term.times * vector


def _names(step: Step) -> list[str]:
    return [*step.moves, *(factor.name for terms in step.moves.values() for term in terms for factor in term.factors)]


def _instances(steps: Sequence[Step], layers: Layers) -> Iterator[tuple[Step, str, Callable[[str], str]]]:
    """Every step in every layer of the full model: first steps first, and a step in all layers before the next one."""
    groups: dict[str, list[tuple[Place, Step]]] = {}
    for step in steps:
        place = layers.place(step.removed)
        groups.setdefault(place.template, []).append((place, step))
    for template, group in groups.items():
        by_layer = {place.layer: step for place, step in group}
        if None in by_layer:
            step = by_layer[None]
            yield step, template, Named(layers, None, None)
            continue
        small, full = layers.depths(template)
        for layer in range(full):
            origin = _origin(layer, small, full)
            if origin in by_layer:
                named = Named(layers, origin, layer)
                yield by_layer[origin], template.replace("#", str(layer)), named


def _origin(layer: int, small: int, full: int) -> int:
    """The small model's layer that stands for one of the full model's: the first and the last for themselves, the first inner
    one for the rest; of two layers the first for all but the last."""
    if layer == full - 1:
        return small - 1
    return 0 if layer == 0 or small < 3 else 1


class Named:
    """Names of the small model in one layer's step, as names of the full one."""

    def __init__(self, layers: Layers, origin: int | None, layer: int | None) -> None:
        self._layers, self._origin, self._layer = layers, origin, layer

    def __call__(self, name: str) -> str:
        place = self._layers.place(name)
        if place.layer is None:
            return name
        small, full = self._layers.depths(place.template)
        if self._origin is not None and self._layer is not None:
            layer = self._layer + place.layer - self._origin
        else:  # seen from outside of the layers: the first are counted from the start, the last from the end
            layer = place.layer if place.layer == 0 else full - (small - place.layer)
        return place.template.replace("#", str(layer))


def _aliases(model: nn.Module) -> dict[str, list[str]]:
    """All names of every parameter, by each of them."""
    held: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        held.setdefault(id(parameter), []).append(name)
    return {name: names for names in held.values() for name in names}


@torch.no_grad()
def _sharing(
    model: nn.Module,
    values: Mapping[str, Tensor],
    gone: Sequence[Sequence[str]],
    zeros: Sequence[Sequence[str]],
    dtype: torch.dtype | None,
) -> nn.Module:
    """A model with some parameters set, in `dtype` or their own, that shares all others with the one given."""
    shared: dict[int, object] = {id(each): each for each in model.parameters()}
    made = copy.deepcopy(model, shared)
    aliases = _aliases(model)
    own = dict(model.named_parameters(remove_duplicate=False))
    for name, value in values.items():
        held = own[name]
        changed = nn.Parameter(value.to(held.device, dtype or held.dtype), requires_grad=held.requires_grad)
        for alias in aliases[name]:
            path, _, leaf = alias.rpartition(".")
            made.get_submodule(path)._parameters[leaf] = changed
    for names in gone:
        take_out(made, names)
    for names in zeros:
        make_zeros(made, names)
    return made.eval()


def _compared(
    model: nn.Module, precise: nn.Module, made: nn.Module, inputs: Inputs, observe: Observe
) -> tuple[tuple[Compared, ...], tuple[int, ...], int]:
    """Both models in float64 and in the model's own precision, on fresh inputs and other lengths, in evaluation mode."""
    original = _sharing(model, {}, (), (), None)
    with Widen():
        cases = Cases.of(original, inputs, observe)
    drawn = [each.example for each in cases.kinds]
    if cases.fresh:
        drawn += [each.fresh(seed) for each in cases.kinds for seed in (101, 102)]
    exact = _outputs(original, drawn, observe, Widen())
    seen = [_outputs(original, drawn[:1], observe, WidenDisturbed(seed)) for seed in (0, 1, 2)]
    condition = max(1.0, *(largest(each, exact[:1]) / STEP for each in seen))
    bound = _SAFETY * condition * torch.finfo(torch.float64).eps
    rewritten = _outputs(precise, drawn, observe, Widen())
    rows = [
        Compared(mode="eval", dtype="float64", difference=largest(rewritten, exact), rounding=bound, bound=bound),
    ]
    dtype = next(each.dtype for each in model.parameters() if each.is_floating_point())
    if dtype != torch.float64:
        lower = [cast(each, dtype) for each in drawn]
        before = _outputs(original, lower, observe, None)
        own = largest(before, exact)
        rows.append(
            Compared(
                mode="eval",
                dtype=str(dtype).removeprefix("torch."),
                difference=largest(_outputs(made, lower, observe, None), before),
                rounding=own,
                bound=allowed(own, condition, dtype),
            )
        )
    return tuple(rows), cases.lengths, len(drawn)


@torch.no_grad()
def _outputs(model: nn.Module, drawn: Sequence[Inputs], observe: Observe, under: Lift | None) -> list[Tensor]:
    found = []
    for inputs in drawn:
        if under is None:
            output = call(model, inputs)
        else:
            with under:
                output = call(model, inputs)
        found.append(torch.cat([tensor.double().flatten() for tensor in observed(output, observe)]))
    return found
