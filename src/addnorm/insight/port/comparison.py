"""`addnorm.equal_to`: two implementations of one architecture, compared in float64 on paired parameters."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.insight.port.gradients import gradients_of, largest_difference
from addnorm.insight.port.pairing import (
    ParameterPair,
    Sides,
    is_constant,
    pair_parameters,
    pair_rest,
    slices,
    unpaired,
    whole,
)
from addnorm.insight.port.passes import PREFIX, ComparedPoint, Implementation, RecordedPass, hint_of, points, relative
from addnorm.insight.port.result import PortComparison, PortDifference
from addnorm.redundancy.agreement.numbers import unstored_buffers
from addnorm.redundancy.execution.checks import check_model
from addnorm.redundancy.execution.copies import copy_of
from addnorm.redundancy.execution.float64 import Float64Mode
from addnorm.redundancy.execution.inputs import Inputs, bind

TOLERANCE = 1e-9
"""Largest relative difference that rounding in float64 explains."""
ROUNDED = 2.0**-24
"""Relative rounding error of a table that was made in float32."""
Shapes = tuple[dict[str, Tensor], dict[str, Tensor]]


def equal_to(
    model: nn.Module, other: nn.Module, inputs: Any, *, mapping: Mapping[str, str] | None = None
) -> PortComparison:
    """Compare two implementations of one architecture, and name the first place at which their numbers differ.

    Both models are copied, in float64 and evaluation mode. Their parameters are paired by the values that they hold, row by
    row, so that fused, transposed and reordered matrices are found; those whose values say nothing are paired by their
    module, name and order of use. Where the models hold different numbers, those of the first are copied to the second.
    Logits are compared at these values, then with every parameter moved at random, so that a forgotten bias of zero
    or two norms of one gain show; with these numbers follow gradients, decoding with a cache, and padding on the left,
    where both models can. A difference that the rounding of tables in float32 explains is none.

    The work grows with the numbers of parameters: use a small configuration of both.

    Args:
        model: the first model, such as one of this library.
        other: the second one: a class of Transformers, or a module of your own.
        inputs: token ids [batch, seq]; or a tuple of positional or a dict of keyword arguments that both take.
        mapping: names of parameters of the first model with those of the second, where pairs that were found are wrong.

    Raises:
        InputError: a model that cannot be copied or cannot read the inputs; models of different sizes; a wrong mapping.

    Example:

        >>> import torch, addnorm
        >>> spec = addnorm.preset("llama", vocab=64, width=32, depth=2, heads=4, hidden=64, max_seq=16)
        >>> ours, port = spec.build(), spec.build()
        >>> port.layers[1].attention.body.output.bias = torch.nn.Parameter(torch.ones(32))
        >>> result = addnorm.equal_to(ours, port, torch.arange(12).reshape(2, 6))
        >>> result.equal, result.first_difference.what, result.first_difference.theirs
        (False, 'output', 'layers.1.attention.body.output')
    """
    check_model(model)
    check_model(other)
    given = bind(inputs)
    first, second = (
        Implementation(name, copy_of(each, torch.float64).eval())
        for name, each in (("first", model), ("second", other))
    )
    for side in (first, second):
        side.model.requires_grad_(False)
    return _Comparison(first, second, given).result(mapping or {})


@dataclass(eq=False)
class _Comparison:
    ours: Implementation
    theirs: Implementation
    inputs: Inputs
    pairs: list[ParameterPair] = field(default_factory=list)
    sizes: dict[str, float] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def shapes(self) -> Shapes:
        return dict(self.ours.model.named_parameters()), dict(self.theirs.model.named_parameters())

    def result(self, mapping: Mapping[str, str]) -> PortComparison:
        orders = [self._order(each) for each in (self.ours, self.theirs)]
        ours, theirs = self.shapes
        sides = Sides(ours=ours, theirs=theirs, our_order=orders[0], their_order=orders[1])
        self.pairs = pair_parameters(sides, mapping)
        self._pair_slices(sides)
        self.pairs = pair_rest(sides, self.pairs)
        self._check_sizes()
        self._check_constants(sides)
        loaded = self._is_loaded()
        unequal = (
            tuple(pair.text for pair in self.pairs if not _equal_up_to_a_shift(pair, ours, theirs)) if loaded else ()
        )
        if not loaded:
            self._copy()
        difference = self._logits()
        if difference is None:
            # With every number at random, equal gains and zero biases hide nothing.
            self._move()
            difference = self._logits()
            if difference is not None and self._repair():
                difference = self._logits()
        for check in (self._gradients, self._decoding, self._padding):
            difference = difference or check()
        alone = unpaired(sides, self.pairs)
        return PortComparison(
            equal=difference is None,
            first_difference=difference,
            differences=self.sizes,
            skipped=self.skipped,
            pairs=tuple(self.pairs),
            only_ours=tuple(alone[0]),
            only_theirs=tuple(alone[1]),
            unequal=unequal,
            copied=not loaded,
        )

    def _pair_slices(self, sides: Sides) -> None:
        """Pair vectors whose place in a fused bias their values do not tell, by what a move of them does."""
        for name in unpaired(sides, self.pairs)[0]:
            places = slices(sides, self.pairs, name) if sides.ours[name].dim() == 1 else []
            if len(places) > 1:
                expected = self._response(self.ours, sides.ours[name], torch.arange(sides.ours[name].numel()))
                # In the order of the weights where several respond alike, as biases of keys do, which change nothing.
                places.sort(
                    key=lambda place: (
                        not _alike(
                            self._response(self.theirs, sides.theirs[place.theirs], place.their_entries), expected
                        )
                    )
                )
            self.pairs += places[:1]

    def _order(self, side: Implementation) -> list[str]:
        recorded = RecordedPass.of(side.model, lambda: side.logits(self.inputs))
        return list(dict.fromkeys(call.path for call in recorded.events.calls))

    def _check_sizes(self) -> None:
        ours, theirs = self.shapes
        alone = [name for name in ours if name not in {pair.ours for pair in self.pairs}]
        if 2 * sum(ours[name].numel() for name in alone) <= sum(each.numel() for each in ours.values()):
            return
        some = ", ".join(f"{name} {list(ours[name].shape)}" for name in alone[:3])
        their_alone = [name for name in theirs if name not in {pair.theirs for pair in self.pairs}]
        others = ", ".join(f"{name} {list(theirs[name].shape)}" for name in their_alone[:3]) or "none left"
        raise InputError(
            f"expected two implementations of one architecture of the same sizes, got parameters without a partner: {some} in "
            f"the first model; {others} in the second. Build both with the same widths, heads and layers; fused parameters are "
            "found if both hold the same numbers."
        )

    def _check_constants(self, sides: Sides) -> None:
        """Refuse gains of one and queries of zero that are one matrix here and vectors there: nothing tells their order."""
        alone = [
            {name: each for name, each in side.items() if is_constant(each)} for side in unpaired(sides, self.pairs)
        ]
        ours, theirs = (sorted(value for each in side.values() for value in each.flatten().tolist()) for side in alone)
        if ours and ours == theirs:
            first, second = (
                ", ".join(f"{name} {list(each.shape)}" for name, each in [*side.items()][:3]) for side in alone
            )
            raise InputError(
                f"expected parameters whose values say which is which, got {first} in the first model and {second} in the "
                "second, each of one number. Fill the first with random numbers, and copy them to the second."
            )

    def _is_loaded(self) -> bool:
        """True if most numbers of the first model that say something were found in the second."""
        ours, _ = self.shapes
        known = {pair.ours for pair in self.pairs if pair.how == "values"}
        telling = {name: each.numel() for name, each in ours.items() if not is_constant(each)}
        return 2 * sum(count for name, count in telling.items() if name in known) > sum(telling.values())

    @torch.no_grad()
    def _copy(self) -> None:
        ours, theirs = self.shapes
        for pair in self.pairs:
            if not is_constant(ours[pair.ours]) or not is_constant(theirs[pair.theirs]):
                theirs[pair.theirs].view(-1)[pair.their_entries] = ours[pair.ours].view(-1)[pair.our_entries]

    @torch.no_grad()
    def _move(self) -> None:
        """Move every number of both models at random, paired ones alike."""
        ours, theirs = self.shapes
        draws = torch.Generator().manual_seed(0)
        moves = tuple({name: _move_of(each, draws) for name, each in side.items()} for side in (ours, theirs))
        # There and back, since a parameter that is tied in one model alone is in several pairs: all its partners have to get
        # one move.
        for pair in self.pairs:
            moves[1][pair.theirs].view(-1)[pair.their_entries] = moves[0][pair.ours].view(-1)[pair.our_entries]
        for pair in self.pairs:
            moves[0][pair.ours].view(-1)[pair.our_entries] = moves[1][pair.theirs].view(-1)[pair.their_entries]
        for side, move in zip((ours, theirs), moves, strict=True):
            for name, each in side.items():
                each.add_(move[name])

    def _repair(self) -> bool:
        """Pair parameters that were paired by their order anew, by what a move does to the logits; True if any changed."""
        ours, theirs = self.shapes
        groups: dict[tuple[int, ...], list[ParameterPair]] = defaultdict(list)
        for pair in self.pairs:
            if pair.how == "order" and not pair.transposed:
                groups[tuple(ours[pair.ours].shape)].append(pair)
        changed = False
        for group in (each for each in groups.values() if len(each) > 1):
            own = {pair.ours: self._response(self.ours, ours[pair.ours], pair.our_entries) for pair in group}
            their = {
                pair.theirs: self._response(self.theirs, theirs[pair.theirs], pair.their_entries) for pair in group
            }
            for pair in group:
                partner = next((name for name in their if _alike(their[name], own[pair.ours])), None)
                if partner is not None and partner != pair.theirs:
                    # Of a group in which all respond, every member gets a partner of its own.
                    self.pairs[self.pairs.index(pair)] = whole(pair.ours, partner, theirs[partner], "response")
                    changed = True
        return changed

    @torch.no_grad()
    def _response(self, side: Implementation, parameter: Tensor, entries: Tensor) -> Tensor:
        """Move some entries of a parameter, and return the change of the logits."""
        kept, draws = parameter.clone(), torch.Generator().manual_seed(1)
        with Float64Mode():
            before = side.logits(self.inputs)
            parameter.view(-1)[entries] += 0.1 * torch.randn(len(entries), generator=draws, dtype=torch.float64)
            after = side.logits(self.inputs)
            parameter.copy_(kept)
        return after - before

    def _logits(self) -> PortDifference | None:
        return self._first("logits", lambda side: side.logits(self.inputs))

    def _first(
        self, check: str, forward: Callable[[Implementation], Tensor], real: Tensor | None = None
    ) -> PortDifference | None:
        """Run both models, and find the first point at which they differ if their logits do."""
        shape = next((each.shape[:2] for each in _tensors(self.inputs) if each.dim() > 1), (1, 1))
        real = torch.ones(shape, dtype=torch.bool) if real is None else real

        def passed(side: Implementation) -> RecordedPass:
            return RecordedPass.of(side.model, lambda: forward(side))

        def between(one: RecordedPass, two: RecordedPass) -> list[ComparedPoint]:
            return points(one, two, self.pairs, self.shapes, real)

        ours, theirs = passed(self.ours), passed(self.theirs)
        compared = between(ours, theirs)
        if not compared[-1].value.numel() == compared[-1].other.numel():
            raise InputError(
                f"expected two models with logits of one shape, got {list(ours.logits.shape)} and {list(theirs.logits.shape)}. "
                "Compare models with the same vocabulary and the same head."
            )
        bounds = [TOLERANCE] * len(compared)
        if compared[-1].difference > TOLERANCE:
            # Only then, since it takes a pass of each.
            for side in (self.ours, self.theirs):
                for moved in _with_rounded_tables(side.model, partial(passed, side)):
                    one, two = (moved, theirs) if side is self.ours else (ours, moved)
                    changed = between(one, two)
                    values = [
                        (each.value, own.value) if side is self.ours else (each.other, own.other)
                        for each, own in zip(changed, compared, strict=True)
                    ]
                    bounds = [bound + 4 * relative(*pair) for bound, pair in zip(bounds, values, strict=True)]
        self.sizes[check] = compared[-1].difference
        if compared[-1].difference <= bounds[-1]:
            return None
        place = next(place for place, point in enumerate(compared) if not point.difference <= bounds[place])
        first, last = compared[place], compared[place - 1] if place else None
        return PortDifference(
            check=check,
            what=first.what,
            ours=first.ours,
            theirs=first.theirs,
            size=first.difference,
            last_equal="" if last is None else f"{last.what} of {last.ours}",
            hint=hint_of(first, ours, theirs),
        )

    def _gradients(self) -> PortDifference | None:
        gradients = [
            gradients_of(side, parameters, self.inputs)
            for side, parameters in zip((self.ours, self.theirs), self.shapes, strict=True)
        ]
        worst, self.sizes["gradients"] = largest_difference(self.pairs, *gradients)
        if worst is None or self.sizes["gradients"] <= max(TOLERANCE, 100 * self.sizes.get("logits", 0.0)):
            return None
        return PortDifference(
            check="gradients",
            what="gradient",
            ours=worst.ours,
            theirs=worst.theirs,
            size=self.sizes["gradients"],
            last_equal="logits of the model",
            hint="the logits are equal: one model stops or adds a gradient",
        )

    def _decoding(self) -> PortDifference | None:
        tokens = self._tokens("cached decoding", lambda side: side.decodes, "takes no cache that is known here")
        if tokens is None:
            return None
        difference = self._first("cached decoding", lambda side: side.decode(tokens))
        if difference is None:
            return None
        wrong = []
        for side in (self.ours, self.theirs):
            with Float64Mode(), torch.no_grad():
                if relative(side.decode(tokens), side.logits(self.inputs)) > 1e-6:
                    wrong.append(side.name)
        hint = f"with the cache the {' and the '.join(wrong)} model differs from its own full pass" if wrong else ""
        return replace(difference, hint="; ".join(filter(None, (difference.hint, hint))))

    def _padding(self) -> PortDifference | None:
        tokens = self._tokens("left padding", lambda side: side.pads, "takes no mask of its tokens")
        if tokens is None:
            return None
        real = torch.ones(tokens.shape, dtype=torch.bool)
        real[0, : max(1, tokens.shape[1] // 3)] = False
        return self._first("left padding", lambda side: side.padded(tokens, real), real)

    def _tokens(self, check: str, can: Callable[[Implementation], bool], reason: str) -> Tensor | None:
        """The token ids, if a check can be made."""
        tensors = _tensors(self.inputs)
        unable = [side for side in (self.ours, self.theirs) if not can(side)]
        if unable:
            self.skipped[check] = " ".join(
                f"the {side.name} model ({type(side.model).__name__}) {reason}." for side in unable
            )
        elif len(tensors) != 1 or tensors[0].dim() != 2 or tensors[0].is_floating_point():
            self.skipped[check] = "the inputs are not one tensor of token ids [batch, seq]."
        elif tensors[0].shape[1] < PREFIX + 1:
            self.skipped[check] = f"it needs at least {PREFIX + 1} tokens."
        else:
            return tensors[0]
        return None


def _alike(response: Tensor, expected: Tensor) -> bool:
    """True if two moves have one effect, or none, as those of biases of keys."""
    if response.numel() != expected.numel():
        return False
    return (
        float((response.reshape(expected.shape) - expected).abs().max()) <= 1e-6 * float(expected.abs().max()) + 1e-13
    )


def _tensors(inputs: Inputs) -> list[Tensor]:
    return [each for each in (*inputs.args, *inputs.kwargs.values()) if isinstance(each, Tensor)]


def _move_of(parameter: Tensor, draws: torch.Generator) -> Tensor:
    size = float(parameter.square().mean().sqrt()) if parameter.numel() else 0.0
    drawn = torch.randn(parameter.shape, generator=draws, dtype=torch.float64)
    return (0.1 * max(size, 0.5 if parameter.dim() < 2 else 0.0)) * drawn


def _equal_up_to_a_shift(pair: ParameterPair, ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> bool:
    """True if the numbers of a pair are equal, or differ by one constant, as gains that one model stores minus one."""
    one, two = ours[pair.ours].flatten()[pair.our_entries], theirs[pair.theirs].flatten()[pair.their_entries]
    apart = one - two
    return not apart.numel() or float((apart - apart[0]).abs().max()) <= 4 * ROUNDED * float(one.abs().max())


def _with_rounded_tables(model: nn.Module, forward: Callable[[], RecordedPass]) -> Iterator[RecordedPass]:
    """A pass with the tables that no file holds moved by the rounding of float32; none if the model has no tables."""
    tables = {name: each for name, each in unstored_buffers(model).items() if each.is_floating_point()}
    own = dict(model.named_buffers(remove_duplicate=False))
    if not tables:
        return
    for seed in range(2):
        draws, kept = torch.Generator().manual_seed(seed), {name: own[name].clone() for name in tables}
        for name in tables:
            # Numbers of few digits are not rounded: the ones of a mask, moved, would unhide scores and excuse any difference.
            rounded = own[name].bfloat16() != own[name]
            move = ROUNDED * (2 * torch.rand(own[name].shape, generator=draws, dtype=torch.float64) - 1)
            own[name].mul_(1 + torch.where(rounded, move, 0.0))
        try:
            yield forward()
        finally:
            for name, value in kept.items():
                own[name].copy_(value)
