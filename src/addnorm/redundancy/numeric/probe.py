"""Moving a model's additive parameters and looking at its output: everything the numerical judge and a certificate measure."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float64
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.redundancy.execution.copies import call
from addnorm.redundancy.execution.disturbance import STEP, disturbed
from addnorm.redundancy.execution.float64 import Lift
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.observation import Observe, observed
from addnorm.redundancy.execution.tracked_parameters import Tracked

_CHUNK = 64
"""Projections differentiated at once."""
_REACH = (8.0, 1.0, 4.0, 1.0)
"""How far points scatter, in turn: near ones keep smooth functions out of saturation, far ones wake units that never fire."""
_SAFETY = 2**8
"""Rounding grows with the number of operations; a condition number sees one of them."""


class NotDifferentiable(InputError):
    """Autograd cannot go back through the model's forward pass; the message is its own. The static method needs no gradient."""


class Probe:
    """A copy of a model whose tracked parameters can be set, and what its output does then."""

    def __init__(self, model: nn.Module, tracked: Tracked, observe: Observe, spread: float = 0.5) -> None:
        """Take over a copy in float64 that nobody else uses.

        Args:
            model: the copy.
            tracked: its parameters to move. A vector of moves has `tracked.size` entries.
            observe: what must not change.
            spread: points are the copy's own values, or for biases at every other point zero, plus noise
                of `spread` times 1, 4 and 8 in turn.
        """
        self.model, self.observe, self.tracked, self._spread = model, observe, tracked, spread
        self._lift = Lift()
        known = dict(model.named_parameters(remove_duplicate=False))
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                module.padding_idx = None  # it zeroes the gradient of a row that is used all the same
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        self._moving = [known[entry.name].requires_grad_(True) for entry in tracked.entries]
        self._own = [parameter.detach().clone() for parameter in self._moving]

    @contextmanager
    def at(self, point: int, move: Float64[Tensor, " move"] | None = None) -> Iterator[None]:
        """The tracked parameters at a numbered point, moved; their own values again afterwards. Point 0 is their own values."""
        generator = torch.Generator().manual_seed(point)
        try:
            with torch.no_grad():
                for entry, parameter, own in zip(self.tracked.entries, self._moving, self._own, strict=True):
                    # Half of the points forget a bias' own value, which may be so large that a unit never fires.
                    value = torch.zeros_like(own) if point % 2 and entry.role == "bias" else own.clone()
                    if point:
                        noise = torch.randn(entry.coordinate_shape, generator=generator, dtype=torch.float64)
                        value += self._spread * _REACH[point % len(_REACH)] * noise
                    if move is not None:
                        value += move[entry.offset : entry.offset + entry.size].reshape(entry.coordinate_shape)
                    parameter.copy_(value)
            yield
        finally:
            with torch.no_grad():
                for parameter, own in zip(self._moving, self._own, strict=True):
                    parameter.copy_(own)

    def output(self, inputs: Inputs) -> Float64[Tensor, " entry"]:
        """All that is observed, flat, at the values set now."""
        with self._lift:
            found = observed(call(self.model, inputs), self.observe)
        return torch.cat([tensor.double().flatten() for tensor in found])

    def change(self, inputs: Inputs, point: int, move: Float64[Tensor, " move"]) -> Float64[Tensor, " entry"]:
        """How every observed number changes, relative to their root mean square; infinite where it stops being a number."""
        with torch.no_grad():
            with self.at(point):
                before = self.output(inputs)
            with self.at(point, move):
                after = self.output(inputs)
        finite = torch.isfinite(before)
        changed = torch.where(finite, after - before, torch.zeros(())) / _scale(before)
        return torch.where(torch.isfinite(changed), changed, torch.full((), math.inf))

    def effect(self, cases: Sequence[tuple[int, Inputs]], move: Float64[Tensor, " move"]) -> float:
        """The largest relative change of an observed number over some points and inputs."""
        return max(float(self.change(inputs, point, move).abs().max()) for point, inputs in cases)

    def rows(
        self, inputs: Inputs, point: int, count: int, generator: torch.Generator
    ) -> Float64[Tensor, "projection move"]:
        """Gradients of `count` random projections of the output, relative to its root mean square."""
        with self.at(point), torch.enable_grad():
            output = self.output(inputs)
            count = min(count, output.numel())
            if not output.requires_grad:
                return torch.zeros(count, self.tracked.size, dtype=torch.float64)
            finite = torch.isfinite(output)
            output = torch.where(finite, output, torch.zeros((), dtype=torch.float64))
            if count == output.numel():  # no need to mix what can be looked at one by one
                projections = torch.eye(count, dtype=torch.float64)
            else:
                projections = torch.randn(count, output.numel(), generator=generator, dtype=torch.float64)
                projections /= output.numel() ** 0.5
            scale = _scale(output.detach())
            return torch.cat([self._gradients(output, some) / scale for some in projections.split(_CHUNK)])

    def _gradients(self, output: Tensor, projections: Tensor) -> Tensor:
        try:
            found: tuple[Tensor | None, ...] = torch.autograd.grad(
                output, self._moving, projections, retain_graph=True, is_grads_batched=True, allow_unused=True
            )
        except RuntimeError:  # an operation whose gradient vmap cannot batch
            each = [self._gradient(output, one) for one in projections]
            columns: list[tuple[Tensor | None, ...]] = list(zip(*each, strict=True))
            stacked = [[entry for entry in column if entry is not None] for column in columns]
            found = tuple(torch.stack(column) if column else None for column in stacked)
        count = len(projections)
        parts = []
        for gradient, entry in zip(found, self.tracked.entries, strict=True):
            if gradient is None:
                parts.append(torch.zeros(count, entry.size, dtype=torch.float64))
            elif entry.coordinates == "common row":
                parts.append(gradient.reshape(count, -1, entry.size).sum(1).double())
            else:
                parts.append(gradient.reshape(count, entry.size).double())
        return torch.cat(parts, dim=1)

    def _gradient(self, output: Tensor, projection: Tensor) -> tuple[Tensor | None, ...]:
        try:
            return torch.autograd.grad(output, self._moving, projection, retain_graph=True, allow_unused=True)
        except (
            RuntimeError
        ) as error:  # a forward pass that overwrites what its gradient needs, as one may in evaluation
            said = (str(error).splitlines() or ["no message"])[0]
            raise NotDifferentiable(f"the model's output has no gradient that autograd can compute: {said}") from error

    def rounding(self, cases: Sequence[tuple[int, Inputs]]) -> float:
        """A bound for the relative change of the output that is rounding alone.

        The output's condition number (its relative change over that of the weights, all disturbed at random by 2⁻²⁶) times the
        unit roundoff of the lowest precision that the model computes in, times 2⁸ for the length of the computation.
        """
        with torch.enable_grad():
            self.output(cases[0][1])
        worst = 1.0
        for seed, (point, inputs) in enumerate(cases):
            with torch.no_grad(), self.at(point):
                before = self.output(inputs)
                with disturbed(self.model, seed):
                    after = self.output(inputs)
            difference = torch.where(torch.isfinite(before), after - before, torch.zeros((), dtype=torch.float64))
            worst = max(worst, float((difference.abs().max()) / _scale(before)) / STEP)
        return _SAFETY * worst * self._lift.eps


def _scale(output: Tensor) -> Tensor:
    finite = output[torch.isfinite(output)]
    return finite.square().mean().sqrt().clamp_min(torch.finfo(torch.float64).tiny)
