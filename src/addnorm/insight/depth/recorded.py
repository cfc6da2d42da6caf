"""The reads of the hidden stream of any decoder or encoder, from one pass: sums over embeddings and branch outputs."""

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from addnorm.anatomy.recording import tensors
from addnorm.errors import InputError
from addnorm.insight.depth.carrying import SHIFT, CarriedRead, CarriedSource, Carrier, reads_of
from addnorm.insight.depth.part import Part
from addnorm.redundancy.execution.copies import copy_of
from addnorm.redundancy.execution.float64 import Float64Mode


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedReads:
    """The reads of one pass."""

    sources: tuple[str, ...]
    """One name per source: `embedding`, `0.attention`, …"""
    parts: tuple[Part, ...]
    shifts: tuple[Tensor, ...]
    """Contribution of parameters and constants to every read, such as shifts of norms on the stream."""


@torch.no_grad()
def recorded_reads(model: nn.Module, tokens: Tensor) -> RecordedReads:
    """Run a copy of a model in float64 and follow its stream.

    Raises:
        InputError: a model without a list of layers, one that cannot be copied or read the tokens, or one whose branches
            read nothing that a stream of sums explains.
    """
    copied = copy_of(model, torch.float64).eval()
    for module in copied.modules():
        config: Any = getattr(module, "config", None)
        if hasattr(config, "_experts_implementation"):
            config._experts_implementation = "eager"  # the grouped product of experts hides which product is which
    with Float64Mode():
        carrier, layers = Carrier(seq=tokens.shape[1]), layer_paths(copied, tokens)
    with ExitStack() as stack:
        for path, module in copied.named_modules():
            _watch(stack, carrier, path, module, is_layer=path in layers)
        stack.enter_context(Float64Mode())
        stack.enter_context(carrier)
        _run(copied, tokens)
    return _reads(carrier, layers, tokens, type(model).__name__)


def layer_paths(model: nn.Module, tokens: Tensor) -> list[str]:
    """Find the paths of the layers: the outermost list of modules of which at least two are called, in order, or one twice, as
    in ALBERT.

    Raises:
        InputError: there is none.
    """
    called: list[str] = []
    with ExitStack() as stack, torch.no_grad():
        for path, module in model.named_modules():
            # Matrices and norms may stand in lists too, as those of a feed-forward branch do; no layer is one of torch's own
            # modules without modules inside.
            plain = type(module).__module__.startswith("torch.nn.") and not any(module.children())
            if path.rpartition(".")[2].isdigit() and not plain:
                stack.callback(module.register_forward_pre_hook(lambda *_, path=path: called.append(path)).remove)
        _run(model, tokens)
    lists: dict[str, list[str]] = defaultdict(list)
    for path in called:
        lists[path.rpartition(".")[0]].append(path)
    several = {parent: list(dict.fromkeys(paths)) for parent, paths in lists.items() if len(paths) > 1}
    if not several:
        raise InputError(
            f"{type(model).__name__}: expected a model with a list of layers that are called one after the other, such as an "
            "nn.ModuleList, got none. Put its layers into one; `addnorm.audit` and `addnorm.symmetries` take any module."
        )
    parent = min(several, key=lambda parent: (parent.count("."), -len(several[parent])))
    return several[parent]


def _run(model: nn.Module, tokens: Tensor) -> None:
    try:
        model(tokens)
    except Exception as error:  # a model of others may refuse tokens with any exception
        raise InputError(
            f"{type(model).__name__}: expected a model that reads token ids {list(tokens.shape)}, got an error: "
            f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]} Wrap the model so that it takes ids [batch, seq]."
        ) from error


def _watch(stack: ExitStack, carrier: Carrier, path: str, module: nn.Module, *, is_layer: bool) -> None:
    counts: list[int] = []

    def begin(_: nn.Module, args: Any, kwargs: Any) -> None:
        given = [each for each in tensors((args, list(kwargs.values()))) if each.is_floating_point()]
        if is_layer and given:
            carrier.enter(path, given[0])
        carrier.paths.append(path)
        counts.append(carrier.products)

    def end(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        carrier.paths.pop()
        given = [each for each in tensors((args, list(kwargs.values()))) if each.is_floating_point()]
        made = tensors(output)
        if counts.pop() == carrier.products and given and made and path:
            carrier.look_through(given[0], made[0])

    stack.callback(module.register_forward_pre_hook(begin, with_kwargs=True).remove)
    stack.callback(module.register_forward_hook(end, with_kwargs=True).remove)


def _reads(carrier: Carrier, layers: Sequence[str], tokens: Tensor, name: str) -> RecordedReads:
    # What is added to the stream aside, for a number that is not read, is no source of a read.
    shape = (*tokens.shape, carrier.sources[0].value.shape[-1])
    # Nor is what joins inside a branch, such as embeddings of values: a read of it has another width, and it reaches the
    # stream through the branch's output alone.
    reads = [each for each in reads_of(carrier) if _is_of(each[1], shape)]
    seen = {number for _, _, of in reads for number in of}
    kept = [number for number in range(len(carrier.sources)) if number in seen or number == 0]
    names = _names([carrier.sources[number] for number in kept], layers)
    parts: list[Part] = []
    shifts: list[Tensor] = []
    last: int | None = None
    for read, value, contributions in reads:
        # Queries, keys and values are products of one read.
        value, zeros = value.reshape(shape), value.new_zeros(shape)
        joined = bisect_left(kept, read.sources)
        if joined == last and torch.equal(value, parts[-1].read):
            continue
        last = joined
        sources = torch.stack([_like(each.value, value) for each in (carrier.sources[number] for number in kept)])
        of_source = torch.stack([contributions.get(number, zeros).reshape(shape) for number in kept])
        shifts.append(contributions.get(SHIFT, zeros).reshape(shape))
        parts.append(
            Part(
                name=_read_name(read, names[joined:], layers),
                read=value,
                contributions=of_source,
                sources=sources,
            )
        )
    if not parts or len(names) < 2:
        raise InputError(
            f"{name}: expected branches that read a stream to which their outputs are added, got none that can be followed. "
            "`addnorm.inspect` measures a model layer by layer without them."
        )
    counts: Counter[str] = Counter()
    unique = []
    for part in parts:
        counts[part.name] += 1
        number = counts[part.name]
        unique.append(part if number == 1 else replace(part, name=f"{part.name}.{number}"))
    return RecordedReads(sources=tuple(names), parts=tuple(unique), shifts=tuple(shifts))


def _is_of(value: Tensor, shape: Sequence[int]) -> bool:
    """True if a value is the stream or a read of it. Coefficients of several streams are products with all of them side by
    side: they choose what is read, and are no branch."""
    return value.shape[-1] == shape[-1] and value.numel() == math.prod(shape)


def _like(source: Tensor, read: Tensor) -> Tensor:
    """A source as a vector of the read's shape: of several streams the mean over them; zeros if it has no such form."""
    while source.dim() > read.dim():
        axes = [axis for axis in range(source.dim()) if (*source.shape[:axis], *source.shape[axis + 1 :]) == read.shape]
        if not axes:
            break
        source = source.mean(axes[0])
    if source.numel() == read.numel():
        return source.reshape(read.shape)
    return (
        source.expand(read.shape) if source.dim() <= read.dim() and _expands(source, read) else torch.zeros_like(read)
    )


def _expands(source: Tensor, read: Tensor) -> bool:
    pairs = zip(reversed(source.shape), reversed(read.shape), strict=False)
    return all(one in (1, other) for one, other in pairs)


def _layer(path: str, layers: Sequence[str]) -> int | None:
    return next((number for number, layer in enumerate(layers) if path == layer or path.startswith(f"{layer}.")), None)


def _names(sources: Sequence[CarriedSource], layers: Sequence[str]) -> list[str]:
    """Names of the sources: of a layer with one alone, `parallel` if it attends."""
    of_layer = Counter(_layer(source.path, layers) for source in sources[1:])
    names, counts = ["embedding"], Counter[str]()
    for source in sources[1:]:
        number = _layer(source.path, layers)
        role = "attention" if source.attends else "feedforward"
        if source.attends and of_layer[number] == 1:
            role = "parallel"
        role = "stream" if source.bent else role
        name = f"{number}.{role}" if number is not None else source.path or "model"
        counts[name] += 1
        names.append(name if counts[name] == 1 else f"{name}.{counts[name]}")
    return names


def _read_name(read: CarriedRead, names: Sequence[str], layers: Sequence[str]) -> str:
    """The branch that reads: that of the first of the following sources, if it is in the same layer."""
    number = _layer(read.path, layers)
    if number is None:
        return "close"
    following = names[0] if names else ""
    return following if following.startswith(f"{number}.") else f"{number}.{read.path.rpartition('.')[2]}"
