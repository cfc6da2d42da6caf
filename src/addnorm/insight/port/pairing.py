"""Pairs of parameters of two implementations of one architecture: whole, transposed, or row by row.

Values come first. Rows of random numbers are as good as names: one that occurs in both models shows which entry is which, also
where one model fuses three matrices into one, stores them transposed, or orders the rows of its heads differently. Values that
say nothing (gains of one, biases of zero) follow the weight of their module, then the order in which the models use them.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from jaxtyping import Int64
from torch import Tensor

from addnorm.errors import InputError, did_you_mean

How = Literal["given", "values", "module", "name", "order", "response"]


@dataclass(frozen=True, kw_only=True, eq=False)
class ParameterPair:
    """Entries of one parameter of either model that hold the same numbers."""

    ours: str
    theirs: str
    our_entries: Int64[Tensor, " pair"]
    their_entries: Int64[Tensor, " pair"]
    how: How
    """Source of the pair: as given, by values, by the weight of the same module, by name, by order of use, or by what a
    move of the parameter does to the logits."""
    transposed: bool = False

    @property
    def text(self) -> str:
        """Both names, and how the pair was found."""
        return f"{self.ours} = {self.theirs}{' transposed' if self.transposed else ''} (by {self.how})"


Named = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Sides:
    """The parameters of both models, and the order in which their passes use the modules that own them."""

    ours: Named
    theirs: Named
    our_order: Sequence[str]
    their_order: Sequence[str]


def pair_parameters(sides: Sides, mapping: Mapping[str, str]) -> list[ParameterPair]:
    """Pair parameters, each step with what the steps before it left.

    Raises:
        InputError: a given name that is not there, or a given pair of other shapes.
    """
    pairs = [_given(sides, one, other) for one, other in mapping.items()]
    alike = partial(_weights_by_order, by_value=True)
    for find in (_equal, _by_rows, _of_module, _same_name, alike, _weights_by_order, _of_module):
        pairs += list(find(sides, *unpaired(sides, pairs), pairs))
    return pairs


def pair_rest(sides: Sides, pairs: Sequence[ParameterPair]) -> list[ParameterPair]:
    """Pair what is left by the order of use alone."""
    return [*pairs, *_by_order(sides, *unpaired(sides, pairs), pairs)]


def _left(named: Named, paired: Sequence[tuple[str, Tensor]]) -> Named:
    free = {name: torch.ones(tensor.numel(), dtype=torch.bool) for name, tensor in named.items()}
    for name, entries in paired:
        free[name][entries] = False
    return {name: tensor for name, tensor in named.items() if bool(free[name].any())}


def unpaired(sides: Sides, pairs: Sequence[ParameterPair]) -> tuple[Named, Named]:
    """Parameters of either model with entries that have no partner: a fused one until the last of its rows has one."""
    return (
        _left(sides.ours, [(pair.ours, pair.our_entries) for pair in pairs]),
        _left(sides.theirs, [(pair.theirs, pair.their_entries) for pair in pairs]),
    )


def whole(ours: str, theirs: str, like: Tensor, how: How, *, transposed: bool = False) -> ParameterPair:
    """A pair of two whole parameters; `like` is the second one."""
    entries = torch.arange(like.numel()).reshape(like.shape)
    return ParameterPair(
        ours=ours,
        theirs=theirs,
        our_entries=torch.arange(like.numel()),
        their_entries=(entries.mT if transposed else entries).flatten(),
        how=how,
        transposed=transposed,
    )


def _given(sides: Sides, one: str, other: str) -> ParameterPair:
    for name, named, side in ((one, sides.ours, "first"), (other, sides.theirs, "second")):
        if name not in named:
            raise InputError(
                f"mapping: expected a parameter of the {side} model, got {name!r}.{did_you_mean(name, named)}"
            )
    first, second = sides.ours[one], sides.theirs[other]
    if first.shape == second.shape:
        return whole(one, other, second, "given")
    if first.dim() > 1 and first.shape == second.mT.shape:
        return whole(one, other, second, "given", transposed=True)
    raise InputError(
        f"mapping: expected two parameters of one shape, or transposed, got {one} {list(first.shape)} and {other} "
        f"{list(second.shape)}. Leave fused parameters out: they are found by their values."
    )


def is_constant(tensor: Tensor) -> bool:
    """True if all entries are one number, which many parameters have in common."""
    return tensor.numel() < 2 or bool((tensor == tensor.flatten()[0]).all())


def _equal(sides: Sides, ours: Named, theirs: Named, pairs: Sequence[ParameterPair]) -> Iterator[ParameterPair]:
    """Whole parameters with the same values; one that is tied in one model alone has several partners."""
    by_value: dict[tuple[object, bytes], list[tuple[str, bool]]] = defaultdict(list)
    for name, tensor in theirs.items():
        if not is_constant(tensor):
            by_value[tuple(tensor.shape), _bytes(tensor)].append((name, False))
            if tensor.dim() > 1:
                by_value[tuple(tensor.mT.shape), _bytes(tensor.mT)].append((name, True))
    for name, tensor in ours.items():
        for other, transposed in by_value.get((tuple(tensor.shape), _bytes(tensor)), []):
            yield whole(name, other, theirs[other], "values", transposed=transposed)


def _by_rows(sides: Sides, ours: Named, theirs: Named, pairs: Sequence[ParameterPair]) -> Iterator[ParameterPair]:
    """Parameters whose rows or columns occur in parameters of the other model, fused or in another order."""
    places: dict[bytes, tuple[str, bool, Tensor]] = {}
    for name, tensor in theirs.items():
        for turned, row, entries in _rows(tensor):
            places.setdefault(row, (name, turned, entries))
    for name, tensor in ours.items():
        lines_by_partner: dict[tuple[str, bool, bool], list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for turned, row, entries in _rows(tensor):
            if row in places:
                other, other_turned, other_entries = places[row]
                lines_by_partner[other, turned, other_turned].append((entries, other_entries))
        for (other, turned, other_turned), lines in lines_by_partner.items():
            our_entries, their_entries = (torch.cat(each) for each in zip(*lines, strict=True))
            yield ParameterPair(
                ours=name,
                theirs=other,
                our_entries=our_entries,
                their_entries=their_entries,
                how="values",
                transposed=turned != other_turned,
            )


def _rows(tensor: Tensor) -> Iterator[tuple[bool, bytes, Tensor]]:
    """Rows, then columns, that are no constants, with their entries; a vector as one row, then its single entries."""
    entries = torch.arange(tensor.numel()).reshape(tensor.shape)
    if tensor.dim() == 1:
        if not is_constant(tensor):
            yield False, _bytes(tensor), entries
            for place in (tensor != 0).nonzero().flatten():
                yield False, b"entry" + _bytes(tensor[place]), entries[place][None]
        return
    for turned in (False, True) if tensor.dim() > 1 else ():  # a scalar has no rows
        values, places = (tensor.mT, entries.mT) if turned else (tensor, entries)
        for row, place in zip(values.flatten(0, -2), places.flatten(0, -2), strict=True):
            if len(row) > 1 and not is_constant(row):
                yield turned, _bytes(row), place


def _bytes(tensor: Tensor) -> bytes:
    raw: bytes = tensor.detach().contiguous().double().numpy().tobytes()
    return raw


def _of_module(sides: Sides, ours: Named, theirs: Named, pairs: Sequence[ParameterPair]) -> Iterator[ParameterPair]:
    """Biases of modules whose weights are paired: with the bias of the weight's partner, output by output."""
    for name, bias in ours.items():
        if bias.dim() != 1:
            continue
        for pair in pairs:
            weight, other = sides.ours[pair.ours], sides.theirs[pair.theirs]
            if _owner(pair.ours) != _owner(name) or pair.ours == name:
                continue
            for partner, their_bias in theirs.items():
                if _owner(partner) != _owner(pair.theirs) or their_bias.dim() != 1:
                    continue
                outputs = outputs_of(pair, weight, other, len(bias), len(their_bias))
                if outputs is not None and not _taken(pairs, name, partner):
                    yield ParameterPair(
                        ours=name, theirs=partner, our_entries=outputs[0], their_entries=outputs[1], how="module"
                    )


def outputs_of(pair: ParameterPair, ours: Tensor, theirs: Tensor, one: int, other: int) -> tuple[Tensor, Tensor] | None:
    """Equal outputs of two weights, by their entries; None if no axis has that many outputs."""
    if ours.dim() == theirs.dim() == 1 and (ours.numel(), theirs.numel()) == (one, other):
        return pair.our_entries, pair.their_entries
    if ours.dim() != 2 or theirs.dim() != 2:
        return None
    axes = [
        (first, second)
        for first in (0, 1)
        for second in (0, 1)
        if (first != second) == pair.transposed and ours.shape[first] == one and theirs.shape[second] == other
    ]
    if not axes:
        return None
    lines = torch.stack(
        [
            pair.our_entries // ours.shape[1] if axes[0][0] == 0 else pair.our_entries % ours.shape[1],
            pair.their_entries // theirs.shape[1] if axes[0][1] == 0 else pair.their_entries % theirs.shape[1],
        ]
    ).unique(dim=1)
    return lines[0], lines[1]


def _taken(pairs: Sequence[ParameterPair], ours: str, theirs: str) -> bool:
    return any((pair.ours, pair.theirs) == (ours, theirs) for pair in pairs)


def _same_name(sides: Sides, ours: Named, theirs: Named, pairs: Sequence[ParameterPair]) -> Iterator[ParameterPair]:
    for name, tensor in ours.items():
        if name in theirs and theirs[name].shape == tensor.shape:
            yield whole(name, name, tensor, "name")


def _weights_by_order(
    sides: Sides, ours: Named, theirs: Named, pairs: Sequence[ParameterPair], *, by_value: bool = False
) -> Iterator[ParameterPair]:
    """The first parameter of every module, so that gains are not taken for biases, which follow them."""
    own, their = (
        {name: each for name, each in left.items() if name == _first(name, whole)}
        for left, whole in ((ours, sides.ours), (theirs, sides.theirs))
    )
    yield from _by_order(sides, own, their, pairs, by_value=by_value)


def _first(name: str, named: Named) -> str:
    return next(other for other in named if _owner(other) == _owner(name))


def _by_order(
    sides: Sides, ours: Named, theirs: Named, pairs: Sequence[ParameterPair], *, by_value: bool = False
) -> Iterator[ParameterPair]:
    """Parameters of one shape in the order in which they are used, if both models have as many.

    Where one has more, those with the same paired modules before and behind them.
    """
    groups: dict[object, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for place, (named, order) in enumerate(((ours, sides.our_order), (theirs, sides.their_order))):
        for name in sorted(named, key=lambda name: _used(name, order)):
            tensor = named[name]
            value = float(tensor.flatten()[0]) if by_value and tensor.numel() and is_constant(tensor) else None
            groups[tuple(sorted(tensor.shape)), value][place].append(name)
    anchors = {_owner(pair.ours): _owner(pair.theirs) for pair in pairs}
    for own, their in groups.values():
        if len(own) == len(their):
            matched = list(zip(own, their, strict=True))
        else:
            near = {_near(name, sides.their_order, set(anchors.values())): name for name in reversed(their)}
            matched = []
            for name in own:
                before, after = _near(name, sides.our_order, set(anchors))
                key = anchors.get(before, ""), anchors.get(after, "")
                if key in near:
                    matched.append((name, near.pop(key)))
        for name, other in matched:
            first, second = ours[name], theirs[other]
            if first.shape == second.shape:
                yield whole(name, other, second, "order")
            elif first.shape == second.mT.shape:
                yield whole(name, other, second, "order", transposed=True)


def _used(name: str, order: Sequence[str]) -> int:
    owner = _owner(name)
    return order.index(owner) if owner in order else len(order)


def _near(name: str, order: Sequence[str], known: set[str]) -> tuple[str, str]:
    """The paired modules that are called before and behind the owner of a parameter."""
    place = _used(name, order)
    before = next((path for path in reversed(order[:place]) if path in known), "")
    return before, next((path for path in order[place + 1 :] if path in known), "")


def slices(sides: Sides, pairs: Sequence[ParameterPair], name: str) -> list[ParameterPair]:
    """The places in biases of the second model at which a vector of the first one may stand, one per weight."""
    _, theirs = unpaired(sides, pairs)
    places = []
    for pair in pairs:
        weight, other = sides.ours[pair.ours], sides.theirs[pair.theirs]
        for partner, bias in theirs.items():
            if _owner(partner) != _owner(pair.theirs) or bias.dim() != 1 or not _are_near(name, pair.ours):
                continue
            lines = outputs_of(pair, weight, other, sides.ours[name].numel(), len(bias))
            used = [each.their_entries for each in pairs if each.theirs == partner]
            if lines is not None and not bool(torch.isin(lines[1], torch.cat(used) if used else lines[1][:0]).any()):
                places.append(
                    ParameterPair(
                        ours=name, theirs=partner, our_entries=lines[0], their_entries=lines[1], how="response"
                    )
                )
    return places


def _are_near(one: str, other: str) -> bool:
    """True if two parameters belong to one module, or to modules of one."""
    return _owner(_owner(one)) in (_owner(other), _owner(_owner(other)))


def _owner(name: str) -> str:
    return name.rpartition(".")[0]
