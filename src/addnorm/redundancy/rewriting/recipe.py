"""Recipe: a rewrite expressed by names and products of weights, without numbers, so that it also applies to a larger
model.

    attention.value.bias of layer i  ->  0,   attention.output.bias of layer i  +=  attention.output.weight @ it

The removal plan at generic weights of the small model gives the removed parameters and the changes of the others. Each
change is expressed as a short sum of products of the model's weights with the removed vector. Layer numbers are
relative to the removed parameter's layer, so that the step applies to every layer; outside of the layers they count
from the first or the last. A change without such an expression (the solution of a system of equations, a basis that
depends on the size) is listed with its reason.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn

from addnorm.redundancy.graph.null_space import NullSpace
from addnorm.redundancy.rewriting.folds import AMPLIFIED
from addnorm.redundancy.rewriting.removal_plan import plan_removals
from addnorm.redundancy.verdict.finding import Finding

_SAME = 1e-8
_WHOLE = 1e-6


@dataclass(frozen=True, kw_only=True)
class LayerName:
    """A parameter's name, separated from the number of its layer."""

    template: str
    """The name with `#` in place of the layer's number."""
    layer: int | None
    """Number of the layer; None outside of layers."""


@dataclass(frozen=True, kw_only=True)
class Factor:
    """One weight of a product."""

    name: str
    kind: str
    """`matrix`, `transposed` or `diagonal`."""

    def __call__(self, weight: Tensor, vector: Tensor) -> Tensor:
        """Multiply a vector."""
        match self.kind:
            case "diagonal":
                return weight * vector
            case "transposed":
                return weight.T @ vector
            case _:
                return weight @ vector


@dataclass(frozen=True, kw_only=True)
class WeightProduct:
    """`times` a product of weights, the last one applied first, with the removed vector."""

    times: float
    factors: tuple[Factor, ...]


@dataclass(frozen=True, kw_only=True)
class FoldStep:
    """Removal of one parameter, and the changes of the others."""

    removed: str
    moves: Mapping[str, tuple[WeightProduct, ...]]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Steps in their order, and the reasons why some removable parameters of the small model have none."""

    steps: tuple[FoldStep, ...]
    left: Mapping[str, str]


class LayerNames:
    """Recognises layer numbers in names: those of which a smaller model of the class has fewer."""

    def __init__(self, small: nn.Module, full: nn.Module) -> None:
        counts = [_counts(model) for model in (small, full)]
        self._stacks = {prefix for prefix in counts[1] if counts[0].get(prefix) != counts[1][prefix]}
        self.small, self.full = ({prefix: each.get(prefix, 0) for prefix in self._stacks} for each in counts)

    def place(self, name: str) -> LayerName:
        """Separate the layer's number from a name."""
        parts = name.split(".")
        for at, part in enumerate(parts):
            if part.isdigit() and ".".join(parts[:at]) in self._stacks:
                return LayerName(template=".".join([*parts[:at], "#", *parts[at + 1 :]]), layer=int(part))
        return LayerName(template=name, layer=None)

    def depths(self, template: str) -> tuple[int, int]:
        """Return the number of layers of the small and of the full model at the `#` of a template."""
        prefix = template.partition(".#")[0]
        return self.small[prefix], self.full[prefix]


def _counts(model: nn.Module) -> dict[str, int]:
    """Number of numbered children of every module."""
    counts = {}
    for name, module in model.named_modules():
        numbered = [child for child, _ in module.named_children() if child.isdigit()]
        if numbered:
            counts[name] = len(numbered)
    return counts


def recipe(model: nn.Module, space: NullSpace, findings: tuple[Finding, ...]) -> Recipe:
    """Express a model's rewrite by products of weights.

    Args:
        model: the model with generic weights.
        space: the null space at these.
        findings: the verdicts.
    """
    # At generic weights: with the model's own, a coincidence (equal norms, a zero) could pass for a product of weights,
    # and would be wrong in another layer.
    plan = plan_removals(model, space, findings, prefer=(), max_amplification=AMPLIFIED)
    weights = {name: value.detach().double() for name, value in model.named_parameters()}
    values = {entry.name: weights[entry.name].clone() for entry in space.tracked.entries}
    steps: list[FoldStep] = []
    left: dict[str, str] = {}
    for name, moved in plan.folded.items():
        removed = values[name].reshape(-1)
        moves: dict[str, tuple[WeightProduct, ...]] = {}
        for into, change in moved.items():
            # Few candidates: among the weights of all layers, of equal shapes, many products would be tried.
            near = [each for each in weights if _near(each, name, into)]
            terms = _explained(
                {each: weights[each] for each in near}, removed, change.reshape(-1), space.redundant(into)
            )
            if terms is None:
                left[name] = (
                    f"the change of {into} that absorbs it solves equations of the small model's own size, and no product of "
                    "weights gives it"
                )
                break
            moves[into] = terms
        else:
            steps.append(FoldStep(removed=name, moves=moves))
        # The next step starts from what this one leaves: a bias that absorbed a sum passes the sum on.
        values[name] = torch.zeros_like(values[name])
        for into, change in moved.items():
            values[into] = values[into] + change
    for name in plan.reduced:
        left[name] = "only some of its directions are redundant, and they depend on its size"
    return Recipe(steps=tuple(steps), left=left)


def _near(weight: str, removed: str, into: str) -> bool:
    """True if a weight belongs to the layer of one of two parameters, or to no layer."""
    layers = {_layer(removed), _layer(into)}
    return _layer(weight) in layers | {""}


def _layer(name: str) -> str:
    match = re.match(r"(.*?\.\d+)\.", name)
    return match.group(1) if match else ""


def _explained(
    weights: Mapping[str, Tensor], removed: Tensor, change: Tensor, free: Tensor
) -> tuple[WeightProduct, ...] | None:
    """The shortest sum of products that gives a change, up to redundant directions of the changed parameter (rows of
    `free`)."""

    def effective(vector: Tensor) -> Tensor:
        return vector - free.T @ (free @ vector)

    target = effective(change)
    height = len(change)
    one = [((factor,), image) for factor, image in _images(weights, removed) if len(image) == height]
    same = [((), removed)] if len(removed) == height else []
    two = [
        ((second, first), last)
        for first, image in _images(weights, removed)
        if first.kind != "diagonal"
        for second, last in _images(weights, image)
        if len(last) == height and second.name != first.name
    ]
    # Short expressions first. A change is the sum of at most two products here; longer ones exist on paper, and are
    # listed as left.
    single = [*same, *one, *two]
    for chosen in [*((each,) for each in single), *product(same, one), *product(same, two)]:
        system = torch.stack([effective(image) for _, image in chosen], dim=1)
        times = torch.linalg.lstsq(system, target[:, None], driver="gelsd").solution[:, 0]
        if float(torch.linalg.vector_norm(system @ times - target)) <= _SAME * float(torch.linalg.vector_norm(target)):
            return tuple(
                WeightProduct(times=_rounded(float(each)), factors=factors)
                for each, (factors, _) in zip(times, chosen, strict=True)
            )
    return None


def _images(weights: Mapping[str, Tensor], vector: Tensor) -> Iterator[tuple[Factor, Tensor]]:
    for name, weight in weights.items():
        if weight.dim() == 1 and len(weight) == len(vector) and not name.endswith("bias"):
            yield Factor(name=name, kind="diagonal"), weight * vector
        if weight.dim() == 2 and weight.shape[1] == len(vector):
            yield Factor(name=name, kind="matrix"), weight @ vector
        if weight.dim() == 2 and weight.shape[0] == len(vector):
            yield Factor(name=name, kind="transposed"), weight.T @ vector


def _rounded(number: float) -> float:
    return float(round(number)) if abs(number - round(number)) <= _WHOLE else number
