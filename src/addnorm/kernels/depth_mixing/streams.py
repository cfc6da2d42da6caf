"""Several streams, mixed and written by a branch, in one pass over them."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.kernels.depth_mixing.two_forms import Gradients, TwoForms, spans

Streams = Float[Tensor, "batch seq streams width"]


def read_streams(
    streams: Streams, pre: Float[Tensor, "*positions streams"]
) -> tuple[Float[Tensor, "batch seq width"], Streams]:
    """Add the streams up with weights, sum_j pre_j X_j; return the sum, and the streams, to be read from here on.

    Args:
        streams: X.
        pre: the weight of every stream, the same for all positions or not.
    """
    read, again = _READ(streams, pre.to(streams.dtype).expand(streams.shape[:-1]))
    return read, again


def write_streams(
    streams: Streams,
    mix: Float[Tensor, "*positions streams streams"] | None,
    post: Float[Tensor, "*positions streams"],
    y: Float[Tensor, "batch seq width"],
) -> Streams:
    """Mix the streams and add the output of a branch to each: sum_j mix_ij X_j + post_i y.

    Args:
        streams: X.
        mix: the weight of source stream j in target stream i, the same for all positions or one matrix each; None for the
            identity.
        post: the weight of the output in every stream, the same for all positions or not.
        y: the output.
    """
    shape = streams.shape[:-1]
    everywhere = None if mix is None else mix.expand(*shape, shape[-1])
    written: Tensor = _WRITE(streams, everywhere, post.expand(shape), y.to(streams.dtype))
    return written


class _Read(TwoForms):
    def plain(self, streams: Tensor, pre: Tensor) -> tuple[Tensor, Tensor]:
        return torch.matmul(pre.unsqueeze(-2), streams).squeeze(-2), streams

    def fast(self, streams: Tensor, pre: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, ...]]:
        return self.plain(streams, pre), ()

    def gradients(
        self, grad: Sequence[Tensor], needed: Sequence[bool], kept: tuple[Tensor, ...], streams: Any, pre: Any
    ) -> Gradients:
        x = streams.reshape(-1, *streams.shape[-2:])
        column, others = pre.reshape(-1, x.shape[1], 1), grad[1].reshape(x.shape)
        row = grad[0].reshape(-1, 1, x.shape[2])
        d_x = torch.empty_like(x, memory_format=torch.contiguous_format) if needed[0] else None
        d_column = x.new_empty(column.shape) if needed[1] else None
        for part in spans(x):
            if d_x is not None:
                torch.baddbmm(others[part], column[part], row[part], out=d_x[part])
            if d_column is not None:
                torch.bmm(x[part], row[part].transpose(1, 2), out=d_column[part])
        return (
            None if d_x is None else d_x.view(streams.shape),
            None if d_column is None else d_column.view(pre.shape),
        )


class _Write(TwoForms):
    def plain(self, streams: Tensor, mix: Tensor | None, post: Tensor, y: Tensor) -> Tensor:
        joined = post.unsqueeze(-1) * y.unsqueeze(-2)
        return streams + joined if mix is None else torch.matmul(mix, streams) + joined

    def fast(self, streams: Tensor, mix: Tensor | None, post: Tensor, y: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        x, weights, column, row = _by_position(streams, mix, post, y)
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        for part in spans(x):
            if weights is None:
                torch.addcmul(x[part], column[part], row[part], out=out[part])
            else:
                torch.bmm(weights[part], x[part], out=out[part]).addcmul_(column[part], row[part])
        return out.view(streams.shape), ()

    def gradients(
        self, grad: Tensor, needed: Sequence[bool], kept: tuple[Tensor, ...], streams: Any, mix: Any, post: Any, y: Any
    ) -> Gradients:
        x, weights, column, row = _by_position(streams, mix, post, y)
        above = grad.reshape(x.shape)
        d_x = torch.empty_like(above) if needed[0] and weights is not None else None
        d_weights = above.new_empty(weights.shape) if needed[1] and weights is not None else None
        d_column, d_row = above.new_empty(column.shape), above.new_empty(row.shape)
        for part in spans(above):
            here = above[part]
            if d_x is not None and weights is not None:
                torch.bmm(weights[part].transpose(1, 2), here, out=d_x[part])
            if d_weights is not None:
                torch.bmm(here, x[part].transpose(1, 2), out=d_weights[part])
            if needed[2]:
                torch.bmm(here, row[part].transpose(1, 2), out=d_column[part])
            if needed[3]:
                torch.bmm(column[part].transpose(1, 2), here, out=d_row[part])
        return (
            (grad if weights is None else None) if d_x is None else d_x.view(streams.shape),
            None if d_weights is None else d_weights.view(mix.shape),
            d_column.view(post.shape) if needed[2] else None,
            d_row.view(y.shape) if needed[3] else None,
        )


def _by_position(streams: Tensor, mix: Any, post: Tensor, y: Tensor) -> tuple[Tensor, Any, Tensor, Tensor]:
    """Streams [position, streams, width], matrices, `post` as columns [position, streams, 1] and `y` as rows."""
    streams_width = streams.shape[-2:]
    weights = None if mix is None else mix.reshape(-1, *mix.shape[-2:]).contiguous()
    return (
        streams.reshape(-1, *streams_width),
        weights,
        post.reshape(-1, streams_width[0], 1),
        y.reshape(-1, 1, streams_width[1]),
    )


_READ = _Read()
_WRITE = _Write()
