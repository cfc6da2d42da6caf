"""Text generation with a cache, exact for every mechanism."""

import math

import torch
from jaxtyping import Int64
from torch import Tensor

from addnorm.errors import InputError
from addnorm.model.architecture import Architecture
from addnorm.model.transformer import Transformer, require_token_shape


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
    """Continue the tokens by `new_tokens`, each sampled from the model's prediction.

    Args:
        model: a causal model; it is put into evaluation mode for the call and back afterwards.
        tokens: the prompt, at least one token.
        new_tokens: number of tokens to add.
        temperature: 0 for the most likely token; 1 to sample from the model's distribution.
        top_k: sample among the k most likely tokens; None for all.
        seed: of the sampling.

    Raises:
        InputError: a masked model, a prompt that is empty, not of shape [batch, seq] or holds ids outside the vocabulary,
            an invalid temperature, count or seed, or more positions than the encoding covers.

    Example:
        >>> model = addnorm.preset("llama", vocab=64, width=32, depth=2, heads=4, hidden=64, max_seq=16).build(seed=0)
        >>> generate(model, torch.tensor([[1, 2, 3]]), new_tokens=4).shape
        torch.Size([1, 7])
    """
    if not isinstance(
        getattr(model, "spec", None), Architecture
    ):  # what torch.compile wraps around a model passes it on
        raise InputError(f"generate: expected a model made by a spec's build(), got a {type(model).__name__}.")
    if model.spec.objective != "causal":
        raise InputError("generate: expected a causal model, got a masked one.")
    _check_prompt(tokens, model.spec.vocab)
    for name, value, least in (("new_tokens", new_tokens, 0), ("top_k", top_k, 1), ("seed", seed, 0)):
        if not (value is None and name == "top_k") and not (isinstance(value, int) and least <= value < 2**63):
            raise InputError(f"{name}: expected a whole number of at least {least}, got {value!r}.")
    if not 0 <= temperature < math.inf:
        raise InputError(f"temperature: expected a finite number of at least 0, got {temperature!r}.")
    was_training = model.training
    model.eval()
    try:
        cache = model.new_cache()
        generator = torch.Generator(tokens.device).manual_seed(seed)
        pieces = [tokens]
        for _ in range(new_tokens):
            # The newest piece alone: the prompt once, then a token at a time; the cache has everything before.
            logits = model(pieces[-1], cache=cache)[:, -1]
            pieces.append(_sample(logits, temperature, top_k, generator))
        return torch.cat(pieces, dim=1)
    finally:
        model.train(was_training)


def _check_prompt(tokens: Tensor, vocab: int) -> None:
    require_token_shape(tokens)
    if not tokens.numel():
        raise InputError(f"generate: expected a prompt of at least one token, got shape {list(tokens.shape)}.")
    # Checked once per call and not in every forward pass, because on an accelerator it waits for the device.
    least, most = int(tokens.min()), int(tokens.max())
    if least < 0 or most >= vocab:
        raise InputError(
            f"token ids: expected 0 to {vocab - 1} (vocab {vocab}), got {least} to {most}. "
            "Use the tokenizer that the model was trained with."
        )


def _sample(logits: Tensor, temperature: float, top_k: int | None, generator: torch.Generator) -> Tensor:
    if temperature == 0:
        return logits.argmax(dim=-1, keepdim=True)
    if top_k is not None and top_k < logits.shape[-1]:
        threshold = logits.topk(top_k, dim=-1).values[:, -1:]
        # Ties with the k-th most likely stay in. Which of them a sort would drop differs between devices.
        logits = logits.masked_fill(logits < threshold, float("-inf"))
    return torch.multinomial(torch.softmax(logits / temperature, dim=-1), 1, generator=generator)
