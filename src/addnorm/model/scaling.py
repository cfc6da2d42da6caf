r"""Scaling: learning rates and initial values that carry over from a small model to a wider or deeper one.

With m = width / base width and l = depth / base depth, of a model whose optimizer moves every entry by about its learning rate:

    hidden matrices      start with std / sqrt(m), rate / m (the weight decay of a step stays), rate also times l^(power - 1)
    embeddings, head     start and rate as they are; the logits are divided by m
    all other numbers    as they are; in the branches, rates times l^(power - 1)
    branches             multiplied by l^(-power), after their norm, where a base depth is given

Why: the best rate of a small model is then near the best one of a large model. Under the standard parametrisation, one step
changes what a hidden matrix returns by about rate * width.

At the base width and depth it is the standard parametrisation, bit for bit. Let `heads` and `hidden` grow with the width: head
dimensions stay, so that scores need no factor. `addnorm scale-check` measures whether the sizes stay.

Source: Yang et al. 2022, "Tensor Programs V", arXiv:2203.03466, table 8 (width, Adam); Yang et al. 2023, "Tensor Programs VI",
arXiv:2310.02244, table 1 (power 1/2, Adam); Dey et al. 2025, "CompleteP", arXiv:2505.01618, table 1 (power 1, decay).
Differs from the source: the start of the matrices that join layers (residual, scores) is that of their mechanism, and the
division of the scores by the head dimension is left to models whose head dimension stays.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from addnorm.errors import InputError
from addnorm.fields import check_fields
from addnorm.roles import roles

__all__ = ["Scaling", "rate_factors"]


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """Sizes at which a model has the standard parametrisation.

    Raises:
        InputError: a width or depth below one, or a power out of its range.

    Example::

        Scaling(width=64)  # rates tuned at width 64
        Scaling(width=64, depth=8, power=1.0)
    """

    width: int
    """Width for which the rates and initial values are those of the study."""
    depth: int | None = None
    """Depth for which they are; null if they are not to change with the depth."""
    power: float = 0.5
    """Power of the depth by which branches shrink, from 0.5 to 1."""

    def __post_init__(self) -> None:
        check_fields(self, "scaling")
        if not 0.5 <= self.power <= 1:
            raise InputError(f"scaling.power: expected a number from 0.5 to 1, got {self.power}.")
        for name in ("width", "depth"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"scaling.{name}: expected a whole number of at least 1, got {value}.")

    def std_factor(self, width: int) -> float:
        """Factor of the initial standard deviation of hidden matrices."""
        return (self.width / width) ** 0.5

    def logit_factor(self, width: int) -> float:
        """Factor of the logits."""
        return self.width / width

    def branch_factor(self, depth: int) -> float:
        """Factor of what a branch adds to the stream."""
        return 1.0 if self.depth is None else (self.depth / depth) ** self.power

    def depth_rate(self, depth: int) -> float:
        """Factor of the rates of the numbers in branches."""
        return 1.0 if self.depth is None else (self.depth / depth) ** (1 - self.power)


def rate_factors(model: nn.Module) -> Mapping[int, tuple[float, float]]:
    """Factors of the learning rate and of the weight decay of every parameter, by its `id`; empty without a scaling.

    The decay of a step is rate * decay: its factor undoes the width's factor of the rate.
    """
    spec = getattr(model, "spec", None)
    scaling: Scaling | None = getattr(spec, "scaling", None)
    if spec is None or scaling is None:
        return {}
    role_of, by_width, by_depth = roles(model), scaling.width / spec.width, scaling.depth_rate(spec.depth)
    factors = {}
    for name, parameter in model.named_parameters():
        width = by_width if role_of[name] == "hidden_matrix" else 1.0
        depth = by_depth if name.startswith("layers.") else 1.0
        factors[id(parameter)] = (width * depth, 1 / width)
    return factors
