"""Facts about one tensor of the graph that hold for all data."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from addnorm.redundancy.graph.like_factors import Multiple, Product
from addnorm.redundancy.graph.linear_images import Image
from addnorm.redundancy.graph.reshaping import concatenated
from addnorm.redundancy.graph.shift import Shift, broadcast, zero_shift


@dataclass(frozen=True, eq=False)  # equal if identical: torch compares tensors entry by entry, which is no truth value
class DataShift:
    """A shift whose numbers depend on the data; only its source is known.

    It vanishes if `source` vanishes, and it is constant along an axis of the value if `source` is constant along the
    axis that `axes` maps it to. Example: a shift s of the keys adds q . s to the scores, which is unknown but equal for
    all keys.
    """

    source: Shift
    axes: Mapping[int, int]
    """Axis of the value -> axis of the source."""
    relaxation: "Relaxation | None" = None
    """A weaker demand than that `source` vanishes."""
    origin: tuple[Hashable, ...] = ()
    """Identity of this unknown shift: the product that created it, and how it was rearranged since. Shifts of equal
    origin are equal up to `factor`, so that they can cancel. An empty origin equals no other."""
    factor: float = 1.0
    zeroed: "Zeroed | None" = None
    """Set if the value is a product with known zeros and ones, and lost at the next operation."""
    product: Product | None = None
    """Its relation to the source, if that is known."""

    def is_constant(self, axis: int) -> bool:
        """Return True if the shift is constant along an axis of the value, whatever the free coordinates."""
        return axis in self.axes and all(term.reduced[self.axes[axis]] == 1 for term in self.source.terms.values())

    def rearranged(self, axes: Mapping[int, int], step: Hashable = None) -> "DataShift":
        """The shift of a value whose axes were rearranged.

        Args:
            axes: surviving axes of the value, old -> new.
            step: the operation, if it alone determines where each entry goes; otherwise None.
        """
        relaxation = None
        if self.relaxation is not None and self.relaxation.axes <= axes.keys():
            relaxation = Relaxation(self.relaxation.shift, frozenset(axes[axis] for axis in self.relaxation.axes))
        kept = {axes[axis]: own for axis, own in self.axes.items() if axis in axes}
        # Two unknown shifts cancel only if every entry went the same way. A step that its key does not determine ends
        # the identity.
        origin = (*self.origin, step) if self.origin and step is not None else ()
        product = self.product.rearranged(axes, self.source) if self.product is not None and step is not None else None
        return DataShift(self.source, kept, relaxation, origin, self.factor, product=product)

    def placed(self, axes: Mapping[int, int], axis: int, part: "JoinedPart", *, is_axis: bool) -> "DataShift":
        """The shift of one of several values that are joined along an axis.

        Args:
            axes: the other axes, old -> new.
            axis: the joined axis of the result.
            part: the entries of this value along it.
            is_axis: True if it is an axis of this value too, as in `cat`; False for a new one, as in `stack`.
        """
        # The shift concerns its own entries, so along the joined axis it is constant only if it is zero, unless the other
        # values shift alike. That shows where the factor is known and does not vary along this axis: then the source gets
        # the axis, with zeros for the others.
        out = self.rearranged({**axes, axis: axis} if is_axis else axes, "joined")
        product = out.product
        if product is None or axis in product.factor_axes or self.relaxation is not None:
            return self.rearranged(axes)
        source, labels = out.source, list(product.source_axes)
        if axis not in labels:
            source, labels = broadcast(source, (part.size, *source.shape)), [axis, *labels]
        at = labels.index(axis)
        if source.shape[at] != part.size:
            return self.rearranged(axes)
        before, after = (
            zero_shift((*source.shape[:at], size, *source.shape[at + 1 :]))
            for size in (part.before, part.whole - part.size - part.before)
        )
        source = concatenated([each for each in (before, source, after) if each.shape[at]], at)
        free = {*axes.values(), axis} - {*product.factor_axes}
        kept = {label: labels.index(label) for label in free if label in labels}
        return DataShift(source, kept, factor=self.factor, product=replace(product, source_axes=tuple(labels)))


@dataclass(frozen=True)
class JoinedPart:
    """Entries of one value among those of several that are joined along an axis."""

    before: int
    size: int
    whole: int


@dataclass(frozen=True)
class Relaxation:
    """A weaker demand on a data-dependent shift: if `shift` vanishes, the data-dependent shift is constant along `axes`
    of the value. Example: a shift of the query whose product with every key is the same number."""

    shift: Shift
    axes: frozenset[int]


@dataclass(frozen=True)
class Zeroed:
    """A data-dependent shift multiplied by known zeros and ones."""

    entries: torch.Tensor
    """True where it was multiplied by zero, boolean, of the value's shape."""
    axes: Mapping[int, int]
    """The axes of the data-dependent shift before the product, which hold for the other entries."""


@dataclass(frozen=True)
class Plane:
    """Linear combinations of a value's entries along one axis that are the same for all data, as after a layer norm:
    the sum over the axis of normal . value is a constant, so the entries lie in a hyperplane."""

    axis: int
    normals: Callable[[], torch.Tensor]
    """Computes orthonormal rows, float64 [normal, entries of the axis]."""


_SMALLEST_GAIN = 0.01
"""Smallest factor after which a softmax still ignores a masked entry: its weight is at most exp(-100) of the
others'."""


@dataclass(frozen=True)
class Mask:
    """Entries of a value that were overwritten, so that they do not shift as the value's `shift` says."""

    hides: bool
    """True if the entries are at most -1e4, so that a softmax or a maximum ignores them; otherwise they hold any
    number."""
    infinite: bool = False
    """True if the entries are minus infinity, which no finite number changes."""
    gain: float = 1.0
    """Product of the factors applied since the entries were filled."""
    condition: str = ""
    """Name of the boolean tensor that selected the entries; empty if no longer known."""
    shifts: tuple[Shift, ...] = ()
    """Shifts added to the entries after they were filled."""
    reach: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Axis -> first entry and end of a range outside of which all entries are overwritten."""

    def times(self, factor: float) -> "Mask":
        """The mask of the value multiplied by a number."""
        gain, positive = self.gain * factor, factor > 0
        # Minus infinity stays hidden under every positive factor; -1e4 times a small one becomes a score that a softmax
        # sees.
        hides = self.hides and ((self.infinite and positive) or gain >= _SMALLEST_GAIN)
        return replace(self, gain=gain, hides=hides, infinite=self.infinite and positive)

    def without_condition(self) -> "Mask":
        """The mask of a value whose entries were rearranged."""
        return replace(self, condition="", reach={})


def merged_masks(masks: Sequence[Mask]) -> Mask:
    """The mask of a value that is made of several masked values, concatenated or added."""
    return Mask(
        all(mask.hides for mask in masks),
        all(mask.infinite for mask in masks),
        min(mask.gain for mask in masks),
        shifts=tuple(shift for mask in masks for shift in mask.shifts),
    )


Fact = str
"""A further fact: `maximum` (along an axis: minus infinity only if the whole row is masked); for a boolean, `nowhere`
(false everywhere) or `infinite NAME` (true exactly where the value of that name is minus infinity); or empty."""


@dataclass(frozen=True)
class NodeValue:
    """One tensor of the graph. Moving the parameters by delta changes it by shift(delta) plus its data-dependent
    shifts, exactly, for all data and all delta that satisfy the demands so far."""

    shape: tuple[int, ...]
    shift: Shift
    known: torch.Tensor | None = None
    """Its numbers at delta = 0 if they do not depend on the data (floating-point ones in float64)."""
    data_shifts: tuple[DataShift, ...] = ()
    sums: Mapping[int, torch.Tensor] = field(default_factory=dict)
    """Axis -> the sum along that axis (size 1 there), where the sum is known although the numbers are not: the rows of
    a softmax."""
    masked: Mask | None = None
    """Overwritten entries. If the mask hides them, a softmax or a maximum may still read the value."""
    name: str = ""
    """Name of the node."""
    plane: Plane | None = None
    fact: Fact = ""
    support: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Axis -> first entry and end of a range outside of which all entries are zero, for axes of `sums`."""
    multiple: Multiple | None = None
    """The earlier value of which it is a multiple, if it is one."""
    image: Image | None = None
    """The earlier value of which it is a linear map, if it is one."""

    def updated(self, current: Callable[[Shift], Shift]) -> "NodeValue":
        """The same value with all shifts expressed in the coordinates that are still free."""
        if not self.moves:
            return self
        masked = self.masked
        if masked is not None and masked.shifts:
            masked = replace(masked, shifts=tuple(each for shift in masked.shifts if (each := current(shift))))
        data_shifts = _updated_data_shifts(self.data_shifts, current)
        return replace(self, shift=current(self.shift), data_shifts=data_shifts, masked=masked)

    @property
    def moves(self) -> bool:
        """True if some free coordinate can change the value."""
        return bool(self.shift) or bool(self.data_shifts) or (self.masked is not None and bool(self.masked.shifts))

    @property
    def seen_by_softmax(self) -> bool:
        """True if a softmax or a maximum would read overwritten entries."""
        return self.masked is not None and not self.masked.hides


@dataclass(frozen=True)
class Output:
    """Facts that a rule derives about one output; the fields are those of `NodeValue`."""

    shift: Shift
    data_shifts: tuple[DataShift, ...] = ()
    sums: Mapping[int, torch.Tensor] = field(default_factory=dict)
    masked: Mask | None = None
    plane: Plane | None = None
    fact: Fact = ""
    support: Mapping[int, tuple[int, int]] = field(default_factory=dict)


def _updated_data_shifts(
    data_shifts: tuple[DataShift, ...], current: Callable[[Shift], Shift]
) -> tuple[DataShift, ...]:
    """Data-dependent shifts in the coordinates that are still free, without those that have become impossible."""
    kept = []
    for each in data_shifts:
        source = current(each.source)
        if source:
            relaxation = each.relaxation and Relaxation(current(each.relaxation.shift), each.relaxation.axes)
            product = each.product and each.product.updated(current)
            kept.append(replace(each, source=source, relaxation=relaxation, product=product))
    return tuple(kept)


def values_in(arguments: Any) -> list[NodeValue]:
    """Collect all values among nested arguments, in order."""
    if isinstance(arguments, NodeValue):
        return [arguments]
    if isinstance(arguments, dict):
        arguments = list(arguments.values())
    if isinstance(arguments, tuple | list):
        return [value for each in arguments for value in values_in(each)]
    return []


_FILLING = frozenset({"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "fill"})
"""Operations that read a shape and write known numbers."""


def evaluated(target: Any, args: Any, kwargs: Any, inputs: list[NodeValue]) -> list[torch.Tensor | None] | None:
    """Return the outputs' numbers if all inputs are known: constants of the graph, and results computed from weights alone.
    Otherwise return None."""
    if getattr(target, "__name__", "").split(".")[0] in _FILLING and isinstance(args[0], NodeValue):
        shape = torch.zeros((), dtype=torch.float64).expand(args[0].shape)
        args = (NodeValue(args[0].shape, args[0].shift, shape), *args[1:])
        inputs = [*values_in(args), *values_in(kwargs)]
    # Random numbers are not known, nor the bits of a type that float64 stands for.
    unknown = torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()) or target is torch.ops.aten.view.dtype
    if unknown or not isinstance(target, torch._ops.OpOverload) or any(value.known is None for value in inputs):
        return None
    # Results of constants alone are computed in the model's own types, including rounding; results of weights in float64.
    exact = any(value.known is not None and value.known.dtype == torch.float64 for value in inputs)
    args, kwargs = _unwrapped(args, exact), _unwrapped(kwargs, exact)
    for name, value in kwargs.items():
        if isinstance(value, torch.device):
            kwargs[name] = torch.device("cpu")
    try:
        with torch.no_grad():
            out = target(*args, **kwargs)
    except (RuntimeError, TypeError, NotImplementedError):
        # The operation requires another type than float64 or another device. Its numbers count as data, which is always sound.
        return None
    outs = list(out) if isinstance(out, tuple | list) else [out]
    return [each if isinstance(each, torch.Tensor) else None for each in outs]


def _unwrapped(value: Any, exact: bool) -> Any:
    """Replace values by their known numbers; floating-point numbers and types become float64 if `exact`."""
    if isinstance(value, NodeValue):
        known = value.known
        return known.to(torch.float64) if exact and known is not None and known.is_floating_point() else known
    if isinstance(value, torch.dtype):
        return torch.float64 if exact and value.is_floating_point else value
    if isinstance(value, dict):
        return {name: _unwrapped(each, exact) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_unwrapped(each, exact) for each in value)
    return value
