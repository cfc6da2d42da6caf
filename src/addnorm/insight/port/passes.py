"""A pass of each implementation, and the points at which both must have the same numbers, in the order of the first one.

Points are inputs and outputs of modules whose parameters are paired, the weights of attention, the stream after every joint
where both models have the same joints, and the logits. No class and no attribute of a module is named.
"""

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from addnorm.anatomy.recording import ModuleCall, PassEvents, record, same
from addnorm.anatomy.structure import LayerRecord, find_layers
from addnorm.errors import InputError
from addnorm.insight.port.pairing import ParameterPair, outputs_of
from addnorm.insight.probe.attention import rows_of
from addnorm.redundancy.execution.float64 import Float64Mode
from addnorm.redundancy.execution.inputs import Inputs, cloned

PREFIX = 3
"""Positions that a prompt leaves for decoding one by one."""


@dataclass(frozen=True, eq=False)
class Implementation:
    """One of both models, in float64, and how it is applied."""

    name: str
    model: nn.Module

    def logits(self, inputs: Inputs) -> Tensor:
        """Apply the model.

        Raises:
            InputError: it returns no tensor, or raises an exception.
        """
        given = cloned(inputs)
        try:
            return _tensor_of(self.model(*given.args, **given.kwargs))
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"the {self.name} model ({type(self.model).__name__}) cannot read the inputs: {type(error).__name__}: "
                f"{(str(error).splitlines() or [''])[0]} Give inputs that both models read, such as token ids [batch, seq]."
            ) from error

    def decode(self, tokens: Tensor) -> Tensor:
        """Logits of a prompt, then of one token at a time with the model's own cache."""
        pieces = [tokens[:, :-PREFIX], *tokens[:, -PREFIX:].split(1, dim=1)]
        model: Any = self.model
        if "cache" in self._accepted:
            cache = model.new_cache()
            return torch.cat([_tensor_of(model(piece, cache=cache)) for piece in pieces], dim=1)
        logits, past = [], None
        for piece in pieces:
            output = model(piece, past_key_values=past, use_cache=True)
            past = output.past_key_values
            logits.append(_tensor_of(output))
        return torch.cat(logits, dim=1)

    def padded(self, tokens: Tensor, real: Bool[Tensor, "batch seq"]) -> Tensor:
        """Logits of sequences with padding."""
        model: Any = self.model
        masks = {"padding": real} if "padding" in self._accepted else {"attention_mask": real.long()}
        return _tensor_of(model(tokens, **masks))

    @property
    def decodes(self) -> bool:
        """True if the model has a cache that is known here."""
        return ("cache" in self._accepted and hasattr(self.model, "new_cache")) or {
            "past_key_values",
            "use_cache",
        } <= self._accepted

    @property
    def pads(self) -> bool:
        """True if the model takes a mask of its tokens."""
        return bool({"padding", "attention_mask"} & self._accepted)

    @property
    def _accepted(self) -> set[str]:
        return set(inspect.signature(self.model.forward).parameters)


def _tensor_of(output: Any) -> Tensor:
    value = getattr(output, "logits", None)
    if value is None and isinstance(output, dict) and output:
        value = output.get("logits", next(iter(output.values())))
    if value is None:
        value = output[0] if isinstance(output, tuple | list) and output else output
    if not isinstance(value, Tensor):
        raise InputError(
            f"expected a model that returns logits, got {type(output).__name__}. Wrap it in one that does."
        )
    return value


@dataclass(frozen=True, eq=False)
class RecordedPass:
    """One recorded pass."""

    events: PassEvents
    logits: Tensor
    layers: tuple[LayerRecord, ...]

    @classmethod
    @torch.no_grad()
    def of(cls, model: nn.Module, forward: Callable[[], Tensor]) -> "RecordedPass":
        """Record a pass in float64."""
        with Float64Mode():
            events, logits = record(model, forward)
        return cls(events, logits, find_layers(events))

    @property
    def calls(self) -> dict[str, list[ModuleCall]]:
        """The calls of every module, in order."""
        by_path: dict[str, list[ModuleCall]] = defaultdict(list)
        for call in self.events.calls:
            by_path[call.path].append(call)
        return by_path

    def path_at(self, time: int) -> str:
        """The innermost module that runs at a time."""
        around = [call for call in self.events.calls if call.began < time < call.ended]
        return max(around, key=lambda call: call.began).path if around else ""


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedPoint:
    """A value that both passes must have."""

    at: int
    what: str
    ours: str
    """Path of the module in the first model."""
    theirs: str
    value: Tensor
    other: Tensor
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    """Summands of the first model's value, by what they are called."""

    @property
    def difference(self) -> float:
        """Largest difference, relative to the largest entry of the first model's."""
        return relative(self.other, self.value)


def relative(value: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest expected entry; infinite if shapes or infinities differ."""
    value, expected = value.detach().double(), expected.detach().double()
    if value.numel() != expected.numel():
        return float("inf")
    if not value.numel():
        return 0.0
    expected = expected.reshape(value.shape)
    apart = torch.where(value == expected, 0.0, value - expected).abs().max()
    finite = expected[expected.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() else 1.0
    return float(apart) / max(scale, 1e-300) if apart.isfinite() else float("inf")


def points(
    ours: RecordedPass,
    theirs: RecordedPass,
    pairs: Sequence[ParameterPair],
    shapes: tuple[dict[str, Tensor], dict[str, Tensor]],
    real: Bool[Tensor, "batch seq"],
) -> list[ComparedPoint]:
    """Every point of two passes, in the order of the first.

    Args:
        ours: pass of the first model.
        theirs: pass of the second one on the same inputs.
        pairs: paired parameters.
        shapes: parameters of both models.
        real: positions that are compared.
    """
    made = [*_of_modules(ours, theirs, pairs, shapes), *_of_attention(ours, theirs, real), *_of_joints(ours, theirs)]
    made.append(
        ComparedPoint(
            at=ours.events.clock + 1, what="logits", ours="", theirs="", value=ours.logits, other=theirs.logits
        )
    )
    made.sort(key=lambda point: point.at)
    if bool(real.all()):
        return made
    chosen = partial(_chosen, real=real)
    return [
        ComparedPoint(
            at=point.at,
            what=point.what,
            ours=point.ours,
            theirs=point.theirs,
            value=chosen(point.value),
            other=chosen(point.other.reshape(point.value.shape)),
        )
        for point in made
    ]


def _chosen(value: Tensor, real: Tensor) -> Tensor:
    """The entries of real positions; none of a tensor that is not by position."""
    batch, seq = real.shape
    if value.shape[:2] == real.shape:
        return value[real]
    if value.dim() == 4 and (value.shape[0], value.shape[2]) == (batch, seq):
        return value.transpose(1, 2)[real]
    return value[real.flatten()] if value.shape[0] == batch * seq else value[:0]


def _of_modules(
    ours: RecordedPass,
    theirs: RecordedPass,
    pairs: Sequence[ParameterPair],
    shapes: tuple[dict[str, Tensor], dict[str, Tensor]],
) -> Iterator[ComparedPoint]:
    our_calls, their_calls = ours.calls, theirs.calls
    for pair in pairs:
        path, other_path = pair.ours.rpartition(".")[0], pair.theirs.rpartition(".")[0]
        if not (_is_leaf(path, our_calls) and _is_leaf(other_path, their_calls)):
            continue
        apart = _has_bias_elsewhere(pairs, path, other_path)
        one, two = shapes[0][pair.ours], shapes[1][pair.theirs]
        for call, other in zip(our_calls[path], their_calls[other_path], strict=False):
            for what, at, value, theirs_value in (
                ("input", call.began, call.input, other.input),
                ("output", call.ended, call.output, other.output),
            ):
                if value is None or theirs_value is None or not value.is_floating_point():
                    continue
                if what == "output":
                    if apart:
                        continue
                    both = _same_outputs(pair, one, two, value, theirs_value)
                    if both is None:
                        continue
                    value, theirs_value = both
                if value.numel() == theirs_value.numel():
                    yield ComparedPoint(at=at, what=what, ours=path, theirs=other_path, value=value, other=theirs_value)


def _has_bias_elsewhere(pairs: Sequence[ParameterPair], ours: str, theirs: str) -> bool:
    """True if one of two paired modules adds what the other model adds outside of its module, so that outputs differ."""
    owners = [(pair.ours.rpartition(".")[0], pair.theirs.rpartition(".")[0]) for pair in pairs]
    known = {(one, two) for (one, two), pair in zip(owners, pairs, strict=True) if pair.how != "response"}
    return any((one, two) not in known and (one == ours or two == theirs) for one, two in owners)


def _is_leaf(path: str, calls: dict[str, list[ModuleCall]]) -> bool:
    return path in calls and not any(calls[path][0].module.children())


def _same_outputs(
    pair: ParameterPair, one: Tensor, two: Tensor, value: Tensor, other: Tensor
) -> tuple[Tensor, Tensor] | None:
    """The outputs that paired entries make; None if it is not known which they are."""
    if len(pair.our_entries) == one.numel() == two.numel() and value.numel() == other.numel():
        in_order = pair.transposed or torch.equal(pair.our_entries, pair.their_entries)
        if in_order:
            return value, other
    if one.dim() != 2 or two.dim() != 2:
        return None
    lines = outputs_of(pair, one, two, value.shape[-1], other.shape[-1])
    return None if lines is None else (value[..., lines[0]], other[..., lines[1]])


def _of_attention(ours: RecordedPass, theirs: RecordedPass, real: Tensor) -> Iterator[ComparedPoint]:
    own, their = ours.events.attentions, theirs.events.attentions
    if len(own) != len(their):
        return
    for one, other in zip(own, their, strict=True):
        rows, their_rows = rows_of([one], *real.shape), rows_of([other], *real.shape)
        if isinstance(rows, str) or isinstance(their_rows, str):
            continue
        value, theirs_value = rows.block(slice(0, rows.keys)), their_rows.block(slice(0, their_rows.keys))
        if value.numel() == theirs_value.numel():
            yield ComparedPoint(
                at=one.at,
                what="attention weights",
                ours=ours.path_at(one.at),
                theirs=theirs.path_at(other.at),
                value=value,
                other=theirs_value,
            )


def _of_joints(ours: RecordedPass, theirs: RecordedPass) -> Iterator[ComparedPoint]:
    alike = len(ours.layers) == len(theirs.layers) and all(
        len(one.joints) == len(other.joints) for one, other in zip(ours.layers, theirs.layers, strict=True)
    )
    if not alike:
        return
    for one, other in zip(ours.layers, theirs.layers, strict=True):
        for joint, their_joint in zip(one.joints, other.joints, strict=True):
            at = next((each.at for each in ours.events.additions if same(each.out, joint.written)), one.call.ended)
            if joint.role == their_joint.role and joint.written.numel() == their_joint.written.numel():
                yield ComparedPoint(
                    at=at,
                    what=f"stream after {joint.role}",
                    ours=one.call.path,
                    theirs=other.call.path,
                    value=joint.written,
                    other=their_joint.written,
                    parts={"stream before it": joint.before, "output of the branch": joint.update},
                )


def hint_of(point: ComparedPoint, ours: RecordedPass, theirs: RecordedPass) -> str:
    """A difference beyond its place, as far as it is known; else empty."""
    if point.what == "attention weights":
        ratio = _score_ratio(point.value, point.other)
        return "" if ratio is None else f"the second model's scores are {ratio:.6g} times the first one's"
    for name, part in point.parts.items():
        apart = point.other.double().reshape(point.value.shape) - point.value.double()
        times = float((apart * part).sum() / part.double().square().sum().clamp_min(1e-300))
        if float((apart - times * part).abs().max()) <= 1e-9 * float(apart.abs().max()):
            return f"the second model adds the {name} {1 + times:.6g} times"
    for one, other in zip(ours.layers, theirs.layers, strict=False):
        if len(one.joints) != len(other.joints):
            return f"{one.call.path} adds to the stream {len(one.joints)} times, {other.call.path} {len(other.joints)} times"
    if point.what == "input":
        before, their_before = (
            _called_before(each, path) for each, path in ((ours, point.ours), (theirs, point.theirs))
        )
        if before.rpartition(".")[2] != their_before.rpartition(".")[2]:
            return f"it is called after {before or 'no other'} in the first model, {their_before or 'no other'} in the second"
    if point.what == "output" and point.value.dim() == point.other.dim():
        apart = (point.other.double().reshape(point.value.shape) - point.value.double()).flatten(0, -2)
        if apart.shape[0] > 1 and float((apart - apart[0]).abs().max()) <= 1e-9 * float(apart.abs().max()):
            return "the difference is one vector at all positions, such as a bias"
    return ""


def _score_ratio(value: Tensor, other: Tensor) -> float | None:
    """The factor between the scores of two attentions; None if they are no multiples of each other."""
    one, two = value.double().clamp_min(1e-300).log(), other.double().reshape(value.shape).clamp_min(1e-300).log()
    seen = (value > 1e-200) & (other.reshape(value.shape) > 1e-200)
    # A softmax leaves differences along a row: those to the row's mean, so that the row's constant cancels.
    count = seen.sum(-1, keepdim=True).clamp_min(1)
    one, two = (
        torch.where(seen, each - torch.where(seen, each, 0.0).sum(-1, keepdim=True) / count, 0.0) for each in (one, two)
    )
    size = float(one.square().sum())
    if size == 0:
        return None
    ratio = float((one * two).sum()) / size
    return ratio if float((two - ratio * one).abs().max()) <= 1e-7 * float(two.abs().max()) else None


def _called_before(recorded: RecordedPass, path: str) -> str:
    call = next((each for each in recorded.events.calls if each.path == path), None)
    done = [each for each in recorded.events.calls if call is not None and each.ended < call.began]
    return max(done, key=lambda each: each.ended).path if done else ""
