"""The two laws about torch's tracers. They take seconds, so they are not among those that a plugin passes at load time."""

import warnings

import torch
from torch import Tensor, nn

from addnorm.model.spec import ModelSpec
from addnorm.testing import BrokenLaw
from addnorm.testing.laws import rounding, some_tokens, subject


def exports(spec: ModelSpec) -> None:
    """`torch.export` gives a program with the same logits."""
    model, tokens = subject(spec), some_tokens(spec)
    with torch.no_grad():
        program = torch.export.export(model, (tokens,), strict=False)
        _agree("exports", model, tokens, program.module()(tokens))


def compiles(spec: ModelSpec, backend: str = "eager") -> None:
    """`torch.compile` traces it as one graph with the same logits.

    Args:
        spec: the model.
        backend: runs the graph as it was traced, or "aot_eager" lowered to aten, which `exports` does as well and takes half
            as long again.
    """
    model, tokens = subject(spec), some_tokens(spec)
    torch._dynamo.reset()
    compiled: nn.Module = torch.compile(model, fullgraph=True, backend=backend)
    with torch.no_grad(), warnings.catch_warnings():
        # torch's own tracer makes an instance of every autograd function that it meets, and torch warns of it.
        warnings.filterwarnings("ignore", ".*should not be instantiated", DeprecationWarning)
        _agree("compiles", model, tokens, compiled(tokens))


def _agree(law: str, model: nn.Module, tokens: Tensor, logits: Tensor) -> None:
    gap, allowed = (logits - model(tokens)).abs().max().item(), rounding(model, tokens)
    if not gap <= allowed:
        raise BrokenLaw(law, f"a logit differs by {gap:.1e}; rounding explains {allowed:.0e}.", "Trace it by hand.")
