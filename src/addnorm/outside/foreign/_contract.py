"""The contract of a model that others wrote: what the training loop relies on, checked before anything is trained."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.errors import BrokenLaw
from addnorm.model.initialisation import generator_for
from addnorm.study.foreign import ForeignModel, ForeignSpec
from addnorm.testing.laws import rounding_of

_SEQ = 12
_BATCH = 2


def check_model(model: ForeignModel, spec: ForeignSpec) -> None:
    """Check shape, repeatability, separate rows, causality and gradients of a model at the parameters that it has.

    Raises:
        BrokenLaw: one of them does not hold.
    """
    tokens = some_tokens(spec)
    before = tokens.clone()
    logits = _evaluated(model, tokens)
    expected = (*tokens.shape, spec.vocab)
    if logits.dim() != 3 or logits.shape[:2] != tokens.shape or logits.shape[2] < spec.vocab:
        raise BrokenLaw(
            "keeps_shape",
            f"for tokens {list(tokens.shape)} it returns {list(logits.shape)} where logits {list(expected)} are expected.",
            "Return one number per id and position.",
        )
    if not logits.is_floating_point() or not logits.isfinite().all():
        raise BrokenLaw("is_finite", f"logits are not finite numbers, of {logits.dtype}.", "Look for 0/0 or a mask.")
    if not torch.equal(tokens, before):
        raise BrokenLaw("leaves_inputs_alone", "it changes the tokens that it gets.", "Copy them first.")
    # Other tokens in between: a model that keeps state from call to call repeats itself only without them.
    _evaluated(model, some_tokens(spec, seed=1))
    if not torch.equal(_evaluated(model, tokens), logits):
        raise BrokenLaw(
            "repeats",
            "the same tokens give other logits after other tokens, or when they are given again.",
            "Keep no state between calls, and draw random numbers with torch in training mode only.",
        )
    longest = max((each.shape[-1] for each in model.parameters() if each.dim() > 1), default=1)
    with torch.no_grad():
        allowed = rounding_of(logits, model, tokens, terms=longest)
    alone = (_evaluated(model, tokens[:1]) - logits[:1]).abs().max().item()
    if alone > allowed:
        raise BrokenLaw(
            "treats_each_sequence_alone",
            f"a sequence alone gives logits that differ by {alone:.2e}; rounding explains {allowed:.0e}.",
            "Mix positions of one sequence only; the batch is the first axis.",
        )
    if spec.objective == "causal":
        _check_causality(model, spec, tokens, logits, allowed)
    _check_gradients(model, tokens)


def check_start(make: Callable[[int], ForeignModel], spec: ForeignSpec) -> None:
    """Check that a model is a function of the seed, and that its state dict holds all that it is.

    Raises:
        BrokenLaw: it is not.
    """
    first, again = make(0), make(0)
    state, other = first.state_dict(), again.state_dict()
    unlike = next((name for name in state if name not in other or not torch.equal(state[name], other[name])), None)
    if unlike is not None or state.keys() != other.keys():
        raise BrokenLaw(
            "starts_the_same",
            f"two models of one seed differ: {(unlike or 'their names').removeprefix('module.')}.",
            "Draw initial values with torch's random numbers alone, which are seeded, on the CPU.",
        )
    with torch.no_grad():
        # Away from the start, where a second model with the same seed would agree without its state dict.
        for name, parameter in first.named_parameters():
            parameter.add_(torch.empty_like(parameter).normal_(generator=generator_for(0, f"law:{name}")), alpha=0.1)
        with torch.random.fork_rng(devices=[]):
            first.train()(some_tokens(spec, seed=2))  # what a training step keeps must be in the state dict too
    tokens = some_tokens(spec)
    expected = _evaluated(first, tokens)
    again.load_state_dict(first.state_dict())
    if not torch.equal(_evaluated(again, tokens), expected):
        raise BrokenLaw(
            "survives_its_state_dict",
            "a second model with the state dict of the first gives other logits, so that a resumed run would differ.",
            "Register tensors as parameters or buffers, and derive nothing from them before the forward pass.",
        )
    # Where a start hides a mistake, as zeros do, moved parameters show it.
    check_model(first, spec)


def some_tokens(spec: ForeignSpec, seed: int = 0) -> Tensor:
    """Draw two sequences of up to 12 tokens."""
    shape = (_BATCH, min(_SEQ, spec.max_seq))
    return torch.randint(spec.vocab, shape, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def _evaluated(model: nn.Module, tokens: Tensor) -> Tensor:
    logits: Tensor = model.eval()(tokens)
    return logits


def _check_causality(model: nn.Module, spec: ForeignSpec, tokens: Tensor, logits: Tensor, allowed: float) -> None:
    for position in range(1, tokens.shape[1]):
        changed = tokens.clone()
        changed[:, position] = (changed[:, position] + 1) % spec.vocab
        moves = (_evaluated(model, changed) - logits)[:, :position].abs().max().item()
        if moves > allowed:
            raise BrokenLaw(
                "is_causal",
                f"changing token {position} moves an earlier logit by {moves:.2e}; rounding explains {allowed:.0e}.",
                "Mask later positions. Models that see all of them have `objective: masked`.",
            )


def _check_gradients(model: nn.Module, tokens: Tensor) -> None:
    losses = []
    for _ in range(2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            logits = model.train()(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens.roll(-1, 1).flatten())
        losses.append(loss)
    if not torch.equal(*losses):
        raise BrokenLaw(
            "repeats",
            "a step with the same random numbers of torch has another loss, so that a resumed run would differ.",
            "Draw random numbers with torch.",
        )
    if not losses[0].requires_grad:
        raise BrokenLaw("has_finite_gradients", "no parameter gets a gradient.", "Leave some `requires_grad` true.")
    losses[0].backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not parameter.grad.isfinite().all():
            raise BrokenLaw(
                "has_finite_gradients",
                f"the gradient of {name.removeprefix('module.')} is not finite.",
                "Look for 0/0 or sqrt(0).",
            )
    model.zero_grad(set_to_none=True)
