"""The measured start of a patch: logits that have changed by no more than rounding."""

from typing import Any

import torch
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.hugging_face.patching.joints import some_tokens
from addnorm.study.foreign import logits_of


@torch.no_grad()
def start_of(model: nn.Module) -> tuple[Tensor, float]:
    """Compute logits of random tokens, and the largest change of one that rounding explains.

    The embeddings are moved by one unit of rounding, at random up or down; the change of the logits shows how the model
    amplifies an error of this size. Sums of `width` numbers make errors that add up to about sqrt(width) of them.
    """
    training = model.training
    model.eval()
    try:
        tokens = some_tokens(model)
        logits = logits_of(model, tokens)
        embedding = next(module for module in model.modules() if isinstance(module, nn.Embedding))
        epsilon = torch.finfo(logits.dtype).eps
        handle = embedding.register_forward_hook(_Moved(epsilon))
        try:
            moved = (logits_of(model, tokens) - logits).abs().max().item()
        finally:
            handle.remove()
    finally:
        model.train(training)
    return logits, embedding.embedding_dim**0.5 * (moved + epsilon * logits.abs().max().item())


def require_start(model: nn.Module, before: Tensor, allowed: float, what: str) -> None:
    """Compare logits of the same tokens with those of an earlier model.

    Raises:
        InputError: they differ by more than rounding explains.
    """
    after, _ = start_of(model)
    gap = (after - before).abs().max().item()
    if not gap <= allowed:
        raise InputError(
            f"patch: expected {what} that leaves the logits as they are at the start, got a change of {gap:.1e}, where "
            f"rounding explains {allowed:.0e}. The model is as it was before."
        )


class _Moved:
    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon

    def __call__(self, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        random = torch.Generator().manual_seed(1)
        sign = torch.empty(output.shape).uniform_(-1, 1, generator=random).sign().to(output)
        return output * (1 + self.epsilon * sign)
