"""Additive freedom at any size: means that layer norms remove, constants that move on, what readers of a norm never see.

    means       parts along 1 that every reader removes are zero: of matrices, biases and tables that write
    constants   in the order of the graph, each constant that later parameters can take over is zero: shifts of norms, biases,
                means of tables
    null forms  matrices that read a norm's result v·z + k = 0 have no part along v
    readout     a shift that readers without a bias must keep is g / √n, and their part along v is the constant that they read
    raw streams parts along 1 that matrices read, but norms remove, are orthogonal to the other parts, of length one
    unseen      matrices that read a wider map's result P z + b have no part outside of what P's columns span; what it
                made of b is in their bias; without a bias, outside of what P's columns and b span

What is zero leaves nothing to choose, and what took it over comes later, so that the representative is unique; it commutes
with changes of basis (`derivation.md`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, fx

from addnorm.symmetry.bases.absorption import Absorption, Moves
from addnorm.symmetry.bases.change import CellPlace, Weights
from addnorm.symmetry.families import SHIFT, STREAM_MEAN, UNSEEN

_SPREAD = 0.3
"""Standard deviation of random moves."""
_RANK = 1e-9
"""Singular value, over the largest, below which a map has no direction."""


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
    axis: int = -1
    """Axis of the channels in the node's value."""


@dataclass(frozen=True)
class NormResult:
    """The result of a layer norm, behind its gain and shift: v·z + k = 0."""

    norm: fx.Node
    gains: tuple[tuple[str, float], ...] = ()
    """A gain is a parameter and a number that is added to it."""
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
                name, offset = self.gains[at]
                gain = (weights[name] + offset).expand(size)
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
    rows: Tensor | None = None
    """Of a matrix that must keep its part elsewhere: the results whose constants nothing sees."""


@dataclass(frozen=True)
class UnbiasedReadout:
    """A norm's shift that some of its readers must keep: they have no bias, and what reads them sees their constant."""

    node: fx.Node
    normed: NormResult
    shift: str
    unbiased: tuple[fx.Node, ...]
    restored: tuple[fx.Node, ...]
    """Readers whose constants a bias takes over, or nothing sees."""


@dataclass(frozen=True)
class RawStream:
    """A stream that matrices read beside norms, as the first layer of a post-norm stack does: x + 1 φ(x), for any φ."""

    node: fx.Node
    writers: tuple[FreeMean, ...]
    readers: tuple[fx.Node, ...]

    def columns(self, weights: Weights) -> Tensor:
        """All that the writers write, [channel, entry]."""
        moved = [weights[each.parameter].movedim(each.axis, 0) for each in self.writers]
        return torch.cat([each.reshape(len(each), -1) for each in moved], 1)


@dataclass(frozen=True)
class WiderMap:
    """A linear map P z + b to more channels than its data have, [wide, narrow]."""

    node: fx.Node
    dims: int
    """Dimensions that P's columns span."""


@dataclass(frozen=True)
class UnseenPart:
    """A matrix that reads a wider map's result. A sum reads it, too, and turns with it: so does an orthogonal projection."""

    node: fx.Node
    read: WiderMap
    size: int
    loses_constant: bool
    """True if a bias takes over what the matrix makes of the part of b that P's columns do not span."""

    def rest(self, graph: Absorption, weights: Weights) -> tuple[Tensor, Tensor]:
        """The projection onto what is not seen, [wide, wide], and b, of which the matrix may lose a part."""
        linear = graph.linear(self.read.node)
        assert linear is not None
        spanning = graph.matrix(self.read.node, weights)
        bias = torch.zeros(len(spanning), dtype=torch.float64)
        if linear[3] is not None:
            bias = weights[graph.parameters[linear[3]]]
        if not self.loses_constant:
            spanning = torch.cat([spanning, bias[:, None]], 1)
        columns, lengths, _ = torch.linalg.svd(spanning)
        unseen = columns[:, int((lengths > _RANK * lengths[0]).sum()) :]
        return unseen @ unseen.T, bias


@dataclass
class Additive:
    """The additive freedom of a graph."""

    graph: Absorption
    means: list[FreeMean] = field(default_factory=list)
    steps: list[MovableConstant | NormReader | UnbiasedReadout | UnseenPart] = field(default_factory=list)
    raw: list[RawStream] = field(default_factory=list)
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
                case UnseenPart():
                    family, size = UNSEEN.name, step.size
            made[family] = made.get(family, 0) + size
        for stream in self.raw:
            made[STREAM_MEAN.name] = made.get(STREAM_MEAN.name, 0) + self.graph.shape(stream.node)[-1]
        return {name: size for name, size in made.items() if size}

    def zeros(self, place: CellPlace) -> int:
        """The number of columns along a place's axis that the representative makes zero, in some basis of the others."""
        name, index = place.parameter, set(place.index.tolist())
        made = sum(mean.parameter == name and mean.axis != place.axis for mean in self.means)
        for step in self.steps:
            if isinstance(step, MovableConstant):
                # Of a table one mean, of a bias its one column.
                made += step.parameter == name and index <= set(step.index.tolist())
            elif isinstance(step, NormReader | UnseenPart):
                linear = self.graph.linear(step.node)
                if linear is None or self.graph.parameters[linear[1]] != name or place.axis != int(linear[2]):
                    continue
                rows = step.rows if isinstance(step, NormReader) else None
                if rows is None or index <= set(rows.tolist()):
                    made += 1 if isinstance(step, NormReader) else self.graph.shape(linear[0])[-1] - step.read.dims
        return made

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
                    self._read_out(step, weights)
                case UnseenPart():
                    self._set_unseen(step, torch.zeros(()), weights)
        # What took a constant over along 1 can lose it.
        self._centre(weights)
        for stream in self.raw:
            self._set_mean(stream, weights)

    def move_at_random(self, weights: Weights, generator: torch.Generator) -> None:
        """Move along every direction, in place."""

        def normal(*shape: int) -> Tensor:
            return _SPREAD * torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.settle(weights)
        for step in self.steps:
            if isinstance(step, NormReader):
                self._set_part(step, normal(self.graph.shape(step.node)[-1]), weights)
            elif isinstance(step, UnseenPart):
                self._set_unseen(step, normal(*self.graph.matrix(step.node, weights).shape), weights)
        for step in self.steps:
            if isinstance(step, MovableConstant):
                self._set(step, normal(len(step.index)), weights)
            elif isinstance(step, UnbiasedReadout):
                self._read_out(step, weights, normal)
        for mean in self.means:
            moved = weights[mean.parameter].movedim(mean.axis, -1)
            moved += normal(*moved.shape[:-1], 1)
        for stream in self.raw:
            size = self.graph.shape(stream.node)[-1]
            self._mix_mean(stream, normal(size), float(torch.exp(normal(1))), weights)

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
        _apply(self.graph.restored(step.node, lost, weights, step.axis), weights)
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
        part = _part_along(matrix, form)
        if wanted is not None:
            part = part - wanted
        if step.rows is not None:
            part = torch.zeros_like(part).index_copy(0, step.rows, part[step.rows])
        if bool(constant != 0):
            self._add(step.node, -part * constant, weights)
        matrix.addr_(part, form, alpha=-1)

    def _set_unseen(self, step: UnseenPart, wanted: Tensor, weights: Weights) -> None:
        """Give a matrix another part where it sees nothing, or one constant that its bias knows."""
        matrix, (rest, bias) = self.graph.matrix(step.node, weights), step.rest(self.graph, weights)
        change = (wanted - matrix) @ rest
        if step.loses_constant:
            self._add(step.node, -change @ bias, weights)
        matrix += change

    def _read_out(self, step: UnbiasedReadout, weights: Weights, normal: Callable[..., Tensor] | None = None) -> None:
        """Of W z = W₀ (g ⊙ x + a) + c, take a = 0: the shift is g / √n, and W's part along v is c / √n."""
        shift = weights[step.shift]
        given = step.normed.form(weights, len(shift))
        if given is None:
            return
        form, root = given[0], len(shift) ** 0.5
        before, after, length = shift.clone(), torch.zeros_like(shift), 1.0
        if normal is not None:
            after, length = normal(len(shift)), float(torch.exp(normal(1)))
            after = after - (form @ after) / len(shift) / form
        for matrix in (self.graph.matrix(node, weights) for node in step.unbiased):
            constant = matrix @ before
            matrix.addr_(_part_along(matrix, form), form, alpha=-1)
            matrix.addr_(constant - matrix @ after, form, alpha=1 / (length * root))
        shift.copy_(after + length / root / form)
        for node in step.restored:
            self._add(node, self.graph.matrix(node, weights) @ (before - shift), weights)

    def _set_mean(self, stream: RawStream, weights: Weights) -> None:
        """Make the mean's part of what is written orthogonal to the others, of length one and with a positive longest entry."""
        columns = stream.columns(weights)
        mean = columns.mean(0)
        others = columns - mean
        # Least squares in the plane of the other parts: any change of basis of theirs that keeps lengths gives the same mean.
        form = -torch.linalg.lstsq(others @ others.T + 1 / len(others), others @ mean).solution
        rest = mean + form @ others
        if float(rest.norm()) > _RANK * float(mean.norm()):
            sign = float(torch.sign(rest[rest.abs().argmax()]))
            self._mix_mean(stream, form, sign / float(rest.norm()), weights)

    def _mix_mean(self, stream: RawStream, form: Tensor, factor: float, weights: Weights) -> None:
        """Write the mean m of x as factor (m + form·(x - 1 m)), and read it back."""
        form = form - form.mean()
        for each in stream.writers:
            moved = weights[each.parameter].movedim(each.axis, 0)
            mean = moved.mean(0)
            change = factor * (mean + torch.tensordot(form, moved, 1)) - mean
            moved += change
        for node in stream.readers:
            matrix = self.graph.matrix(node, weights)
            row = matrix.sum(1)
            matrix.addr_(row, (1 / factor - 1) / len(form) - form)

    def _add(self, node: fx.Node, constant: Tensor, weights: Weights) -> None:
        """Restore what a linear map's result has lost: by its bias, or behind it."""
        linear = self.graph.linear(node)
        assert linear is not None
        bias = self.graph.parameter(linear[3])
        _apply([(bias, constant)] if bias else self.graph.restored(node, constant, weights), weights)


def _part_along(matrix: Tensor, form: Tensor) -> Tensor:
    """u of W = W₀ + u v with W₀ g = 0, v = 1 / g: a factor that g takes over from W leaves u as it is."""
    return matrix @ form.reciprocal() / len(form)


def _apply(moves: Moves, weights: Weights) -> None:
    for name, change in moves:
        weights[name] += change
