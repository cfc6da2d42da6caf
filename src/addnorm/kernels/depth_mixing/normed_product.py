"""Products of RMS-normed vectors with some rows, without the normed vectors: the norm is one number per vector."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.kernels.depth_mixing.two_forms import Gradients, TwoForms, spans


def normed_product(
    x: Float[Tensor, "*positions width"], rows: Float[Tensor, "rows width"], eps: float
) -> Float[Tensor, "*positions rows"]:
    """Multiply every vector, divided by its root mean square, with every row, in float32 at least.

    Args:
        x: the vectors.
        rows: the rows; they take the vectors' dtype.
        eps: added to the mean squares.
    """
    out: Tensor = _NormedProduct(eps)(x, rows.to(x.dtype))
    return out


def normed_product_beside(
    x: Float[Tensor, "*positions width"], rows: Float[Tensor, "rows width"], eps: float
) -> tuple[Float[Tensor, "*positions rows"], Float[Tensor, "*positions width"]]:
    """The same products, and the vectors, to be read from here on: see `Result`."""
    products, again = _NormedProductBeside(eps)(x, rows.to(x.dtype))
    return products, again


class _NormedProduct(TwoForms):
    def __init__(self, eps: float) -> None:
        self.eps = eps

    def plain(self, x: Tensor, rows: Tensor) -> Tensor:
        wide = torch.promote_types(x.dtype, torch.float32)
        reciprocal = torch.rsqrt(x.to(wide).square().mean(dim=-1, keepdim=True) + self.eps)
        return torch.matmul(x, rows.T).to(wide) * reciprocal

    def fast(self, x: Tensor, rows: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        flat = x.reshape(-1, x.shape[-1])
        reciprocal = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
        reciprocal = reciprocal.square_().div_(flat.shape[1]).add_(self.eps).rsqrt_()
        out = torch.mm(flat, rows.T).mul_(reciprocal).view(*x.shape[:-1], len(rows))
        return out, (out, reciprocal)

    def gradients(self, grad: Tensor, needed: Sequence[bool], kept: tuple[Tensor, ...], x: Any, rows: Any) -> Gradients:
        return self.with_others(grad, None, needed, kept, x, rows)

    def with_others(
        self, grad: Tensor, others: Tensor | None, needed: Sequence[bool], kept: tuple[Tensor, ...], x: Any, rows: Any
    ) -> Gradients:
        """Gradients with those that later reads of the vectors have added up."""
        out, reciprocal = kept
        flat = x.reshape(-1, x.shape[-1])
        above = grad.reshape(-1, grad.shape[-1])
        scaled = above * reciprocal
        d_rows = scaled.T @ flat if needed[1] else None
        if not needed[0]:
            return None, d_rows
        # The reciprocal r changes with x by -r³ x / width, and the product is out / r.
        along = (above * out.view(above.shape)).sum(dim=1, keepdim=True).mul_(reciprocal.square()).div_(-flat.shape[1])
        d_x = torch.empty_like(flat)
        before = None if others is None else others.reshape(flat.shape)
        for part in spans(flat):
            if before is None:
                torch.mm(scaled[part], rows, out=d_x[part]).addcmul_(flat[part], along[part])
            else:
                torch.addmm(before[part], scaled[part], rows, out=d_x[part]).addcmul_(flat[part], along[part])
        return d_x.view(x.shape), d_rows


class _NormedProductBeside(TwoForms):
    def __init__(self, eps: float) -> None:
        self.alone = _NormedProduct(eps)

    def plain(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.alone.plain(x, rows), x

    def fast(self, x: Tensor, rows: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, ...]]:
        out, kept = self.alone.fast(x, rows)
        return (out, x), kept

    def gradients(
        self, grad: Sequence[Tensor], needed: Sequence[bool], kept: tuple[Tensor, ...], x: Any, rows: Any
    ) -> Gradients:
        return self.alone.with_others(grad[0], grad[1], needed, kept, x, rows)
