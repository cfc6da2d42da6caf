"""Additive freedom at any size: means that layer norms remove, constants that move on, what readers of a norm never see.

    means       parts along 1 that every reader removes are zero: of matrices, biases and tables that write
    constants   in the order of the graph, each constant that later parameters can take over is zero: shifts of norms, biases,
                means of tables
    null forms  matrices that read a norm's result v·z + k = 0 have no part along v
    readout     a shift that readers without a bias must keep is the shortest one, and their part along v is orthogonal to
                what they read otherwise, with equal lengths of both factors

What is zero leaves nothing to choose, and what took it over comes later, so that the representative is unique; it commutes
with changes of basis (`derivation.md`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, fx

from addnorm.symmetry.bases.absorption import Absorption, Moves
from addnorm.symmetry.bases.change import Weights
from addnorm.symmetry.families import SHIFT, STREAM_MEAN

_ROUNDING = 1e-10
"""Part of a readout's constants that counts as rounding: products of lengths of some thousand numbers, solved once."""
_SPREAD = 0.3
"""Standard deviation of random moves."""


@dataclass(frozen=True)
class FreeMean:
    """A parameter that writes where every reader removes what is equal in all channels."""

    parameter: str
    axis: int
    """Axis of the channels."""


@dataclass(frozen=True)
class MovableConstant:
    """A constant that later parameters can take over."""

    node: fx.Node
    parameter: str
    family: str
    index: Tensor
    """Its channels."""
    size: int
    """Number of directions beside those of the means."""


@dataclass(frozen=True)
class NormResult:
    """The result of a layer norm, behind its gain and shift: v·z + k = 0."""

    norm: fx.Node
    gains: tuple[str, ...] = ()
    shifts: tuple[str, ...] = ()
    gains_before: tuple[int, ...] = ()
    """Number of gains before each shift."""

    def form(self, weights: Weights, size: int) -> tuple[Tensor, Tensor] | None:
        """v and k; None where a gain has a zero."""
        form, constant = torch.ones(size, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        for at in range(len(self.gains) + 1):
            for shift, before in zip(self.shifts, self.gains_before, strict=True):
                if before == at:
                    constant = constant - form @ weights[shift].expand(size)
            if at < len(self.gains):
                gain = weights[self.gains[at]].expand(size)
                if not bool((gain != 0).all()):
                    return None
                form = form / gain
        return form, constant


@dataclass(frozen=True)
class NormReader:
    """A matrix that reads a norm's result."""

    node: fx.Node
    normed: NormResult
    size: int


@dataclass(frozen=True)
class UnbiasedReadout:
    """A norm's shift that some of its readers, which have no bias, must keep."""

    node: fx.Node
    normed: NormResult
    shift: str
    unbiased: tuple[fx.Node, ...]
    biased: tuple[fx.Node, ...]


@dataclass
class Additive:
    """The additive freedom of a graph."""

    graph: Absorption
    means: list[FreeMean] = field(default_factory=list)
    steps: list[MovableConstant | NormReader | UnbiasedReadout] = field(default_factory=list)
    stays: dict[str, list[str]] = field(default_factory=dict)
    """Parameters with a freedom of a family that is not used, by family."""

    def sizes(self) -> dict[str, int]:
        """The number of directions, by family."""
        made: dict[str, int] = {}
        shape = {name: self.graph.shape(node) for node, name in self.graph.parameters.items()}
        for mean in self.means:
            numbers = torch.Size(shape[mean.parameter]).numel() // shape[mean.parameter][mean.axis]
            made[STREAM_MEAN.name] = made.get(STREAM_MEAN.name, 0) + numbers
        for step in self.steps:
            match step:
                case MovableConstant():
                    family, size = step.family, step.size
                case NormReader():
                    family, size = STREAM_MEAN.name, step.size
                case UnbiasedReadout():
                    family, size = SHIFT.name, self.graph.shape(step.node)[-1]
            made[family] = made.get(family, 0) + size
        return {name: size for name, size in made.items() if size}

    def staying(self) -> dict[str, tuple[str, ...]]:
        """Parameters whose freedom is not used, by family."""
        return {family: tuple(names) for family, names in self.stays.items() if names}

    def settle(self, weights: Weights) -> None:
        """Change weights into their representative, in place. Gains are one, where they can be."""
        self._centre(weights)
        for step in self.steps:
            match step:
                case MovableConstant():
                    self._set(step, torch.zeros(len(step.index), dtype=torch.float64), weights)
                case NormReader():
                    self._set_part(step, None, weights)
                case UnbiasedReadout():
                    self._balance(step, weights)
        # What took a constant over along 1 can lose it.
        self._centre(weights)

    def move_at_random(self, weights: Weights, generator: torch.Generator) -> None:
        """Move along every direction, in place."""

        def normal(*shape: int) -> Tensor:
            return _SPREAD * torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.settle(weights)
        for step in self.steps:
            if isinstance(step, NormReader):
                self._set_part(step, normal(self.graph.shape(step.node)[-1]), weights)
        for step in self.steps:
            if isinstance(step, MovableConstant):
                self._set(step, normal(len(step.index)), weights)
            elif isinstance(step, UnbiasedReadout):
                self._balance(step, weights, normal)
        for mean in self.means:
            moved = weights[mean.parameter].movedim(mean.axis, -1)
            moved += normal(*moved.shape[:-1], 1)

    def _centre(self, weights: Weights) -> None:
        for mean in self.means:
            moved = weights[mean.parameter].movedim(mean.axis, -1)
            moved -= moved.mean(-1, keepdim=True)

    def _set(self, step: MovableConstant, wanted: Tensor, weights: Weights) -> None:
        """Give a constant another value, and what takes it over the difference."""
        held = weights[step.parameter]
        lost = torch.zeros(held.shape[-1], dtype=torch.float64)
        lost[step.index] = (
            held.reshape(-1, held.shape[-1]).mean(0)[step.index] if held.dim() > 1 else held[step.index]
        ) - wanted
        _apply(self.graph.restored(step.node, lost, weights), weights)
        if held.dim() > 1:
            held -= lost
        else:
            held[step.index] = wanted

    def _set_part(self, step: NormReader, wanted: Tensor | None, weights: Weights) -> None:
        """Give a matrix another part along the null form of what it reads."""
        matrix = self.graph.matrix(step.node, weights)
        given = step.normed.form(weights, matrix.shape[1])
        if given is None:
            return
        form, constant = given
        part = matrix @ form / form.square().sum()
        if wanted is not None:
            part = part - wanted
        if bool(constant != 0):
            linear = self.graph.linear(step.node)
            assert linear is not None
            bias = self.graph.parameter(linear[3])
            lost = part * constant
            _apply([(bias, -lost)] if bias else self.graph.restored(step.node, -lost, weights), weights)
        matrix.addr_(part, form, alpha=-1)

    def _balance(self, step: UnbiasedReadout, weights: Weights, normal: Callable[..., Tensor] | None = None) -> None:
        """Of W z = W₀ (g ⊙ x + a) + r, take the shortest a and the shift a + τ v, with parts r / τ along v."""
        shift = weights[step.shift]
        given = step.normed.form(weights, len(shift))
        if given is None:
            return
        unit = given[0] / given[0].norm()
        readers = [self.graph.matrix(node, weights) for node in step.unbiased]
        before = shift.clone()
        constants = [matrix @ shift for matrix in readers]
        for matrix in readers:
            matrix.addr_(matrix @ unit, unit, alpha=-1)
        gram = torch.stack([matrix.T @ matrix for matrix in readers]).sum(0)
        inverse = torch.linalg.pinv(gram, hermitian=True, rtol=1e-13)
        shortest = torch.zeros_like(shift)
        rests = constants
        for _ in range(2):  # once more for what the squared condition number costs
            shortest = shortest + inverse @ torch.stack([m.T @ r for m, r in zip(readers, rests, strict=True)]).sum(0)
            rests = [each - matrix @ shortest for matrix, each in zip(readers, constants, strict=True)]
        size, whole = (float(torch.cat(each).norm()) for each in (rests, constants))
        length = size**0.5
        if normal is not None:
            shortest = shortest + normal(len(shift))
            shortest = shortest - unit * (unit @ shortest)
            rests = [each - matrix @ shortest for matrix, each in zip(readers, constants, strict=True)]
            size, length = 1.0, float(torch.exp(normal(1)))
        if size > _ROUNDING * whole:
            for matrix, rest in zip(readers, rests, strict=True):
                matrix.addr_(rest / length, unit)
            shortest = shortest + length * unit
        shift.copy_(shortest)
        for node in step.biased:
            linear = self.graph.linear(node)
            assert linear is not None
            bias = self.graph.parameter(linear[3])
            weights[bias] += self.graph.matrix(node, weights) @ (before - shift)


def _apply(moves: Moves, weights: Weights) -> None:
    for name, change in moves:
        weights[name] += change
