"""Probe: a model's output, its gradients and its rounding error as functions of the tracked parameters."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.redundancy.execution.copies import observed_calls
from addnorm.redundancy.execution.float64 import Float64Mode
from addnorm.redundancy.execution.fresh_inputs import InputTemplate
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.observation import Observe, ObservedNumbers
from addnorm.redundancy.execution.perturbation import STEP, perturbed
from addnorm.redundancy.execution.tracked_parameters import TrackedParameters

_CHUNK = 64
"""Number of projections differentiated at once."""
_REACH = (4.0, 0.5, 2.0, 0.5)
"""Scales of the points' noise, in turn: near points keep smooth functions out of saturation, far ones activate dead units."""
_FAR = (16.0, 256.0)
"""Multiples of a move that must not change an observed integer either: it changes only beyond a threshold."""
SAFETY = 2**8
"""Rounding grows with the number of operations; a condition number measures one of them."""
_SAME = 1e-9
"""Relative difference of an output for one entry of a batch, computed alone and with the others, that rounding explains."""
_REMEMBERED = 2**20
"""Largest number of output entries that are kept to be compared with several moves."""


class NotDifferentiable(InputError):
    """Autograd cannot differentiate the model's forward pass; its message is quoted. The static method needs no gradient."""


def not_differentiable(error: Exception) -> NotDifferentiable:
    """Autograd's own error, as a message."""
    if "inplace operation" in str(error):
        return NotDifferentiable(
            "expected an output that autograd can differentiate, got a forward that writes over a weight or buffer after it "
            "has read it. Write to a clone, or outside of forward."
        )
    message = (str(error).splitlines() or ["no message"])[0]
    return NotDifferentiable(f"expected an output that autograd can differentiate, got an error: {message}")


@dataclass(frozen=True, kw_only=True)
class _Remembered:
    """An output at a numbered point."""

    inputs: Inputs
    """Held, so that its identity is not given to another object."""
    output: ObservedNumbers


class Probe:
    """A copy of a model whose tracked parameters can be set to measure its output."""

    def __init__(self, model: nn.Module, tracked: TrackedParameters, observe: Observe) -> None:
        """Prepare a copy in float64 that is used only here.

        Args:
            model: the copy.
            tracked: the parameters to move. A vector of moves has `tracked.size` entries.
            observe: the observed output.
        """
        self.model, self.observe, self.tracked = model, observe, tracked
        self._float64 = Float64Mode()
        known = dict(model.named_parameters(remove_duplicate=False))
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                module.padding_idx = None  # it would zero the gradient of a row that is read like any other
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        self._moving = [known[entry.name].requires_grad_(True) for entry in tracked.entries]
        # Kept apart, because `at` writes into the parameters: adding a move and subtracting it again would round.
        self._own = [parameter.detach().clone() for parameter in self._moving]
        self._calls: int | None = None
        self._remembered: dict[tuple[int, int], _Remembered] = {}

    @contextmanager
    def at(self, point: int, move: Float64[Tensor, " move"] | None = None) -> Iterator[None]:
        """Set the tracked parameters to a numbered point plus a move, and restore them afterwards. Point 0 is their own
        values."""
        generator = torch.Generator().manual_seed(point)
        try:
            with torch.no_grad():
                for entry, parameter, own in zip(self.tracked.entries, self._moving, self._own, strict=True):
                    # Half of the points discard a bias's own value, which may be so large that a unit is never active.
                    value = torch.zeros_like(own) if point % 2 and entry.role == "bias" else own.clone()
                    if point:
                        noise = torch.randn(entry.coordinate_shape, generator=generator, dtype=torch.float64)
                        value += _REACH[point % len(_REACH)] * noise
                    if move is not None:
                        value += move[entry.offset : entry.offset + entry.size].reshape(entry.coordinate_shape)
                    parameter.copy_(value)
            yield
        finally:
            with torch.no_grad():
                for parameter, own in zip(self._moving, self._own, strict=True):
                    parameter.copy_(own)

    def output(self, inputs: Inputs) -> ObservedNumbers:
        """Return all observed numbers at the current values."""
        with self._float64:
            calls = observed_calls(self.model, inputs, self.observe, self._calls)
        self._calls = len(calls)
        return ObservedNumbers.joined(calls)

    @torch.no_grad()
    def unmoved(self, inputs: Inputs, point: int) -> ObservedNumbers:
        """Return `output` at a point. It is computed once for all moves from there."""
        key = (point, id(inputs))
        if (known := self._remembered.get(key)) is not None:
            return known.output
        with self.at(point):
            output = self.output(inputs)
        entries = output.size + sum(each.output.size for each in self._remembered.values())
        if entries <= _REMEMBERED:
            self._remembered[key] = _Remembered(inputs=inputs, output=output)
        return output

    def scale(self, inputs: Inputs, point: int) -> float:
        """Return the root mean square of the finite observed numbers at a point, the unit of `change`."""
        return float(_scale(self.unmoved(inputs, point).floats))

    def change(self, inputs: Inputs, point: int, move: Float64[Tensor, " move"]) -> Float64[Tensor, " entry"]:
        """Return the change of every observed floating-point number, relative to their root mean square; infinite where
        it becomes NaN or infinite. Observed integers add one entry, infinite if any of them changes, also by larger
        moves in the same direction."""
        before = self.unmoved(inputs, point)
        with torch.no_grad():
            with self.at(point, move):
                after = self.output(inputs)
            # Another number of outputs is a change that no difference measures (a list of detected objects).
            if after.floats.shape != before.floats.shape:
                changed = torch.full_like(before.floats, math.inf)
            else:
                # An entry that is infinite before the move, as a masked score, is no change as long as it stays what it
                # is; a finite one that becomes infinite is.
                finite = torch.isfinite(before.floats)
                changed = torch.where(finite, after.floats - before.floats, 0.0) / _scale(before.floats)
                changed = torch.where(torch.isfinite(changed), changed, math.inf)
            if not before.integers.numel():
                return changed
            # An integer jumps at a threshold, which a unit move may not reach. So far moves have to keep it too, or any
            # shift of a score would count as null.
            kept = torch.equal(after.integers, before.integers) and all(
                self._keeps_integers(inputs, point, factor * move, before.integers) for factor in _FAR
            )
        return torch.cat([changed, torch.full((1,), 0.0 if kept else math.inf, dtype=torch.float64)])

    def _keeps_integers(self, inputs: Inputs, point: int, move: Tensor, integers: Tensor) -> bool:
        with self.at(point, move):
            return torch.equal(self.output(inputs).integers, integers)

    def effect(self, cases: Sequence[tuple[int, Inputs]], move: Float64[Tensor, " move"]) -> float:
        """Return the largest relative change of an observed number over some cases."""
        return max(float(self.change(inputs, point, move).abs().max()) for point, inputs in cases)

    def rows(
        self, inputs: Inputs, point: int, count: int, generator: torch.Generator, *, at_once: int = _CHUNK
    ) -> Float64[Tensor, "projection move"]:
        """Return gradients of `count` random projections of the output, relative to its root mean square, computed `at_once`
        together, which takes as much more memory."""
        with self.at(point), torch.enable_grad():
            output = self._differentiable_output(inputs).floats
            count = min(count, output.numel())
            if not output.requires_grad:
                return torch.zeros(count, self.tracked.size, dtype=torch.float64)
            finite = torch.isfinite(output)
            output = torch.where(finite, output, torch.zeros((), dtype=torch.float64))
            if count == output.numel():  # all entries fit, so no random combinations are needed
                projections = torch.eye(count, dtype=torch.float64)
            else:
                projections = torch.randn(count, output.numel(), generator=generator, dtype=torch.float64)
                projections /= output.numel() ** 0.5
            # In units of the output as a whole. Scaled per parameter, a block of rounding errors would look as large as
            # a block of gradients.
            scale = _scale(output.detach())
            return torch.cat([self._gradients(output, some) / scale for some in projections.split(at_once)])

    def finite_rows(
        self, inputs: Inputs, point: int, count: int, generator: torch.Generator
    ) -> Float64[Tensor, "projection move"]:
        """Return `rows`.

        Raises:
            NotDifferentiable: a gradient is NaN or infinite.
        """
        rows = self.rows(inputs, point, count, generator)
        if not bool(rows.isfinite().all()):
            raise NotDifferentiable(
                "expected finite gradients, got NaN or infinity, as autograd gives of a scaled mask of minus infinity or a "
                "root of zero"
            )
        return rows

    def _differentiable_output(self, inputs: Inputs) -> ObservedNumbers:
        try:
            return self.output(inputs)
        except NotImplementedError as error:  # flex_attention refuses gradients on the CPU before it computes anything
            raise not_differentiable(error) from error

    def _gradients(self, output: Tensor, projections: Tensor) -> Tensor:
        try:
            gradients: tuple[Tensor | None, ...] = torch.autograd.grad(
                output, self._moving, projections, retain_graph=True, is_grads_batched=True, allow_unused=True
            )
        except RuntimeError:  # an operation whose gradient vmap cannot batch
            each = [self._gradient(output, one) for one in projections]
            columns: list[tuple[Tensor | None, ...]] = list(zip(*each, strict=True))
            stacked = [[entry for entry in column if entry is not None] for column in columns]
            gradients = tuple(torch.stack(column) if column else None for column in stacked)
        count = len(projections)
        parts = []
        for gradient, entry in zip(gradients, self.tracked.entries, strict=True):
            if gradient is None:
                parts.append(torch.zeros(count, entry.size, dtype=torch.float64))
            elif entry.coordinates == "common row":
                # A common row moves every row of the table: its gradient is the sum over them.
                parts.append(gradient.reshape(count, -1, entry.size).sum(1).double())
            else:
                parts.append(gradient.reshape(count, entry.size).double())
        return torch.cat(parts, dim=1)

    def _gradient(self, output: Tensor, projection: Tensor) -> tuple[Tensor | None, ...]:
        try:
            return torch.autograd.grad(output, self._moving, projection, retain_graph=True, allow_unused=True)
        except RuntimeError as error:  # a forward pass that overwrites a tensor that its gradient needs
            raise not_differentiable(error) from error

    @torch.no_grad()
    def first_of_batch(self, inputs: Inputs, point: int) -> Inputs:
        """Return the inputs with the first entry of the batch alone if the output for it is the same without the others, and
        the inputs themselves otherwise (batch statistics, dropout, a loss).

        Its gradients are then gradients of the whole output too, for a fraction of the cost. Moves are still measured with all
        entries.
        """
        alone = InputTemplate(example=inputs, rows=()).resized(0, 1)
        if alone is None:
            return inputs
        whole = self.unmoved(inputs, point)
        try:
            with self.at(point):
                one = self.output(alone.example)
        except Exception:  # noqa: BLE001 - the model takes no batch of one, and may raise anything
            return inputs
        first = whole.floats[: one.floats.numel()]
        whole_batches = one.floats.numel() > 0 and whole.floats.numel() % one.floats.numel() == 0
        if not whole_batches or one.integers.numel() or whole.floats.numel() == one.floats.numel():
            return inputs
        # Batch statistics, dropout or a loss mix the entries of a batch; then a gradient of one entry alone is that of
        # another function.
        near = (one.floats - first).abs().max() <= _SAME * _scale(first)
        return alone.example if bool(near) else inputs

    @property
    def eps(self) -> float:
        """Unit roundoff of the lowest precision that data passed through, once `condition` has looked."""
        return self._float64.eps

    def rounding(self, cases: Sequence[tuple[int, Inputs]]) -> float:
        """Return a bound of the relative change of one computed output by rounding alone: the condition number times the unit
        roundoff, times 2⁸ for the length of the computation."""
        return SAFETY * self.condition(cases) * self.eps

    def condition(self, cases: Sequence[tuple[int, Inputs]]) -> float:
        """Return the output's relative change over that of the weights, all perturbed at random by 2⁻²⁶."""
        with torch.enable_grad():
            # The one call with gradients: `Float64Mode` learns from it in which precision data pass through the model,
            # which bounds what any output can show.
            self._differentiable_output(cases[0][1])
        worst = 1.0
        for seed, (point, inputs) in enumerate(cases):
            before = self.unmoved(inputs, point).floats
            with torch.no_grad(), self.at(point), perturbed(self.model, seed):
                after = self.output(inputs).floats
            if after.shape != before.shape:
                continue  # the number of outputs depends on the weights, so they cannot be compared one by one
            difference = torch.where(torch.isfinite(before), after - before, torch.zeros((), dtype=torch.float64))
            # Weights move by a known relative amount, so this is the output's condition number. It is never taken to be
            # below one: the output itself is rounded.
            worst = max(worst, float((difference.abs().max()) / _scale(before)) / STEP)
        return worst


def _scale(output: Tensor) -> Tensor:
    finite = output[torch.isfinite(output)]
    return finite.square().mean().sqrt().clamp_min(torch.finfo(torch.float64).tiny)
