"""`addnorm.scale_check`: whether what a model computes, and what a step changes of it, stays of one size over widths or depths.

Small models of several widths (or depths) are trained for a few steps on one batch. For every site, the stream and the logits,
the root mean square of the values at the start, and of their change since the start, is fitted against the size:

    log rms = a + slope * log(size) + seed effect

A slope of 0 is what a parametrisation has under which rates carry over; under the standard one, changes grow with the width.

Source: the coordinate check of Yang et al. 2022, "Tensor Programs V", arXiv:2203.03466, appendix D.1.
Differs from the source: slopes with intervals instead of a figure to look at.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from scipy.special import stdtrit
from torch import Tensor
from torch.nn import functional as F

from addnorm.errors import InputError, UnknownName
from addnorm.fields import JsonFields
from addnorm.model.initialisation import generator_for
from addnorm.model.scaling import rate_factors
from addnorm.model.spec import ModelSpec
from addnorm.model.transformer import Transformer
from addnorm.optimization.optimizers import with_rates
from addnorm.study.definition import Study, Training
from addnorm.study.loading import load_study

Growth = Literal["grows", "shrinks", "stays", "open"]
Over = Literal["width", "depth"]
BAND = 0.25
"""Largest slope, either way, that counts as staying: over a tenfold width, a factor of 1.8."""
CONFIDENCE = 0.95
_VOCAB, _BATCH, _SEQ = 64, 4, 32


@dataclass(frozen=True, kw_only=True)
class ScaleSlope(JsonFields):
    """Growth of one quantity with the size."""

    place: str
    """A site such as `2 attention` (counted from 0), `stream` before the final norm, or `logits`. Over depths, where sites have
    no partner, the last two alone."""
    what: Literal["start", "change"]
    """Size at the start, or of the change since the start after the steps."""
    slope: float
    """Exponent of the size."""
    interval: tuple[float, float]
    """95 % interval of the slope, of this place alone."""
    growth: Growth
    """`stays` if the interval lies within the band around 0, `grows` or `shrinks` if it lies beyond it, else `open`."""
    sizes: tuple[float, ...]
    """Geometric mean over seeds, by size."""


@dataclass(frozen=True, kw_only=True)
class ScaleCheck(JsonFields):
    """Growth of every place of one variant."""

    study: str
    variant: str
    over: Over
    values: tuple[int, ...]
    """Widths or depths that were trained."""
    steps: int
    seeds: int
    learning_rate: float
    scaled: bool
    """True if the model has a `scaling`."""
    band: float
    places: tuple[ScaleSlope, ...]

    @property
    def steady(self) -> bool:
        """True if nothing grows, and nothing but the logits shrinks: rates can be expected to carry over.

        Under a scaling of the width, logits start smaller in wider models; what steps add to them does not."""
        return all(p.growth == "stays" or (p.growth == "shrinks" and p.place == "logits") for p in self.places)

    def to_json(self) -> dict[str, Any]:
        """The fields as plain JSON values, and whether all is `steady`."""
        return {**super().to_json(), "steady": self.steady}


def scale_check(
    study: str | Path | Study,
    *,
    variant: str | None = None,
    profile: str | None = None,
    settings: Sequence[str] = (),
    over: Over = "width",
    values: Sequence[int] = (),
    steps: int = 4,
    seeds: int = 3,
) -> ScaleCheck:
    """Measure how a model's sizes, and what steps change of them, grow with its width or depth. The command is
    `addnorm scale-check`.

    Heads and hidden width grow with the width. Steps are those of the variant's optimizer at its peak rate, on one batch of
    random tokens; nothing is written.

    Args:
        study: a built-in study, a study file, or a study.
        variant: the variant; the first one if not given.
        profile, settings: as of `addnorm run`.
        over: `width` or `depth`.
        values: at least three; the variant's own times 1/2, 1, 2 and 4 if empty, of a width only those that its heads allow.
        steps: steps of the optimizer.
        seeds: seeds per size.

    Raises:
        InputError: a model without a width of its own, too few sizes, sizes that cannot be built, or steps that diverge.
        UnknownName: an unknown variant.

    Example:
        >>> check = addnorm.scale_check("demo", values=[16, 32, 64], seeds=1)  # doctest: +SKIP
        >>> check.steady  # doctest: +SKIP
        False
    """
    loaded = study if isinstance(study, Study) else load_study(study, profile=profile, settings=settings)
    name = next(iter(loaded.variants)) if variant is None else variant
    if name not in loaded.variants:
        raise UnknownName("variant", name, loaded.variants)
    model, training = loaded.variants[name], loaded.training_of(name)
    if not isinstance(model, ModelSpec):
        raise InputError(
            f"variant '{name}': expected a model of addnorm, whose width and depth can be set, got a model that others wrote, "
            "which has one size. Choose another --variant."
        )
    if steps < 1 or seeds < 1:
        raise InputError(f"expected at least one step and one seed, got {steps} steps and {seeds} seeds.")
    sizes = _values(model, over, values)
    models = [_small(_resized(model, over, size)) for size in sizes]
    measured = [[_measured(each, training, steps, seed) for seed in range(seeds)] for each in models]
    compared = [key for key in measured[0][0] if over == "width" or key[0] in ("stream", "logits")]
    places = tuple(
        _slope(place, what, sizes, [[run[place, what] for run in of] for of in measured]) for place, what in compared
    )
    return ScaleCheck(
        study=loaded.name,
        variant=name,
        over=over,
        values=tuple(sizes),
        steps=steps,
        seeds=seeds,
        learning_rate=training.optimizer.learning_rate,
        scaled=model.scaling is not None,
        band=BAND,
        places=places,
    )


def _values(model: ModelSpec, over: Over, given: Sequence[int]) -> list[int]:
    own = getattr(model, over)
    smallest = own // model.heads if over == "width" else 1
    if over == "width" and model.kv_heads:
        smallest *= model.heads // math.gcd(model.heads, model.kv_heads)
    values = sorted(set(given)) if given else [size for size in (own // 2, own, 2 * own, 4 * own) if size >= 1]
    if not given:
        values = [size for size in values if size % smallest == 0]
    if len(values) < 3:
        raise InputError(
            f"--{over}s: expected at least three different sizes, got {', '.join(map(str, values)) or 'none'}."
        )
    for size in values:
        if size < 1 or size % smallest:
            expected = (
                f"multiples of {smallest}, as the head dimension and the heads' groups stay"
                if smallest > 1
                else "sizes"
            )
            raise InputError(f"--{over}s: expected {expected} of at least {smallest}, got {size}.")
    return values


def _resized(model: ModelSpec, over: Over, size: int) -> ModelSpec:
    if over == "depth":
        return replace(model, depth=size)
    times = size / model.width
    heads = model.heads * size // model.width
    return replace(
        model,
        width=size,
        heads=heads,
        kv_heads=None if model.kv_heads is None else max(1, round(model.kv_heads * times)),
        hidden=max(1, round(model.hidden * times)),
    )


def _small(model: ModelSpec) -> ModelSpec:
    """The model on few tokens and without dropout, which would be part of every change."""
    dropout = replace(model.dropout, attention=0.0, branch=0.0, embedding=0.0)
    return replace(model, vocab=_VOCAB, max_seq=max(model.max_seq, _SEQ), dropout=dropout)


Sizes = dict[tuple[str, Literal["start", "change"]], float]


def _measured(spec: ModelSpec, training: Training, steps: int, seed: int) -> Sizes:
    """Root mean squares of one model at the start, and of their changes after the steps."""
    model = spec.build(seed)
    tokens = torch.randint(_VOCAB, (_BATCH, _SEQ + 1), generator=generator_for(seed, "scale check"))
    groups = training.optimizer.groups(model)
    if factors := rate_factors(model):
        groups = with_rates(groups, factors)
    optimizer = training.optimizer.build(groups)
    before = _values_of(model, tokens[:, :-1])
    for step in range(steps):
        model.train()
        model.residual.advance(step)
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        if training.clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), training.clip)
        for group in optimizer.param_groups:
            group["lr"] = training.optimizer.learning_rate * group.get("rate", 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    with training.optimizer.averaged(optimizer):
        after = _values_of(model, tokens[:, :-1])
    sizes: Sizes = {}
    for place, value in before.items():
        sizes[place, "start"] = float(value.square().mean().sqrt())
        sizes[place, "change"] = float((after[place] - value).square().mean().sqrt())
    return sizes


@torch.no_grad()
def _values_of(model: Transformer, tokens: Tensor) -> Mapping[str, Tensor]:
    """Outputs of all branches to the stream, the stream before the final norm, and the logits; in float64."""
    model.eval()
    values: dict[str, Tensor] = {}
    counted: dict[str, int] = {}

    def keep(place: str, value: Tensor) -> None:
        values.setdefault(
            place, value.detach().double()
        )  # replayed layers run again: their first pass is the site's own

    handles = [model.final_norm.register_forward_pre_hook(lambda _, inputs: keep("stream", inputs[0]))]
    for index, branch in enumerate(model.branches()):
        role = "attention" if branch.attends else "feed-forward"
        counted[f"{index} {role}"] = index
        place = f"{index} {role}"
        handles.append(branch.register_forward_hook(lambda _, inputs, output, place=place: keep(place, output)))
    try:
        logits = model(tokens)
    finally:
        for handle in handles:
            handle.remove()
    stream = values.pop("stream")
    return {
        **dict(sorted(values.items(), key=lambda item: counted[item[0]])),
        "stream": stream,
        "logits": logits.double(),
    }


def _slope(
    place: str, what: Literal["start", "change"], sizes: Sequence[int], measured: Sequence[Sequence[float]]
) -> ScaleSlope:
    """Least squares of log rms on log size with an effect of each seed; a quantity that is zero somewhere has none."""
    table = np.array(measured)  # size x seed
    for index, size in enumerate(sizes):
        if not np.isfinite(table[index]).all():
            raise InputError(
                f"scale-check: expected finite values at every size, got others at '{place}' of size {size}: the steps "
                "diverge. Lower the optimizer's learning_rate."
            )
    if not (table > 0).all():
        # A branch that starts at zero (ReZero) has no start to compare, and stays zero where its rate is.
        return ScaleSlope(
            place=place,
            what=what,
            slope=0.0,
            interval=(0.0, 0.0),
            growth="open" if table.any() else "stays",
            sizes=tuple(table.mean(axis=1).tolist()),
        )
    logs, x = np.log(table), np.log(np.array(sizes, float))
    x = x - x.mean()
    residuals = logs - logs.mean(axis=0)
    slope = float((x[:, None] * residuals).sum() / (x @ x) / table.shape[1])
    residuals = residuals - slope * x[:, None]
    df = table.size - table.shape[1] - 1
    error = math.sqrt(float((residuals**2).sum()) / df / float(x @ x) / table.shape[1])
    half = float(stdtrit(df, (1 + CONFIDENCE) / 2)) * error
    low, high = slope - half, slope + half
    growth: Growth = "open"
    if low >= -BAND and high <= BAND:
        growth = "stays"
    elif low > 0 and slope > BAND:
        growth = "grows"
    elif high < 0 and slope < -BAND:
        growth = "shrinks"
    return ScaleSlope(
        place=place,
        what=what,
        slope=slope,
        interval=(low, high),
        growth=growth,
        sizes=tuple(np.exp(logs.mean(axis=1)).tolist()),
    )
