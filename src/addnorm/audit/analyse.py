"""`addnorm.audit`: run the methods on a model and put what they say side by side."""

from typing import Any, Literal

from torch import nn

from addnorm.audit.observe import Observe
from addnorm.audit.result import Audit


def analyse(
    model: nn.Module,
    inputs: Any,
    *,
    observe: Observe = "logits",
    training: bool = False,
    methods: Literal["both", "static", "numeric"] = "both",
    track: str = "bias",
) -> Audit:
    """Find which additive parameters of a model cannot matter, alone or together."""
    raise NotImplementedError
