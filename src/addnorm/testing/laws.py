"""Laws that every model keeps with any mechanism: each is a function of a `ModelSpec` that raises `BrokenLaw`.

The laws build small models in float64, move every parameter off its initial value (a gate at zero would hide the branch behind
it) and compare outputs. The tolerance is derived from the model itself: see `rounding`.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode

from addnorm.errors import BrokenLaw
from addnorm.model.initialisation import generator_for
from addnorm.model.spec import ModelSpec
from addnorm.model.transformer import Transformer
from addnorm.testing.guard import floats, guard
from addnorm.testing.interface import is_viewed_and_traced, repeats_itself, require_verbs, runs_on_its_device

SEQ = 9
Law = Callable[[ModelSpec], None]


def runs(spec: ModelSpec) -> None:
    """The model can be built and computes logits, and every method returns what its room asks for."""
    model = spec.build()
    require_verbs(model)
    model(some_tokens(spec))
    if "stream" not in spec.residual.refused_sockets():
        model.residual.map_stream(model.residual.open(torch.zeros(1, 2, spec.width)), torch.neg, spec.places[0])


def keeps_shape_and_dtype(spec: ModelSpec) -> None:
    """Logits have shape [batch, seq, vocab] and the model's dtype, with all its digits, and are finite, under autocast too."""
    law, tokens = "keeps_shape_and_dtype", some_tokens(spec)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        model = spec.build().to(dtype).eval()
        for module in model.modules():
            module.register_forward_pre_hook(partial(_of_dtype, dtype))
        with _KeptDigits() if dtype == torch.float64 else nullcontext():  # type: ignore[no-untyped-call]
            logits = model(tokens)
        _of_dtype(dtype, model, logits)
        if logits.shape != (*tokens.shape, spec.vocab):
            raise BrokenLaw(
                law,
                f"logits have shape {list(logits.shape)}, not {[*tokens.shape, spec.vocab]}.",
                "Return tensors of the shape of the input.",
            )
        if not logits.isfinite().all():
            raise BrokenLaw(law, f"logits in {dtype} are not finite at the start.", "Look for a division by zero.")
    with torch.autocast("cpu", torch.bfloat16):
        logits = spec.build()(tokens)
    if not logits.isfinite().all():
        raise BrokenLaw(law, "logits under autocast are not finite.", "Compute in float32 where values overflow.")


class _KeptDigits(TorchDispatchMode):
    """Raises `BrokenLaw` where numbers of a float64 model are rounded to a shorter type.

    No comparison of outputs would notice: rounded twice in the same way, two passes agree.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        shortened = func is torch.ops.aten._to_copy.default and args[0].dtype == torch.float64 != result.dtype
        if shortened and result.is_floating_point():
            raise BrokenLaw(
                "keeps_shape_and_dtype",
                f"in a model in float64, a tensor {list(result.shape)} is rounded to {result.dtype}.",
                "Compute in x.dtype; where that has too few digits, in torch.promote_types(x.dtype, torch.float32).",
            )
        return result


def has_finite_gradients(spec: ModelSpec) -> None:
    """Every parameter gets a finite gradient, at its initial value and elsewhere."""
    law = "has_finite_gradients"
    for model, when in ((spec.build().double(), "at the start"), (subject(spec).train(), "away from the start")):
        tokens = some_tokens(spec)
        logits = model(tokens)
        nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is None:
                raise BrokenLaw(law, f"{name} gets no gradient.", "Use it in the forward pass, or do not create it.")
            if not parameter.grad.isfinite().all():
                raise BrokenLaw(law, f"the gradient of {name} is not finite {when}.", "Look for 0/0 or sqrt(0).")


def keeps_sequences_apart(spec: ModelSpec) -> None:
    """In evaluation mode, a sequence has the same logits alone and beside others."""
    law, (model, tokens, logits, allowed) = "keeps_sequences_apart", _evaluated(spec)
    with torch.no_grad():
        what, advice = "alone, a logit of a sequence differs by", "Take no mean or sum over the batch (dimension 0)."
        _same(law, model(tokens[:1]), logits[:1], allowed, what, advice)


def is_causal(spec: ModelSpec) -> None:
    """In evaluation mode, changing a token changes no earlier logit, and some logit from its position on."""
    law, (model, tokens, logits, allowed) = "is_causal", _evaluated(replace(spec, objective="causal"))
    at = torch.arange(1, SEQ)
    changed = tokens.repeat(SEQ - 1, 1, 1)  # [changed position, batch, seq], read in one call
    changed[at - 1, :, at] = (changed[at - 1, :, at] + 1) % spec.vocab
    with torch.no_grad():
        move = (model(changed.flatten(0, 1)).unflatten(0, (SEQ - 1, -1)) - logits).abs().amax(dim=(1, 3))
    for position, moves in enumerate(move, start=1):
        if moves[:position].max() > allowed:
            raise BrokenLaw(
                law,
                f"changing token {position} moves an earlier logit by {moves[:position].max():.2e}; "
                f"rounding explains {allowed:.0e}.",
                "Mix positions by the causal attention alone.",
            )
        if moves[position] <= allowed:
            raise BrokenLaw(
                law, f"changing token {position} changes no logit there.", "Pass the stream on to the next site."
            )


def decodes_with_a_cache(spec: ModelSpec) -> None:
    """Reading a sequence in pieces with a cache gives the logits of one full pass."""
    law, (model, tokens, full, allowed) = "decodes_with_a_cache", _evaluated(replace(spec, objective="causal"))
    with torch.no_grad():
        # Single tokens first and in the middle: implementations choose between a prompt, a decoded row and several
        # rows.
        for pieces in ([1, 1, 3, 4], [5, 1, 3]):
            cache = model.new_cache()
            parts = [model(piece, cache=cache) for piece in tokens.split(pieces, dim=1)]
            _same(
                law,
                torch.cat(parts, dim=1),
                full,
                allowed,
                f"in pieces of {pieces}, a logit differs by",
                "Keep what depends on earlier positions in the keys and values; a residual's state is valid for one pass only.",
            )


def ignores_padding(spec: ModelSpec) -> None:
    """Padding after a sequence changes no logit at its real positions."""
    law, lengths = "ignores_padding", (5, SEQ)
    padding = torch.arange(SEQ) < torch.tensor(lengths)[:, None]
    # Windows and forgetting look back from a position, so a masked model has neither.
    for each in (
        replace(spec, objective="causal"),
        replace(spec, objective="masked", windows=(None,), forgetting=None),
    ):
        objective, (model, tokens, _, allowed) = each.objective, _evaluated(each)
        with torch.no_grad():
            together = model(tokens, padding=padding)
            for row, length in enumerate(lengths):
                alone = model(tokens[row : row + 1, :length])
                _same(
                    law,
                    together[row : row + 1, :length],
                    alone,
                    allowed,
                    f"in a {objective} model, padding moves a logit at a real position by",
                    "Compute no statistics along the sequence.",
                )


def leaves_inputs_alone(spec: ModelSpec) -> None:
    """No mechanism writes into a tensor that it is given."""
    model = guard(subject(spec).train())
    with torch.no_grad():
        model(some_tokens(spec))


def survives_its_state_dict(spec: ModelSpec) -> None:
    """A model that loads the state dict of another one computes the same bits."""
    law, (model, tokens, logits, _) = "survives_its_state_dict", _evaluated(spec)
    other = spec.build(seed=1).double().eval()
    missing = set(model.state_dict()) ^ set(other.state_dict())
    if missing:
        raise BrokenLaw(law, f"two builds differ in {sorted(missing)}.", "Create parameters in __init__.")
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        _same(
            law,
            other(tokens),
            logits,
            0.0,
            "after load_state_dict a logit differs by",
            "Register every tensor as a parameter or a buffer.",
        )


def starts_the_same(spec: ModelSpec) -> None:
    """Initial values depend on the seed alone, not on the global generator; another seed gives other values."""
    law, tokens = "starts_the_same", some_tokens(spec)
    with torch.random.fork_rng(devices=[]):
        models = []
        for unrelated in (1, 2):
            torch.manual_seed(unrelated)
            models.append(spec.build(seed=3).double().eval())
    one, two = models
    for name, value in one.state_dict().items():
        if not torch.equal(value, two.state_dict()[name]):
            raise BrokenLaw(
                law,
                f"{name} differs between two builds with seed 3.",
                "Fill it in `initialise` from the generator passed to it.",
            )
    with torch.no_grad():
        _same(
            law,
            one(tokens),
            two(tokens),
            0.0,
            "two builds with seed 3 differ in a logit by",
            "Draw no random number outside `initialise`.",
        )
    if torch.equal(one.embedding.weight, spec.build(seed=4).embedding.weight.double()):
        raise BrokenLaw(law, "seeds 3 and 4 give the same embeddings.", "Use the generator of `initialise`.")


def shares_one_weight(spec: ModelSpec) -> None:
    """Scores that promise one weight for all layers so far join all of them, each with that weight."""
    scores = _evaluated(spec).model.scores
    for layer in range(spec.attention_shape.depth):
        promised = scores.shared_weight(layer)
        if promised is None:
            continue
        weights = torch.as_tensor(scores.weights(layer), dtype=torch.float64)
        number = torch.as_tensor(promised).detach().item()
        if weights.shape[-1] != layer + 1 or not torch.all(weights == promised):
            raise BrokenLaw(
                "shares_one_weight",
                f"shared_weight({layer}) is {number:.3g}, the {weights.shape[-1]} weights are {weights.tolist()}.",
                "Return None where the weights differ, or where some of the layers so far do not join.",
            )


LAWS: Mapping[str, Law] = MappingProxyType(
    {
        law.__name__: law
        for law in (
            runs,
            repeats_itself,
            leaves_inputs_alone,
            keeps_shape_and_dtype,
            runs_on_its_device,
            has_finite_gradients,
            keeps_sequences_apart,
            is_causal,
            ignores_padding,
            decodes_with_a_cache,
            survives_its_state_dict,
            starts_the_same,
            shares_one_weight,
            is_viewed_and_traced,
        )
    }
)
"""Every law by name, in the order in which they are checked: simple findings first."""


def subject(spec: ModelSpec, seed: int = 0) -> Transformer:
    """Build the model in float64 and evaluation mode, with parameters and running statistics off their initial values."""
    model = spec.build(seed).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.empty_like(parameter).normal_(generator=generator_for(seed, f"law:{name}"))
            # Off the start: at zero, a gate hides the branch behind it, and equal weights hide which layer is read.
            parameter.add_(noise, alpha=0.1)
        # One pass in training mode moves running statistics too, which a state dict must carry.
        model.train()(some_tokens(spec, seed=1))
    return model.eval()


class _Evaluated(NamedTuple):
    """A subject that laws read and do not change, its tokens, its logits, and what rounding explains in them."""

    model: Transformer
    tokens: Tensor
    logits: Tensor
    allowed: float


@lru_cache(maxsize=2)  # the laws of one mechanism follow each other, most of them with the objective that it has
def _evaluated(spec: ModelSpec) -> _Evaluated:
    model, tokens = subject(spec), some_tokens(spec)
    with torch.no_grad():
        logits = model(tokens)
        return _Evaluated(model, tokens, logits, rounding_of(logits, model, tokens, terms=_terms(model)))


def some_tokens(spec: ModelSpec, seed: int = 0) -> Tensor:
    """Draw two sequences of `SEQ` tokens."""
    return torch.randint(spec.vocab, (2, SEQ), generator=torch.Generator().manual_seed(seed))


def rounding(model: Transformer, tokens: Tensor) -> float:
    """Bound the change of a logit that rounding can cause in this model.

    Every weight is moved by one unit of rounding, at random up or down; the change of the logits shows how the model
    amplifies an error of this size. A sum of n terms makes up to n such errors, and n is at most the longest axis of a sum.
    """
    return rounding_of(model(tokens), model, tokens, terms=_terms(model))


def rounding_of(logits: Tensor, model: nn.Module, tokens: Tensor, *, terms: int) -> float:
    """As `rounding`, of any model.

    Args:
        logits: its logits for the tokens.
        model: the model.
        tokens: what it reads.
        terms: the longest axis of a sum.
    """
    epsilon, moved = torch.finfo(logits.dtype).eps, {}
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point():
            sign = torch.empty_like(parameter).uniform_(-1, 1, generator=generator_for(0, f"rounding:{name}")).sign()
            moved[name] = parameter.detach() * (1 + epsilon * sign)
    # The tolerance comes from the model under test: how far its logits move when every weight moves by one rounding,
    # times the number of roundings in a sum. No mechanism has a tolerance of its own that could be widened until its
    # test passes.
    answer = (functional_call(model, moved, (tokens,)) - logits).abs().max()
    return terms * (answer.item() + epsilon * logits.abs().max().item())


def _terms(model: Transformer) -> int:
    return model.spec.width + model.spec.hidden


def _same(law: str, got: Tensor, expected: Tensor, allowed: float, what: str, advice: str) -> None:
    gap = (got - expected).abs().max().item()
    if not gap <= allowed:
        raise BrokenLaw(law, f"{what} {gap:.2e}; rounding explains {allowed:.0e}.", advice)


def _of_dtype(dtype: torch.dtype, module: nn.Module, args: Any) -> None:
    for tensor in floats(args):
        if tensor.dtype != dtype:
            raise BrokenLaw(
                "keeps_shape_and_dtype",
                f"in a model in {dtype}, {type(module).__name__} gets {tensor.dtype}.",
                "Create tensors with x.new_zeros or .to(x.dtype), and register parameters and buffers.",
            )
