"""What moved a model's learned scalars: weight decay, or the gradient.

In each step a scalar p moves by  -r p + u:  decay takes the share r of it, the gradient's update u is the rest. Both are added
up step by step in float64, so that init + decay + gradient = value, to the last bits of float64. Beside them stand the sums
that a gradient's signal-to-noise needs, and, per mechanism, the triangular factor R of all gradients seen (G = Q R, one row
per step): its singular values are G's, so a direction in which no gradient ever pointed shows as a zero, without keeping G and
without squaring it.

Why R and not the covariance GᵀG: squaring halves the digits, and a redundant direction known to float32's 1e-7 would drown.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor, nn

from addnorm.optimization.optimizers import OptimizerSpec

LARGEST = 4096
"""A parameter of a mechanism with more entries is not called a set of scalars."""
LARGEST_JOINT = 512
"""Entries of one mechanism whose gradients are examined jointly; a larger one has no R."""
_BLOCK = 64
"""Gradient rows gathered before R takes them in."""


_SUMS = ("decay", "gradient", "log_kept", "mean", "mean_square", "mean_absolute")


@dataclass(frozen=True)
class Scalar:
    """One tracked parameter."""

    name: str
    parameter: nn.Parameter
    group: Mapping[str, Any]
    """Its entry in the optimizer's groups."""
    place: slice
    """Its entries among all tracked ones."""


class ScalarRecorder:
    """Watches every learned scalar of a model through its training.

    Args:
        mechanisms: the model's mechanisms by their path in it, see `Transformer.mechanisms`.
        spec: the optimizer's spec, which knows what its decay takes.
        optimizer: the optimizer that moves the parameters.
    """

    def __init__(
        self, mechanisms: Mapping[str, nn.Module], spec: OptimizerSpec, optimizer: torch.optim.Optimizer
    ) -> None:
        self._spec = spec
        groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        self.scalars: list[Scalar] = []
        self._joint: dict[str, slice] = {}
        end = 0
        for path, mechanism in mechanisms.items():
            begin = end
            for name, parameter in mechanism.named_parameters():
                if parameter.numel() <= LARGEST and id(parameter) in groups:
                    place = slice(end, end + parameter.numel())
                    self.scalars.append(Scalar(f"{path}.{name}", parameter, groups[id(parameter)], place))
                    end = place.stop
            if begin < end <= begin + LARGEST_JOINT:
                self._joint[path] = slice(begin, end)
        self._sums = torch.zeros(len(_SUMS), end, dtype=torch.float64)
        self.init = self._values()
        self._before = self.init
        self._rates = torch.zeros_like(self.init)
        self.steps = 0
        self._rows: list[Tensor] = []
        self._factors = {path: torch.zeros(0, place.stop - place.start).double() for path, place in self._joint.items()}

    def before_step(self) -> None:
        """To be called when gradients and learning rates are set, before the optimizer moves anything."""
        if not self.scalars:
            return
        self._before = self._values()
        rates = [self._spec.decay_rate(scalar.parameter, scalar.group) for scalar in self.scalars]
        sizes = torch.tensor([scalar.parameter.numel() for scalar in self.scalars])
        self._rates = torch.tensor(rates, dtype=torch.float64).repeat_interleave(sizes)
        self._rows.append(self._gradients())

    def after_step(self) -> None:
        """To be called when the optimizer has moved the parameters."""
        if not self.scalars:
            return
        gradient, decay = self._rows[-1], -self._before * self._rates
        moved = self._values() - self._before
        kept = torch.log1p(-self._rates)
        self._sums += torch.stack((decay, moved - decay, kept, gradient, gradient.square(), gradient.abs()))
        self.steps += 1
        if len(self._rows) == _BLOCK:
            self._take_in()

    def summary(self) -> dict[str, Tensor]:
        """Everything known so far, as tensors to be kept in a file. Axes: `scalar` runs over all tracked entries.

        `init` and `value`; `decay` and `gradient`, the two parts of the move; `log_kept`, the logarithm of what decay alone
        would have left of a number; `mean, mean_square, mean_absolute` of the gradient over the steps; `steps`; and one
        `R.<mechanism>` of [at most entries, entries] for each mechanism.
        """
        self._take_in()
        count = max(self.steps, 1)
        sums = {
            name: row / count if name.startswith("mean") else row.clone()
            for name, row in zip(_SUMS, self._sums, strict=True)
        }
        factors = {f"R.{path}": factor.contiguous() for path, factor in self._factors.items()}
        return {"init": self.init, "value": self._values(), "steps": torch.tensor(self.steps), **sums, **factors}

    def names(self) -> list[str]:
        """The name of each tracked entry, in order: `scores.log_a.3[1]`."""
        return [
            f"{scalar.name}[{', '.join(map(str, index))}]"
            for scalar in self.scalars
            for index in torch.ones(scalar.parameter.shape).nonzero().tolist()
        ]

    def state(self) -> dict[str, Any]:
        """What a resumed recorder needs."""
        self._take_in()
        return {"init": self.init, "sums": self._sums.clone(), "steps": self.steps, "factors": dict(self._factors)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        self.init, self._sums, self.steps = state["init"], state["sums"], state["steps"]
        self._factors = dict(state["factors"])
        self._rows = []

    def _take_in(self) -> None:
        if not self._rows:
            return
        rows = torch.stack(self._rows)
        for path, place in self._joint.items():
            self._factors[path] = torch.linalg.qr(torch.cat((self._factors[path], rows[:, place])), mode="r").R
        self._rows = []

    def _values(self) -> Float64[Tensor, " scalar"]:
        return self._flat([scalar.parameter.detach() for scalar in self.scalars])

    def _gradients(self) -> Float64[Tensor, " scalar"]:
        found = [scalar.parameter.grad for scalar in self.scalars]
        return self._flat(
            [torch.zeros_like(s.parameter) if g is None else g for s, g in zip(self.scalars, found, strict=True)]
        )

    @staticmethod
    def _flat(tensors: list[Tensor]) -> Float64[Tensor, " scalar"]:
        if not tensors:
            return torch.zeros(0, dtype=torch.float64)
        return torch.cat([tensor.flatten() for tensor in tensors]).to("cpu", torch.float64)
