r"""Value norm: every value is divided by its root mean square before it is attended.

    v <- v / sqrt(mean(v^2) + values.eps)

Why: no position can weigh more than another by the length of its value alone: how much a head takes is decided by scores. A
value bias no longer folds into the output's bias, because it turns the direction of what is normed.

Source: Gemma 4 (`v_norm`, a norm without a gain) and Inkling 2 in Transformers,
https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/inkling2/modeling_inkling2.py.
Differs from the source: nothing. Padding and causality are safe: each position is normed alone, head by head.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from addnorm.fields import require_positive
from addnorm.reduction import Reduction
from addnorm.shape import Shape
from addnorm.values import Values, ValuesSpec


@dataclass(frozen=True, kw_only=True)
class Normed(ValuesSpec):
    """Values of one length."""

    eps: float = 1e-6
    """Added to the mean square."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "eps")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        # An eps far above the values' mean square leaves a constant factor, which the norm after the branch takes out.
        after = {"placement": "sandwich", "bias": False, "norm": {"kind": "rms", "eps": 1e-60}}
        return (Reduction(settings={"eps": 2.0**80}, given=after, to={"values": "own"}, equal="after the next norm"),)

    def build(self, shape: Shape, *, vocab: int, std: float) -> "NormedValues":
        return NormedValues(self.eps)


class NormedValues(Values):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def join(self, layer: int, own: Tensor | None, earlier: Sequence[Tensor], x: Tensor, tokens: Tensor) -> Tensor:
        assert own is not None
        if not self.frozen:
            # Autocast on a GPU norms in float32; the scores' operands have one dtype.
            return F.rms_norm(own, own.shape[-1:], eps=self.eps).to(own.dtype)
        return own * torch.rsqrt(self.seen(own).square().mean(dim=-1, keepdim=True) + self.eps)
