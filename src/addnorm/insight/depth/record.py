"""The depth matrices of a model as plain values, one per room whose mechanism joins layers."""

from typing import Any

from jaxtyping import Int64
from torch import Tensor

from addnorm.insight.depth.matrix import DepthMatrix, DepthRoom, depth_matrix
from addnorm.model.transformer import Transformer

MATRICES = ("weights", "spread", "shares", "relative")
"""Fields of `DepthMatrix` that are recorded, in six digits."""


def joined_rooms(model: Transformer) -> tuple[DepthRoom, ...]:
    """The rooms whose mechanisms let a layer of this model read others, and whose reads are sums."""
    depth = model.spec.attention_shape.depth
    found: list[DepthRoom] = [] if model.spec.residual.replays else ["residual"]
    if any(model.scores.looks_back(layer) for layer in range(1, depth)):
        found.append("scores")
    if model.values is not None:
        found.append("values")
    if model.column is not None:
        found.append("column")
    return tuple(found)


def depth_matrices(model: Transformer, tokens: Int64[Tensor, "batch seq"]) -> dict[str, Any]:
    """Measure the depth matrices of a model.

    Returns:
        By room: `kind`, `reads`, `sources`, and `weights`, `spread`, `shares`, `relative` as lists of rows; for all but
        the residual also `heads`, the weights per head, if heads differ.
    """
    return {room: _plain(model, room, depth_matrix(model, tokens, room)) for room in joined_rooms(model)}


def _plain(model: Transformer, room: DepthRoom, found: DepthMatrix) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "kind": getattr(model.spec, room).kind,
        "reads": list(found.reads),
        "sources": list(found.sources),
    }
    plain |= {name: _rounded(getattr(found, name)) for name in MATRICES}
    heads = found.by_head
    if heads is not None and bool((heads - heads[..., :1]).abs().max() > 0):
        plain["heads"] = _rounded(heads)
    return plain


def _rounded(values: Tensor) -> Any:
    return [_rounded(row) for row in values] if values.dim() else float(f"{values.item():.6g}")
