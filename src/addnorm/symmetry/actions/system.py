"""The growing system: spaces, their unknown actions, and the equations that operations add."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from addnorm.symmetry.actions.equations import ZERO, Equations, Ids, Numbers, negative, product_terms
from addnorm.symmetry.actions.uses import Derived, GainUse, Use
from addnorm.symmetry.actions.values import NOWHERE, FreeShift, Space, Value

_SAME = 12
"""Decimals to which forms are equal."""


class NoRule(Exception):
    """An operation is not one for which actions are known, so that its inputs must not move."""


@dataclass(frozen=True)
class RowMoves:
    """Moves of rows that are only read together with those of other tables (`look_ups`)."""

    traded: list[tuple[Numbers, Ids]] = field(default_factory=list)
    """Numbers n of the rows and a vector u, which the tables share: the rows move by n u^T."""
    scaled: list[tuple[Ids, Numbers]] = field(default_factory=list)
    """An unknown for one row, `ZERO` for the others, and the vector along which it moves that row."""


@dataclass
class System:
    """Everything that the rules write."""

    equations: Equations = field(default_factory=Equations)
    spaces: list[Space] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    """The use of every weight, for finite moves."""
    derived: list[Derived] = field(default_factory=list)
    """Weights that are computed from others."""
    marks: list[Ids] = field(default_factory=list)
    """Unknowns of free shifts and of null forms."""
    unseen: list[Ids] = field(default_factory=list)
    """Unknowns of null forms that are there because a matrix has a lower rank than rows."""
    factors: list[Ids] = field(default_factory=list)
    """Tangents of weights that multiply other values than those of a norm."""
    gains: dict[Space, tuple[Value, Numbers, Ids, GainUse]] = field(default_factory=dict)
    """Spaces that are another value times a weight: the value, the weight's numbers and tangents per entry, and its use."""
    unwritten: list[Ids] = field(default_factory=list)
    """Unknowns of free shifts along directions that no reader reads."""
    constants: list[Ids] = field(default_factory=list)
    """Unknowns of constants that rows trade which are only read together."""
    lengths: list[Ids] = field(default_factory=list)
    """Unknowns of the lengths of rows that a norm alone reads."""
    unread: Numbers | None = None
    """Directions of the current operation's result on which no output seems to depend, [direction, channel]."""
    rows: RowMoves = field(default_factory=RowMoves)
    """Moves of the current look-up's table, beside those of all maps."""
    path: str = ""
    """The module of the operation that is being propagated."""
    only_softmax: bool = False
    """True if nothing but softmaxes read the current operation's result, so that masks may be as low as they like."""
    is_rotating: bool = False
    """True if the current product is summed with another one of the same value's numbers, as in a rotation of pairs."""
    data: int = 0
    """Number of datum ids given so far."""

    # spaces

    def space(self, size: int, *, linear: Ids | None = None, shift: Ids | None = None, role: str = "") -> Space:
        """Return a new space, with a new action unless one is given."""
        made = Space(
            linear=self.equations.unknowns(size, size) if linear is None else linear,
            shift=self.equations.unknowns(size) if shift is None else shift,
            path=self.path,
        )
        if role:
            made.roles.add(role)
        self.spaces.append(made)
        return made

    def still(self, size: int) -> Space:
        """Return a space that does not move."""
        return self.space(size, linear=np.full((size, size), ZERO), shift=np.full(size, ZERO))

    def new_data(self, *shape: int) -> Tensor:
        """Return new datum ids."""
        count = int(np.prod(shape, dtype=np.int64))
        self.data += count
        return torch.arange(self.data - count, self.data).reshape(shape)

    # equations

    def intertwine(self, after: Ids, forms: Numbers, before: Ids) -> None:
        """Require A' C = C A."""
        if forms.shape[0] == forms.shape[1] and np.array_equal(forms, np.eye(len(forms))):
            self.equal(after, before)
        else:
            self.equations.require(product_terms(after, forms), negative(product_terms(forms, before)))

    def equal(self, one: Ids, other: Ids) -> None:
        """Require that unknowns are equal."""
        if one is not other:
            a, b = one.reshape(-1, 1), other.reshape(-1, 1)
            kept = (a != b)[:, 0]
            self.equations.require((a[kept], np.ones((1, 1))), (b[kept], -np.ones((1, 1))))

    def image(self, forms: Numbers, shift: Ids) -> Ids:
        """Return unknowns C b; existing ones where C selects."""
        if _selects(forms):
            return shift[forms.argmax(1)]
        made = self.equations.unknowns(len(forms))
        self.equations.require((made[:, None], np.ones((1, 1))), negative(product_terms(forms, shift[:, None])))
        return made

    def vanish_on(self, forms: Numbers, space: Space, *, linear: bool = True, shift: bool = True) -> None:
        """Require C A = 0 and C b = 0."""
        forms = forms[np.abs(forms).max(1, initial=0) > 0]
        if linear:
            self.equations.require(product_terms(forms, space.linear))
        if shift:
            self.equations.require(product_terms(forms, space.shift[:, None]))

    def diagonal(self, space: Space) -> None:
        """Require that A is diagonal."""
        self.equations.vanish(space.linear[~np.eye(space.size, dtype=bool)])

    def stop(self, value: Value) -> None:
        """Require that a value does not move."""
        self.drop(value)
        self.vanish_on(unique_rows(value.forms.reshape(-1, value.space.size)), value.space)

    def drop(self, value: Value, but: Callable[[FreeShift], bool] = lambda _: False) -> list[FreeShift]:
        """Require that a value has no free shifts but some; return these."""
        kept = []
        for each in value.free:
            if but(each):
                kept.append(each)
            else:
                self.equations.vanish(each.sources)
        return kept

    # values

    def vector(self, space: Space, datum: Tensor) -> Value:
        """Return the value whose last axis is the whole space, at data [*leading]."""
        size = space.size
        forms = torch.eye(size, dtype=torch.float64).expand(*datum.shape, size, size)
        return Value(space, forms, datum[..., None].expand(*datum.shape, size))

    def with_zeros(self, value: Value) -> Value:
        """Return the value with data of their own for vectors of zeros, as before the first token: any A keeps them."""
        nowhere = value.datum == NOWHERE
        own = self.new_data(*value.shape[:-1])[..., None].expand(value.shape)
        return replace(value, datum=torch.where(nowhere, own, value.datum)) if bool(nowhere.any()) else value

    def whole(self, value: Value) -> Value:
        """Return the value with a space of its own, whose numbers are the value's entries at one datum in order.

        Raises:
            NoRule: data have different numbers of entries, or some entry is zero.
        """
        made, shifts, _ = self.by_kind(value)
        for each in shifts[1:]:
            self.equal(shifts[0], each)
        return made

    def by_kind(self, value: Value) -> tuple[Value, list[Ids], Tensor]:
        """Return the same, with a shift b for each kind of data, such as a class token and patches, and each datum's kind.

        Raises:
            NoRule: as for `whole`.
        """
        members, forms = by_datum(value)
        if len(forms) == 1 and forms.shape[1] == forms.shape[2] and np.array_equal(forms[0], np.eye(forms.shape[1])):
            return value, [value.space.shift], torch.zeros(len(members))
        space = self.space(forms.shape[1])
        space.roles |= value.space.roles & {"embedding", "position", "length", "norm", "spanned"}
        for each in forms:
            self.intertwine(space.linear, each, value.space.linear)
        shifts = [self.image(each, value.space.shift) for each in forms]
        self.equal(space.shift, shifts[0])
        if len(forms) == 1:
            space.nulls = _nulls(forms[0], value.space)
            if not _selects(forms[0]):
                # What the space never holds may be moved at will; it is held, so that moves stay exact.
                for null, _ in space.nulls:
                    self.equations.require(product_terms(space.linear, null[:, None]))
        apart = torch.cdist(
            value.forms.reshape(-1, value.space.size)[members].flatten(1), torch.from_numpy(forms).flatten(1)
        )
        return renumbered(value, space, members), [space.shift, *shifts[1:]], apart.argmin(1)

    def joined(self, values: Sequence[Value]) -> Space:
        """Return the direct sum of spaces, with no action between them."""
        size = sum(each.space.size for each in values)
        linear, shift, at = np.full((size, size), ZERO), np.full(size, ZERO), 0
        roles: set[str] = set()
        for each in values:
            end = at + each.space.size
            linear[at:end, at:end] = each.space.linear
            shift[at:end] = each.space.shift
            roles |= each.space.roles
            at = end
        made = self.space(size, linear=linear, shift=shift)
        made.roles |= roles
        return made


def renumbered(value: Value, space: Space, members: Tensor) -> Value:
    """The value over a space whose k-th number is the k-th entry of a datum."""
    size = members.shape[1]
    place = torch.empty(value.datum.numel(), dtype=torch.int64)
    place[members.reshape(-1)] = torch.arange(size).repeat(len(members))
    forms = torch.nn.functional.one_hot(place, size).to(torch.float64).reshape(*value.shape, size)
    return Value(space, forms, value.datum, value.free)


def by_datum(value: Value) -> tuple[Tensor, Numbers]:
    """Return the flat positions of every datum's entries, [datum, entry], and the different forms, [form, entry, n].

    Raises:
        NoRule: data have different numbers of entries, or some entry is zero.
    """
    flat = value.datum.reshape(-1)
    if not flat.numel() or bool((flat == NOWHERE).any()):
        raise NoRule
    order = torch.argsort(flat, stable=True)
    counts = torch.unique_consecutive(flat[order], return_counts=True)[1]
    size = int(counts[0])
    if bool((counts != size).any()):
        raise NoRule
    members = order.reshape(-1, size)
    forms = value.forms.reshape(-1, value.space.size)[members]
    return members, unique_rows(forms.reshape(len(members), -1)).reshape(-1, size, value.space.size)


def turned(system: System, value: Value, datum: Tensor) -> Value | None:
    """The value over other data, of which each holds one entry of many of the value's own; None if they do not cross so.

    What mixes tokens channel by channel makes [token] vectors, one per channel, and is added to [channel] vectors, one per
    token. Its action L mixes tokens, that of the stream channels: a factor for all entries is both, L = λ I. A shift of one
    token's entries by b_t is, to the stream, a shift along 1 by a number per token, which a norm removes.

    Raises:
        NoRule: the value has no whole vectors.
    """
    value = system.whole(value)
    members, _ = by_datum(Value(value.space, value.forms, datum))
    places = value.forms.argmax(-1).reshape(-1)[members]
    pairs = torch.stack([value.datum.reshape(-1), datum.reshape(-1)], 1)
    if len(pairs.unique(dim=0)) < len(pairs) or members.shape[1] < 2 or bool((places != places[:, :1]).any()):
        return None
    factor = system.equations.unknowns(1)
    system.equations.vanish(value.space.linear[~np.eye(value.space.size, dtype=bool)])
    system.equal(np.diag(value.space.linear), np.broadcast_to(factor, (value.space.size,)))
    space = system.still(members.shape[1])
    np.fill_diagonal(space.linear, factor)
    space.roles |= value.space.roles
    shift = FreeShift(datum, torch.ones(datum.shape, dtype=torch.float64), value.space.shift)
    return renumbered(Value(value.space, value.forms, datum, (*value.free, shift)), space, members)


def unique_rows(rows: Tensor) -> Numbers:
    """The different rows."""
    array = rows.numpy()
    if len(array) and bool((array == array[:1]).all()):
        return array[:1].copy()
    _, index = np.unique(np.round(array, _SAME), axis=0, return_index=True)
    return array[np.sort(index)]


def _selects(forms: Numbers) -> bool:
    return bool(((forms == 0) | (forms == 1)).all() and (forms.sum(1) == 1).all())


def _nulls(forms: Numbers, space: Space) -> list[tuple[Numbers, float]]:
    """Null forms of a new space X' = C X: those of X where C only orders it, and the left null space of C."""
    if _selects(forms) and forms.shape[0] == forms.shape[1] and (forms.sum(0) == 1).all():
        return [(forms @ null, shift) for null, shift in space.nulls]
    left, values, _ = np.linalg.svd(forms)
    rank = int((values > 1e-9 * values.max(initial=1e-300)).sum())
    return [(each, 0.0) for each in left.T[rank:]] if rank else []


def uncopied(value: Value) -> Value:
    """The value with one entry along axes on which it was only copied."""
    forms, datum = value.forms, value.datum
    for axis in range(0 if value.free else datum.dim()):
        first, form = datum.narrow(axis, 0, 1), forms.narrow(axis, 0, 1)
        if bool((datum == first).all()) and bool((forms == form).all()):
            datum, forms = first, form
    return Value(value.space, forms, datum) if datum.shape != value.shape else value
