"""Contributions carried through a pass of any model: the stream as a sum over what joined it.

Every function of torch that the model calls on the stream is applied to the contributions too, if it is additive in them, which
is measured and not looked up in a list: f(x + u) - f(x) = f(u) - f(0) for a random u. So sums, views, weights and mixings of
several streams keep their parts, while a sigmoid of the stream is a new number. A new number that multiplies the stream is held
at its value (a norm's scale, a gate, a mixing); one that is added to it is a new source. A product with parameters ends the
carrying: it is where a branch reads.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from addnorm.anatomy.attention import AttentionFollower
from addnorm.anatomy.recording import PRODUCTS, tensors

ADDITIVE = 1e-9
"""Largest error of an additive function in float64, relative to its values."""
_JOINS = {
    *(torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__iadd__, Tensor.__radd__, torch.cat, torch.stack),
    *(torch.sub, Tensor.sub, Tensor.sub_, Tensor.__sub__, Tensor.__isub__, Tensor.__rsub__, torch.where),
    *(torch.concat, torch.lerp, Tensor.lerp, Tensor.index_add, Tensor.index_add_, torch.addcmul),
}
"""Functions in which what is not carried joins as a source of its own."""
_ADDITIONS = {function for function in _JOINS if function not in (torch.cat, torch.stack, torch.concat, torch.where)}
_LOOKUPS = {F.embedding, torch.embedding}
SHIFT = -1
"""Key of what parameters and constants added to the stream, such as the shifts of norms."""
Parts = dict[int, Tensor]
"""Contributions by the number of their source."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CarriedSource:
    """Name of the part that joined the stream."""

    path: str
    """Module that was running; empty for the embeddings."""
    value: Tensor
    attends: bool
    """True if it was computed from attention's output."""
    bent: bool = False
    """True if it is the stream itself, behind a function that is not additive."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CarriedRead:
    """A product with parameters that read the stream."""

    path: str
    sources: int
    """Number of sources at that time."""
    on_stream: list[bool]
    """[True] once something was added to what was read, so that a norm before it is one of the stream."""
    value: Tensor
    parts: Parts
    before: tuple[Tensor, Parts] | None
    """The stream before a norm that only this read looks through; None without a norm."""


@dataclass(eq=False)
class Carrier(TorchFunctionMode):
    """Carries contributions through one pass. `parts` has those of every tensor of the stream that is still alive."""

    seq: int
    """Number of positions."""
    started: bool = False
    """True once the first layer has begun: all before it is the source 0, the embeddings."""
    sources: list[CarriedSource] = field(default_factory=list)
    reads: list[CarriedRead] = field(default_factory=list)
    products: int = 0
    paths: list[str] = field(default_factory=lambda: [""])

    def __post_init__(self) -> None:
        super().__init__()
        self.parts: Any = WeakTensorKeyDictionary()
        self._before: Any = WeakTensorKeyDictionary()
        self._on_stream: Any = WeakTensorKeyDictionary()
        # True for what was computed from attention since it last joined: of two branches that read the stream together, the
        # order of their products says nothing.
        self._active: Any = WeakTensorKeyDictionary()
        self._follower = AttentionFollower()
        self._product = ""
        self._depth = 0
        self._list: list[str] = []
        self._draws = torch.Generator().manual_seed(0)

    def enter(self, path: str, stream: Tensor) -> None:
        """Begin a layer. A stream that cannot be followed any more is a source of its own from here on."""
        if not self.started:
            self._start(path, stream)
        elif stream not in self.parts:
            self.parts[stream] = {len(self.sources): stream.clone()}
            self._active[stream] = False
            self._add_source(path, stream, attends=False, bent=True)

    def _add_source(self, path: str, value: Tensor, *, attends: bool, bent: bool = False) -> None:
        self.sources.append(CarriedSource(path=path, value=value.clone(), attends=attends, bent=bent))

    def _branch(self, path: str) -> str:
        """The part of a layer to which a module belongs, or the layer; empty outside of the layers."""
        names = path.split(".")
        outside = names[: self._depth - 1] != self._list
        return "" if outside or len(names) < self._depth else ".".join(names[: self._depth + 1])

    def _start(self, path: str, entry: Tensor) -> None:
        self.parts[entry] = {0: entry.clone()}
        *self._list, _ = path.split(".")
        self.started, self._depth = True, len(self._list) + 1
        self.sources = [CarriedSource(path="", value=entry.clone(), attends=False)]

    def look_through(self, x: Tensor, y: Tensor) -> None:
        """Take note of a module that maps the stream x to y without parameters' products, such as a norm."""
        if x is y or x not in self.parts or y not in self.parts or x.shape != y.shape:
            return
        # A joint that is a module reads the stream too; it is no norm, since its output has a source more.
        if self.parts[x].keys() - {SHIFT} == self.parts[y].keys() - {SHIFT}:
            self._before[y] = self._before.get(x, (x.detach().clone(), dict(self.parts[x]), self.paths[-1]))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [each for each in tensors((args, list(kwargs.values()))) if each.is_floating_point()]
        carried = [each for each in given if each in self.parts]
        active = any(each in self._active for each in given)
        boundary = func in PRODUCTS and any(each not in self._active for each in given)
        if boundary and active:
            self.products, self._product = self.products + 1, self.paths[-1]
            for each in carried:
                self._read(each)
            carried = []
        if carried and func in _JOINS:
            self._join(func, given)
            carried = [each for each in given if each in self.parts]
        attends = any(self._active.get(each, False) for each in given)
        made = self._applied(func, args, kwargs, carried) if carried else []
        out = func(*args, **kwargs)
        # An assignment returns nothing and changes its first argument.
        results = [args[0]] if func is Tensor.__setitem__ else list(tensors(out))
        for place, result in enumerate(results):
            if not result.is_floating_point():
                continue
            if active or func in _LOOKUPS:
                self._active[result] = attends
            known = {source: parts[place] for source, parts in made if place < len(parts)}
            if SHIFT in known and not bool(known[SHIFT].any()):
                del known[SHIFT]
            if func in _LOOKUPS and not self.started:
                known = {0: result.clone()}
            if any(bool(each.any()) for each in known.values()):
                self.parts[result] = known
                if len(carried) == 1 and result is not carried[0] and result.data_ptr() == carried[0].data_ptr():
                    self._pass_on(carried[0], result)
            elif result in self.parts:
                del self.parts[result]
        count = len(self._follower.attentions)
        self._follower.follow(func, args, kwargs, out, 0)
        rows = [each.query if each.weights is None else each.weights for each in self._follower.attentions[count:]]
        # A mixing of several streams is a softmax too, but not over positions.
        if any(each is not None and each.shape[-2] == self.seq for each in rows):
            self._active.update((result, True) for result in results)
        return out

    def _pass_on(self, x: Tensor, view: Tensor) -> None:
        """Let a view of all entries be what it is a view of."""
        if x.numel() == view.numel():
            self._on_stream[view] = self._on_stream.setdefault(x, [False])
            if x in self._before:
                self._before[view] = self._before[x]

    def _read(self, x: Tensor) -> None:
        if self.started:
            self.reads.append(
                CarriedRead(
                    path=self.paths[-1],
                    sources=len(self.sources),
                    on_stream=self._on_stream.setdefault(x, [False]),
                    value=x.detach().clone(),
                    parts=dict(self.parts[x]),
                    before=self._own_norm(x),
                )
            )

    def _join(self, func: Any, given: list[Tensor]) -> None:
        for each in given:
            if each in self.parts:
                if func in _ADDITIONS:
                    self._on_stream.setdefault(each, [False])[0] = True
            elif each in self._active:
                number = 0
                if self.started:
                    number = len(self.sources)
                    self._add_source(self.paths[-1] or self._product, each, attends=self._active[each])
                self.parts[each], self._active[each] = {number: each.clone()}, False

    def _own_norm(self, x: Tensor) -> tuple[Tensor, Parts] | None:
        """The stream before the norm of a read; None for a norm of the stream, as one at the end of a layer before."""
        value, parts, path = self._before.get(x, (None, None, ""))
        return None if value is None or (self._branch(path) and not self._branch(self.paths[-1])) else (value, parts)

    def _part(self, x: Tensor, number: int) -> Tensor:
        part: Tensor | None = self.parts[x].get(number)
        return torch.zeros_like(x) if part is None else part

    def _applied(self, func: Any, args: Any, kwargs: Any, carried: list[Tensor]) -> list[tuple[int, list[Tensor]]]:
        """Contributions of every source behind a function; nothing if it is not additive."""
        norm = _norm_of(func, args, kwargs)
        numbers = sorted({SHIFT, *(number for each in carried for number in self.parts[each])})

        def apply(value_of: Callable[[Tensor], Tensor]) -> list[Tensor]:
            own = {id(each): value_of(each).clone() for each in carried}
            if norm is not None:
                return [norm(own[id(carried[0])])]
            replaced = tree_map(lambda value: own.get(id(value), value), (args, kwargs))
            out = func(*replaced[0], **replaced[1])
            return [replaced[0][0]] if func is Tensor.__setitem__ else list(tensors(out))

        moves = {
            id(each): torch.randn(each.shape, generator=self._draws, dtype=each.dtype) * each.square().mean().sqrt()
            for each in carried
        }
        try:
            origin = apply(torch.zeros_like)
            if norm is None:
                there, moved = apply(lambda each: each), apply(lambda each: each + moves[id(each)])
                alone = apply(lambda each: moves[id(each)])
                for a, b, c, d in zip(there, moved, alone, origin, strict=True):
                    error = ((b - a) - (c - d)).abs().max() if a.is_floating_point() and a.numel() else 0.0
                    if not float(error) <= ADDITIVE * max(float(b.abs().max()), float(c.abs().max()), 1e-300):
                        return []
            made = []
            for number in numbers:
                of_source = apply(partial(self._part, number=number))
                if number != SHIFT:
                    of_source = [part - zero for part, zero in zip(of_source, origin, strict=True)]
                elif norm is not None and (shift := _shift_of(args, kwargs)) is not None:
                    of_source = [part + shift for part in of_source]
                made.append((number, of_source))
            return made
        except Exception:  # noqa: BLE001 - a function may refuse zeros or random numbers with any exception: not additive
            return []


def _norm_of(func: Any, args: Any, kwargs: Any) -> Callable[[Tensor], Tensor] | None:
    """A norm in one function of torch, with its present scale, as a linear map; None for another function."""
    if func not in (F.layer_norm, torch.layer_norm, F.rms_norm, torch.rms_norm):
        return None
    names = ["input", "normalized_shape", "weight", "bias", "eps"]
    if func in (F.rms_norm, torch.rms_norm):
        names.remove("bias")
    given = dict(zip(names, args, strict=False)) | kwargs
    x, weight = given["input"].double(), given.get("weight")
    dims = tuple(range(-len(given["normalized_shape"]), 0))
    centred = func in (F.layer_norm, torch.layer_norm)
    eps = given.get("eps", 1e-5 if centred else None)
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    size = (x.var(dims, correction=0, keepdim=True) if centred else x.square().mean(dims, keepdim=True)) + eps

    def scaled(part: Tensor) -> Tensor:
        part = part - part.mean(dims, keepdim=True) if centred else part
        return part / size.sqrt() * (1.0 if weight is None else weight)

    return scaled


def _shift_of(args: Any, kwargs: Any) -> Tensor | None:
    """The shift of a norm in one function of torch."""
    bias: Tensor | None = args[3] if len(args) > 3 and isinstance(args[3], Tensor) else kwargs.get("bias")
    return bias


def reads_of(carrier: Carrier) -> Iterator[tuple[CarriedRead, Tensor, Parts]]:
    """Every read with the stream that it reads: before a norm of its own, behind a norm on the stream."""
    for read in carrier.reads:
        if read.before is None or read.on_stream[0]:
            yield read, read.value, read.parts
        else:
            yield read, *read.before
