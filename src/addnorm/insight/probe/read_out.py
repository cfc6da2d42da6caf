"""The read-out of a model: what makes logits of the last layer's output.

It is the chain of modules that are called one after the other after the last layer, if that makes the model's own logits. If
other computation stands between them, the whole model runs once more, and another stream takes the place of the last layer's
output.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from addnorm.anatomy.recording import PassEvents, same
from addnorm.anatomy.structure import LayerRecord
from addnorm.insight.flow.recording import ReadOut


@torch.no_grad()
def read_out_of(
    events: PassEvents, layers: Sequence[LayerRecord], logits: Tensor, again: Callable[[], Tensor]
) -> ReadOut | None:
    """Find the read-out of a recorded pass; None if nothing found makes the model's own logits.

    Args:
        again: runs the pass again.
    """
    last = layers[-1].call
    if last.output is None:
        return None
    chain = _chain(events, layers, logits)
    tries: list[ReadOut] = [] if chain is None else [partial(_through, chain)]
    tries.append(partial(_in_place, last.module, again))
    # A candidate is believed only if it makes the model's own logits of the last stream; a chain that misses a factor
    # or a cap would make plausible losses of every layer.
    return next((read_out for read_out in tries if _makes(read_out, last.output, logits)), None)


def _chain(events: PassEvents, layers: Sequence[LayerRecord], logits: Tensor) -> tuple[nn.Module, ...] | None:
    now, time = layers[-1].call.output, layers[-1].call.ended
    chain: list[nn.Module] = []
    while now is not None and not same(now, logits):
        later = [call for call in events.calls if call.began > time]
        call = next((call for call in later if call.input is not None and same(call.input, now)), None)
        if call is None:
            return None
        chain.append(call.module)
        now, time = call.output, call.ended
    return None if now is None else tuple(chain)


def _through(chain: Sequence[nn.Module], x: Tensor) -> Tensor:
    for module in chain:
        x = module(x)
    return x


def _in_place(last: nn.Module, again: Callable[[], Tensor], x: Tensor) -> Tensor:
    def replace(module: nn.Module, args: Any, output: Any) -> Any:
        return x if isinstance(output, Tensor) else (x, *output[1:])

    handle = last.register_forward_hook(replace)
    try:
        return again()
    finally:
        handle.remove()


def _makes(read_out: ReadOut, x: Tensor, logits: Tensor) -> bool:
    try:
        made = read_out(x)
    except (TypeError, ValueError, RuntimeError, AttributeError):  # a module that needs more than the stream
        return False
    return made.shape == logits.shape and torch.allclose(made, logits, rtol=1e-3, atol=1e-5)
