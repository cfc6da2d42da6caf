"""Transfer of a small model's rewrite to a larger model of the same class, certified there.

The small model's recipe (`recipe.py`) is evaluated in every layer of the larger model with that model's weights. Its
validity is not assumed: the certificate compares both large models. Only changed weights take additional memory:
unchanged ones are shared, and float64 is computed operation by operation (`float64.WideningMode`).
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.copies import PROCESS_LOCK, copy_of
from addnorm.redundancy.execution.float64 import PerturbedWideningMode, WideningMode
from addnorm.redundancy.execution.fresh_inputs import cast
from addnorm.redundancy.execution.generic_weights import generic
from addnorm.redundancy.execution.inputs import Inputs, bind
from addnorm.redundancy.execution.observation import Observe
from addnorm.redundancy.execution.perturbation import STEP
from addnorm.redundancy.numeric.probe import SAFETY, Probe
from addnorm.redundancy.rewriting.audited_model import AuditedModel
from addnorm.redundancy.rewriting.certificate import (
    Certificate,
    Compared,
    compared,
    error_bound,
    inputs_to_compare,
)
from addnorm.redundancy.rewriting.float32_biases import keep_in_float32, store_in_float32
from addnorm.redundancy.rewriting.output_difference import flat_outputs, floats_changed
from addnorm.redundancy.rewriting.recipe import FoldStep, LayerName, LayerNames, WeightProduct, recipe
from addnorm.redundancy.rewriting.removal import remove, set_to_none, set_to_zeros
from addnorm.redundancy.rewriting.rewritten_model import Rewrite
from addnorm.redundancy.rewriting.storage_rounding import DRAWS, half_precision, rounded_at_random
from addnorm.redundancy.verdict.finding import Finding


def transfer(
    subject: AuditedModel,
    findings: Sequence[Finding],
    model: nn.Module,
    inputs: object,
    *,
    max_amplification: float,
    keep_float32_biases: bool,
) -> tuple[nn.Module, Certificate]:
    """Express the small model's folds as products of weights, evaluate them in `model`, and certify the result; see
    `Audit.transfer`."""
    subject.check_unchanged()
    if subject.generic_null_space is None or subject.training:
        raise InputError(
            "expected an audit in evaluation mode that computed a null space, got one in training mode or without a null "
            "space. Audit the small model in evaluation mode first."
        )
    if type(model) is not type(subject.model):
        raise InputError(
            f"expected a model of the audited class {type(subject.model).__qualname__}, got {type(model).__qualname__}."
        )
    with PROCESS_LOCK:
        # Nothing of the small model's numbers goes over, only names and products: the certificate below is the proof
        # for the large one.
        steps = recipe(generic(subject.model, torch.float64), subject.generic_null_space, tuple(findings))
        layers = LayerNames(subject.model, model)
        left = [f"{name}: {why}" for name, why in steps.left.items()]
        values, removed, refused = _evaluated(steps.steps, layers, model, max_amplification, left)
        # Tried on the small model: whether a class runs without a bias does not depend on its size.
        needing_numbers = _templates_needing_numbers(subject, [step.removed for step in steps.steps], layers)
        zeroed = [name for name in removed if layers.place(name).template in needing_numbers]
        absent = [name for name in removed if name not in zeroed]
        aliases = _aliases(model)
        absorbing = {name: value for name, value in values.items() if name not in removed}
        kept = _kept_in_float32(subject, model, absorbing, layers) if keep_float32_biases else []
        edit = _Edit(values=values, absent=[aliases[name] for name in absent], zeros=[aliases[name] for name in zeroed])
        rewritten = _sharing(model, edit, None)
        for name in kept:
            store_in_float32(rewritten, aliases[name], values[name])
        rows, lengths, drawn = _compared(
            model, edit, rewritten, absorbing, bind(inputs), subject.observe, _roundoff(subject)
        )
    return rewritten, Certificate(
        removed=tuple(absent),
        zeroed=tuple(zeroed),
        changed=tuple(name for name in values if name not in removed),
        reduced=(),
        refused=tuple(refused),
        scalars=sum(values[name].numel() for name in removed),
        compared=rows,
        lengths=lengths,
        fresh=drawn,
        left=tuple(left),
        float32=tuple(kept),
    )


def _templates_needing_numbers(subject: AuditedModel, removed: Sequence[str], layers: LayerNames) -> set[str]:
    """Names, without their layer, of the removed parameters that their class cannot do without."""
    aliases = {entry.name: entry.aliases for entry in subject.tracked.entries}
    zeros = {name: torch.zeros(subject.tracked[name].shape, dtype=torch.float64) for name in removed}
    exact = Rewrite(original=subject.model, values=zeros).exact()
    _, zeroed = remove(exact, removed, aliases, subject.inputs)
    return {layers.place(name).template for name in zeroed}


def _evaluated(
    steps: Sequence[FoldStep], layers: LayerNames, model: nn.Module, most: float, left: list[str]
) -> tuple[dict[str, Tensor], list[str], list[str]]:
    """New float64 values of the parameters that change, and the names of those removed and of those refused because the
    absorbing parameters would grow too large. Appends to `left` the parameters whose step does not apply to the
    model."""
    original = dict(model.named_parameters(remove_duplicate=False))
    values: dict[str, Tensor] = {}
    removed: list[str] = []
    refused: list[str] = []

    def current(name: str) -> Tensor:
        return values[name] if name in values else original[name].detach().to("cpu", torch.float64)

    for step, name, named in _instances(steps, layers):
        every = [name, *(named(each) for each in _names(step))]
        # A parameter that was removed may not absorb: earlier steps run in all layers first, and would be undone here.
        lacking = [each for each in every if each not in original]
        if lacking or name in removed or not set(every[1 : 1 + len(step.moves)]).isdisjoint(removed):
            left.append(f"{name}: its step does not apply to the full model" + (f" ({lacking[0]})" if lacking else ""))
            continue
        value = current(name).reshape(-1)
        changes: dict[str, Tensor] = {}
        for into, products in step.moves.items():
            change = torch.zeros(original[named(into)].numel(), dtype=torch.float64)
            for product in products:
                change += _applied(product, value, [current(named(factor.name)) for factor in product.factors])
            changes[named(into)] = change.reshape(original[named(into)].shape)
        largest_change = max((float(each.abs().max()) for each in changes.values()), default=0.0)
        # Amplification depends on the weights, so it is judged in the large model, layer by layer.
        if largest_change > most * float(value.abs().max()):
            refused.append(name)
            continue
        for into, change in changes.items():
            values[into] = current(into) + change
        values[name] = torch.zeros_like(current(name))
        removed.append(name)
    return values, removed, refused


def _applied(product: WeightProduct, vector: Tensor, weights: Sequence[Tensor]) -> Tensor:
    for factor, weight in reversed(list(zip(product.factors, weights, strict=True))):
        vector = factor(weight, vector)
    return product.times * vector


def _names(step: FoldStep) -> list[str]:
    factors = (factor.name for products in step.moves.values() for product in products for factor in product.factors)
    return [*step.moves, *factors]


def _instances(steps: Sequence[FoldStep], layers: LayerNames) -> Iterator[tuple[FoldStep, str, Callable[[str], str]]]:
    """Every step in every layer of the full model, one step in all layers before the next one."""
    groups: dict[str, list[tuple[LayerName, FoldStep]]] = {}
    for step in steps:
        place = layers.place(step.removed)
        groups.setdefault(place.template, []).append((place, step))
    for template, group in groups.items():
        # One step in all layers before the next: a later one reads what earlier ones have added in the neighbouring
        # layers.
        by_layer = {place.layer: step for place, step in group}
        if None in by_layer:
            step = by_layer[None]
            yield step, template, _FullNames(layers, None, None)
            continue
        small, full = layers.depths(template)
        for layer in range(full):
            origin = _origin(layer, small, full)
            if origin in by_layer:
                named = _FullNames(layers, origin, layer)
                yield by_layer[origin], template.replace("#", str(layer)), named


def _origin(layer: int, small: int, full: int) -> int:
    """The small model's layer that corresponds to one of the full model's: the first and the last to themselves, the
    first inner one to the others. In a model of two layers the first corresponds to all but the last."""
    if layer == full - 1:
        return small - 1
    return 0 if layer == 0 or small < 3 else 1


class _FullNames:
    """Names of the small model, in the step of one layer, as names of the full model."""

    def __init__(self, layers: LayerNames, origin: int | None, layer: int | None) -> None:
        self._layers, self._origin, self._layer = layers, origin, layer

    def __call__(self, name: str) -> str:
        place = self._layers.place(name)
        if place.layer is None:
            return name
        small, full = self._layers.depths(place.template)
        if self._origin is not None and self._layer is not None:
            # Relative: a fold into the next layer goes to the next layer.
            layer = self._layer + place.layer - self._origin
        else:  # outside of the layers, the first is counted from the start and the others from the end
            layer = place.layer if place.layer == 0 else full - (small - place.layer)
        return place.template.replace("#", str(layer))


def _aliases(model: nn.Module) -> dict[str, list[str]]:
    """All names of every parameter, by each of them."""
    by_identity: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        by_identity.setdefault(id(parameter), []).append(name)
    return {name: names for names in by_identity.values() for name in names}


@dataclass(frozen=True, kw_only=True)
class _Edit:
    """Changes of the full model's parameters."""

    values: Mapping[str, Tensor] = field(default_factory=dict)
    absent: Sequence[Sequence[str]] = ()
    zeros: Sequence[Sequence[str]] = ()


@torch.no_grad()
def _sharing(model: nn.Module, edit: _Edit, dtype: torch.dtype | None) -> nn.Module:
    """A model with some parameters set, in `dtype` or their own, that shares all others with the given model."""
    # deepcopy takes what its memo holds as copied already, so unchanged weights are the same tensors.
    shared: dict[int, object] = {id(each): each for each in model.parameters()}
    made = copy.deepcopy(model, shared)
    aliases = _aliases(model)
    original = dict(model.named_parameters(remove_duplicate=False))
    for name, value in edit.values.items():
        before = original[name]
        changed = nn.Parameter(value.to(before.device, dtype or before.dtype), requires_grad=before.requires_grad)
        for alias in aliases[name]:
            path, _, leaf = alias.rpartition(".")
            made.get_submodule(path)._parameters[leaf] = changed
    for names in edit.absent:
        set_to_none(made, names)
    for names in edit.zeros:
        set_to_zeros(made, names)
    return made.eval()


def _kept_in_float32(
    subject: AuditedModel, model: nn.Module, absorbing: Mapping[str, Tensor], layers: LayerNames
) -> list[str]:
    """Names of the absorbing parameters that can be stored in float32, which the small model shows in the full model's
    format."""
    storage = half_precision(model)
    if storage is None:
        return []
    small = copy_of(subject.model, storage)
    templates = {layers.place(name).template for name in absorbing}
    tried = {
        name: value.detach().double()
        for name, value in small.named_parameters()
        if layers.place(name).template in templates
    }
    kept = {layers.place(name).template for name in keep_in_float32(small, tried, subject.inputs)}
    return [name for name in absorbing if layers.place(name).template in kept]


def _roundoff(subject: AuditedModel) -> float:
    """Unit roundoff of what the small model computes in where float64 is asked for: gradients of the large one may not fit."""
    probe = Probe(copy_of(subject.model, torch.float64).eval(), subject.tracked, subject.observe)
    probe.condition([(0, subject.inputs)])
    return probe.eps


def _compared(
    model: nn.Module,
    edit: _Edit,
    rewritten: nn.Module,
    absorbing: Mapping[str, Tensor],
    inputs: Inputs,
    observe: Observe,
    eps: float,
) -> tuple[tuple[Compared, ...], tuple[int, ...], int]:
    """Comparisons in float64, before and after rounding for storage, and in the model's own precision, on fresh inputs
    and other lengths, in evaluation mode; `eps` is float64's, or that of a lower precision which the class computes in."""
    original = _sharing(model, _Edit(), None)
    with WideningMode():
        cases = Cases.of(original, inputs, observe)
    drawn = inputs_to_compare(cases)
    exact = flat_outputs(original, drawn, observe, WideningMode())
    # The condition number without a float64 copy: each operation perturbs the weights that it reads.
    perturbed = [flat_outputs(original, drawn[:1], observe, PerturbedWideningMode(seed)) for seed in (0, 1, 2)]
    condition = max(1.0, *(floats_changed(each, exact[:1]) / STEP for each in perturbed))
    bound = SAFETY * condition * eps
    planned = flat_outputs(_sharing(model, edit, torch.float64), drawn, observe, WideningMode())
    rows = [compared(planned, exact, torch.float64, bound, bound)]
    dtype = next(each.dtype for each in model.parameters() if each.is_floating_point())
    storage = half_precision(model)
    by_storage = 0.0
    if storage is not None:
        stored = dict(rewritten.named_parameters(remove_duplicate=False))
        for seed in range(DRAWS):
            generator = torch.Generator().manual_seed(seed)
            moved = {name: rounded_at_random(value, stored[name].dtype, generator) for name, value in absorbing.items()}
            made = _sharing(model, replace(edit, values={**edit.values, **moved}), torch.float64)
            by_storage = max(
                by_storage, floats_changed(flat_outputs(made, drawn[:1], observe, WideningMode()), planned[:1])
            )
        outputs = flat_outputs(rewritten, drawn, observe, WideningMode())
        rows.append(compared(outputs, exact, torch.float64, by_storage, bound + by_storage, stored=storage))
    if dtype != torch.float64:
        lower = [cast(each, dtype) for each in drawn]
        before = flat_outputs(original, lower, observe, None)
        rounding = floats_changed(before, exact)
        bound = error_bound(rounding, condition, dtype) + by_storage
        rows.append(compared(flat_outputs(rewritten, lower, observe, None), before, dtype, rounding, bound))
    return tuple(rows), cases.lengths, len(drawn)
