"""Models and gradients side by side, in float64."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from addnorm.bias import Biases
from addnorm.catalogue import ROOMS
from addnorm.model.spec import ModelSpec
from addnorm.model.transformer import Transformer
from addnorm.testing.contract import shrunk
from addnorm.testing.laws import rounding, some_tokens, subject

torch.set_num_threads(1)

WINDOW_AND_PADDING = torch.ones(2, 9, dtype=torch.bool)
WINDOW_AND_PADDING[0, 6:] = WINDOW_AND_PADDING[1, :2] = False
PROBLEM_SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"causal": True},
    "window": {"causal": True, "sliding_window": 3},
    "window and padding": {"causal": True, "sliding_window": 2, "padding": WINDOW_AND_PADDING},
    "padding": {"causal": False, "padding": WINDOW_AND_PADDING},
    "dropout": {"causal": True, "dropout": 0.4, "seed": torch.tensor(11)},
}
"""Masks and dropout of an attention problem of two sequences of nine positions."""


def make(room: str, kind: str, **fields: Any) -> Any:
    return ROOMS[room].make(kind, **fields)


def tiny(**changes: Any) -> ModelSpec:
    """The house's Llama-type model at toy size, grouped queries, with the changes."""
    return shrunk(ModelSpec(kv_heads=2, bias=Biases()), **changes)


def loss_of(logits: Tensor) -> Tensor:
    """A smooth function of all logits, so that every gradient is of order one."""
    weight = torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype).view(logits.shape)
    return (torch.log_softmax(logits, dim=-1) * weight).sum()


def gradients(model: torch.nn.Module, logits: Tensor) -> dict[str, Tensor]:
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss_of(logits), parameters, allow_unused=True), strict=True))


def assert_same_function(
    model: Transformer, other: Callable[[Tensor], Tensor], owner: torch.nn.Module | None = None
) -> None:
    """Logits agree to the model's own rounding, and the gradients of every shared parameter to that of theirs.

    Args:
        model: whose rounding decides.
        other: the same function by another way.
        owner: the module whose parameters `other` reads; `model` itself if None.
    """
    tokens = some_tokens(model.spec)
    with torch.no_grad():
        allowed = rounding(model, tokens)
    mine, theirs = model(tokens), other(tokens)
    gap = (mine - theirs).abs().max().item()
    assert gap <= allowed, f"logits differ by {gap:.1e}, rounding explains {allowed:.1e}"
    left, right = gradients(model, mine), gradients(owner or model, theirs)
    shared = [name for name in left if right.get(name) is not None and left[name] is not None]
    assert len(shared) >= 10
    relative = allowed / mine.abs().max().item()
    for name in shared:
        size = max(left[name].abs().max().item(), 1.0)
        gap = (left[name] - right[name]).abs().max().item()
        # A gradient is one more pass of the same length and sums over every position and logit.
        assert gap <= relative * size * tokens.numel() * model.spec.vocab, f"gradients of {name} differ by {gap:.1e}"


def twins(one: ModelSpec, other: ModelSpec) -> tuple[Transformer, Transformer]:
    """Two models, the parameters that both have moved off their start to the same place; the rest stay at their start."""
    torch.set_default_dtype(torch.float64)  # a start such as ln sqrt(d_k) is to be exact to float64, not float32
    try:
        left, right = one.build().eval(), other.build().eval()
    finally:
        torch.set_default_dtype(torch.float32)
    moved = {k: v for k, v in subject(one).state_dict().items() if not k.startswith(("scores.", "residual."))}
    left.load_state_dict(left.state_dict() | moved)
    right.load_state_dict(right.state_dict() | {k: v for k, v in moved.items() if k in right.state_dict()})
    return left, right
