"""Text generation with a cache that is exact for every mechanism."""

import torch
from jaxtyping import Int64
from torch import Tensor

from addnorm.blocks.model import Transformer
from addnorm.errors import InputError


@torch.no_grad()
def generate(
    model: Transformer,
    tokens: Int64[Tensor, "batch seq"],
    *,
    new_tokens: int,
    temperature: float = 0.0,
    top_k: int | None = None,
    seed: int = 0,
) -> Int64[Tensor, "batch longer"]:
    """The tokens and `new_tokens` more, each sampled from the model's prediction.

    Args:
        model: a causal model; it is put into evaluation mode for the call and back afterwards.
        tokens: the prompt, at least one token.
        new_tokens: how many to add.
        temperature: 0 takes the likeliest token; 1 samples from the model's distribution.
        top_k: sample among the k likeliest tokens only; None for all.
        seed: of the sampling.

    Raises:
        InputError: a masked model, an empty prompt, a negative temperature or count, or more positions than are known.
    """
    if model.spec.objective != "causal":
        raise InputError("generation needs a causal model; this one is masked.")
    if tokens.shape[1] < 1:
        raise InputError("generation needs a prompt of at least one token.")
    if new_tokens < 0 or temperature < 0 or (top_k is not None and top_k < 1):
        raise InputError(
            f"new_tokens and temperature must not be negative and top_k at least 1, got {new_tokens}, {temperature}, {top_k}."
        )
    was_training = model.training
    model.eval()
    try:
        cache = model.new_cache()
        generator = torch.Generator(tokens.device).manual_seed(seed)
        pieces = [tokens]
        for _ in range(new_tokens):
            logits = model(pieces[-1], cache=cache)[:, -1]
            pieces.append(_sample(logits, temperature, top_k, generator))
        return torch.cat(pieces, dim=1)
    finally:
        model.train(was_training)


def _sample(logits: Tensor, temperature: float, top_k: int | None, generator: torch.Generator) -> Tensor:
    if temperature == 0:
        return logits.argmax(dim=-1, keepdim=True)
    if top_k is not None and top_k < logits.shape[-1]:
        threshold = logits.topk(top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < threshold, float("-inf"))
    return torch.multinomial(torch.softmax(logits / temperature, dim=-1), 1, generator=generator)
