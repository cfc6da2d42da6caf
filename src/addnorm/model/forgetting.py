r"""Forgetting gate: every position may lower the scores of all keys before it, by an amount that depends on its input.

    score_{q,k} <- score_{q,k} + c_q - c_k        c_t = sum_{l <= t} log sigma(w_h . x_l + b_h)

one gate per query head; b starts at forgetting.start. The term is added once, to the summed scores, as biases are.

Why: a decay that the data choose, where ALiBi's is fixed; such models need no position encoding. c_q is common to a row, so
that it changes nothing under a softmax, and a key bias stays redundant.

Without a query x key matrix where a layer's scores are its own: c_q and c_k become further entries of queries and keys, of each
key one for every query head of its group, [Q, c_q / s, 1_h] . [K, 1, -c_k / s] with the weight s of the scores. Narrow types
hold them in three pieces, which add up to the number in float32. Summed or capped scores, and the rows of decoding, take a
matrix instead, which of decoded rows is small.

Source: Lin et al. 2025, "Forgetting Transformer", arXiv:2503.02130, eq. 3 to 5.
Differs from the source: its output gate and norms are the settings `attended: gate` and `qk_norm`; its shift of keys and values
over time is not there.
"""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.errors import InputError
from addnorm.fields import check_fields
from addnorm.kernels.grouped_attention import DistanceBias

__all__ = ["Forgetting", "ForgettingGate", "bias_with_gates", "with_gates"]


@dataclass(frozen=True, kw_only=True)
class Forgetting:
    """A gate per head and position that lowers the scores of earlier keys.

    Raises:
        InputError: a start that is no number.

    Example::

        Forgetting(start=4.0)  # gates of 0.98 at the start
    """

    start: float = 0.0
    """b of every gate at the start; the larger, the less is forgotten."""

    def __post_init__(self) -> None:
        check_fields(self, "forgetting")


class ForgettingGate(nn.Module):
    """The gates of one layer."""

    parameter_roles = {"weight": "hidden_matrix", "bias": "bias"}

    def __init__(self, width: int, heads: int, start: float, *, std: float) -> None:
        super().__init__()
        self.std = std
        self.weight = nn.Parameter(torch.empty(heads, width))
        self.bias = nn.Parameter(torch.full((heads,), start))

    def initialise(self, name: str, generator: torch.Generator) -> None:
        if name == "weight":
            nn.init.normal_(self.weight, std=self.std, generator=generator)

    def forward(self, x: Float[Tensor, "batch seq width"]) -> Float[Tensor, "batch heads seq"]:
        """The logarithm of every gate, in float32 at least."""
        logits = F.linear(x, self.weight, self.bias).transpose(-1, -2)
        return F.logsigmoid(logits.to(torch.promote_types(logits.dtype, torch.float32)))


def with_gates(
    query: Float[Tensor, "batch heads seq head_dim"],
    key: Float[Tensor, "batch kv_heads seq head_dim"],
    total: Float[Tensor, "batch heads seq"],
    scale: float,
) -> tuple[Float[Tensor, "batch heads seq wider"], Float[Tensor, "batch kv_heads seq wider"]]:
    """Queries and keys with further entries, whose product is c_q - c_k after the weight of the scores.

    Args:
        query: queries of all positions.
        key: keys of all positions.
        total: c.
        scale: weight of the scores.
    """
    # c_k belongs to a query head, while a key head serves a group of them. So a key carries the numbers of all heads of
    # its group, and `chosen`, a one in each query, picks those of its own head.
    group = query.shape[1] // key.shape[1]
    own = _pieces(total / scale, query.dtype)  # [batch, heads, seq, pieces]
    of_group = own.unflatten(1, (key.shape[1], group)).permute(0, 1, 3, 2, 4).flatten(-2)  # [.., seq, group * pieces]
    number = own.shape[-1]
    chosen = torch.eye(group, dtype=query.dtype, device=query.device).repeat_interleave(number, 1)
    chosen = chosen.repeat(key.shape[1], 1)[None, :, None].expand(*query.shape[:3], -1)
    ones = key.new_ones(()).expand(*key.shape[:3], number)
    return torch.cat([query, own, chosen], -1), torch.cat([key, ones, -of_group], -1)


def _pieces(numbers: Tensor, dtype: torch.dtype) -> Float[Tensor, "... pieces"]:
    """Numbers of a type that add up to the given ones: one of a wide type, three of a narrow one."""
    if torch.finfo(dtype).bits >= torch.finfo(numbers.dtype).bits:
        return numbers[..., None].to(dtype)
    # Sums over thousands of positions are large and their differences small: in bfloat16 alone c_q - c_k would be
    # rounding. Three pieces of 8 bits keep the 24 of float32.
    first = numbers.to(dtype)
    second = (numbers - first.to(numbers.dtype)).to(dtype)
    third = (numbers - first.to(numbers.dtype) - second.to(numbers.dtype)).to(dtype)
    return torch.stack([first, second, third], -1)


def bias_with_gates(
    bias: DistanceBias | Tensor | None, total: Float[Tensor, "batch heads key"], query: int, dtype: torch.dtype
) -> Float[Tensor, "batch heads query key"]:
    """The bias of the last `query` rows with c_q - c_k added, as a matrix."""
    gates = total[:, :, -query:, None] - total[:, :, None]
    if isinstance(bias, DistanceBias):
        bias = bias.matrix(query, total.shape[-1])
    together = gates if bias is None else gates + bias
    return together if dtype == torch.float64 else together.float()


def require_forgetting(objective: str, attention: str, across_layers: Collection[str]) -> None:
    """Raises:
    InputError: a masked model, or one sum of scores for all layers.
    """
    if objective != "causal":
        raise InputError(
            f"forgetting: expected null with objective {objective!r}, because a gate forgets what lies before its position, "
            "got gates. Set forgetting to null, or objective to 'causal'."
        )
    if attention in across_layers:
        raise InputError(
            f"attention: {attention}: expected forgetting null, because every layer has gates of its own, which would be "
            "summed with the scores of earlier layers, got gates. Use 'auto' or 'streaming'."
        )
