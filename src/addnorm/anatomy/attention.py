"""Attention in a recorded pass: the weights that multiply values, and the queries and keys that their scores are products of.

Torch's own attention function has both among its arguments. Where a model computes attention by itself, tensors are followed
from a product of two activations (scores) through a softmax to a second product, with the values. What is kept is the left
factor of that second product, not what the softmax returned: columns that have no value, such as that of a sink, are cut off
between the two.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary

HIDDEN = -5000.0
"""A score at or below this is a mask: classes of Transformers add -10,000 or less, and exp(-5000) is zero in every type."""

_SOFTMAX = {torch.softmax, Tensor.softmax, F.softmax, torch.special.softmax}
_PRODUCTS = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm}
_SUMS_AND_PRODUCTS = {torch.baddbmm, Tensor.baddbmm}
_PROJECTIONS = {F.linear, F.bilinear, torch.mm, Tensor.mm, torch.addmm, Tensor.addmm, F.conv1d, F.conv2d}
"""After these, an entry is no longer that of one head."""
_COMBINATIONS = {
    *(torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__iadd__, Tensor.__radd__),
    *(torch.sub, Tensor.sub, Tensor.sub_, Tensor.__sub__, Tensor.__isub__, Tensor.__rsub__),
}
_SHAPE_NAMES = (
    "view reshape transpose permute flatten unflatten squeeze unsqueeze expand narrow contiguous "
    "swapaxes swapdims movedim chunk split unbind select repeat index_select repeat_interleave expand_as view_as reshape_as"
)
_SHAPES = {
    function
    for name in _SHAPE_NAMES.split()
    for function in (getattr(torch, name, None), getattr(Tensor, name, None))
    if function is not None
} | {Tensor.__getitem__, Tensor.mT.__get__, Tensor.T.__get__}  # type: ignore[attr-defined]
"""Functions that select and rearrange entries, so that they do the same to a mask."""


@dataclass(eq=False, kw_only=True)
class RecordedAttention:
    """One attention: torch's function of queries and keys, or weights that multiply values."""

    at: int
    query: Tensor | None = None
    """[…, query, head_dim]; None where the scores are not one product of two tensors."""
    key: Tensor | None = None
    mask: Tensor | None = None
    causal: bool = False
    scale: float | None = None
    weights: Tensor | None = None
    """[…, query, key], of an attention that the model computes by itself."""
    seen: Tensor | None = None
    """True where a row of `weights` sees a key; None if that could not be followed."""
    combined: bool = False
    """True if outputs of its heads are added to each other, so that the weights of a head are not all that reads a value."""


@dataclass(frozen=True, eq=False)
class _Product:
    query: Tensor | None
    key: Tensor | None


@dataclass(frozen=True, eq=False)
class _Rows:
    """Weights that a softmax returned, or that were made of those."""

    products: tuple[_Product, ...]
    seen: Tensor | None


@dataclass(frozen=True, eq=False)
class _AttentionOrigin:
    """Origin of a tensor: the products, the softmaxes and the attentions that it is computed from."""

    products: tuple[_Product, ...] = ()
    rows: tuple[_Rows, ...] = ()
    attended: tuple[RecordedAttention, ...] = ()


@dataclass(eq=False)
class AttentionFollower:
    """Follows tensors of one pass; `attentions` are those of the pass so far."""

    attentions: list[RecordedAttention] = field(default_factory=list)
    _origins: WeakTensorKeyDictionary = field(default_factory=WeakTensorKeyDictionary)
    # Weak: the scores of all layers of a long text would not fit into memory together.

    def follow(self, func: Any, args: Any, kwargs: Any, out: Any, at: int) -> None:
        """Take note of one call of a function, of all those of the pass in order."""
        if func is F.scaled_dot_product_attention:
            self._keep(_of_torch(at, args, kwargs), out)
        elif func is F.multi_head_attention_forward:
            attended = _of_multi_head(at, args, kwargs)
            if attended is not None:
                self._keep(attended, out[0])
        elif func in _SOFTMAX:
            self._softmax(args, kwargs, out)
        elif func in _PRODUCTS or func in _SUMS_AND_PRODUCTS:
            # baddbmm and its relatives have the summand first: the factors are the last two tensors in either case.
            factors = [tensor for tensor in (*args, *kwargs.values()) if isinstance(tensor, Tensor)]
            self._product(factors[-2], factors[-1], out, at)
        elif func is torch.einsum:
            self._einsum(args, out, at)
        elif func not in _PROJECTIONS:
            self._pass_on(func, args, kwargs, out)

    def _origin(self, tensor: Any) -> _AttentionOrigin:
        origin: _AttentionOrigin = (
            self._origins.get(tensor, _AttentionOrigin()) if isinstance(tensor, Tensor) else _AttentionOrigin()
        )
        return origin

    def _keep(self, attended: RecordedAttention, out: Any) -> None:
        self.attentions.append(attended)
        if isinstance(out, Tensor):
            self._origins[out] = _AttentionOrigin(attended=(attended,))

    def _softmax(self, args: Any, kwargs: Any, out: Any) -> None:
        scores = args[0] if args else kwargs["input"]
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        products = self._origin(scores).products
        # A softmax over the last axis of scores with heads is attention even where the scores are not one product (a
        # bias from positions alone, sums of products); of three axes it may be a router.
        if isinstance(out, Tensor) and dim in (-1, scores.dim() - 1) and (products or scores.dim() > 3):
            self._origins[out] = _AttentionOrigin(rows=(_Rows(products, scores.detach() > HIDDEN),))

    def _product(self, left: Tensor, right: Tensor, out: Any, at: int) -> None:
        if left.dim() < 3 or right.dim() < 3:
            return
        # Weights times values ends the search: what its output becomes is no longer attention of this call.
        if rows := self._origin(left).rows:
            self._keep(_weighing(at, left, rows), out)
        elif rows := self._origin(right).rows:
            # values^T weights^T, as of classes that keep positions last: turned, so that rows are queries again.
            turned = [_Rows(row.products, None if row.seen is None else row.seen.mT) for row in rows]
            self._keep(_weighing(at, right.mT, turned), out)
        elif not isinstance(left, nn.Parameter) and not isinstance(right, nn.Parameter):
            self._origins[out] = _AttentionOrigin(products=(_Product(left, right.mT),))

    def _einsum(self, args: Any, out: Any, at: int) -> None:
        equation, *operands = args
        if not isinstance(equation, str) or "." in equation or "->" not in equation or len(operands) != 2:
            return
        sides, joined = equation.replace(" ", "").split("->")
        letters = sides.split(",")
        for place in (0, 1):
            one, other, own, theirs = operands[place], operands[1 - place], letters[place], letters[1 - place]
            queries = [letter for letter in own if letter in joined and letter not in theirs]
            if rows := self._origin(one).rows:
                keys = [letter for letter in own if letter in theirs and letter not in joined]
                if len(queries) == len(keys) == 1:
                    rest = [letter for letter in own if letter not in (*queries, *keys)]
                    order = [own.index(letter) for letter in (*rest, *queries, *keys)]
                    turned = [
                        _Rows(row.products, None if row.seen is None else row.seen.permute(order)) for row in rows
                    ]
                    self._keep(_weighing(at, one.permute(order), turned), out)
                return
            entries = [letter for letter in own if letter in theirs and letter not in joined]
            if queries == [joined[-2]] and joined[-1] in theirs and joined[-1] not in own and len(entries) == 1:
                batch = joined[:-2]
                whole = all(letter in own and letter in theirs for letter in batch)
                query, key = (
                    (
                        _arranged(one, own, [*batch, joined[-2], *entries]),
                        _arranged(other, theirs, [*batch, joined[-1], *entries]),
                    )
                    if whole
                    else (None, None)
                )
                self._origins[out] = _AttentionOrigin(products=(_Product(query, key),))

    def _pass_on(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        sources = [tensor for tensor in _tensors((args, list(kwargs.values()))) if tensor in self._origins]
        if not sources:
            return
        origins = [self._origin(tensor) for tensor in sources]
        attended = _union(origin.attended for origin in origins)
        if func in _COMBINATIONS and len(sources) == 2 and sources[0].shape == sources[1].shape:
            # Two tensors of one attention are added, as heads in a loop: each head's weights alone no longer say what
            # reads a value.
            for attention in origins[0].attended:
                attention.combined |= attention in origins[1].attended
        products = _union(origin.products for origin in origins)
        for place, made in enumerate(results := _tensors(out)):
            if not made.is_floating_point():
                continue
            rows = tuple(
                _Rows(row.products, _seen(row.seen, source, func, args, kwargs, made, place, len(results)))
                for source, origin in zip(sources, origins, strict=True)
                for row in origin.rows
            )
            kept = products
            # Scores that were transposed after the product have keys where queries were. Their factors are given up rather than
            # named the wrong way round; the weights themselves are still followed.
            if products and func in _SHAPES and not all(_keeps_rows(source, made) for source in sources):
                kept = (_Product(None, None),)
            self._origins[made] = _AttentionOrigin(products=kept, rows=rows, attended=attended)


def _of_torch(at: int, args: Any, kwargs: Any) -> RecordedAttention:
    named = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, strict=False)) | kwargs
    return RecordedAttention(
        at=at,
        query=named["query"],
        key=named["key"],
        mask=named.get("attn_mask"),
        causal=bool(named.get("is_causal")),
        scale=named.get("scale"),
    )


_MULTI_HEAD = inspect.signature(F.multi_head_attention_forward)


@torch.no_grad()
def _of_multi_head(at: int, args: Any, kwargs: Any) -> RecordedAttention | None:
    """The attention of `nn.MultiheadAttention`, whose inner calls a mode does not see; None with keys beside the sequence's.

    Its queries and keys are projected once more. A mode that is active switches the fast path of torch off, and whether
    weights are asked for (`need_weights`) does not matter here.
    """
    of = _MULTI_HEAD.bind(*args, **kwargs)
    of.apply_defaults()
    given = of.arguments
    additions = ("bias_k", "bias_v", "static_k", "static_v")
    if given["add_zero_attn"] or any(given[name] is not None for name in additions):
        return None
    width, heads = given["embed_dim_to_check"], given["num_heads"]
    if given["use_separate_proj_weight"]:
        weights = (given["q_proj_weight"], given["k_proj_weight"])
    else:
        weights = (given["in_proj_weight"][:width], given["in_proj_weight"][width : 2 * width])
    bias = given["in_proj_bias"]
    biases = (None, None) if bias is None else (bias[:width], bias[width : 2 * width])
    query, key = (
        # [seq, batch, width], without the batch for one sequence
        F.linear(x, weight, b).unflatten(-1, (heads, -1)).movedim(0, -2)
        for x, weight, b in zip((given["query"], given["key"]), weights, biases, strict=True)
    )
    mask, padding = given["attn_mask"], given["key_padding_mask"]
    if mask is not None:
        # Of each head of each sequence, or of all. True means hidden here, where torch's other function sees it.
        mask = mask.unflatten(0, (-1, heads)) if mask.dim() == 3 and query.dim() == 4 else mask
        mask = ~mask if mask.dtype == torch.bool else mask
    if padding is not None:
        seen = ~padding if padding.dtype == torch.bool else padding > HIDDEN
        seen = seen.reshape(*seen.shape[:-1], 1, 1, seen.shape[-1])
        if mask is None or mask.dtype == torch.bool:
            mask = seen if mask is None else mask & seen
        else:
            mask = mask.masked_fill(~seen, -torch.inf)
    return RecordedAttention(at=at, query=query, key=key, mask=mask)


def _weighing(at: int, weights: Tensor, rows: Sequence[_Rows]) -> RecordedAttention:
    products = _union(row.products for row in rows)
    # With several products (content and position) no pair of queries and keys gives the scores.
    only = products[0] if len(products) == 1 else _Product(None, None)
    seen: Tensor | None = None
    if all(row.seen is not None and row.seen.shape == weights.shape for row in rows):
        seen = torch.stack([row.seen for row in rows if row.seen is not None]).any(0)
    return RecordedAttention(at=at, query=only.query, key=only.key, weights=weights, seen=seen)


def _arranged(operand: Tensor, letters: str, wanted: Sequence[str]) -> Tensor:
    return operand.permute([letters.index(letter) for letter in wanted])


def _seen(
    seen: Tensor | None, source: Tensor, func: Any, args: Any, kwargs: Any, made: Tensor, place: int, count: int
) -> Tensor | None:
    """The mask of a result, for which the function rearranges the mask as it does the rows."""
    if seen is None:
        return None
    if func in _SHAPES:
        if not args or args[0] is not source:
            return None
        # The mask is put through the same function as the weights: it stays entry by entry theirs for every argument
        # that the function takes.
        rearranged = func(seen, *args[1:], **kwargs)
        return rearranged[place] if count > 1 or not isinstance(rearranged, Tensor) else rearranged
    return seen if made.shape == seen.shape else None


def _keeps_rows(source: Tensor, made: Tensor) -> bool:
    """True if a rearranged tensor has queries and keys in the axes in which its source has them."""
    return made.dim() > 2 and made.stride()[-2:] == source.stride()[-2:]


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for item in value for tensor in _tensors(item)] if isinstance(value, tuple | list) else []


def _union(groups: Any) -> tuple[Any, ...]:
    return tuple({id(item): item for group in groups for item in group}.values())
