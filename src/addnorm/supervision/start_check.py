"""Check of a model before it is trained: coefficients that cannot learn, and norms whose eps is not small.

Both are seen in one pass in float64 on random tokens. A gradient of zero at the start alone is normal (the inner matrix of a
product whose outer one starts at zero), so gradients are taken once more after a small random move of all parameters. The
sizes of the stream are those of the start, where they are smallest.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.catalogue import JOINT_ROOMS
from addnorm.fields import JsonFields
from addnorm.model.presets import FIELD_OF_ROOM
from addnorm.model.spec import ModelSpec
from addnorm.model.transformer import Transformer

NO_GRADIENT = 1e-12
"""Share of the model's largest gradient below which an entry's is rounding, or as good as none: optimizers add an eps."""
LARGE_EPS = 0.1
"""Share of the mean square from which eps counts as large: the normalised vector is then 5 % too short."""
_MOVE = 0.02
_POSITIONS = 16


@dataclass(frozen=True, kw_only=True)
class Unlearnable:
    """Entries of a parameter to which no gradient comes."""

    parameter: str
    entries: int
    of: int
    """Entries of the parameter."""
    first: tuple[int, ...]
    """Index of the first of them."""
    gradient: float
    """Largest of their gradients at the start."""


@dataclass(frozen=True, kw_only=True)
class LargeEps:
    """A norm whose eps is not small compared with what it meets at the start."""

    norm: str
    eps: float
    mean_square: float
    """Median over positions of the mean square of its input; of a layer norm, of its variance."""


@dataclass(frozen=True, kw_only=True)
class StartCheck(JsonFields):
    """Findings about a model before training."""

    unlearnable: tuple[Unlearnable, ...]
    large_eps: tuple[LargeEps, ...]

    def warnings(self) -> list[str]:
        """One sentence per parameter, and one for all norms together."""
        sentences = [
            f"{each.parameter}: {each.entries} of {each.of} number(s) cannot learn, from {list(each.first)} on: no gradient at "
            f"the start (at most {each.gradient:.0e}) nor after a small move."
            for each in self.unlearnable
        ]
        if self.large_eps:
            worst = max(self.large_eps, key=lambda each: each.eps / each.mean_square)
            sentences.append(
                f"{worst.norm}: eps {worst.eps:g} is {worst.eps / worst.mean_square:.2g} times the mean square "
                f"{worst.mean_square:.1e} that it meets at the start, so that the norm does not set the size; "
                f"{len(self.large_eps)} norm(s) with eps above {LARGE_EPS:.0%}. Make eps smaller or the embeddings larger."
            )
        return sentences


def check_start(spec: ModelSpec) -> StartCheck:
    """Build a model as it starts and look at its gradients and norms.

    Memory: four times the model in float64, for a moment. Cost: two training steps on 32 tokens.
    """
    model = spec.build(seed=0).double().eval()
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(spec.vocab, (2, min(_POSITIONS, spec.max_seq) + 1), generator=generator)
    meetings: dict[str, LargeEps] = {}
    hooks = [
        module.register_forward_hook(_meeting(meetings, name), with_kwargs=False)
        for name, module in model.named_modules()
        if isinstance(getattr(module, "eps", None), float)
    ]
    gradients, largest = _gradients(model, tokens)
    for hook in hooks:
        hook.remove()
    dead = {name: gradient.abs() <= NO_GRADIENT * largest for name, gradient in gradients.items()}
    if any(bool(entries.any()) for entries in dead.values()):
        # A single gradient of zero proves nothing: the inner matrix of a product is idle while the outer one is zero.
        # After a small move of everything, what still gets no gradient cannot learn. In float64, where rounding is far
        # below the threshold.
        model.residual.advance(10**9)  # a schedule that starts as the identity would hide every gradient
        with torch.no_grad():
            for parameter in model.parameters():
                size = parameter.abs().mean().clamp_min(1e-3)
                parameter.add_(_MOVE * size * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        moved, largest = _gradients(model, tokens)
        dead = {name: entries & (moved[name].abs() <= NO_GRADIENT * largest) for name, entries in dead.items()}
    return StartCheck(
        unlearnable=tuple(
            Unlearnable(
                parameter=name,
                entries=int(entries.sum()),
                of=entries.numel(),
                first=tuple(entries.nonzero()[0].tolist()),
                gradient=float(gradients[name][entries].abs().max()),
            )
            for name, entries in dead.items()
            if entries.any()
        ),
        large_eps=tuple(each for each in meetings.values() if each.eps > LARGE_EPS * each.mean_square),
    )


def _gradients(model: Transformer, tokens: Tensor) -> tuple[dict[str, Tensor], float]:
    """Gradients of the coefficients, and the model's largest one."""
    with torch.enable_grad():
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    named = dict(model.named_parameters())
    gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    given = {
        name: torch.zeros_like(parameter) if gradient is None else gradient
        for (name, parameter), gradient in zip(named.items(), gradients, strict=True)
    }
    largest = max(float(gradient.abs().max()) for gradient in given.values() if gradient.numel())
    return {name: given[name] for name in _coefficients(model)}, largest


def _coefficients(model: Transformer) -> Iterator[str]:
    """Names of the mechanisms' parameters; not of tables, whose rows most tokens do not meet."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    fields = "|".join(re.escape(FIELD_OF_ROOM[room]) for room in JOINT_ROOMS)
    for name, parameter in model.named_parameters():
        if re.search(rf"(^|\.)({fields})\.", name) and id(parameter) not in tables:
            yield name


def _meeting(meetings: dict[str, LargeEps], name: str) -> Any:
    def hook(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if torch._C._are_functorch_transforms_active():
            return  # a layer that is replayed; its norms have met their own inputs before
        x = inputs[0].detach()
        sizes = x.var(dim=-1, correction=0) if isinstance(module, nn.LayerNorm) else x.square().mean(dim=-1)
        smallest = float(sizes.median())
        # A zero is a path that starts empty, such as a matrix at zero; it has no size that eps could be compared with.
        if smallest > 0 and (name not in meetings or smallest < meetings[name].mean_square):
            meetings[name] = LargeEps(norm=name, eps=module.eps, mean_square=smallest)

    return hook
