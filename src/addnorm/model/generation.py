"""Text generation with a cache, exact for every mechanism."""

import math
from typing import overload

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from addnorm.errors import InputError
from addnorm.model.architecture import Architecture
from addnorm.model.transformer import Transformer, require_token_shape


@overload
def generate(
    model: Transformer,
    tokens: Int64[Tensor, "batch seq"],
    *,
    new_tokens: int,
    temperature: float = 0.0,
    top_k: int | None = None,
    seed: int = 0,
) -> Int64[Tensor, "batch longer"]: ...


@overload
def generate(
    model: Transformer,
    tokens: str,
    *,
    new_tokens: int,
    temperature: float = 0.0,
    top_k: int | None = None,
    seed: int = 0,
) -> str: ...


@torch.no_grad()
def generate(
    model: Transformer,
    tokens: Int64[Tensor, "batch seq"] | str,
    *,
    new_tokens: int,
    temperature: float = 0.0,
    top_k: int | None = None,
    seed: int = 0,
) -> Int64[Tensor, "batch longer"] | str:
    """Continue the tokens, or a text, by `new_tokens`, each sampled from the model's prediction.

    Args:
        model: a causal model; it is put into evaluation mode for the call and back afterwards.
        tokens: the prompt, at least one token; or a text, for a model that was loaded together with its tokenizer
            (`addnorm.load`, `addnorm.load_hf`).
        new_tokens: number of tokens to add.
        temperature: 0 for the most likely token; 1 to sample from the model's distribution.
        top_k: sample among the k most likely tokens; None for all.
        seed: of the sampling.

    Returns:
        The prompt and what follows it, as tokens or as a text.

    Raises:
        InputError: a masked model, a prompt that is empty, not of shape [batch, seq] or holds ids outside the vocabulary, a
            text for a model without a tokenizer, an invalid temperature, count or seed, or more positions than the encoding
            covers.

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
    if isinstance(tokens, str):
        if model.read_tokenizer is None:
            raise InputError(
                "generate: expected token ids, got a text for a model that was not loaded together with a tokenizer. "
                "Load one with a tokenizer.json beside its weights (addnorm.load, addnorm.load_hf), or encode the text."
            )
        tokenizer = model.read_tokenizer()
        ids = torch.tensor(tokenizer.encode(tokens)[None], dtype=torch.int64, device=model.embedding.weight.device)
        longer = generate(model, ids, new_tokens=new_tokens, temperature=temperature, top_k=top_k, seed=seed)
        # The prompt is given back as it was: decoded anew, it could lose spaces or letters that its tokenizer changes. What
        # follows it is decoded with it, because tokenizers leave out the first space of a text.
        prompt, text = (tokenizer.decode(np.asarray(each[0].cpu())) for each in (ids, longer))
        return tokens + text[len(prompt) :]
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
