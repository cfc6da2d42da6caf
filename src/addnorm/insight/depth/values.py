"""The reads of the values: what every layer attends to, as a sum over the layers' own values and a table's rows."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._pytree import tree_map

from addnorm.insight.depth.part import Part, forward_mode, tangent_of
from addnorm.model.trace import Trace
from addnorm.model.transformer import Transformer
from addnorm.values import Values


def sources_of(model: Transformer) -> tuple[str, ...]:
    """Names of the layers that attend, and of a table if there is one."""
    layers = range(model.spec.attention_shape.depth)
    token = torch.zeros(1, 1, dtype=torch.int64, device=model.embedding.weight.device)
    has_table = model.values is not None and any(model.values.looked_up(layer, token) is not None for layer in layers)
    return (*map(str, layers), *(["table"] if has_table else []))


def parts(model: Transformer, tokens: Tensor) -> Iterator[Part]:
    """The values of every layer, in order of depth."""
    trace, recorded, columns = Trace(), _Recorded(model.values), len(sources_of(model))
    if model.values is not None:
        model.values = recorded
    try:
        model(tokens, trace=trace)
    finally:
        # Also after an error: the caller's model must not keep the recorder.
        model.values = recorded.values
    if recorded.values is None:
        own = torch.stack([attention.problem.value for attention in trace.attentions]).double()
        for layer in range(len(own)):
            yield _part(layer, own[layer], {layer: (own[layer], own[layer])}, columns)
        return
    values = copy.deepcopy(recorded.values).double().eval()
    values.frozen = True
    for call in recorded.calls:
        given = dict(zip(values.sources(call.layer), call.earlier, strict=True))
        if call.own is not None:
            given[call.layer] = call.own
        join = _join(values, call)
        read = join(given)
        known = {source: (_derivative(join, given, source), value) for source, value in given.items()}
        looked_up = values.looked_up(call.layer, call.tokens)
        if looked_up is not None:
            # A table's row is looked up inside the mechanism and is no argument of `join`, so no derivative reaches it:
            # what the other sources leave is its contribution.
            rest = read - sum(contribution for contribution, _ in known.values())
            known[columns - 1] = rest, looked_up
        yield _part(call.layer, read, known, columns)


@dataclass(frozen=True, kw_only=True, eq=False)
class _JoinArguments:
    """Arguments of one call of `Values.join`."""

    layer: int
    own: Tensor | None
    earlier: Sequence[Tensor]
    x: Tensor
    tokens: Tensor
    projections: Mapping[str, Any]
    """Queries and keys of a mechanism that reads them."""


class _Recorded(Values):
    """A value residual whose calls are recorded."""

    def __init__(self, values: Values | None) -> None:
        super().__init__()
        self.values = values
        self.read = frozenset() if values is None else values.read
        self.reads_keys = values is not None and values.reads_keys  # type: ignore[misc]
        self.calls: list[_JoinArguments] = []

    def sources(self, layer: int) -> tuple[int, ...]:
        assert self.values is not None
        return self.values.sources(layer)

    def join(
        self, layer: int, own: Tensor | None, earlier: Sequence[Tensor], x: Tensor, tokens: Tensor, **projections: Any
    ) -> Tensor:
        assert self.values is not None
        wide = None if own is None else own.double()
        self.calls.append(
            _JoinArguments(
                layer=layer,
                own=wide,
                earlier=[each.double() for each in earlier],
                x=x.double(),
                tokens=tokens,
                projections=tree_map(Tensor.double, projections),
            )
        )
        return self.values.join(layer, own, earlier, x, tokens, **projections)


Join = Callable[[dict[int, Tensor]], Tensor]


def _join(values: Values, call: _JoinArguments) -> Join:
    def join(given: dict[int, Tensor]) -> Tensor:
        earlier = [given[source] for source in values.sources(call.layer)]
        return values.join(call.layer, given.get(call.layer), earlier, call.x, call.tokens, **call.projections)

    return join


def _derivative(join: Join, given: dict[int, Tensor], source: int) -> Tensor:
    with forward_mode():
        return tangent_of(join(given | {source: forward_ad.make_dual(given[source], given[source])}))


def _part(layer: int, read: Tensor, known: dict[int, tuple[Tensor, Tensor]], columns: int) -> Part:
    contributions, sources = (read.new_zeros(columns, *read.shape) for _ in range(2))
    for source, (contribution, value) in known.items():
        contributions[source], sources[source] = contribution, value
    return Part(name=str(layer), read=read, contributions=contributions, sources=sources)
