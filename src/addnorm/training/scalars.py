"""Changes of a model's learned scalars, separated into weight decay and gradient updates.

In each step a scalar p changes by  -r p + u:  weight decay removes the share r, and u is the update of the gradient. Both parts
are summed in float64, so that init + decay + gradient = value up to rounding. The recorder also keeps the sums from which
the signal-to-noise ratio of the gradient is computed and, for each mechanism, the triangular factor R of all its gradients
(G = Q R, one row of G per step). R has the singular values of G, so a direction without any gradient has a singular value of
zero. R needs neither the memory of G nor its square.

Why R and not the covariance GᵀG: squaring halves the number of correct digits, and a redundant direction, which float32
determines to about 1e-7, would be lost in rounding.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor, nn

from addnorm.optimization.optimizers import OptimizerSpec

LARGEST = 4096
"""Largest parameter of a mechanism, in entries, that is recorded as a set of scalars."""
LARGEST_JOINT = 512
"""Largest mechanism, in entries, that has a factor R."""
_BLOCK = 64
"""Gradient rows that are collected before R is updated."""


_SUMS = ("decay", "gradient", "log_kept", "mean", "mean_square", "mean_absolute")


@dataclass(frozen=True)
class RecordedParameter:
    """A recorded parameter."""

    name: str
    parameter: nn.Parameter
    group: Mapping[str, Any]
    """Its parameter group in the optimizer."""
    place: slice
    """Its entries among all recorded ones."""


class ScalarRecorder:
    """Records every learned scalar of a model during its training.

    Its sums lie on the device of the parameters, so that no step waits for it.

    Args:
        mechanisms: the model's mechanisms by their path in it, see `Transformer.mechanisms`.
        spec: the optimizer's spec, which computes the share that weight decay removes.
        optimizer: the optimizer that updates the parameters.
    """

    def __init__(
        self, mechanisms: Mapping[str, nn.Module], spec: OptimizerSpec, optimizer: torch.optim.Optimizer
    ) -> None:
        self._spec = spec
        groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        self.scalars: list[RecordedParameter] = []
        self._joint: dict[str, slice] = {}
        end = 0
        for path, mechanism in mechanisms.items():
            begin = end
            for name, parameter in mechanism.named_parameters():
                if parameter.numel() <= LARGEST and id(parameter) in groups:
                    place = slice(end, end + parameter.numel())
                    self.scalars.append(RecordedParameter(f"{path}.{name}", parameter, groups[id(parameter)], place))
                    end = place.stop
            # R has entries² numbers and is decomposed every 64 steps: small for scalars and gates, not for a table.
            if begin < end <= begin + LARGEST_JOINT:
                self._joint[path] = slice(begin, end)
        self._device = self.scalars[0].parameter.device if self.scalars else torch.device("cpu")
        self._sizes = torch.tensor([scalar.parameter.numel() for scalar in self.scalars], dtype=torch.int64)
        self._sums = torch.zeros(len(_SUMS), end, dtype=torch.float64, device=self._device)
        self.init = self._values()
        self._before = self.init
        self._rates = torch.zeros_like(self.init)
        self.steps = 0
        self._rows: list[Tensor] = []
        self._factors = {path: self.init.new_zeros(0, place.stop - place.start) for path, place in self._joint.items()}

    def before_step(self) -> None:
        """Record the state before the optimizer's step; gradients and learning rates are set."""
        if not self.scalars:
            return
        self._before = self._values()
        self._rates = self._decay_rates()
        self._rows.append(self._gradients())

    def after_step(self) -> None:
        """Record the changes made by the optimizer's step."""
        if not self.scalars:
            return
        # Every optimizer here decays by multiplication with 1 - r, apart from its update. So -r p is the part of decay,
        # and the rest of the move, rounding of the parameter's own type included, is that of the gradient. The two add
        # up to the move by construction; in float64, because a sum of thousands of small parts in float32 would not.
        gradient, decay = self._rows[-1], -self._before * self._rates
        change = self._values() - self._before
        # A product of thousands of factors close to one, as a sum of logarithms; 1 - r itself would round.
        kept = torch.log1p(-self._rates)
        self._sums += torch.stack((decay, change - decay, kept, gradient, gradient.square(), gradient.abs()))
        self.steps += 1
        if len(self._rows) == _BLOCK:
            self._update_factors()

    def summary(self) -> dict[str, Tensor]:
        """The record as tensors for a file. The axis `scalar` runs over all recorded entries.

        `init` and `value`; `decay` and `gradient`, the two parts of the change; `log_kept`, the logarithm of the share that
        weight decay alone would leave; `mean, mean_square, mean_absolute` of the gradient over the steps; `steps`; and one
        `R.<mechanism>` of [at most entries, entries] for each mechanism.
        """
        self._update_factors()
        count = max(self.steps, 1)
        sums = {
            name: row / count if name.startswith("mean") else row.clone()
            for name, row in zip(_SUMS, self._sums, strict=True)
        }
        factors = {f"R.{path}": factor.contiguous() for path, factor in self._factors.items()}
        tensors = {"init": self.init, "value": self._values(), "steps": torch.tensor(self.steps), **sums, **factors}
        return {name: tensor.cpu() for name, tensor in tensors.items()}

    def names(self) -> list[str]:
        """The name of each recorded entry in order, such as `scores.log_a.3[1]`."""
        return [
            f"{scalar.name}[{', '.join(map(str, index))}]"
            for scalar in self.scalars
            for index in torch.ones(scalar.parameter.shape).nonzero().tolist()
        ]

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        self._update_factors()
        return {"init": self.init, "sums": self._sums.clone(), "steps": self.steps, "factors": dict(self._factors)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of a checkpoint."""
        self.init, self._sums = state["init"].to(self._device), state["sums"].to(self._device)
        self._factors = {path: factor.to(self._device) for path, factor in state["factors"].items()}
        self.steps = state["steps"]
        self._rows = []

    def _decay_rates(self) -> Float64[Tensor, " scalar"]:
        rates = [self._spec.decay_rate(scalar.parameter, scalar.group) for scalar in self.scalars]
        numbers = [0.0 if isinstance(rate, Tensor) else rate for rate in rates]
        flat = torch.tensor(numbers, dtype=torch.float64).repeat_interleave(self._sizes)
        # A copy from pageable memory waits for the device, whatever `non_blocking` says.
        if self._device.type == "cuda":
            flat = flat.pin_memory()
        flat = flat.to(self._device, non_blocking=True)
        for scalar, rate in zip(self.scalars, rates, strict=True):
            if isinstance(rate, Tensor):
                flat[scalar.place] = rate
        return flat

    def _update_factors(self) -> None:
        if not self._rows:
            return
        # QR of [R; new rows] gives the R of all rows so far, since R'R = G'G for the rows that it stands for. Rotations
        # keep lengths, so a direction without any gradient keeps the singular value zero up to rounding, after any
        # number of updates.
        rows = torch.stack(self._rows)
        for path, place in self._joint.items():
            self._factors[path] = torch.linalg.qr(torch.cat((self._factors[path], rows[:, place])), mode="r").R
        self._rows = []

    def _values(self) -> Float64[Tensor, " scalar"]:
        return self._flat([scalar.parameter.detach() for scalar in self.scalars])

    def _gradients(self) -> Float64[Tensor, " scalar"]:
        gradients = [scalar.parameter.grad for scalar in self.scalars]
        return self._flat(
            [torch.zeros_like(s.parameter) if g is None else g for s, g in zip(self.scalars, gradients, strict=True)]
        )

    @staticmethod
    def _flat(tensors: list[Tensor]) -> Float64[Tensor, " scalar"]:
        if not tensors:
            return torch.zeros(0, dtype=torch.float64)
        return torch.cat([tensor.flatten() for tensor in tensors]).double()
