"""A rewrite of one model in terms that also hold for a larger one of its class: names and products of weights, no numbers.

    attention.value.bias of layer i  ->  0,   attention.output.bias of layer i  +=  attention.output.weight @ it

A plan for generic weights of the small model says which parameters go and what the others change by; here each change is
explained as a short sum of products of the model's own weights with what was removed. Layers are counted from the parameter's
own one, so that the step can be taken in every layer; outside of layers, from the first or the last. What no such sum explains
(a system of equations, a basis of its own size) is left out, and said.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn

from addnorm.redundancy.finding import Finding
from addnorm.redundancy.graph.joint_space import Space
from addnorm.redundancy.rewriting.folds import AMPLIFIED
from addnorm.redundancy.rewriting.plan import plan

_SAME = 1e-8
_WHOLE = 1e-6


@dataclass(frozen=True, kw_only=True)
class Place:
    """A parameter's name with its layer taken out."""

    template: str
    """With `#` for the layer's number."""
    layer: int | None
    """Where it is none of a layer, None."""


@dataclass(frozen=True, kw_only=True)
class Factor:
    """One weight of a product."""

    name: str
    kind: str
    """`matrix`, `transposed` or `diagonal`."""

    def __call__(self, weight: Tensor, vector: Tensor) -> Tensor:
        """The product with a vector."""
        match self.kind:
            case "diagonal":
                return weight * vector
            case "transposed":
                return weight.T @ vector
            case _:
                return weight @ vector


@dataclass(frozen=True, kw_only=True)
class Term:
    """`times` the product of some weights, the last one applied first, with what was removed."""

    times: float
    factors: tuple[Factor, ...]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One parameter goes, and what others change by."""

    removed: str
    moves: Mapping[str, tuple[Term, ...]]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Steps in their order, and why some parameters that could go in the small model have none."""

    steps: tuple[Step, ...]
    left: Mapping[str, str]


class Layers:
    """Which numbers in names count layers: those that a smaller model of the class has fewer of."""

    def __init__(self, small: nn.Module, full: nn.Module) -> None:
        counts = [_counts(model) for model in (small, full)]
        self._stacks = {prefix for prefix in counts[1] if counts[0].get(prefix) != counts[1][prefix]}
        self.small, self.full = ({prefix: each.get(prefix, 0) for prefix in self._stacks} for each in counts)

    def place(self, name: str) -> Place:
        """Take the layer's number out of a name."""
        parts = name.split(".")
        for at, part in enumerate(parts):
            if part.isdigit() and ".".join(parts[:at]) in self._stacks:
                return Place(template=".".join([*parts[:at], "#", *parts[at + 1 :]]), layer=int(part))
        return Place(template=name, layer=None)

    def depths(self, template: str) -> tuple[int, int]:
        """How many layers the small and the full model have where a template has `#`."""
        prefix = template.partition(".#")[0]
        return self.small[prefix], self.full[prefix]


def _counts(model: nn.Module) -> dict[str, int]:
    """Numbered children of every module."""
    found = {}
    for name, module in model.named_modules():
        numbered = [child for child, _ in module.named_children() if child.isdigit()]
        if numbered:
            found[name] = len(numbered)
    return found


def recipe(model: nn.Module, space: Space, findings: tuple[Finding, ...]) -> Recipe:
    """Explain what a model's rewrite does.

    Args:
        model: with generic weights.
        space: the null space at these.
        findings: the verdicts.
    """
    planned = plan(model, space, findings, prefer=(), max_amplification=AMPLIFIED)
    weights = {name: value.detach().double() for name, value in model.named_parameters()}
    values = {entry.name: weights[entry.name].clone() for entry in space.tracked.entries}
    steps: list[Step] = []
    left: dict[str, str] = {}
    for name, moved in planned.folded.items():
        removed = values[name].reshape(-1)
        moves: dict[str, tuple[Term, ...]] = {}
        for into, change in moved.items():
            near = [each for each in weights if _near(each, name, into)]
            terms = _explained(
                {each: weights[each] for each in near}, removed, change.reshape(-1), space.redundant(into)
            )
            if terms is None:
                left[name] = (
                    f"what {into} takes over of it solves equations of the small model's own size, and no product of weights "
                    "gives it"
                )
                break
            moves[into] = terms
        else:
            steps.append(Step(removed=name, moves=moves))
        values[name] = torch.zeros_like(values[name])
        for into, change in moved.items():
            values[into] = values[into] + change
    for name in planned.reduced:
        left[name] = "only some of its directions are redundant, and which these are depends on its size"
    return Recipe(steps=tuple(steps), left=left)


def _near(weight: str, removed: str, into: str) -> bool:
    """Whether a weight belongs to the layer of one of two parameters, or to no layer."""
    layers = {_layer(removed), _layer(into)}
    return _layer(weight) in layers | {""}


def _layer(name: str) -> str:
    found = re.match(r"(.*?\.\d+)\.", name)
    return found.group(1) if found else ""


def _explained(weights: Mapping[str, Tensor], removed: Tensor, change: Tensor, free: Tensor) -> tuple[Term, ...] | None:
    """The shortest sum of products that gives a change, up to redundant directions of what changes (rows of `free`)."""

    def shown(vector: Tensor) -> Tensor:
        return vector - free.T @ (free @ vector)

    target = shown(change)
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
    single = [*same, *one, *two]
    for chosen in [*((each,) for each in single), *product(same, one), *product(same, two)]:
        system = torch.stack([shown(image) for _, image in chosen], dim=1)
        found = torch.linalg.lstsq(system, target[:, None], driver="gelsd").solution[:, 0]
        if float(torch.linalg.vector_norm(system @ found - target)) <= _SAME * float(torch.linalg.vector_norm(target)):
            return tuple(
                Term(times=_whole(float(times)), factors=factors)
                for times, (factors, _) in zip(found, chosen, strict=True)
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


def _whole(number: float) -> float:
    return float(round(number)) if abs(number - round(number)) <= _WHOLE else number
